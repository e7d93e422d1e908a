//! The options of a traced thread (`PTRACE_O_*`): mostly the events that it reports.

use bitflags::bitflags;

bitflags! {
    /// The options of a traced thread (`PTRACE_O_*`), most of which select events that it reports.
    /// Threads that it creates inherit them.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Options: u32 {
        /// [`Event::Fork`](super::Event::Fork).
        const FORK = libc::PTRACE_O_TRACEFORK.cast_unsigned();
        /// [`Event::Vfork`](super::Event::Vfork).
        const VFORK = libc::PTRACE_O_TRACEVFORK.cast_unsigned();
        /// [`Event::Clone`](super::Event::Clone).
        const CLONE = libc::PTRACE_O_TRACECLONE.cast_unsigned();
        /// [`Event::Exec`](super::Event::Exec).
        const EXEC = libc::PTRACE_O_TRACEEXEC.cast_unsigned();
        /// [`Event::VforkDone`](super::Event::VforkDone).
        const VFORK_DONE = libc::PTRACE_O_TRACEVFORKDONE.cast_unsigned();
        /// [`Event::Exit`](super::Event::Exit).
        const EXIT = libc::PTRACE_O_TRACEEXIT.cast_unsigned();
        /// [`Event::Seccomp`](super::Event::Seccomp).
        const SECCOMP = libc::PTRACE_O_TRACESECCOMP.cast_unsigned();
        /// Reports system calls as [`Event::SystemCall`], not as a `SIGTRAP`.
        const SYSTEM_CALL = libc::PTRACE_O_TRACESYSGOOD.cast_unsigned();
        /// Suspends its seccomp filters. The tracer needs `CAP_SYS_ADMIN`, and a kernel with
        /// `CONFIG_CHECKPOINT_RESTORE`.
        const SUSPEND_SECCOMP = libc::PTRACE_O_SUSPEND_SECCOMP.cast_unsigned();
        /// Kills the thread when the tracing thread ends.
        const EXIT_KILL = libc::PTRACE_O_EXITKILL.cast_unsigned();
    }
}

impl Options {
    pub(crate) fn number(self) -> usize {
        self.bits() as usize
    }
}
