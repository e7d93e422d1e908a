//! Turns private memory into frames.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use refit_sys::agent::{Agent, Call};
use refit_sys::maps::Mapping;
use refit_sys::smaps::Flags;

use crate::fault_injection::{self, Step};
use crate::frames::access;
use crate::origin::address_space::contents::{fill, is_of_file, resident_bytes};
use crate::origin::address_space::{AddressSpace, STOP_ALL_TIMEOUT, proc_title};
use crate::page::PAGE_SIZE;
use crate::syscalls::{OURS, ours};

impl AddressSpace {
    /// Turns a private mapping into frames, if there is memory for them.
    pub(super) fn share(&self, mapping: Mapping) -> io::Result<()> {
        fault_injection::reach(Step::Convert)?;
        self.quota
            .add(|| resident_bytes(self.agent_task, &mapping), || self.convert(mapping.clone()))
    }

    fn convert(&self, mapping: Mapping) -> io::Result<()> {
        let (process, number) = (self.agent_task, self.number);
        let (agent, frames) = (Arc::clone(&self.agent), Arc::clone(&self.frames));
        let (former, beside) = (Arc::clone(&self.former), self.window.end);
        // The frames of an earlier mapping at the same addresses are not used any more.
        self.drop_frames(&mapping.range)?;
        let page_home = self.page_home.clone();
        self.supervisor.while_stopped(self.process, STOP_ALL_TIMEOUT, move || {
            let advice = former.advice(process, mapping.range.end - PAGE_SIZE)?;
            let file = open_file(process, &mapping);
            fill(process, &mapping, &frames)?;
            proc_title::keep_visible(process, &mapping, &agent, beside)?;
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
}

pub(super) fn one(agent: &Agent, call: Call) -> io::Result<()> {
    match agent.make(&[call], &mut [])?.first() {
        Some(error @ ..0) => Err(io::Error::from_raw_os_error(-(*error as i32))),
        _ => Ok(()),
    }
}

/// Gives a mapping the advice that its predecessor had. A failure is nothing that the program could
/// see.
pub(super) fn advise(agent: &Agent, range: &Range<u64>, advice: &Flags) -> io::Result<()> {
    let calls = advice_calls(range, advice);
    if calls.is_empty() { Ok(()) } else { agent.make(&calls, &mut []).map(drop) }
}

/// Returns the calls that give this advice.
pub(super) fn advice_calls(range: &Range<u64>, advice: &Flags) -> Vec<Call> {
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

/// Opens the file of a private mapping.
fn open_file(process: u32, mapping: &Mapping) -> Option<File> {
    let Range { start, end } = mapping.range;
    let path = || format!("/proc/{process}/map_files/{start:x}-{end:x}");
    is_of_file(mapping).then(|| File::open(path()).ok()).flatten()
}
