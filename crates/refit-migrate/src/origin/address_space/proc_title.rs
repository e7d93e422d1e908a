//! The arguments and the environment of a process as others see them (`/proc/PID/cmdline`,
//! `environ`). The kernel shows none that are in frames, so refit makes it show a copy. Later
//! writes of the program to them are not visible there.

use std::io;
use std::ops::Range;

use refit_sys::agent::{Agent, Call};
use refit_sys::foreign::Memory;
use refit_sys::layout::Layout;
use refit_sys::maps::Mapping;

use crate::page::PAGE_SIZE;
use crate::syscalls::ours;

/// Has the kernel show a copy, if the arguments are in a mapping that becomes frames. The process
/// is stopped. The copy is placed near the address `beside`, where the program does not look for
/// room.
pub(super) fn keep_visible(
    process: u32,
    mapping: &Mapping,
    agent: &Agent,
    beside: u64,
) -> io::Result<()> {
    let Ok(mut layout) = Layout::with_empty_heap(process) else { return Ok(()) };
    let whole = layout.arguments.start..layout.environment.end;
    let inside = mapping.range.start <= whole.start && whole.end <= mapping.range.end;
    if whole.is_empty() || !inside {
        return Ok(());
    }
    let mut bytes = vec![0; (whole.end - whole.start) as usize];
    let memory = Memory::of(process)?;
    memory.read(whole.start, &mut bytes)?;
    let Range { start, .. } = whole;
    let length = (bytes.len() as u64).next_multiple_of(PAGE_SIZE);
    let access = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let kind = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    let room = [beside, length, access, kind, u64::MAX, 0];
    let call = |number, arguments| Call { number, arguments: ours(number, arguments) };
    let calls = [call(libc::SYS_mmap, room), call(libc::SYS_brk, [0; 6])];
    let answers = agent.make(&calls, &mut [])?;
    let &[copy, heap_end] = &answers[..] else { return Ok(()) };
    if copy < 0 {
        // The kernel shows nothing, then.
        return Ok(());
    }
    let copy = copy.cast_unsigned();
    memory.write(copy, &bytes)?;
    layout.heap.end = heap_end.cast_unsigned();
    for part in [&mut layout.arguments, &mut layout.environment] {
        *part = part.start - start + copy..part.end - start + copy;
    }
    let (number, arguments) = Layout::call(agent.data_address(1));
    // A kernel without this call shows nothing.
    agent.make(&[Call { number, arguments }], &mut layout.image()).map(drop)
}
