//! The arguments and the environment of a process as others see them (`/proc/PID/cmdline`, `environ`): the kernel shows none that are in
//! frames, so they are shown from a copy. What the program writes to them afterwards is not seen there.

use std::io;
use std::ops::Range;

use refit_sys::agent::{Agent, Call};
use refit_sys::foreign::Memory;
use refit_sys::maps::Mapping;

use crate::origin::address_space::PAGE;
use crate::syscalls::ours;

/// `struct prctl_mm_map` (linux/prctl.h).
const WORDS: usize = 13;
/// In it: where the heap ends.
const HEAP_END: usize = 5;
/// In it: where arguments begin and end, and the environment.
const ARGUMENTS: usize = 7;

/// Has them shown from a copy, if they are in a mapping that becomes frames. The process stands. The copy is put `beside` an address, where
/// the program does not look for room.
pub(super) fn keep(process: u32, mapping: &Mapping, agent: &Agent, beside: u64) -> io::Result<()> {
    let Some(mut words) = layout(process) else { return Ok(()) };
    let whole = words[ARGUMENTS]..words[ARGUMENTS + 3];
    let inside = mapping.range.start <= whole.start && whole.end <= mapping.range.end;
    if whole.is_empty() || !inside {
        return Ok(());
    }
    let mut bytes = vec![0; (whole.end - whole.start) as usize];
    let memory = Memory::of(process)?;
    memory.read(whole.start, &mut bytes)?;
    let Range { start, .. } = whole;
    let length = (bytes.len() as u64).next_multiple_of(PAGE);
    let access = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let kind = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    let room = [beside, length, access, kind, u64::MAX, 0];
    let call = |number, arguments| Call { number, arguments: ours(number, arguments) };
    let calls = [call(libc::SYS_mmap, room), call(libc::SYS_brk, [0; 6])];
    let answers = agent.make(&calls, &mut [])?;
    let &[copy, heap_end] = &answers[..] else { return Ok(()) };
    if copy < 0 {
        // Nothing is shown, then.
        return Ok(());
    }
    let copy = copy.cast_unsigned();
    memory.write(copy, &bytes)?;
    words[HEAP_END] = heap_end.cast_unsigned();
    words[ARGUMENTS..ARGUMENTS + 4].iter_mut().for_each(|word| *word = *word - start + copy);
    let mut data: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let at = agent.data_address(1);
    let how = [libc::PR_SET_MM as u64, libc::PR_SET_MM_MAP as u64, at, data.len() as u64, 0, 0];
    // A kernel without it shows nothing.
    agent.make(&[Call { number: libc::SYS_prctl, arguments: how }], &mut data).map(drop)
}

/// What the kernel knows of where things are, as it wants to be told of it; the end of the heap is left out.
fn layout(process: u32) -> Option<[u64; WORDS]> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, behind) = text.rsplit_once(')')?;
    let fields: Vec<u64> =
        behind.split_ascii_whitespace().map(|word| word.parse().unwrap_or(0)).collect();
    // By the numbers of proc_pid_stat(5); the first that is left is the third.
    let field = |number: usize| fields.get(number - 3).copied();
    let (code, data) = ((field(26)?, field(27)?), (field(45)?, field(46)?));
    let file = u64::from(u32::MAX);
    Some([
        code.0,
        code.1,
        data.0,
        data.1,
        field(47)?,
        0,
        field(28)?,
        field(48)?,
        field(49)?,
        field(50)?,
        field(51)?,
        0,
        file << 32,
    ])
}
