//! An asymmetric memory barrier: free where it is frequent, dear where it is rare.
//!
//! A thread that enters a request stores a word and then loads a table entry; the thread that swaps stores the entry
//! and then loads the word. Each needs its store to be seen before its load is done (Dekker's pattern). Instead of a
//! full fence on both sides, the frequent side calls [`light`], which only keeps the compiler from reordering, and
//! the rare side calls [`heavy`], `membarrier(PRIVATE_EXPEDITED)`, which makes every running thread of the process
//! execute a full fence; threads that do not run have passed one when they were switched out.
//!
//! **Rule**: a `light` and a `heavy` order each other as two `SeqCst` fences would; two `light`s do not.
//! Where membarrier is refused (old kernel, seccomp), both are `SeqCst` fences. The asymmetric pair is outside of
//! Rust's memory model (there is no such fence in it); this module is the only place that relies on it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

/// Whether `membarrier` may be used. False until [`prepare`] has asked the kernel, which is the safe answer for
/// `light`; [`heavy`] prepares, so that no heavy barrier can be asymmetric before all light ones know.
static ASYMMETRIC: AtomicBool = AtomicBool::new(false);

/// Environment variable; `off` forces the symmetric fences, so that tests can cover them.
const SWITCH: &str = "REFIT_MEMBARRIER";

/// Which barriers are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `membarrier(2)` on the rare side, nothing on the frequent one.
    Membarrier,
    /// `SeqCst` fences on both sides.
    Fences,
}

/// Asks the kernel once. Must have been called before the first [`light`] whose order matters.
pub fn prepare() -> Kind {
    static KIND: OnceLock<Kind> = OnceLock::new();
    *KIND.get_or_init(|| {
        let wanted = std::env::var(SWITCH).map_or(true, |v| v != "off");
        let kind = if wanted && register() { Kind::Membarrier } else { Kind::Fences };
        ASYMMETRIC.store(kind == Kind::Membarrier, Ordering::SeqCst);
        kind
    })
}

/// The frequent side. Pairs with [`heavy`].
#[inline(always)]
pub fn light() {
    if ASYMMETRIC.load(Ordering::Relaxed) {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// The rare side: about a microsecond. Pairs with [`light`] of every thread of this process.
pub fn heavy() {
    if prepare() == Kind::Membarrier {
        let done = membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
        // It was registered, and nothing in the manual lets it fail then; going on would be unsound.
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
    use std::sync::{Arc, Barrier};

    /// Dekker's litmus: with the pair in place, never do both sides miss the other's store.
    #[test]
    fn light_and_heavy_order_a_store_before_a_load() {
        prepare();
        const ROUNDS: usize = 20_000;
        let shared = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0), Barrier::new(2)));
        let frequent = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || {
                (1..=ROUNDS)
                    .map(|round| {
                        shared.2.wait();
                        shared.0.store(round, Ordering::Relaxed);
                        light();
                        let saw = shared.1.load(Ordering::Relaxed) == round;
                        shared.2.wait();
                        saw
                    })
                    .collect::<Vec<_>>()
            })
        };
        let rare: Vec<bool> = (1..=ROUNDS)
            .map(|round| {
                shared.2.wait();
                shared.1.store(round, Ordering::Relaxed);
                heavy();
                let saw = shared.0.load(Ordering::Relaxed) == round;
                shared.2.wait();
                saw
            })
            .collect();
        let frequent = frequent.join().expect("the frequent side does not panic");
        assert!(frequent.iter().zip(&rare).all(|(a, b)| *a || *b));
    }
}
