//! The actions of scripts that refit does itself: at the beginning, at intervals and at the end.

use std::collections::BTreeMap;
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
    /// The results of maps when they were cleared, by map, action and key.
    cleared: BTreeMap<(String, String, Key), Reading>,
}

impl<'s> Actions<'s> {
    pub(super) fn new(script: &'s Script) -> Self {
        let now = Instant::now();
        let next = script.intervals.iter().map(|interval| now + interval.every).collect();
        Self { script, next, cleared: BTreeMap::new() }
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
        let mut read = reading::read(watched)?;
        self.leave_out(&mut read);
        Ok(read)
    }

    /// Leaves out what was cleared.
    fn leave_out(&self, read: &mut Vec<Read<'_>>) {
        read.retain_mut(|one| {
            let cleared = self.name(one).and_then(|name| self.cleared.get(&name));
            cleared.is_none_or(|cleared| {
                one.reading.subtract(cleared, &one.watching.what);
                !one.reading.is_zero()
            })
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
        let all = if actions.iter().any(reads) { reading::read(watched)? } else { Vec::new() };
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
                Outside::Clear(map) => {
                    for one in all.iter().filter(|one| one.map() == Some(map)) {
                        let name = self.name(one);
                        self.cleared.extend(name.map(|name| (name, one.reading.clone())));
                    }
                }
            }
        }
        if actions.is_empty() { Ok(()) } else { out.flush() }
    }
}
