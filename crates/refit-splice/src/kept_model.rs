//! Model of the code that keeps values (`snippet::keep`): every order of the steps of some threads.
//!
//! A step reads a word of an entry, or exchanges an entry. x86 reorders neither, and there are no
//! other accesses to entries, so the orders of the steps are all that can happen. loom has no
//! exchange of two words, and would take each step for several.

use std::collections::HashSet;

/// An entry: a key and a value.
type Entry = (u8, u8);

/// A use of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Call {
    Store(u8, u8),
    Add(u8, u8),
    LookUp(u8),
    /// Refit takes all values (`taken`); those under this key are found.
    Take(u8),
}

impl Call {
    fn key(self) -> u8 {
        match self {
            Self::Store(key, _) | Self::Add(key, _) | Self::LookUp(key) | Self::Take(key) => key,
        }
    }
}

/// The next step of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Next {
    /// Reads a key.
    Key,
    /// Reads the value of the key.
    Value,
    /// Exchanges the entry, whose words were these.
    Exchange(Entry),
    /// Takes the lock of the key's home.
    Lock,
    /// The same under the lock.
    LockedKey,
    LockedValue,
    /// Reads the key that is replaced, and exchanges.
    Replaced,
    LockedExchange(u8),
    /// Gives the lock back.
    Unlock {
        restarts: bool,
        lost: bool,
    },
}

/// A thread: its calls, and how far it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Thread {
    calls: &'static [Call],
    next: Next,
    entry: usize,
    /// An entry whose key has no value.
    unused: Option<usize>,
    found: Vec<u8>,
}

/// The entries, all of which are searched for each key; who is how far; and the taken locks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    entries: Vec<Entry>,
    threads: Vec<Thread>,
    /// The keys whose homes are locked.
    locked: Vec<u8>,
    lost: u8,
}

impl Thread {
    fn new(calls: &'static [Call]) -> Self {
        Self { calls, next: Next::Key, entry: 0, unused: None, found: Vec::new() }
    }

    fn restart(&mut self, next: Next) {
        (self.next, self.entry, self.unused) = (next, 0, None);
    }

    fn done(&mut self) {
        self.calls = &self.calls[1..];
        self.restart(Next::Key);
    }

    fn finds(&mut self, value: u8) {
        self.found.push(value);
        self.done();
    }
}

impl State {
    /// Does the next step of a thread.
    fn step(&mut self, number: usize) {
        let thread = &mut self.threads[number];
        let call = thread.calls[0];
        let key = call.key();
        let stored = match call {
            Call::Store(_, value) | Call::Add(_, value) => value,
            Call::LookUp(_) | Call::Take(_) => 0,
        };
        if let Call::Take(key) = call {
            return self.take(number, key);
        }
        let looks_up = matches!(call, Call::LookUp(_));
        let entry = &mut self.entries[thread.entry];
        match thread.next {
            Next::Key if entry.0 == key => thread.next = Next::Value,
            Next::Key if entry.0 == 0 && looks_up => thread.finds(0),
            Next::Key if entry.0 == 0 && stored == 0 => thread.done(),
            Next::Key if entry.0 == 0 => thread.next = Next::Exchange((0, 0)),
            Next::Key => self.following(number, Next::Key),
            Next::Value => thread.next = Next::Exchange((key, entry.1)),
            // It reads the entry, whether that is as expected or not.
            Next::Exchange(_) if looks_up => {
                let found = if entry.0 == key { entry.1 } else { 0 };
                thread.finds(found);
            }
            Next::Exchange(expected) if *entry == expected => {
                let before = if matches!(call, Call::Add(..)) { expected.1 } else { 0 };
                *entry = (key, before + stored);
                thread.done();
            }
            Next::Exchange(expected) if expected.0 == key && entry.0 == key => {
                thread.next = Next::Exchange(*entry);
            }
            Next::Exchange(_) => thread.restart(Next::Key),
            Next::Lock if self.locked.contains(&key) => {}
            Next::Lock => {
                self.locked.push(key);
                thread.restart(Next::LockedKey);
            }
            Next::LockedKey if entry.0 == key => {
                thread.next = Next::Unlock { restarts: true, lost: false };
            }
            Next::LockedKey if thread.unused.is_none() => thread.next = Next::LockedValue,
            Next::LockedKey => self.following(number, Next::LockedKey),
            Next::LockedValue => {
                thread.unused = Some(thread.entry).filter(|_| entry.1 == 0);
                self.following(number, Next::LockedKey);
            }
            Next::Replaced => thread.next = Next::LockedExchange(entry.0),
            Next::LockedExchange(other) if *entry == (other, 0) => {
                *entry = (key, stored);
                thread.next = Next::Unlock { restarts: false, lost: false };
            }
            Next::LockedExchange(_) => thread.restart(Next::LockedKey),
            Next::Unlock { restarts, lost } => {
                self.locked.retain(|locked| *locked != key);
                self.lost += u8::from(lost);
                if restarts { thread.restart(Next::Key) } else { thread.done() }
            }
        }
    }

