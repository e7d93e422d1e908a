//! Calls whose result for frames would differ from that for the private memory which the frames
//! replace. The agent makes them such that the result is the same.

use std::io;
use std::ops::Range;

use refit_sys::foreign;

use refit_sys::maps::Mapping;

use crate::frames::within;
use crate::origin::address_space::AddressSpace;
use crate::origin::address_space::vma_attributes::{Former, Was};
use crate::origin::advice::{self, Effect};
use crate::page::PAGE_SIZE;

/// `PROT_GROWSDOWN`: from the start of the mapping on.
const FROM_BEGIN: u64 = libc::PROT_GROWSDOWN as u64;
/// The largest number of ranges in one call (`UIO_MAXIOV`).
const MOST: u64 = 1024;
/// The calling thread, or its process, in the place of a descriptor (`linux/pidfd.h`, Linux 6.14).
const ITSELF: [i32; 2] = [-10_000, -10_001];

impl AddressSpace {
    /// Gives advice. Returns the call's result, or `None` if no frames are concerned and the call
    /// must be made as it is.
    pub(crate) fn advise(&self, arguments: &[u64; 6]) -> io::Result<Option<i64>> {
        let advice = (arguments[2] as u32).cast_signed();
        let effect = advice::effect(advice);
        let Some(pages) = advice::pages(arguments[0], arguments[1]) else { return Ok(None) };
        if effect == Effect::OfMapping {
            return Ok(None);
        }
        let parts = within(self.agent_task, &pages)?;
        if parts.is_empty() {
            return Ok(None);
        }
        let mut answers = PartialAnswer::default();
        let mut at = pages.start;
        for part in &parts {
            if answers.go_on(self.native(at..part.range.start, advice)?)
                && answers.go_on(self.advise_frames(part, advice, effect)?)
            {
                at = part.range.end;
            } else {
                return Ok(Some(answers.answer()));
            }
        }
        answers.go_on(self.native(at..pages.end, advice)?);
        Ok(Some(answers.answer()))
    }

    /// Gives advice about one mapping of frames.
    fn advise_frames(&self, part: &Mapping, advice: i32, effect: Effect) -> io::Result<i64> {
        let refused = |errno: i32| Ok(-i64::from(errno));
        if let Some(errno) = advice::error_of_file(advice)
            && self.former.is_of_file(part.range.start)
        {
            return refused(errno);
        }
        match effect {
            Effect::OfMapping => Ok(0),
            Effect::Refused => refused(libc::EINVAL),
            Effect::Drops(judged_as) => {
                let answer = self.native(part.range.clone(), judged_as)?;
                if answer == 0 {
                    self.show_again(&part.range)?;
                }
                Ok(answer)
            }
        }
    }

    fn native(&self, pages: Range<u64>, advice: i32) -> io::Result<i64> {
        if pages.is_empty() {
            return Ok(0);
        }
        let advice = u64::from(advice.cast_unsigned());
        self.call(libc::SYS_madvise, [pages.start, pages.end - pages.start, advice, 0, 0, 0])
    }

    /// Returns the arguments of a call that changes the access from the start of a stack on, if the
    /// stack has become frames, which do not grow.
    pub(crate) fn of_stack(&self, arguments: &[u64; 6]) -> Option<[u64; 6]> {
        let [at, length, access, ..] = *arguments;
        let pages = advice::pages(at, length)?;
        let stack = self.former.stack(at).filter(|_| access & FROM_BEGIN != 0)?;
        let still = within(self.agent_task, &(pages.start..pages.start + PAGE_SIZE)).ok()?;
        (!still.is_empty()).then(|| {
            [stack.start, pages.end - stack.start, access & !FROM_BEGIN, arguments[3], 0, 0]
        })
    }

    /// Returns the ranges about which a thread gives advice by `process_madvise`, if they are of
    /// its own memory and can be read; otherwise the kernel does as it finds right.
    pub(crate) fn ranges_advised(
        &self,
        thread: u32,
        arguments: &[u64; 6],
    ) -> Option<Vec<[u64; 2]>> {
        let [descriptor, list, count, _, flags, _] = *arguments;
        let descriptor = (descriptor as u32).cast_signed();
        let own = ITSELF.contains(&descriptor) || self.is_own(thread, descriptor);
        if !own || flags as u32 != 0 || count > MOST {
            return None;
        }
        let mut bytes = vec![0; 16 * usize::try_from(count).ok()?];
        let place = list..list.checked_add(bytes.len() as u64)?;
        let read = foreign::gather(self.agent_task, &[place], &mut bytes).ok()?;
        let word = |bytes: &[u8]| bytes.try_into().map(u64::from_ne_bytes).ok();
        let pairs = bytes.chunks_exact(16).map(|pair| Some([word(&pair[..8])?, word(&pair[8..])?]));
        pairs.collect::<Option<Vec<_>>>().filter(|_| read == bytes.len())
    }

    /// Returns whether a thread's descriptor is one of its own process.
    fn is_own(&self, thread: u32, descriptor: i32) -> bool {
        let text = std::fs::read_to_string(format!("/proc/{thread}/fdinfo/{descriptor}"));
        let number = text.ok().and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("Pid:"))?;
            line.trim().parse::<u32>().ok()
        });
        number.is_some_and(|number| refit_tracer::process::process_of(number) == Some(self.process))
    }

    /// Returns a range that the program registers with a userfaultfd. It becomes private memory
    /// again: accesses to frames would be reported to nobody.
    pub(crate) fn range_registered(&self, place: u64) -> Option<Range<u64>> {
        let mut bytes = [0; 16];
        let argument = place..place.checked_add(16)?;
        let read = foreign::gather(self.agent_task, &[argument], &mut bytes).ok()?;
        let word = |at: usize| bytes[at..at + 8].try_into().map(u64::from_ne_bytes).ok();
        let (start, length) = (word(0)?, word(8)?);
        advice::pages(start, length).filter(|_| read == bytes.len())
    }
}

/// The kernel's answers to the parts of a call.
#[derive(Default)]
struct PartialAnswer {
    unmapped: bool,
    error: Option<i64>,
}

impl PartialAnswer {
    /// Notes an answer. Returns whether the kernel would go on behind it.
    fn go_on(&mut self, answer: i64) -> bool {
        match answer {
            0 => {}
            _ if answer == -i64::from(libc::ENOMEM) => self.unmapped = true,
            error => self.error = Some(error),
        }
        self.error.is_none()
    }

    fn answer(&self) -> i64 {
        let unmapped = if self.unmapped { -i64::from(libc::ENOMEM) } else { 0 };
        self.error.unwrap_or(unmapped)
    }
}

impl Former {
    /// Returns whether an address was in a private mapping of a file.
    fn is_of_file(&self, at: u64) -> bool {
        self.at(at).is_some_and(|(_, was)| matches!(was, Was::Of(..)))
    }

    /// Returns whether an address was in a stack.
    pub(super) fn grows(&self, at: u64) -> bool {
        self.stack(at).is_some()
    }

    /// Returns the stack in which an address was.
    fn stack(&self, at: u64) -> Option<Range<u64>> {
        let (range, was) = self.at(at)?;
        matches!(was, Was::Stack).then_some(range)
    }
}
