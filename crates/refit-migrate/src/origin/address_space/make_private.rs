//! Turns frames into private memory again: of the program itself, or as the copy of a child.

use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;

use refit_sys::agent::Call;
use refit_sys::foreign::Memory;
use refit_sys::maps::{self, Mapping};
use refit_sys::trace::{Options, Tracee, find_syscall};
use refit_tracer::TRACE_OPTIONS_WITH_EXIT;

use crate::frames::{access, within};
use crate::origin::address_space::AddressSpace;
use crate::origin::address_space::contents::empty;
use crate::origin::address_space::convert::{advice_calls, advise, one};
use crate::origin::fork_flags;
use crate::syscalls::{OURS, ours};

impl AddressSpace {
    /// Turns the frames in a range into private memory again. No other node may have any of them
    /// mapped.
    pub(crate) fn make_private(&self, range: &Range<u64>) -> io::Result<()> {
        let process = self.agent_task;
        let (agent, file) = (Arc::clone(&self.agent), Arc::clone(&self.frames));
        let (whole, former) = (range.clone(), Arc::clone(&self.former));
        self.with_all_here(range.clone(), move || {
            for mapping in within(process, &whole)? {
                let advice = former.advice(process, mapping.range.start)?;
                one(&agent, private_mapping(&mapping, former.grows(mapping.range.start)))?;
                empty(process, &mapping, &file)?;
                advise(&agent, &mapping.range, &advice)?;
                refit_sys::memfd::punch(file.as_fd(), mapping.range)?;
            }
            Ok(())
        })
    }

    /// Gives a child its own copy of all frames, while no thread writes to them, and writes the
    /// child's number to `word`. The child is kept, in its first stop.
    pub(crate) fn copy_for(&self, child: u32, word: Option<u64>) -> io::Result<()> {
        let (file, former) = (Arc::clone(&self.frames), Arc::clone(&self.former));
        let parent = self.agent_task;
        let limited = self.supervisor.limits_itself(child);
        self.with_all_here(0..refit_tracer::placement::TOP, move || {
            let mapped = within(child, &(0..u64::MAX))?;
            let memory = Memory::of(child)?;
            let instruction = find_syscall(&memory, &maps::of(child)?)?;
            let mut tracee = Tracee::of(child);
            // A filter that it has from its parent may forbid what only refit does here, or kill it
            // for that. If the kernel cannot suspend the filter, the filter is asked.
            let suspended = limited
                && tracee
                    .set_options(TRACE_OPTIONS_WITH_EXIT.union(Options::SUSPEND_SECCOMP))
                    .is_ok();
            let done = mapped.into_iter().try_for_each(|mapping| {
                let start = mapping.range.start;
                let Call { number, arguments } = private_mapping(&mapping, former.grows(start));
                tracee.call(instruction, number, arguments)?;
                empty(child, &mapping, &file)?;
                // Children do not inherit locks.
                for Call { number, arguments } in
                    advice_calls(&mapping.range, &former.advice(parent, start)?)
                        .into_iter()
                        .filter(|call| call.number == libc::SYS_madvise)
                {
                    // A failure is nothing that the program could see.
                    let _ = tracee.call(instruction, number, arguments);
                }
                for Range { start, end } in former.wiped(&mapping.range) {
                    // The child's own children must get zeros there, too.
                    for advice in [libc::MADV_DONTNEED, libc::MADV_WIPEONFORK] {
                        let arguments = [start, end - start, advice as u64, 0, 0, OURS];
                        tracee.call(instruction, libc::SYS_madvise, arguments)?;
                    }
                }
                Ok(())
            });
            let written = word.map_or(Ok(()), |word| {
                let number = refit_sys::process::number_within(child)?;
                // The kernel does not report a failure of this either.
                let _ = memory.write(word, &number.to_ne_bytes());
                fork_flags::restore_flag(&tracee)
            });
            if suspended {
                // This fails only if the child was killed meanwhile.
                let _ = tracee.set_options(TRACE_OPTIONS_WITH_EXIT);
            }
            tracee.leave();
            done.and(written)
        })
    }
}

/// Returns the call that replaces a mapping by empty private memory, which `grows` as a stack does.
fn private_mapping(mapping: &Mapping, grows: bool) -> Call {
    let Range { start, end } = mapping.range;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    let kind = kind | if grows { libc::MAP_GROWSDOWN } else { 0 };
    let kind = u64::from(kind.cast_unsigned());
    let arguments = [start, end - start, access(mapping).into(), kind, u64::MAX, 0];
    Call { number: libc::SYS_mmap, arguments: ours(libc::SYS_mmap, arguments) }
}