    /// Does the next step of refit, which takes the value of one entry after the other.
    fn take(&mut self, number: usize, wanted: u8) {
        let thread = &mut self.threads[number];
        let entry = &mut self.entries[thread.entry];
        thread.next = match thread.next {
            Next::Key => Next::Replaced,
            // The key was read in the step before, and may be another one by now.
            Next::Replaced if thread.unused.is_none() => {
                thread.unused = Some(entry.0.into());
                Next::Replaced
            }
            Next::Replaced => {
                let key = thread.unused.take().and_then(|key| u8::try_from(key).ok());
                Next::Exchange((key.unwrap_or(0), entry.1))
            }
            Next::Exchange((key, value)) if key != 0 && value != 0 && *entry != (key, value) => {
                Next::Exchange(*entry)
            }
            Next::Exchange((key, value)) => {
                if key != 0 && value != 0 {
                    *entry = (key, 0);
                    thread.found.extend(Some(value).filter(|_| key == wanted));
                }
                thread.entry += 1;
                Next::Key
            }
            other => other,
        };
        if thread.entry == self.entries.len() {
            thread.done();
        }
    }

    /// Goes on with the next entry, or with what follows the last one.
    fn following(&mut self, number: usize, next: Next) {
        let thread = &mut self.threads[number];
        (thread.next, thread.entry) = (next, thread.entry + 1);
        if thread.entry < self.entries.len() {
            return;
        }
        thread.entry = 0;
        match (next, thread.calls[0]) {
            (Next::LockedKey, _) if thread.unused.is_some() => {
                thread.entry = thread.unused.unwrap_or(0);
                thread.next = Next::Replaced;
            }
            (Next::LockedKey, _) => thread.next = Next::Unlock { restarts: false, lost: true },
            (_, Call::LookUp(_) | Call::Take(_)) => thread.finds(0),
            (_, Call::Store(_, 0) | Call::Add(_, 0)) => thread.done(),
            _ => thread.next = Next::Lock,
        }
    }
}

/// The map and the results once all threads are done.
struct Outcome {
    entries: Vec<Entry>,
    /// The values that each thread has found.
    found: Vec<Vec<u8>>,
    lost: u8,
}

