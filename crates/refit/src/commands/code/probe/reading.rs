//! The readings of probes so far.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

use refit_probe::action::Do;
use refit_probe::datum::Datum;
use refit_probe::reading::{Counts, Reading};
use refit_probe::steps::Watching;
use refit_probe::watch::{Watch, Watched as Place};
use refit_splice::process::Program;

use crate::failure::Failure;
use crate::format;

/// A program, and the probes in it.
pub(super) struct Watched<'p> {
    pub(super) program: &'p Program,
    pub(super) watch: Watch,
}

/// The result of one action at one place, or at all places of a map, under one key or none.
#[derive(Clone, Debug)]
pub(super) struct Read<'w> {
    pub(super) from: Source<'w>,
    pub(super) watching: &'w Watching,
    pub(super) key: Key,
    pub(super) reading: Reading,
}

impl Read<'_> {
    /// Returns the name of the map that it is a result of.
    pub(super) fn map(&self) -> Option<&str> {
        match self.from {
            Source::Map(name) => Some(name),
            Source::Place { .. } => None,
        }
    }
}

/// Where a result comes from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source<'w> {
    /// A place in a program.
    Place { process: u32, module: &'w str, name: &'w str, address: u64 },
    /// All places of the map with this name.
    Map(&'w str),
}

/// Which part of what an action tells.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// All of it.
    All,
    /// The result for a key, by its parts.
    Of(Vec<Datum>),
    /// The results for keys that had no slot.
    Others,
}

/// The maps, and the keys of maps, of which everything is taken that can be ([`Do::is_taken`]).
#[derive(Debug, Default)]
pub(super) struct Takes<'s> {
    /// Names of maps that are taken with all their keys.
    pub(super) maps: BTreeSet<&'s str>,
    /// Maps, each with one of its keys.
    pub(super) keys: Vec<(&'s str, &'s [Datum])>,
}

impl Takes<'_> {
    /// Whether everything is that a key of a map has, or the whole map without a key.
    fn has(&self, map: Option<&str>, key: Option<&[Datum]>) -> bool {
        let Some(map) = map else { return false };
        self.maps.contains(map) || key.is_some_and(|key| self.keys.contains(&(map, key)))
    }
}

/// Reads everything, and takes some of it.
pub(super) fn read<'w>(
    watched: &'w [Watched<'_>],
    takes: &Takes<'_>,
) -> Result<Vec<Read<'w>>, Failure> {
    let failed = |e: io::Error| Failure::new("read the counts", e.to_string(), "try again");
    let (mut all, mut maps) = (Vec::new(), Maps::default());
    for Watched { program, watch } in watched {
        tell_unseen(watch).map_err(failed)?;
        let (mut kept, mut reader) = (BTreeSet::new(), watch.reader());
        for place in &watch.watched {
            for watching in place.actions.iter().filter(|one| one.what.is_read()) {
                // All places have the same numbers.
                if matches!(watching.what, Do::Keep { .. }) && !kept.insert(&watching.map) {
                    continue;
                }
                // A key that needs nothing of the program has everything that is counted there.
                let alone = watching.by.iter().all(|by| by.items().is_empty());
                let key = alone.then(|| watch.key(place, watching, 0)).transpose();
                let key = key.map_err(failed)?.flatten();
                let map = watching.map.as_deref();
                let takeable = watching.what.is_taken();
                let counts = match takeable && takes.has(map, key.as_deref()) {
                    true => watch.take(watching),
                    false => reader.read(watching),
                };
                let mut counts = counts.map_err(failed)?;
                if takeable && map.is_some_and(|map| takes.keys.iter().any(|(one, _)| *one == map))
                {
                    take_keys(watch, place, watching, takes, &mut counts).map_err(failed)?;
                }
                if counts.lost > 0 {
                    tell_lost(counts.lost, place, watching);
                }
                let (module, name) = (place.module.as_str(), place.name.as_str());
                let (process, address) = (program.id(), place.address);
                let from = Source::Place { process, module, name, address };
                let mut add = |key, reading| match &watching.map {
                    None => all.push(Read { from, watching, key, reading }),
                    Some(map) => maps.add(map, watching, key, reading),
                };
                for (key, reading) in counts.keys {
                    // Otherwise it had no room, or is not complete yet.
                    let key = watch.key(place, watching, key).map_err(failed)?;
                    add(key.map_or(Key::Others, Key::Of), reading);
                }
                if alone {
                    match key.filter(|key| !key.is_empty()) {
                        None => add(Key::All, counts.all),
                        Some(_) if counts.all.is_zero() => {}
                        Some(key) => add(Key::Of(key), counts.all),
                    }
                } else if !counts.all.is_zero() {
                    add(Key::Others, counts.all);
                }
            }
        }
    }
    all.extend(maps.into_readings());
    Ok(all)
}

