//! Model of counting by restartable sequences (`snippet::count`): every order of the steps of some
//! threads, and of what the kernel does with them.
//!
//! An addition without `lock` loads the cell and stores it: threads on other processors run in
//! between, but no other thread on the same processor.

use std::collections::HashSet;

/// Number of lanes of processors. The last cell is one more.
const LANES: usize = 2;

/// The next step of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Next {
    Announce,
    /// Reads the number of the processor: the first step of the sequence.
    Begin,
    /// Loads the cell of this lane: the last instruction of the sequence begins.
    Load(usize),
    /// Stores one more than this into the cell of the lane: that instruction ends.
    Store(usize, u8),
    /// Adds to the last cell.
    Aborted,
    Reset,
    /// Runs code of the program.
    Outside,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Thread {
    next: Next,
    /// Number of counts that are left.
    left: u8,
    /// Whether the kernel knows that it has sequences.
    registered: bool,
    /// The processor that it runs on.
    runs_on: Option<usize>,
    /// The number in its area; `None` if it is negative.
    number: Option<usize>,
    /// Whether its area names the descriptor.
    announced: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    cells: [u8; LANES + 1],
    threads: Vec<Thread>,
}

/// The surroundings of the threads.
#[derive(Clone, Copy)]
struct Model {
    processors: usize,
    /// Whether the kernel aborts sequences.
    aborts: bool,
}

impl State {
    /// Does the next step of a thread that runs.
    fn step(&mut self, number: usize) {
        let thread = &mut self.threads[number];
        thread.next = match thread.next {
            Next::Outside => Next::Announce,
            Next::Announce => {
                thread.announced = true;
                Next::Begin
            }
            Next::Begin => match thread.number {
                Some(lane) if lane < LANES => Next::Load(lane),
                _ => Next::Aborted,
            },
            Next::Load(lane) => Next::Store(lane, self.cells[lane]),
            Next::Store(lane, found) => {
                self.cells[lane] = found + 1;
                Next::Reset
            }
            Next::Aborted => {
                self.cells[LANES] += 1;
                Next::Reset
            }
            Next::Reset => {
                thread.announced = false;
                thread.left -= 1;
                Next::Outside
            }
        };
    }

    /// Lets a thread go on on a processor.
    fn resume(&mut self, number: usize, processor: usize, model: Model) {
        let thread = &mut self.threads[number];
        thread.runs_on = Some(processor);
        if !thread.registered {
            return;
        }
        thread.number = Some(processor);
        if std::mem::take(&mut thread.announced)
            && model.aborts
            && matches!(thread.next, Next::Begin | Next::Load(_))
        {
            thread.next = Next::Aborted;
        }
    }

    /// Returns all states that can follow.
    fn following(&self, model: Model) -> Vec<Self> {
        let mut all = Vec::new();
        for (number, thread) in self.threads.iter().enumerate() {
            let done = thread.next == Next::Outside && thread.left == 0;
            match thread.runs_on {
                None if !done => {
                    let runs =
                        |processor| self.threads.iter().any(|one| one.runs_on == Some(processor));
                    for processor in (0..model.processors).filter(|&processor| !runs(processor)) {
                        let mut next = self.clone();
                        next.resume(number, processor, model);
                        all.push(next);
                    }
                }
                None => {}
                Some(_) => {
                    // An instruction is not interrupted halfway.
                    if !matches!(thread.next, Next::Store(..)) {
                        let mut next = self.clone();
                        next.threads[number].runs_on = None;
                        all.push(next);
                    }
                    if !done {
                        let mut next = self.clone();
                        next.step(number);
                        all.push(next);
                    }
                }
            }
        }
        all
    }

    /// Whether a descriptor is announced by threads in the snippet only.
    fn announces_within(&self) -> bool {
        self.threads.iter().all(|thread| thread.next != Next::Outside || !thread.announced)
    }
}

/// Tries all orders of threads that are registered or not, each of which counts `each` times.
/// Returns the number of states, and whether the counts are right in all that nothing follows.
fn explore(registered: &[bool], each: u8, model: Model) -> (usize, bool) {
    let thread = |&registered: &bool| Thread {
        next: Next::Outside,
        left: each,
        registered,
        runs_on: None,
        number: None,
        announced: false,
    };
    let first = State { cells: [0; LANES + 1], threads: registered.iter().map(thread).collect() };
    let (mut seen, mut open) = (HashSet::from([first.clone()]), vec![first]);
    let mut right = true;
    while let Some(state) = open.pop() {
        assert!(state.announces_within(), "{state:?}");
        let ended = |thread: &Thread| thread.left == 0 && thread.next == Next::Outside;
        if state.threads.iter().all(ended) {
            right &= state.cells.iter().sum::<u8>() == each * registered.len() as u8;
        }
        let following = state.following(model).into_iter();
        open.extend(following.filter(|next| seen.insert(next.clone())));
    }
    (seen.len(), right)
}

#[test]
fn every_thread_counts_in_every_order() {
    for processors in [1, 2, LANES + 1] {
        for (threads, each) in [(3, 1), (2, 3)] {
            for registered in [&[true, true, true], &[true, false, true]] {
                let model = Model { processors, aborts: true };
                let (states, right) = explore(&registered[..threads], each, model);
                assert!(right && states > 100, "{processors} {threads} {registered:?} {states}");
            }
        }
    }
}

#[test]
fn counts_are_lost_if_no_sequence_is_aborted() {
    assert!(!explore(&[true; 2], 2, Model { processors: 2, aborts: false }).1);
}