/// Runs the threads in every order, and checks each outcome; returns the number of states.
fn explore(entries: &[Entry], calls: &[&'static [Call]], check: impl Fn(&Outcome)) -> usize {
    let threads = calls.iter().map(|calls| Thread::new(calls)).collect();
    let first = State { entries: entries.to_vec(), threads, locked: Vec::new(), lost: 0 };
    let mut seen = HashSet::from([first.clone()]);
    let mut left = vec![first];
    while let Some(state) = left.pop() {
        let (mut done, mut stuck) = (true, true);
        for number in 0..state.threads.len() {
            if state.threads[number].calls.is_empty() {
                continue;
            }
            done = false;
            let mut next = state.clone();
            next.step(number);
            stuck &= next == state;
            if seen.insert(next.clone()) {
                left.push(next);
            }
        }
        assert!(done || !stuck, "{state:?}");
        if done {
            let State { entries, threads, lost, .. } = state;
            let found = threads.into_iter().map(|thread| thread.found).collect();
            check(&Outcome { entries, found, lost });
        }
    }
    seen.len()
}

/// Returns the values under a key.
fn values(outcome: &Outcome, key: u8) -> Vec<u8> {
    let values = outcome.entries.iter().filter(|(own, value)| *own == key && *value != 0);
    values.map(|(_, value)| *value).collect()
}

use Call::{Add, LookUp, Store, Take};

#[test]
fn a_thread_finds_what_it_has_stored_under_its_own_key() {
    const ONE: &[Call] = &[Store(1, 5), LookUp(1), Store(1, 0), LookUp(1), Store(1, 6), LookUp(1)];
    const TWO: &[Call] = &[Store(2, 7), LookUp(2), Store(2, 0), LookUp(2), Store(2, 8), LookUp(2)];
    const THREE: &[Call] = &[Store(3, 9), Store(3, 0)];
    for entries in [&[(0, 0); 3][..], &[(9, 0), (8, 0), (9, 0)]] {
        let states = explore(entries, &[ONE, TWO, THREE], |outcome| {
            assert_eq!(outcome.found, [vec![5, 0, 6], vec![7, 0, 8], vec![]]);
            assert_eq!((values(outcome, 1), values(outcome, 2)), (vec![6], vec![8]));
            assert_eq!((values(outcome, 3).len(), outcome.lost), (0, 0));
        });
        assert!(states > 10_000, "{states}");
    }
}

#[test]
fn numbers_are_added_exactly_while_another_key_makes_room() {
    const ADDS: &[Call] = &[Add(1, 1), Add(1, 2)];
    const ROOM: &[Call] = &[Store(7, 0), Store(7, 3), Store(7, 0)];
    for entries in
        [&[(7, 9), (8, 0), (9, 0)][..], &[(7, 9), (0, 0), (0, 0)], &[(8, 1), (7, 9), (9, 0)]]
    {
        let states = explore(entries, &[ADDS, ADDS, ROOM], |outcome| {
            assert_eq!((values(outcome, 1), outcome.lost), (vec![6], 0), "{:?}", outcome.entries);
            assert!(values(outcome, 7).is_empty());
        });
        assert!(states > 500, "{states}");
    }
}

#[test]
fn a_key_has_one_value_that_was_stored_and_none_once_it_is_deleted() {
    const ROOM: &[Call] = &[Store(7, 0), Store(7, 3), Store(7, 0)];
    for entries in [&[(7, 9), (8, 0), (9, 0)][..], &[(8, 1), (7, 9), (9, 0)]] {
        explore(entries, &[&[Store(1, 1)], &[Store(1, 2), LookUp(1)], ROOM], |outcome| {
            let [value] = values(outcome, 1)[..] else { panic!("{:?}", outcome.entries) };
            assert!(value == 1 || value == 2);
            assert!(outcome.found[1] == [1] || outcome.found[1] == [2]);
        });
        let last: &[&[Call]] = &[&[Store(1, 1), Store(1, 0)], &[Store(1, 2), Store(1, 0)], ROOM];
        explore(entries, last, |outcome| {
            assert!(values(outcome, 1).is_empty(), "{:?}", outcome.entries);
        });
    }
}

#[test]
fn values_that_are_taken_are_those_that_were_added() {
    const ADDS: &[Call] = &[Add(1, 1), Add(1, 2)];
    const ROOM: &[Call] = &[Store(7, 0), Store(7, 3), Store(7, 0)];
    const TAKES: &[Call] = &[Take(1), Take(1)];
    for entries in [&[(7, 9), (8, 0)][..], &[(7, 9), (0, 0)], &[(1, 4), (7, 9)]] {
        let before: u8 = entries.iter().filter(|(key, _)| *key == 1).map(|(_, value)| value).sum();
        let states = explore(entries, &[ADDS, ROOM, TAKES], |outcome| {
            let taken: u8 = outcome.found[2].iter().sum();
            let rest: u8 = values(outcome, 1).iter().sum();
            assert_eq!((taken + rest, outcome.lost), (before + 3, 0), "{:?}", outcome.entries);
        });
        assert!(states > 500, "{states}");
    }
}
