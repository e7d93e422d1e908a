//! Hides the vDSO from movable programs, which must hold nothing of the kernel that runs them.
//!
//! The kernel maps the vDSO into each program: code of its own that reads pages of its own. A
//! program finds it only by the auxiliary vector on its stack, and makes system calls if the vector
//! has no entry for it. So refit removes the entry before the first instruction of each program.

use std::io;

use refit_sys::auxv::OnStack;
use refit_sys::foreign::Memory;
use refit_sys::trace::Tracee;

/// Hides the vDSO from a program that stands before its first instruction.
///
/// # Errors
/// The program was killed meanwhile (`ESRCH`), it is not for this machine's own convention
/// (`ENOEXEC`: 32 bits), or its memory cannot be reached.
pub fn hide_vdso(tracee: &Tracee) -> io::Result<()> {
    let memory = Memory::of(tracee.thread())?;
    let mut vector = OnStack::find(&memory, tracee.registers()?.rsp)?;
    // A kernel without a vDSO passes no entry.
    vector.hide(&memory, libc::AT_SYSINFO_EHDR)?;
    Ok(())
}
