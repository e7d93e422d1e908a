//! The identity and the scheduling of threads, and what a thread has registered with the kernel.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed, compiler_fence};

/// The error that a thread, or a process, has ended before it reported whether it could begin. The
/// field is the noun for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} ended immediately after its start")]
pub struct EndedEarly(pub &'static str);

impl From<EndedEarly> for io::Error {
    fn from(error: EndedEarly) -> Self {
        io::Error::other(error)
    }
}

/// Returns the Linux id of the calling thread.
pub fn id() -> u32 {
    // SAFETY: no arguments, no memory; always succeeds.
    let tid = unsafe { libc::gettid() };
    u32::try_from(tid).unwrap_or(0)
}

/// Returns the address of a thread's list of robust mutexes, whose waiters the kernel notifies when
/// the thread ends (get_robust_list(2)); `None` if it has none. A thread that has left its memory
/// has none any more.
///
/// # Errors
/// `ESRCH`: no such thread. `EPERM`: the caller may not trace it.
pub fn robust_list(thread: u32) -> io::Result<Option<u64>> {
    let (mut head, mut length) = (0_u64, 0_usize);
    let list = libc::SYS_get_robust_list;
    // SAFETY: the kernel writes an address and a length to these two, which outlive the call.
    let result = unsafe { libc::syscall(list, thread, &raw mut head, &raw mut length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok((head != 0).then_some(head)) }
}

thread_local! {
    /// The thread's id as found by [`Busy::begin`], 0 while it is unknown, with [`BUSY`] set while
    /// the thread is in a section. `const` and without a destructor: reading it initialises
    /// nothing, in a signal handler or right after `fork`.
    static BUSY_ID: AtomicU32 = const { AtomicU32::new(0) };
}

/// A bit that no id has (`PID_MAX_LIMIT` is 2²²).
const BUSY: u32 = 1 << 31;

/// A thread in a short section that a signal handler of the same thread can interrupt and enter
/// once more.
#[derive(Debug)]
pub struct Busy {
    /// The word before the section began.
    found: u32,
}

impl Busy {
    /// Begins the section. Takes about a nanosecond; safe in signal handlers. In a child of `fork`
    /// the id is right if [`prepare_fork`] was called before; children of `vfork` have their
    /// parent's.
    #[inline(always)]
    pub fn begin() -> Self {
        let mut found = BUSY_ID.with(|word| word.load(Relaxed));
        if found == 0 {
            found = first_id();
        }
        BUSY_ID.with(|word| word.store(found | BUSY, Relaxed));
        // A handler that interrupts the section finds the mark: it runs in this thread, so only the
        // compiler could reorder. Pairs with the fence in `end`.
        compiler_fence(std::sync::atomic::Ordering::SeqCst);
        Self { found }
    }

    /// Returns the Linux id of the thread.
    #[inline(always)]
    pub fn id(&self) -> u32 {
        self.found & !BUSY
    }

    /// Returns whether a handler has interrupted a section of the same thread.
    pub fn nested(&self) -> bool {
        self.found & BUSY != 0
    }

    /// Ends the section.
    #[inline(always)]
    pub fn end(self) {
        // Pairs with the fence in `begin`.
        compiler_fence(std::sync::atomic::Ordering::SeqCst);
        BUSY_ID.with(|word| word.store(self.found, Relaxed));
    }
}

#[cold]
fn first_id() -> u32 {
    id()
}

/// Makes children of `fork` forget the id that their thread had in the parent.
pub fn prepare_fork() {
    extern "C" fn forget() {
        BUSY_ID.with(|word| word.store(0, Relaxed));
    }
    static DONE: OnceLock<()> = OnceLock::new();
    DONE.get_or_init(|| {
        // SAFETY: `forget` is a function of the program itself and touches only a word of its
        // thread. If the registration fails for lack of memory, children report their parent's ids:
        // wrong names, and nothing worse.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(forget)) };
    });
}

/// Returns the kernel's name of a thread of this process; empty if it has ended.
pub fn name(tid: u32) -> String {
    let name = std::fs::read(format!("/proc/self/task/{tid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(name.trim_ascii_end()).into_owned()
}

/// Yields the processor to another thread.
pub fn give_way() {
    // SAFETY: no arguments, no memory.
    unsafe { libc::sched_yield() };
}

/// The nice value of threads that others wait for. A thread with the very highest of ordinary
/// priorities, -20, lets no other thread run by yielding, so that a thread that spins for work of
/// others would keep them from producing it (`bench/RESULTS.md`, domains).
const BEFORE_OTHERS: i32 = -15;

/// Gives the calling thread a low nice value, so that it runs before ordinary threads as soon as it
/// is runnable, if the host permits (`CAP_SYS_NICE`, or `RLIMIT_NICE`). For threads that others
/// wait for.
pub fn go_before_others() {
    let_go_before_others(0);
}

/// As [`go_before_others`], for another thread; 0 is the calling one.
pub fn let_go_before_others(thread: u32) {
    // SAFETY: no memory.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, thread, BEFORE_OTHERS) };
}

/// A guard: while it lives, no ordinary thread delays this one. It sets `SCHED_FIFO` at the lowest
/// real-time priority, if the host permits (root, or `RLIMIT_RTPRIO`). For short sections that
/// others wait for. A section that waits must sleep, not yield, since only threads that sleep let
/// ordinary ones run.
#[derive(Debug)]
pub struct Urgent {
    /// The policy to restore; `None` if the change is not permitted or the thread had a special
    /// policy already.
    before: Option<libc::c_int>,
}

/// Set when the kernel has refused once; it would again.
static NOT_PERMITTED: AtomicBool = AtomicBool::new(false);

impl Urgent {
    /// Begins the urgent section of this thread.
    pub fn begin() -> Self {
        // SAFETY: 0 is the calling thread; no memory.
        let before = unsafe { libc::sched_getscheduler(0) };
        let ordinary = before == libc::SCHED_OTHER || before == libc::SCHED_BATCH;
        if NOT_PERMITTED.load(Relaxed) || !ordinary {
            return Urgent { before: None };
        }
        let taken = set_policy(libc::SCHED_FIFO, 1);
        NOT_PERMITTED.store(!taken, Relaxed);
        Urgent { before: taken.then_some(before) }
    }

    /// Returns whether the thread is urgent now.
    pub fn granted(&self) -> bool {
        self.before.is_some()
    }
}

impl Drop for Urgent {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // Lowering the priority needs no privilege, so this cannot fail.
            set_policy(before, 0);
        }
    }
}

fn set_policy(policy: libc::c_int, priority: libc::c_int) -> bool {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: 0 is the calling thread; the kernel reads the structure.
    unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) == 0 }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_thread_finds_its_own_name() {
        let named = std::thread::Builder::new().name("refit-named".into());
        let found =
            named.spawn(|| super::name(super::id())).expect("a thread can be started").join();
        assert_eq!(found.expect("it does not panic"), "refit-named");
    }
}
