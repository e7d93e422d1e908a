//! Calls that make a process whose number the kernel writes into its memory: refit writes the
//! number instead, once the memory is the process's own.

use std::io;

use refit_sys::trace::Tracee;

/// The message of the filter for a call that makes a process whose number the kernel writes into
/// its memory: until refit has copied that memory, it is the parent's, too.
pub(crate) const FORKS: u16 = 0x666b;

/// Has the kernel write the number of a new process into its memory (`linux/sched.h`).
pub(crate) const SETS_NUMBER: u64 = libc::CLONE_CHILD_SETTID as u64;

/// Removes the flag that a new process is told its number from the call that a thread is about to
/// make. Returns the address for the number.
pub(super) fn withhold_word(tracee: &Tracee) -> io::Result<u64> {
    let mut registers = tracee.registers()?;
    registers.rdi &= !SETS_NUMBER;
    tracee.set_registers(&registers)?;
    Ok(registers.r10)
}

/// Restores that flag in the registers of a thread that stands behind the call.
pub(crate) fn restore_flag(tracee: &Tracee) -> io::Result<()> {
    let mut registers = tracee.registers()?;
    registers.rdi |= SETS_NUMBER;
    tracee.set_registers(&registers)
}
