//! The memory of a group, at its origin: private memory becomes frames that others can map, piece by piece, when they ask.
//!
//! One memfd holds all frames of a group, and a page's offset in it is its address. So neighbours stay one mapping, an address says
//! where its frame is, and no table is needed: what is shared is what the kernel shows as such. A page that is shared is never private
//! again while anybody else may have it mapped.
//!
//! Copy-on-write is broken by that (Katz 2014, §5.7.3): what was private is copied into frames while all threads stand, so that nobody
//! writes to what is being copied.

mod advised;
mod proc_title;
mod robust;
mod shared;
mod vma_attributes;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use refit_messages::InstanceId;
use refit_sys::agent::{Agent, Call};
use refit_sys::foreign::Memory;
use refit_sys::maps::{self, Kind, Mapping as Mapped, Maps};
use refit_sys::pagemap::{Categories, Pagemap, Region, Scan};
use refit_sys::pidfd::Pidfd;
use refit_sys::smaps::Flags;
use refit_sys::trace::{Options, Tracee, find_syscall};
use refit_sys::userfault::Userfault;
use refit_tracer::{Supervisor, TRACE_OPTIONS_WITH_EXIT};
use rustix::fs::SeekFrom;

use crate::dsm::{self, PageHomeHandle};
use crate::fault_injection::{self, Step};
use crate::origin::consistency;
use crate::origin::thread_table::say_again;
use crate::protocol::messages::Mapping;
use crate::quota::Quota;
use crate::syscalls::{OURS, ours};
use shared::Shared;
use vma_attributes::Former;

const PAGE: u64 = 4096;
/// How long all threads may take to stand.
const STOP_ALL_TIMEOUT: Duration = Duration::from_secs(5);
/// How far below what is there a stack is taken to grow, at most.
const STACK: u64 = 64 << 20;
/// How much is copied at once.
const PIECE: usize = 256 << 10;

/// A group's memory.
pub(crate) struct AddressSpace {
    process: u32,
    pub(crate) window: Range<u64>,
    pub(crate) frames: Arc<File>,
    pub(crate) agent: Arc<Agent>,
    /// Its number: `/proc` shows the memory by it, and by a process only until its first thread has ended.
    pub(crate) agent_task: u32,
    maps: Maps,
    /// The number by which the agent knows the frames.
    pub(crate) number: u32,
    pub(crate) supervisor: Arc<Supervisor>,
    /// Who gives its pages, where they move.
    pub(crate) page_home: Option<PageHomeHandle>,
    former: Arc<Former>,
    shared: Shared,
    quota: Arc<Quota>,
}

/// The name of the frames' memfd.
pub(crate) const NAME: &std::ffi::CStr = c"refit-frames";

impl AddressSpace {
    pub(crate) fn new(
        process: u32,
        window: Range<u64>,
        frames: File,
        ((agent, agent_task), number): ((Agent, u32), u32),
        (supervisor, quota): (Arc<Supervisor>, Arc<Quota>),
    ) -> io::Result<Self> {
        let (frames, agent, former) = (Arc::new(frames), Arc::new(agent), Arc::new(Former::new()));
        let (page_home, maps) = (None, Maps::open(agent_task)?);
        quota.count(&frames);
        Ok(Self {
            process,
            window,
            frames,
            agent,
            agent_task,
            maps,
            number,
            supervisor,
            page_home,
            former,
            shared: Shared::default(),
            quota,
        })
    }

    /// What is at an address; private memory becomes frames, and whether any just has.
    ///
    /// # Errors
    /// What the system says; the instance has no memory left for the frames ([`io::ErrorKind::QuotaExceeded`]).
    pub(crate) fn at(&mut self, address: u64) -> io::Result<(Mapping, bool)> {
        let found = self.find(address);
        if let Ok((Mapping::Frames { range, .. }, _)) = &found {
            self.shared.note(range);
        }
        found
    }