/// Takes what an action has under some keys in place of what was read.
fn take_keys(
    watch: &Watch,
    place: &Place,
    watching: &Watching,
    takes: &Takes<'_>,
    counts: &mut Counts,
) -> io::Result<()> {
    let mut wanted = BTreeSet::new();
    for &number in counts.keys.keys() {
        let key = watch.key(place, watching, number)?;
        if takes.has(watching.map.as_deref(), key.as_deref()) {
            wanted.insert(number);
        }
    }
    if !wanted.is_empty() {
        counts.keys.extend(watch.take_keys(watching, &wanted)?.keys);
    }
    Ok(())
}

/// The number of functions of which it is said why returns were not seen.
const TOLD: usize = 3;

/// Says how many returns were not seen.
fn tell_unseen(watch: &Watch) -> io::Result<()> {
    let unmarked = watch.unmarked()?;
    if unmarked > 0 {
        let returns = format::counted(unmarked, "return");
        say!("refit: {returns} not seen: too many calls at a time ended with a jump");
    }
    let mut all = Vec::new();
    for place in &watch.watched {
        let why = place.unseen.as_ref().map_or("", |unseen| &unseen.why);
        all.push((watch.unseen(place)?, place, why));
    }
    all.retain(|(count, ..)| *count > 0);
    all.sort_by_key(|(count, ..)| std::cmp::Reverse(*count));
    for (count, place, why) in all.iter().take(TOLD) {
        let returns = format::counted(*count, "return");
        say!("refit: {returns} of {}:{} not seen: {why} (tail call)", place.module, place.name);
    }
    if let Some(more) = all.len().checked_sub(TOLD).filter(|more| *more > 0) {
        let functions = format::counted(more as u64, "more function");
        say!("refit: some returns of {functions} not seen; name fewer");
    }
    Ok(())
}

/// Says how many results were lost.
fn tell_lost(lost: u64, place: &Place, watching: &Watching) {
    match (&watching.what, &watching.map) {
        (Do::Keep { .. }, Some(map)) => {
            let numbers = format::counted(lost, "number");
            say!("refit: {numbers} of @{map} not kept: too many keys");
        }
        _ => {
            let calls = format::counted(lost, "call");
            let (module, name) = (&place.module, &place.name);
            say!(
                "refit: {calls} of {module}:{name} not timed: too many threads, or nested too deeply"
            );
        }
    }
}

/// The results of maps so far.
#[derive(Default)]
struct Maps<'w> {
    all: Vec<(&'w str, &'w Watching, BTreeMap<Key, Reading>)>,
}

impl<'w> Maps<'w> {
    /// Adds a result to a map. The same name may be given to several actions; each has results of
    /// its own.
    fn add(&mut self, name: &'w str, watching: &'w Watching, key: Key, reading: Reading) {
        let same = |(known, other, _): &(&str, &Watching, _)| {
            let kept = |what: &Do| matches!(what, Do::Keep { .. });
            let same = other.what == watching.what && other.by == watching.by;
            *known == name && (same || kept(&other.what) && kept(&watching.what))
        };
        let at = self.all.iter().position(same).unwrap_or_else(|| {
            self.all.push((name, watching, BTreeMap::new()));
            self.all.len() - 1
        });
        match self.all[at].2.entry(key) {
            Entry::Vacant(free) => drop(free.insert(reading)),
            Entry::Occupied(mut sum) => sum.get_mut().add(reading, &watching.what),
        }
    }

    fn into_readings(self) -> impl Iterator<Item = Read<'w>> {
        self.all.into_iter().flat_map(|(name, watching, keys)| {
            let from = Source::Map(name);
            keys.into_iter().map(move |(key, reading)| Read { from, watching, key, reading })
        })
    }
}
