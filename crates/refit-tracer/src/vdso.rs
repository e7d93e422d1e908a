//! Programs that can be moved hold nothing of the kernel that runs them.
//!
//! What it maps into each of them, the vDSO, is code of its own that reads pages of its own. A program knows of it from
//! the vector on its stack only, and makes system calls where it is not told of any. So it is hidden there, before the
//! first instruction of each program.

use std::io;

use refit_sys::auxv::OnStack;
use refit_sys::foreign::Memory;
use refit_sys::trace::Tracee;

/// Hides the vDSO from a program that stands before its first instruction.
///
/// # Errors
/// It is killed meanwhile (`ESRCH`), it is not for this machine's own convention (`ENOEXEC`: 32 bits), or its memory cannot be reached.
pub fn hide_vdso(held: &Tracee) -> io::Result<()> {
    let memory = Memory::of(held.thread())?;
    let mut vector = OnStack::find(&memory, held.registers()?.rsp)?;
    // A kernel without one tells of none.
    vector.hide(&memory, libc::AT_SYSINFO_EHDR)?;
    Ok(())
}