    fn find(&self, address: u64) -> io::Result<(Mapping, bool)> {
        let no = |mapping| Ok((mapping, false));
        let found = self.maps.from(address)?.and_then(|next| find(next, address));
        let Some((mut mapping, grows)) = found else { return no(Mapping::Nothing) };
        let inside = self.window.contains(&mapping.range.start);
        if inside || !(mapping.readable || mapping.writable || mapping.executable) {
            return no(Mapping::Nothing);
        }
        if frames(&mapping) {
            let (access, range) = (access(&mapping), mapping.range);
            return no(Mapping::Frames { range, access });
        }
        match mapping.kind() {
            Kind::KernelCode | Kind::KernelData | Kind::Other => return no(Mapping::Nothing),
            // Files stay where they are: other hosts do not have them.
            _ if mapping.shared && self.page_home.is_some() => return no(Mapping::Nothing),
            _ if mapping.shared => return no(self.file(&mapping)),
            _ if self.page_home.is_some() => {}
            _ if of_file(&mapping) && !mapping.writable && !self.written(&mapping.range)? => {
                return no(self.file(&mapping));
            }
            _ => {}
        }
        let advice = self.former.advice(self.agent_task, mapping.range.start)?;
        // What the kernel may drop, and what the program serves itself, is touched here.
        if [*b"dp", *b"um", *b"uw", *b"ui"].iter().any(|flag| advice.has(*flag)) {
            return no(Mapping::Nothing);
        }
        if grows || advice.has(*b"gd") {
            mapping.range.start = stack_begin(&maps::of(self.agent_task)?, &mapping.range);
        }
        let (range, access) = (mapping.range.clone(), access(&mapping));
        self.share(mapping)?;
        Ok((Mapping::Frames { range, access }, true))
    }

    fn file(&self, mapping: &Mapped) -> Mapping {
        let Range { start, end } = mapping.range;
        Mapping::File {
            range: start..end,
            access: access(mapping),
            offset: mapping.offset,
            shared: mapping.shared,
            path: format!("/proc/{}/map_files/{start:x}-{end:x}", self.agent_task),
        }
    }

    /// Whether any page of a private mapping of a file is not the file's.
    fn written(&self, range: &Range<u64>) -> io::Result<bool> {
        let scan = Scan {
            any: Categories::PRESENT | Categories::SWAPPED,
            none: Categories::FILE,
            most: 1,
            ..Scan::default()
        };
        Ok(!scan_all(&Pagemap::of(self.agent_task)?, range, &scan)?.is_empty())
    }

    /// Whether there is memory for the frames that are needed at once for what is at an address to be elsewhere.
    pub(crate) fn permits(&self, address: u64) -> io::Result<()> {
        if self.quota.owned().is_none() {
            return Ok(());
        }
        let found = self.maps.from(address)?.and_then(|next| find(next, address));
        match found {
            Some((mapping, _)) if !mapping.shared && !of_file(&mapping) => {
                Ok(self.quota.permits(held(self.agent_task, &mapping)?)?)
            }
            _ => Ok(()),
        }
    }

    /// Makes a private mapping frames, if there is memory for them.
    fn share(&self, mapping: Mapped) -> io::Result<()> {
        fault_injection::reach(Step::Convert)?;
        self.quota.add(|| held(self.agent_task, &mapping), || self.convert(mapping.clone()))
    }

    fn convert(&self, mapping: Mapped) -> io::Result<()> {
        let (process, number) = (self.agent_task, self.number);
        let (agent, frames) = (Arc::clone(&self.agent), Arc::clone(&self.frames));
        let (former, beside) = (Arc::clone(&self.former), self.window.end);
        // What was there once, under the same addresses, is not there any more.
        self.drop_frames(&mapping.range)?;
        let page_home = self.page_home.clone();
        self.supervisor.still(self.process, STOP_ALL_TIMEOUT, move || {
            let advice = former.advice(process, mapping.range.end - PAGE)?;
            let file = crate::origin::address_space::file(process, &mapping);
            fill(process, &mapping, &frames)?;
            proc_title::keep(process, &mapping, &agent, beside)?;
            let Range { start, end } = mapping.range;
            let kind = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE;
            let kind = u64::from(kind.cast_unsigned());
            let arguments =
                [start, end - start, access(&mapping).into(), kind, number.into(), start];
            let arguments = ours(libc::SYS_mmap, arguments);
            one(&agent, Call { number: libc::SYS_mmap, arguments })?;
            former.note(&mapping, file, &advice);
            advise(&agent, &mapping.range, &advice)?;
            page_home.map_or(Ok(()), |page_home| page_home.watch(&(start..end)))
        })?
    }

