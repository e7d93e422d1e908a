//! Who makes a system call of a thread that runs elsewhere.

/// By whom, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// By its shadow, as it is.
    Shadow,
    /// By the thread, which goes home for it: it makes a task, or ends one, or changes all registers.
    Home,
    /// By its shadow, once every instance knows: it changes the memory.
    Change,
    /// Where it runs: it gives way to others.
    Yield,
    /// Where it runs: it sets where its own data is.
    SetFs,
}

/// What changes the memory.
pub(crate) const CHANGES: [i64; 11] = [
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_shmat,
    libc::SYS_shmdt,
    libc::SYS_remap_file_pages,
    libc::SYS_pkey_mprotect,
    libc::SYS_mseal,
];

/// By which calls are known that refit makes in a program itself: the filters that tell of changes let them pass. It stands where the kernel
/// looks at nothing: in the last argument of calls that have fewer, and above the flags of `mmap`, of which it ignores those it does not know.
pub(crate) const OURS: u64 = 0x7265_6669 << 32;

/// A call that changes the memory, as refit makes it itself.
pub(crate) fn ours(number: i64, mut arguments: [u64; 6]) -> [u64; 6] {
    match number {
        libc::SYS_mmap => arguments[3] |= OURS,
        _ => arguments[5] = OURS,
    }
    arguments
}

/// `asm/prctl.h`.
const ARCH_SET_FS: u64 = 0x1002;

/// Who makes a call, by its number and first argument.
pub(crate) fn kind(number: u64, first: u64) -> Kind {
    match number.cast_signed() {
        libc::SYS_clone
        | libc::SYS_clone3
        | libc::SYS_fork
        | libc::SYS_vfork
        | libc::SYS_execve
        | libc::SYS_execveat
        | libc::SYS_exit
        | libc::SYS_exit_group
        | libc::SYS_rt_sigreturn
        | libc::SYS_sigaltstack => Kind::Home,
        libc::SYS_arch_prctl if first == ARCH_SET_FS => Kind::SetFs,
        libc::SYS_arch_prctl => Kind::Home,
        libc::SYS_sched_yield => Kind::Yield,
        number if CHANGES.contains(&number) => Kind::Change,
        _ => Kind::Shadow,
    }
}
