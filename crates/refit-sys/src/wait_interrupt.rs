//! Ends a thread's `wait4` for its tracees from another thread, without losing the wakeup.
//!
//! A signal ends a `wait4` in progress. But a signal that arrives right before the call ends
//! nothing, and the thread would sleep although it was woken. So the last instructions before the
//! call check the [`Wakeup`]. If the signal interrupts the thread between that check and the call,
//! the handler moves its program counter to the end, past the call:
//!
//! ```text
//!   ring:  RUNG, then the signal        wait:  check: is it rung? ──► end
//!                                                call  wait4        ▲
//!                                   handler: between check and call ─┘
//! ```
//!
//! Whenever the signal arrives, the wait ends: if before the check, the check sees the wakeup; if
//! between check and call, the handler skips the call; if during the call, the call fails with
//! `EINTR`. After the call there is nothing to end.
//!
//! Memory orderings: the store in [`Wakeup::ring`] (SeqCst, hence also Release) precedes the
//! signal, and a thread that has [answered](Wakeup::answer) (Acquire) sees everything that was done
//! before. Together with the store and the fence in [`Wakeup::hear`], SeqCst also covers a ring
//! that comes before the waiting thread is known. The check is the processor's own load (total
//! store order).

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::thread::id;

const QUIET: u32 = 0;
const RUNG: u32 = 1;

// wait(wakeup, status, options): wait4(-1, status, options, 0), or `EINTR` if the wakeup is rung.
std::arch::global_asm!(
    ".pushsection .text.refit_interruptible, \"ax\", @progbits",
    ".globl refit_interruptible_wait",
    ".hidden refit_interruptible_wait",
    ".globl refit_interruptible_look",
    ".hidden refit_interruptible_look",
    ".globl refit_interruptible_called",
    ".hidden refit_interruptible_called",
    ".globl refit_interruptible_end",
    ".hidden refit_interruptible_end",
    "refit_interruptible_wait:",
    "    mov r8, rdi",
    "    mov rdi, -1",
    "    xor r10d, r10d",
    "    mov eax, 61",
    "refit_interruptible_look:",
    "    cmp dword ptr [r8], 0",
    "    jne refit_interruptible_end",
    "    syscall",
    "refit_interruptible_called:",
    "    ret",
    "refit_interruptible_end:",
    "    mov rax, -4", // EINTR
    "    ret",
    ".popsection",
);

unsafe extern "C" {
    fn refit_interruptible_wait(wakeup: *const u32, status: *mut i32, options: i32) -> i64;
    static refit_interruptible_look: u8;
    static refit_interruptible_called: u8;
    static refit_interruptible_end: u8;
}

/// Wakes one thread that [waits](crate::trace::next_unless) for its tracees.
#[derive(Debug, Default)]
pub struct Wakeup {
    rung: AtomicU32,
    /// The thread to wake; 0 while nobody waits yet.
    thread: AtomicU32,
}

impl Wakeup {
    /// Makes the calling thread the one that is woken. Uses the signal `SIGURG`, which nothing else
    /// in this process may use.
    ///
    /// # Errors
    /// The errors of sigaction(2), of which none is known to occur.
    pub fn hear(&self) -> io::Result<()> {
        accept()?;
        // Pairs with the SeqCst store and load in `ring`. Both sides store first and load
        // afterwards: either the ringing side sees this thread, or this thread sees that it was
        // rung.
        self.thread.store(id(), Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
        Ok(())
    }

    /// Wakes the thread, which has to belong to this process. The wakeup stays rung until
    /// [`answer`](Self::answer).
    pub fn ring(&self) {
        self.rung.store(RUNG, Ordering::SeqCst);
        match self.thread.load(Ordering::SeqCst) {
            0 => {}
            // SAFETY: no memory. A thread that has ended does not exist, and the call fails.
            thread => unsafe {
                libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGURG);
            },
        }
    }

    /// Returns whether it was rung since the last call of this function.
    pub fn answer(&self) -> bool {
        self.rung.load(Ordering::Relaxed) != QUIET
            && self.rung.swap(QUIET, Ordering::Acquire) != QUIET
    }

    /// Calls `wait4` for any child or tracee, unless it was rung.
    pub(crate) fn wait4(&self, status: &mut i32, options: i32) -> io::Result<i32> {
        // SAFETY: both pointers are valid; the function obeys its calling convention, and unwinding
        // passes it like a plain call.
        let answer = unsafe { refit_interruptible_wait(self.rung.as_ptr(), status, options) };
        match answer {
            error @ ..0 => Err(io::Error::from_raw_os_error(-(error as i32))),
            thread => Ok(thread as i32),
        }
    }
}

/// Installs the handler, which makes a system call fail with `EINTR` and leads a thread away from
/// the call that it is about to make in `wait4`.
fn accept() -> io::Result<()> {
    extern "C" fn handler(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
        let between = (&raw const refit_interruptible_look).addr()
            ..(&raw const refit_interruptible_called).addr();
        // SAFETY: the kernel passes the registers of the thread to a handler of this kind, and
        // nobody else accesses them.
        let instruction = unsafe {
            &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize]
        };
        if between.contains(&(*instruction as usize)) {
            *instruction = (&raw const refit_interruptible_end).addr() as i64;
        }
    }
    // SAFETY: all zeros are a valid value of this plain structure: no `SA_RESTART`, no signal
    // blocked.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the handler only changes where one function of this module continues, so it can
    // interrupt anything.
    match unsafe { libc::sigaction(libc::SIGURG, &raw const action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::thread;

    use super::*;
    use crate::trace;

    /// Each ring is answered before the next: if one were lost, this would never end.
    #[test]
    fn no_call_is_lost_however_it_meets_the_wait() {
        const TIMES: u64 = 500;
        let wakeup = Arc::new(Wakeup::default());
        let answered = Arc::new(AtomicU64::new(0));
        let (own, count) = (Arc::clone(&wakeup), Arc::clone(&answered));
        let waits = thread::spawn(move || {
            // With nothing to wait for, it would not wait.
            let mut child = Command::new("sleep").arg("1000").spawn().expect("there is `sleep`");
            own.hear().expect("signals can be had");
            while count.load(Ordering::Relaxed) < TIMES {
                let waited = trace::next_unless(&own);
                assert_eq!(waited.expect_err("nobody ends").kind(), io::ErrorKind::Interrupted);
                if own.answer() {
                    count.fetch_add(1, Ordering::Release);
                }
            }
            child.kill().and_then(|()| child.wait()).expect("it ends");
        });
        for time in 0..TIMES {
            // Sometimes it sleeps by now, and sometimes it is only about to.
            (0..time % 8).for_each(|_| thread::yield_now());
            wakeup.ring();
            while answered.load(Ordering::Acquire) <= time {
                thread::yield_now();
            }
        }
        waits.join().expect("it has waited");
    }
}
