//! An asymmetric memory barrier: free on the frequent side, expensive on the rare side.
//!
//! A thread that enters a request stores a word and then loads a table entry; the thread that swaps
//! stores the entry and then loads the word. Each needs its store to be visible before its load
//! (Dekker's pattern). Instead of a full fence on both sides, the frequent side calls [`light`],
//! which only keeps the compiler from reordering. The rare side calls [`heavy`],
//! `membarrier(PRIVATE_EXPEDITED)`, which makes every running thread of the process execute a full
//! fence. Threads that are not running passed one when they were switched out.
//!
//! **Rule**: a `light` and a `heavy` order each other as two `SeqCst` fences would; two `light`s do
//! not. Where membarrier is unavailable (old kernel, seccomp), both are `SeqCst` fences. The
//! asymmetric pair is outside of Rust's memory model, which has no such fence; this module is the
//! only place that relies on it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

/// Whether `membarrier` may be used. False until [`prepare`] has asked the kernel, which is the
/// safe value for `light`. [`heavy`] calls `prepare`, so that no heavy barrier can be asymmetric
/// before all light ones know.
static ASYMMETRIC: AtomicBool = AtomicBool::new(false);

/// An environment variable; `off` forces the symmetric fences, so that tests can cover them.
const SWITCH: &str = "REFIT_MEMBARRIER";

/// The barriers in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `membarrier(2)` on the rare side, nothing on the frequent one.
    Membarrier,
    /// `SeqCst` fences on both sides.
    Fences,
}

/// Asks the kernel once which barriers are available. Has to be called before the first [`light`]
/// whose order matters.
pub fn prepare() -> Kind {
    static KIND: OnceLock<Kind> = OnceLock::new();
    *KIND.get_or_init(|| {
        let wanted = std::env::var(SWITCH).map_or(true, |v| v != "off");
        let kind = if wanted && register() { Kind::Membarrier } else { Kind::Fences };
        ASYMMETRIC.store(kind == Kind::Membarrier, Ordering::SeqCst);
        kind
    })
}

/// The barrier of the frequent side. Pairs with [`heavy`].
#[inline(always)]
pub fn light() {
    if ASYMMETRIC.load(Ordering::Relaxed) {
        light_where_asymmetric();
    } else {
        fence(Ordering::SeqCst);
    }
}

/// As [`light`], for callers that have seen [`prepare`] return [`Kind::Membarrier`], which never
/// changes afterwards.
#[inline(always)]
pub fn light_where_asymmetric() {
    compiler_fence(Ordering::SeqCst);
}

/// The barrier of the rare side; takes about a microsecond. Pairs with [`light`] in every thread of
/// this process.
pub fn heavy() {
    if prepare() == Kind::Membarrier {
        let done = membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
        // The command was registered, and the manual lists no failure after that. Continuing
        // without the barrier would be unsound.
        assert_eq!(done, 0, "membarrier(PRIVATE_EXPEDITED) failed after it was registered");
    }
    fence(Ordering::SeqCst);
}

fn register() -> bool {
    let offered = membarrier(libc::MEMBARRIER_CMD_QUERY);
    offered > 0
        && offered & libc::c_long::from(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0
        && membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0
}

fn membarrier(command: libc::c_int) -> libc::c_long {
    // SAFETY: membarrier takes three integers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// A word that the two sides of the litmus test share, on a cache line of its own.
    #[repr(align(128))]
    #[derive(Default)]
    struct Line(AtomicUsize);

    impl Line {
        fn wait_for(&self, round: usize) {
            let mut spins = 0_u32;
            while self.0.load(Ordering::Acquire) != round {
                spins += 1;
                // The race needs both sides to arrive at about the same time. With a single
                // processor, however, this side must yield to the other.
                if spins.is_multiple_of(1 << 14) {
                    std::thread::yield_now()
                } else {
                    std::hint::spin_loop()
                }
            }
        }
    }

    /// Dekker's litmus test: the two sides never both miss the other's store. Without the barriers
    /// they do within a few thousand rounds on two processors.
    #[test]
    fn light_and_heavy_order_a_store_before_a_load() {
        prepare();
        const ROUNDS: usize = 20_000;
        let [begin, frequent, rare, done] = std::array::from_fn(|_| Line::default());
        std::thread::scope(|scope| {
            let side = scope.spawn(|| {
                let one = |round: usize| {
                    begin.wait_for(round);
                    frequent.0.store(round, Ordering::Relaxed);
                    light();
                    let saw = rare.0.load(Ordering::Relaxed) == round;
                    done.0.store(round, Ordering::Release);
                    saw
                };
                (1..=ROUNDS).map(one).collect::<Vec<_>>()
            });
            let one = |round: usize| {
                begin.0.store(round, Ordering::Release);
                // The other side sees the store after some tens of cycles; the exact number varies,
                // so the loop tries several.
                for _ in 0..round % 64 {
                    std::hint::black_box(round);
                }
                rare.0.store(round, Ordering::Relaxed);
                heavy();
                let saw = frequent.0.load(Ordering::Relaxed) == round;
                done.wait_for(round);
                saw
            };
            let rare: Vec<bool> = (1..=ROUNDS).map(one).collect();
            let frequent = side.join().expect("the frequent side does not panic");
            let both_missed = frequent.iter().zip(&rare).filter(|(a, b)| !**a && !**b).count();
            assert_eq!(both_missed, 0, "rounds in which both sides missed the other's store");
        });
    }
}
