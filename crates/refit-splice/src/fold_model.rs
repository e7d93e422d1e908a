//! Model of taking the least and greatest values (`taken`) while snippets fold others: every order
//! of the steps of some threads.
//!
//! A step is one atomic instruction on one of the two cells; x86 reorders none of them.

use std::collections::HashSet;

/// The next step of a snippet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Next {
    /// Reads the extreme.
    Read,
    /// Compares it, and exchanges it if it is less.
    Exchange(i8),
    /// Counts the value.
    Count,
}

/// A thread: the values that it still folds, and how far it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Thread {
    values: &'static [i8],
    next: Next,
    /// Number of exchanges of refit before the fold began.
    began: usize,
}

/// The next step of refit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Taking {
    Extreme,
    Number(i8),
    Advance(i8),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    extreme: i8,
    number: i8,
    threads: Vec<Thread>,
    taking: Taking,
    /// The numbers and extremes of the intervals, and how many are still to come.
    intervals: Vec<(i8, i8)>,
    left: usize,
    /// Number of exchanges of the extreme so far.
    taken: usize,
    /// The values that were folded, and the intervals in which that can have been.
    folded: Vec<(i8, usize, usize)>,
}

impl State {
    /// Does the next step of a thread.
    fn step(&mut self, number: usize) {
        let thread = &mut self.threads[number];
        let value = thread.values[0];
        match thread.next {
            Next::Read => {
                thread.began = self.taken;
                thread.next = Next::Exchange(self.extreme);
            }
            Next::Exchange(found) if found >= value => {
                // Nothing is stored: it took effect when it read.
                self.folded.push((value, thread.began, self.taken));
                thread.next = Next::Count;
            }
            Next::Exchange(found) if self.extreme == found => {
                self.extreme = value;
                self.folded.push((value, self.taken, self.taken));
                thread.next = Next::Count;
            }
            Next::Exchange(_) => {
                thread.began = self.taken;
                thread.next = Next::Exchange(self.extreme);
            }
            Next::Count => {
                self.number += 1;
                (thread.values, thread.next) = (&thread.values[1..], Next::Read);
            }
        }
    }

    /// Does the next step of refit.
    fn take(&mut self) {
        let next = match self.taking {
            Taking::Extreme => {
                self.taken += 1;
                match std::mem::take(&mut self.extreme) {
                    0 => None,
                    extreme => Some(Taking::Number(extreme)),
                }
            }
            Taking::Number(extreme) => {
                let number = std::mem::take(&mut self.number);
                self.intervals.push((number.max(1), extreme));
                (number < 1).then_some(Taking::Advance(number))
            }
            Taking::Advance(number) => {
                self.number += number - 1;
                None
            }
        };
        if matches!((self.taking, next), (Taking::Extreme, None)) {
            self.intervals.push((0, 0));
        }
        self.left -= usize::from(next.is_none());
        self.taking = next.unwrap_or(Taking::Extreme);
    }

    /// Checks the intervals once all is done.
    fn check(&self, all: usize) {
        let mut intervals = self.intervals.clone();
        intervals.push((self.number, self.extreme));
        let numbers: i8 = intervals.iter().map(|(number, _)| number).sum();
        assert_eq!(usize::try_from(numbers), Ok(all), "{self:?}");
        for (at, &(number, extreme)) in intervals.iter().enumerate() {
            assert!(extreme == 0 || number > 0 || at + 1 == intervals.len(), "{self:?}");
            let within = |&&(_, from, to): &&(i8, usize, usize)| (from..=to).contains(&at);
            // It is a value of this interval.
            let own = self.folded.iter().filter(within).any(|(value, ..)| *value == extreme);
            assert!(extreme == 0 || own, "{at} of {self:?}");
        }
        for &(value, from, to) in &self.folded {
            // An interval in which it can have been has no less an extreme.
            let fits = intervals[from..=to].iter().any(|(_, extreme)| *extreme >= value);
            assert!(fits, "{value} of {self:?}");
        }
    }
}

fn explore(threads: &[&'static [i8]], intervals: usize) -> usize {
    let all = threads.iter().map(|values| values.len()).sum();
    let thread = |values: &&'static [i8]| Thread { values, next: Next::Read, began: 0 };
    let first = State {
        extreme: 0,
        number: 0,
        threads: threads.iter().map(thread).collect(),
        taking: Taking::Extreme,
        intervals: Vec::new(),
        left: intervals,
        taken: 0,
        folded: Vec::new(),
    };
    let (mut seen, mut left) = (HashSet::from([first.clone()]), vec![first]);
    while let Some(state) = left.pop() {
        let mut following = Vec::new();
        for number in (0..threads.len()).filter(|at| !state.threads[*at].values.is_empty()) {
            let mut next = state.clone();
            next.step(number);
            following.push(next);
        }
        if state.left > 0 {
            let mut next = state.clone();
            next.take();
            following.push(next);
        }
        if following.is_empty() {
            state.check(all);
        }
        left.extend(following.into_iter().filter(|next| seen.insert(next.clone())));
    }
    seen.len()
}

#[test]
fn each_value_is_in_the_extreme_and_the_number_of_one_interval() {
    assert!(explore(&[&[3, 5], &[4, 2]], 2) > 5000);
    assert!(explore(&[&[5, 5], &[5, 1]], 2) > 5000);
    assert!(explore(&[&[1], &[3], &[2]], 2) > 5000);
    assert!(explore(&[&[4, 3, 2, 1]], 3) > 1000);
}