    /// Has all frames served from now on, by what `begin` makes of the program's userfaultfd. Nobody else may have any of them mapped.
    pub(crate) fn begin_moving(
        &mut self,
        begin: impl FnOnce(Arc<File>, Userfault) -> io::Result<PageHomeHandle>,
    ) -> io::Result<()> {
        let (process, agent) = (self.process, self.agent_task);
        // Not by a thread of the program: it may stand in a call.
        let number = self.call(libc::SYS_userfaultfd, dsm::OPEN)?;
        let number =
            u32::try_from(number).map_err(|_| io::Error::from_raw_os_error(-(number as i32)))?;
        let userfault = Pidfd::open(self.agent_task).and_then(|task| task.get_fd(number));
        self.call(libc::SYS_close, [number.into(), 0, 0, 0, 0, 0])?;
        let userfault = dsm::agree(userfault?)?;
        let page_home = begin(Arc::clone(&self.frames), userfault)?;
        let serves = page_home.clone();
        let watch = move || {
            let all = within(agent, &(0..u64::MAX))?;
            all.iter().try_for_each(|mapping| serves.watch(&mapping.range))
        };
        let watched = self.supervisor.still(process, STOP_ALL_TIMEOUT, watch).flatten();
        match watched {
            Ok(()) => self.page_home = Some(page_home),
            Err(error) => {
                page_home.close();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Does `work` while all threads of a process stand, and all that is in a range is here.
    fn still_here<R: Send + 'static>(
        &self,
        range: Range<u64>,
        work: impl FnOnce() -> io::Result<R> + Send + 'static,
    ) -> io::Result<R> {
        let page_home = self.page_home.clone();
        let work = move || match page_home {
            Some(page_home) => page_home.gather(range, work).flatten(),
            None => work(),
        };
        self.supervisor.still(self.process, STOP_ALL_TIMEOUT, work).flatten()
    }

    /// Makes the frames in a range private memory again. Nobody else may have any of them mapped.
    pub(crate) fn keep(&self, range: &Range<u64>) -> io::Result<()> {
        let process = self.agent_task;
        let (agent, file) = (Arc::clone(&self.agent), Arc::clone(&self.frames));
        let (whole, former) = (range.clone(), Arc::clone(&self.former));
        self.still_here(range.clone(), move || {
            for mapping in within(process, &whole)? {
                let advice = former.advice(process, mapping.range.start)?;
                one(&agent, private(&mapping, former.grows(mapping.range.start)))?;
                empty(process, &mapping, &file)?;
                advise(&agent, &mapping.range, &advice)?;
                refit_sys::memfd::punch(file.as_fd(), mapping.range)?;
            }
            Ok(())
        })
    }

    /// Gives a child its own copy of all frames, while nobody writes to them, and tells it its number in a `word`. It stands, kept, in its
    /// first stop.
    pub(crate) fn copy_for(&self, child: u32, word: Option<u64>) -> io::Result<()> {
        let (file, former) = (Arc::clone(&self.frames), Arc::clone(&self.former));
        let parent = self.agent_task;
        let limited = self.supervisor.limits_itself(child);
        self.still_here(0..refit_tracer::placement::TOP, move || {
            let mapped = within(child, &(0..u64::MAX))?;
            let memory = Memory::of(child)?;
            let instruction = find_syscall(&memory, &maps::of(child)?)
                .ok_or_else(|| io::Error::other("its code has no system call"))?;
            let mut held = Tracee::of(child);
            // A filter that it has from its parent may forbid, or kill for, what only refit does
            // here. Where the kernel does not let us, it is asked.
            let unasked = limited
                && held
                    .set_options(TRACE_OPTIONS_WITH_EXIT.union(Options::SUSPEND_SECCOMP))
                    .is_ok();
            let done = mapped.into_iter().try_for_each(|mapping| {
                let start = mapping.range.start;
                let Call { number, arguments } = private(&mapping, former.grows(start));
                held.call(instruction, number, arguments)?;
                empty(child, &mapping, &file)?;
                // Locks are not for children.
                for Call { number, arguments } in
                    advice_calls(&mapping.range, &former.advice(parent, start)?)
                        .into_iter()
                        .filter(|call| call.number == libc::SYS_madvise)
                {
                    // Nothing that a program would see stands in the way.
                    let _ = held.call(instruction, number, arguments);
                }
                for Range { start, end } in former.wiped(&mapping.range) {
                    // As its own children are to get zeros there, too.
                    for advice in [libc::MADV_DONTNEED, libc::MADV_WIPEONFORK] {
                        let arguments = [start, end - start, advice as u64, 0, 0, OURS];
                        held.call(instruction, libc::SYS_madvise, arguments)?;
                    }
                }
                Ok(())
            });
            let told = word.map_or(Ok(()), |word| {
                let number = refit_sys::process::number_within(child)?;
                // The kernel does not say either whether that could be done.
                let _ = memory.write(word, &number.to_ne_bytes());
                say_again(&held)
            });
            if unasked {
                // Killed meanwhile, if not.
                let _ = held.set_options(TRACE_OPTIONS_WITH_EXIT);
            }
            held.leave();
            done.and(told)
        })
    }

    /// Frames in a range are not needed any more, or are to be zeros.
    pub(crate) fn drop_frames(&self, range: &Range<u64>) -> io::Result<()> {
        let whole = range.start / PAGE * PAGE..range.end.min(refit_tracer::placement::TOP);
        if whole.is_empty() {
            return Ok(());
        }
        if let Some(page_home) = &self.page_home {
            page_home.discard(vec![whole.clone()])?;
        }
        refit_sys::memfd::punch(self.frames.as_fd(), whole)
    }

    /// The kernel clears a word when a thread ends, and wakes who waits for that; not, where the word's page is elsewhere.
    pub(crate) fn clear(&self, word: u64, thread: u32) -> io::Result<()> {
        let Some(page_home) = &self.page_home else { return Ok(()) };
        let frames = Arc::clone(&self.frames);
        let page = word / PAGE * PAGE;
        let still_there = page_home.gather(page..page + PAGE, move || {
            let mut value = [0; 4];
            frames.read_exact_at(&mut value, word)?;
            let there = u32::from_ne_bytes(value) == thread;
            if there {
                frames.write_all_at(&[0; 4], word)?;
            }
            io::Result::Ok(there)
        })??;
        if still_there {
            let wake = libc::FUTEX_WAKE.cast_unsigned().into();
            self.call(libc::SYS_futex, [word, wake, i32::MAX as u64, 0, 0, 0])?;
        }
        Ok(())
    }

    /// Memory in a range is dropped: its frames show what they would if they were not.
    pub(crate) fn show_again(&self, range: &Range<u64>) -> io::Result<()> {
        let parts = within(self.agent_task, range)?;
        parts.iter().try_for_each(|part| match &self.page_home {
            None => self.former.show_again(&self.frames, &part.range),
            Some(page_home) => {
                page_home.discard(vec![part.range.clone()])?;
                let show = || self.former.show_again(&self.frames, &part.range);
                page_home.gather(part.range.clone(), show).flatten()
            }
        })
    }

    /// What replicas on this host have that is not here, if anything.
    pub(crate) fn violation(&self, replicas: &BTreeMap<InstanceId, u32>) -> Option<String> {
        let (origin, window) = (self.agent_task, &self.window);
        let moves = self.page_home.is_some();
        consistency::Memory { origin, replicas, window, moves }.violation()
    }

    /// Somebody gives advice about memory that is not frames yet.
    pub(crate) fn is_advised(&self) {
        self.former.is_advised();
    }

    /// The parts of a range that are frames.
    pub(crate) fn frames_in(&self, range: &Range<u64>) -> io::Result<Vec<Range<u64>>> {
        Ok(within(self.agent_task, range)?.into_iter().map(|mapping| mapping.range).collect())
    }

    /// Has the agent make a call.
    pub(crate) fn call(&self, number: i64, arguments: [u64; 6]) -> io::Result<i64> {
        let arguments = ours(number, arguments);
        let answers = self.agent.make(&[Call { number, arguments }], &mut [])?;
        Ok(answers.first().copied().unwrap_or(-i64::from(libc::EIO)))
    }
}

fn one(agent: &Agent, call: Call) -> io::Result<()> {
    match agent.make(&[call], &mut [])?.first() {
        Some(error @ ..0) => Err(io::Error::from_raw_os_error(-(*error as i32))),
        _ => Ok(()),
    }
}

/// Gives what is in a mapping's place the advice that it had. What stands in the way is nothing that a program would see.
fn advise(agent: &Agent, range: &Range<u64>, advice: &Flags) -> io::Result<()> {
    let calls = advice_calls(range, advice);
    if calls.is_empty() { Ok(()) } else { agent.make(&calls, &mut []).map(drop) }
}

/// The calls that do.
fn advice_calls(range: &Range<u64>, advice: &Flags) -> Vec<Call> {
    const ALL: [([u8; 2], i32); 4] = [
        (*b"dc", libc::MADV_DONTFORK),
        (*b"dd", libc::MADV_DONTDUMP),
        (*b"nh", libc::MADV_NOHUGEPAGE),
        (*b"hg", libc::MADV_HUGEPAGE),
    ];
    let Range { start, end } = *range;
    let given = ALL.into_iter().filter(|(flag, _)| advice.has(*flag)).map(|(_, one)| Call {
        number: libc::SYS_madvise,
        arguments: [start, end - start, u64::from(one.cast_unsigned()), 0, 0, OURS],
    });
    let locked = advice
        .has(*b"lo")
        .then_some(Call { number: libc::SYS_mlock, arguments: [start, end - start, 0, 0, 0, 0] });
    given.chain(locked).collect()
}

/// The file of a private mapping.
fn file(process: u32, mapping: &Mapped) -> Option<File> {
    let Range { start, end } = mapping.range;
    let path = || format!("/proc/{process}/map_files/{start:x}-{end:x}");
    of_file(mapping).then(|| File::open(path()).ok()).flatten()
}

/// The call that puts empty private memory in the place of a mapping, which `grows` as a stack does.
fn private(mapping: &Mapped, grows: bool) -> Call {
    let Range { start, end } = mapping.range;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    let kind = kind | if grows { libc::MAP_GROWSDOWN } else { 0 };
    let kind = u64::from(kind.cast_unsigned());
    let arguments = [start, end - start, access(mapping).into(), kind, u64::MAX, 0];
    Call { number: libc::SYS_mmap, arguments: ours(libc::SYS_mmap, arguments) }
}

/// What is at an address or the next behind it, if it is the mapping of that; and whether it is a stack that would grow to it.
fn find(mapping: Mapped, address: u64) -> Option<(Mapped, bool)> {
    let stack = mapping.kind() == Kind::Stack;
    let near = mapping.range.start.saturating_sub(STACK) <= address;
    (mapping.range.contains(&address) || stack && near).then_some((mapping, stack))
}

/// Where a stack is to begin that cannot grow any more: as far down as it may, and a gap from what is below.
fn stack_begin(mappings: &[Mapped], stack: &Range<u64>) -> u64 {
    /// As the kernel keeps (`stack_guard_gap`).
    const GAP: u64 = 256 * PAGE;
    let below = mappings.iter().map(|mapping| mapping.range.end).filter(|&end| end <= stack.start);
    let free = below.max().unwrap_or(0) + GAP;
    free.max(stack.end.saturating_sub(8 << 20)).min(stack.start)
}

/// Whether pages that nobody has touched yet are those of a file.
fn of_file(mapping: &Mapped) -> bool {
    let (_, inode) = mapping.file;
    inode != 0
}

/// Whether a mapping is frames, where they belong.
pub(crate) fn frames(mapping: &Mapped) -> bool {
    mapping.shared
        && mapping.kind() == Kind::Memfd
        && mapping.name.as_os_str() == "/memfd:refit-frames"
        && mapping.offset == mapping.range.start
}

/// The parts of a range of a process that are frames.
fn within(process: u32, range: &Range<u64>) -> io::Result<Vec<Mapped>> {
    let cut = |mut mapping: Mapped| {
        mapping.range.start = mapping.range.start.max(range.start);
        mapping.range.end = mapping.range.end.min(range.end);
        mapping
    };
    let all = maps::of(process)?.into_iter().filter(frames).map(cut);
    Ok(all.filter(|mapping| !mapping.range.is_empty()).collect())
}

/// What may be done with a mapping (`PROT_*`).
fn access(mapping: &Mapped) -> u32 {
    let one = |may: bool, bit: i32| if may { bit.cast_unsigned() } else { 0 };
    one(mapping.readable, libc::PROT_READ)
        | one(mapping.writable, libc::PROT_WRITE)
        | one(mapping.executable, libc::PROT_EXEC)
}

/// What a process has in a private mapping: of a file all that is there; else only what was touched.
fn pieces(process: u32, mapping: &Mapped) -> io::Result<Vec<Range<u64>>> {
    if of_file(mapping) {
        return Ok(vec![mapping.range.clone()]);
    }
    let any = Categories::PRESENT | Categories::SWAPPED;
    let scan = Scan { any, none: Categories::ZERO, ..Scan::default() };
    let found = scan_all(&Pagemap::of(process)?, &mapping.range, &scan)?;
    Ok(found.into_iter().map(|region| region.range).collect())
}

/// How many bytes these are.
fn held(process: u32, mapping: &Mapped) -> io::Result<u64> {
    Ok(pieces(process, mapping)?.into_iter().map(|piece| piece.end - piece.start).sum())
}

/// Copies what a process has in a private mapping into its frames.
fn fill(process: u32, mapping: &Mapped, frames: &File) -> io::Result<()> {
    let memory = Memory::of(process)?;
    let mut bytes = vec![0; PIECE];
    for piece in pieces(process, mapping)? {
        let mut at = piece.start;
        while at < piece.end {
            let length = (piece.end - at).min(PIECE as u64) as usize;
            let part = &mut bytes[..length];
            if memory.read(at, part).is_ok() {
                frames.write_all_at(part, at)?;
            } else {
                // Behind the end of a file: what is there.
                for page in (at..at + length as u64).step_by(PAGE as usize) {
                    let part = &mut bytes[..PAGE as usize];
                    if memory.read(page, part).is_ok() {
                        frames.write_all_at(part, page)?;
                    }
                }
            }
            at += length as u64;
        }
    }
    Ok(())
}

/// Copies frames into the private memory that a process has in their place.
fn empty(process: u32, mapping: &Mapped, frames: &File) -> io::Result<()> {
    let memory = Memory::of(process)?;
    let mut bytes = vec![0; PIECE];
    let mut at = mapping.range.start;
    while at < mapping.range.end {
        // `ENXIO`: nothing more.
        let Ok(begin) = rustix::fs::seek(frames, SeekFrom::Data(at)) else { break };
        if begin >= mapping.range.end {
            break;
        }
        let end = rustix::fs::seek(frames, SeekFrom::Hole(begin))?.min(mapping.range.end);
        at = begin;
        while at < end {
            let part = &mut bytes[..(end - at).min(PIECE as u64) as usize];
            frames.read_exact_at(part, at)?;
            memory.write(at, part)?;
            at += part.len() as u64;
        }
    }
    Ok(())
}

fn scan_all(pagemap: &Pagemap, range: &Range<u64>, scan: &Scan) -> io::Result<Vec<Region>> {
    let mut found = Vec::new();
    let mut at = range.start;
    while at < range.end {
        at = pagemap.scan(at..range.end, scan, &mut found)?;
        if scan.most > 0 && !found.is_empty() {
            break;
        }
    }
    Ok(found)
}
