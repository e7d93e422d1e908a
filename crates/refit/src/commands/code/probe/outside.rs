//! The actions of scripts that refit does itself: at the beginning, at intervals and at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use refit_probe::reading::Reading;
use refit_probe::script::{self, Interval, Outside, Script};

use super::print;
use super::reading::{self, Key, Read, Watched};
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
    /// The maps that were cleared.
    taken: BTreeSet<String>,
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
        let mut read = reading::read(watched, &BTreeSet::new())?;
        self.leave_out(&mut read);
        Ok(read)
    }

    /// Leaves out what was cleared.
    fn leave_out(&self, read: &mut Vec<Read<'_>>) {
        read.retain_mut(|one| {
            let cleared = self.name(one).and_then(|name| self.cleared.get(&name));
            let stays = cleared.is_some_and(|(_, stays)| *stays);
            if one.map().is_none_or(|map| !self.taken.contains(map)) {
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
        let takes = actions.iter().filter_map(|action| match action {
            Outside::Clear(map) | Outside::Zero(map) => Some(map.as_str()),
            Outside::Message(_) | Outside::Print(_) => None,
        });
        let takes: BTreeSet<&str> = takes.collect();
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
                Outside::Clear(map) | Outside::Zero(map) => {
                    let stays = matches!(action, Outside::Zero(_));
                    for one in all.iter_mut().filter(|one| one.map() == Some(map)) {
                        let name = self.name(one);
                        let cleared = (one.reading.clone(), stays);
                        self.cleared.extend(name.map(|name| (name, cleared)));
                        if one.watching.what.is_taken() {
                            one.reading.subtract(&one.reading.clone(), &one.watching.what);
                        }
                    }
                    self.taken.insert(map.clone());
                }
            }
        }
        if actions.is_empty() { Ok(()) } else { out.flush() }
    }
}
