//! The arguments and the environment of a process as others see them (`/proc/PID/cmdline`,
//! `environ`). The kernel shows none that are in frames, so it is made to show a copy. What the
//! program writes to them afterwards is not seen there.

use std::io;
use std::ops::Range;

use refit_sys::agent::{Agent, Call};
use refit_sys::foreign::Memory;
use refit_sys::maps::Mapping;

use crate::page::PAGE_SIZE;
use crate::syscalls::ours;

/// The words of a `struct prctl_mm_map` (linux/prctl.h).
const WORDS: usize = 13;
/// The word that holds the end of the heap.
const HEAP_END: usize = 5;
/// The first of the words that hold the start and the end of the arguments, and of the environment.
const ARGUMENTS: usize = 7;

/// Has the kernel show a copy, if the arguments are in a mapping that becomes frames. The process
/// is stopped. The copy is placed near the address `beside`, where the program does not look for
/// room.
pub(super) fn keep_visible(
    process: u32,
    mapping: &Mapping,
    agent: &Agent,
    beside: u64,
) -> io::Result<()> {
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
    words[HEAP_END] = heap_end.cast_unsigned();
    words[ARGUMENTS..ARGUMENTS + 4].iter_mut().for_each(|word| *word = *word - start + copy);
    let mut data: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let at = agent.data_address(1);
    let how = [libc::PR_SET_MM as u64, libc::PR_SET_MM_MAP as u64, at, data.len() as u64, 0, 0];
    // A kernel without this call shows nothing.
    agent.make(&[Call { number: libc::SYS_prctl, arguments: how }], &mut data).map(drop)
}

/// Returns what the kernel knows of the layout, in the form in which it accepts one; the end
/// of the heap is left out.
fn layout(process: u32) -> Option<[u64; WORDS]> {
    let text = std::fs::read(format!("/proc/{process}/stat")).ok()?;
    // The program chooses its name, in any bytes.
    let text = String::from_utf8_lossy(&text);
    let (_, behind) = text.rsplit_once(')')?;
    let fields: Vec<u64> =
        behind.split_ascii_whitespace().map(|word| word.parse().unwrap_or(0)).collect();
    // By the numbers of proc_pid_stat(5); the first field here is the third.
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

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn the_layout_of_a_program_is_known_whatever_its_name() {
        let directory = tempfile::tempdir().expect("a directory");
        let program = directory.path().join(OsStr::from_bytes(b"sl) \xff"));
        std::os::unix::fs::symlink("/bin/sleep", &program).expect("it is linked");
        let mut child = Command::new(&program).arg("1000").spawn().expect("it starts");
        let found = layout(child.id());
        child.kill().and_then(|()| child.wait()).expect("it can be ended");
        assert!(found.is_some_and(|words| words[0] != 0 && words[1] > words[0]));
    }
}
