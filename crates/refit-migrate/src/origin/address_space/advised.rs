//! Calls that the kernel would judge otherwise of frames than of the private memory that they stand for: they are made by the agent, as the
//! kernel would have made them.

use std::io;
use std::ops::Range;

use refit_sys::foreign;

use crate::origin::address_space::{AddressSpace, Former, Mapped, PAGE, within};
use crate::origin::advice::{self, Effect};

/// `PROT_GROWSDOWN`: from where the mapping begins.
const FROM_BEGIN: u64 = libc::PROT_GROWSDOWN as u64;
/// So many ranges can be told of at once (`UIO_MAXIOV`).
const MOST: u64 = 1024;
/// In the place of a descriptor: the calling thread, or its process (`linux/pidfd.h`, Linux 6.14).
const ITSELF: [i32; 2] = [-10_000, -10_001];

impl AddressSpace {
    /// Gives advice; what that returns, if it concerns frames. `None`: the call is to be made as it is.
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
        let mut told = PartialAnswer::default();
        let mut at = pages.start;
        for part in &parts {
            if told.go_on(self.native(at..part.range.start, advice)?)
                && told.go_on(self.advise_frames(part, advice, effect)?)
            {
                at = part.range.end;
            } else {
                return Ok(Some(told.answer()));
            }
        }
        told.go_on(self.native(at..pages.end, advice)?);
        Ok(Some(told.answer()))
    }

    /// The same of one mapping of frames.
    fn advise_frames(&self, part: &Mapped, advice: i32, effect: Effect) -> io::Result<i64> {
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

    /// The call that changes the access from the beginning of a stack on, where the stack has become frames, which do not grow.
    pub(crate) fn of_stack(&self, arguments: &[u64; 6]) -> Option<[u64; 6]> {
        let [at, length, access, ..] = *arguments;
        let pages = advice::pages(at, length)?;
        let stack = self.former.stack(at).filter(|_| access & FROM_BEGIN != 0)?;
        let still = within(self.agent_task, &(pages.start..pages.start + PAGE)).ok()?;
        (!still.is_empty()).then(|| {
            [stack.start, pages.end - stack.start, access & !FROM_BEGIN, arguments[3], 0, 0]
        })
    }

    /// The ranges that a thread gives advice about by `process_madvise`, if that is about its own memory and can be told; else the kernel
    /// does as it finds right.
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

    /// Whether a thread's descriptor is one of its own process.
    fn is_own(&self, thread: u32, descriptor: i32) -> bool {
        let text = std::fs::read_to_string(format!("/proc/{thread}/fdinfo/{descriptor}"));
        let number = text.ok().and_then(|text| {
            let told = text.lines().find_map(|line| line.strip_prefix("Pid:"))?;
            told.trim().parse::<u32>().ok()
        });
        number.is_some_and(|number| refit_tracer::process::process_of(number) == Some(self.process))
    }

    /// Memory of which the program serves the page faults itself from now on is private again: frames are touched where nobody tells the program of it.
    pub(crate) fn range_registered(&self, place: u64) -> Option<Range<u64>> {
        let mut bytes = [0; 16];
        let told = place..place.checked_add(16)?;
        let read = foreign::gather(self.agent_task, &[told], &mut bytes).ok()?;
        let word = |at: usize| bytes[at..at + 8].try_into().map(u64::from_ne_bytes).ok();
        let (start, length) = (word(0)?, word(8)?);
        advice::pages(start, length).filter(|_| read == bytes.len())
    }
}

/// What the kernel has said to parts of a call.
#[derive(Default)]
struct PartialAnswer {
    unmapped: bool,
    error: Option<i64>,
}

impl PartialAnswer {
    /// Whether the kernel would go on behind such an answer.
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
    /// Whether an address was one of a private mapping of a file.
    fn is_of_file(&self, at: u64) -> bool {
        self.at(at).is_some_and(|(_, was)| {
            matches!(was, crate::origin::address_space::vma_attributes::Was::Of(..))
        })
    }

    /// Whether an address was one of a stack.
    pub(super) fn grows(&self, at: u64) -> bool {
        self.stack(at).is_some()
    }

    /// The stack that an address was one of.
    fn stack(&self, at: u64) -> Option<Range<u64>> {
        let (range, was) = self.at(at)?;
        matches!(was, crate::origin::address_space::vma_attributes::Was::Stack).then_some(range)
    }
}
