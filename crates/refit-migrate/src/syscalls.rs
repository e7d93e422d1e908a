//! Where the system calls of a thread that is away are made.

use refit_tracer::request::Request;

/// The way in which a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// By the thread's shadow, as it is.
    Shadow,
    /// By the thread, which returns to its origin for it: the call makes or ends a task, or changes
    /// all registers.
    Home,
    /// By the thread's shadow, once every node knows: the call changes the memory.
    Change,
    /// Where the thread runs: it yields the processor.
    Yield,
    /// Where the thread runs: it sets where its thread-local data is.
    SetFs,
    /// By nobody: it is a request to refit.
    Request(Request),
}

/// The calls that change the memory.
pub(crate) const CHANGES: [i64; 12] = [
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_process_madvise,
    libc::SYS_shmat,
    libc::SYS_shmdt,
    libc::SYS_remap_file_pages,
    libc::SYS_pkey_mprotect,
    libc::SYS_mseal,
];

/// Advice that changes the memory, or that has to be given again where frames replace private
/// memory.
pub(crate) const ADVICE: [i32; 12] = [
    libc::MADV_DONTNEED,
    DONTNEED_LOCKED,
    libc::MADV_FREE,
    libc::MADV_REMOVE,
    libc::MADV_DONTFORK,
    libc::MADV_DOFORK,
    libc::MADV_WIPEONFORK,
    libc::MADV_KEEPONFORK,
    libc::MADV_DONTDUMP,
    libc::MADV_DODUMP,
    libc::MADV_NOHUGEPAGE,
    libc::MADV_HUGEPAGE,
];

/// `MADV_DONTNEED_LOCKED` (Linux 5.18).
pub(crate) const DONTNEED_LOCKED: i32 = 24;

/// Returns whether the filter of a program that has moved reports a call
/// ([`crate::origin::setup`]).
pub(crate) fn is_watched(number: i64, arguments: &[u64; 6]) -> bool {
    match number {
        libc::SYS_mmap => MAPPED.iter().any(|(mask, kind)| arguments[3] & (mask | OURS) == *kind),
        libc::SYS_madvise => ADVICE.contains(&(arguments[2] as u32).cast_signed()),
        libc::SYS_ioctl => REGISTERS == u64::from(arguments[1] as u32),
        number => CHANGES.contains(&number),
    }
}

/// The kinds of mappings that replace others, or that need looking at, as masks of the flags and
/// their values.
pub(crate) const MAPPED: [(u64, u64); 3] = [
    (libc::MAP_FIXED as u64, libc::MAP_FIXED as u64),
    (libc::MAP_GROWSDOWN as u64, libc::MAP_GROWSDOWN as u64),
    (MAP_TYPE, MAP_DROPPABLE),
];
/// `MAP_TYPE`, and a type of it (`linux/mman.h`, Linux 6.11).
const MAP_TYPE: u64 = 0xf;
const MAP_DROPPABLE: u64 = 8;

/// `UFFDIO_REGISTER` of `linux/userfaultfd.h`: the program serves page faults itself from then on.
pub(crate) const REGISTERS: u64 = 0xc020_aa00;

/// Marks the calls that refit makes in a program itself, which the filters that report changes let
/// pass. It is where the kernel looks at nothing: in the last argument of calls that have fewer,
/// and above the flags of `mmap`, of which the kernel ignores those it does not know.
pub(crate) const OURS: u64 = 0x7265_6669 << 32;

/// Returns the arguments of a call that changes the memory, marked as refit's own.
pub(crate) fn ours(number: i64, mut arguments: [u64; 6]) -> [u64; 6] {
    match number {
        libc::SYS_mmap => arguments[3] |= OURS,
        _ => arguments[5] = OURS,
    }
    arguments
}

/// `asm/prctl.h`.
const ARCH_SET_FS: u64 = 0x1002;

/// Returns how a call is made, by its number and arguments.
pub(crate) fn kind(number: u64, arguments: &[u64; 6]) -> Kind {
    if let Some(request) = Request::of(number, arguments) {
        return Kind::Request(request);
    }
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
        // It limits the calls of the origin's half, which stays at the origin from then on, with
        // all other threads.
        libc::SYS_seccomp => Kind::Home,
        libc::SYS_prctl if arguments[0] as u32 == libc::PR_SET_SECCOMP.cast_unsigned() => {
            Kind::Home
        }
        libc::SYS_arch_prctl if arguments[0] == ARCH_SET_FS => Kind::SetFs,
        libc::SYS_arch_prctl => Kind::Home,
        libc::SYS_sched_yield => Kind::Yield,
        libc::SYS_ioctl if u64::from(arguments[1] as u32) == REGISTERS => Kind::Change,
        number if CHANGES.contains(&number) => Kind::Change,
        _ => Kind::Shadow,
    }
}
