//! What nobody can find any more is freed when nobody can use it any more.
//!
//! K42 frees through the same generations (Hui 2000, §3.3.3). Things wait here until the generation in which they were
//! retired has passed; whoever retires or swaps next takes out what is due.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crate::generation::Generations;

/// The generations of this process.
pub(crate) static GENERATIONS: Generations = Generations::new();

type Garbage = Box<dyn Send>;

static WAITING: Mutex<VecDeque<(u64, Garbage)>> = Mutex::new(VecDeque::new());

/// Frees `garbage` when all requests of now have ended.
pub(crate) fn retire(garbage: Garbage) {
    let generation = GENERATIONS.advance();
    WAITING.lock().unwrap_or_else(PoisonError::into_inner).push_back((generation, garbage));
    collect();
}

/// Frees what is due.
pub(crate) fn collect() {
    loop {
        let due = {
            let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
            match waiting.front() {
                Some((generation, _)) if GENERATIONS.passed(*generation) => waiting.pop_front(),
                _ => None,
            }
        };
        // Dropped outside of the lock: what is freed may retire more.
        if due.is_none() {
            return;
        }
    }
}

/// Frees everything that can be freed now, and tells how many things still wait.
pub fn settle() -> usize {
    collect();
    WAITING.lock().unwrap_or_else(PoisonError::into_inner).len()
}
