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
