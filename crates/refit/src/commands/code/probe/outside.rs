//! The actions of scripts that refit does itself: at the beginning, at intervals and at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use refit_probe::reading::Reading;
use refit_probe::script::{self, Interval, Outside, Script};

use super::print;
use super::reading::{self, Key, Read, Takes, Watched};
use crate::failure::Failure;
use crate::output::Output;

/// The actions of a script, and what they have changed.
pub(super) struct Actions<'s> {
    script: &'s Script,
    /// The times of the next actions at intervals.
    next: Vec<Instant>,
    /// The results of maps when they were cleared, by map, action and key, and whether keys stay
    /// without a result.
    cleared: BTreeMap<(String, String, Key), (Reading, bool)>,
    /// The maps that were cleared, and keys of maps.
    taken: BTreeSet<(String, Option<Key>)>,
}

impl<'s> Actions<'s> {
    pub(super) fn new(script: &'s Script) -> Self {
        let now = Instant::now();
        let next = script.intervals.iter().map(|interval| now + interval.every).collect();
        Self { script, next, cleared: BTreeMap::new(), taken: BTreeSet::new() }
    }

    /// Does what comes before everything else. Programs read objects, so they get no messages.
    pub(super) fn begin(
        &mut self,
        watched: &[Watched<'_>],
        out: &mut Output,
    ) -> Result<(), Failure> {
        self.run(&self.script.begin, watched, out)
    }

    /// Does what is due at intervals.
    pub(super) fn between(
        &mut self,
        watched: &[Watched<'_>],
        out: &mut Output,
    ) -> Result<(), Failure> {
        let script = self.script;
        for (index, Interval { every, actions }) in script.intervals.iter().enumerate() {
            let now = Instant::now();
            if now < self.next[index] {
                continue;
            }
            // An interval that could not be kept is not made up for.
            while self.next[index] <= now {
                self.next[index] += *every;
            }
            self.run(actions, watched, out)?;
        }
        Ok(())
    }

    /// Does what comes at the end.
    pub(super) fn end(&mut self, watched: &[Watched<'_>], out: &mut Output) -> Result<(), Failure> {
        self.run(&self.script.end, watched, out)
    }

    /// Reads all results, without what was cleared.
    pub(super) fn read<'w>(&self, watched: &'w [Watched<'_>]) -> Result<Vec<Read<'w>>, Failure> {
        let mut read = reading::read(watched, &Takes::default())?;
        self.leave_out(&mut read);
        Ok(read)
    }

    /// Leaves out what was cleared.
    fn leave_out(&self, read: &mut Vec<Read<'_>>) {
        read.retain_mut(|one| {
            let cleared = self.name(one).and_then(|name| self.cleared.get(&name));
            let stays = cleared.is_some_and(|(_, stays)| *stays);
            if !self.is_taken(one) {
                return true;
            }
            match cleared {
                _ if one.watching.what.is_taken() => one.reading.after_taking(&one.watching.what),
                Some((cleared, _)) => one.reading.subtract(cleared, &one.watching.what),
                None => {}
            }
            stays || !one.reading.is_zero()
        });
    }

    /// Whether a result was cleared, alone or with its map.
    fn is_taken(&self, read: &Read<'_>) -> bool {
        let Some(map) = read.map().filter(|_| !self.taken.is_empty()) else { return false };
        let keys = [None, Some(read.key.clone())];
        keys.into_iter().any(|key| self.taken.contains(&(map.to_owned(), key)))
    }

    /// Names a result of a map.
    fn name(&self, read: &Read<'_>) -> Option<(String, String, Key)> {
        Some((read.map()?.to_owned(), read.watching.what.to_string(), read.key.clone()))
    }

    fn run(
        &mut self,
        actions: &[Outside],
        watched: &[Watched<'_>],
        out: &mut Output,
    ) -> Result<(), Failure> {
        let reads = |action: &Outside| !matches!(action, Outside::Message(_));
        // Read once, so that what is counted between printing and clearing is not lost.
        let mut takes = Takes::default();
        for action in actions {
            match action {
                Outside::Clear(map) | Outside::Zero(map) => drop(takes.maps.insert(map)),
                Outside::Delete { map, key } => takes.keys.push((map, key)),
                Outside::Message(_) | Outside::Print(_) => {}
            }
        }
        let read = actions.iter().any(reads).then(|| reading::read(watched, &takes));
        let mut all = read.transpose()?.unwrap_or_default();
        for action in actions {
            match action {
                Outside::Message(_) if out.json() => {}
                Outside::Message(format) => out.raw(script::render(format).as_bytes())?,
                Outside::Print(map) => {
                    let of = all.iter().filter(|one| one.map() == Some(map));
                    let mut read = of.cloned().collect();
                    self.leave_out(&mut read);
                    print::print(false, &read, watched.len() > 1, out)?;
                }
                Outside::Clear(map) => self.clear(map, None, false, &mut all),
                Outside::Zero(map) => self.clear(map, None, true, &mut all),
                Outside::Delete { map, key } => {
                    self.clear(map, Some(Key::Of(key.clone())), false, &mut all);
                }
            }
        }
        if actions.is_empty() { Ok(()) } else { out.flush() }
    }
    /// Clears what was read of a map, or of a key of it; `stays` says whether keys do.
    fn clear(&mut self, map: &str, key: Option<Key>, stays: bool, all: &mut [Read<'_>]) {
        let of = |one: &&mut Read<'_>| {
            one.map() == Some(map) && key.as_ref().is_none_or(|key| one.key == *key)
        };
        for one in all.iter_mut().filter(of) {
            let name = self.name(one);
            let cleared = (one.reading.clone(), stays);
            self.cleared.extend(name.map(|name| (name, cleared)));
            if one.watching.what.is_taken() {
                one.reading.subtract(&one.reading.clone(), &one.watching.what);
            }
        }
        self.taken.insert((map.to_owned(), key));
    }
}
