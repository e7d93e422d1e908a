//! `sequential`: whether accesses are sequential (Soules 2003, §6.3: the detector of the adaptive
//! page replacement).
//!
//! An access of `length` bytes at `offset` follows another one that ended at `offset`, or that
//! began before and reaches beyond it, since a caller may get less than it has asked for. Several
//! programs can read one file from front to back at the same time, so the ends of the last few runs
//! are kept; an access that follows none of them begins a run in the place of the oldest. An access
//! at the same place as the latest of a run is a repetition and not counted: a call that could not
//! be served is repeated.
//!
//! If offsets are counted in another unit than lengths, `unit` is the length of one such unit: 4096
//! for numbers of pages.

use std::sync::atomic::AtomicU64;

use super::cells::{Padded, Powers, count, read};
use super::options::{Settings, WrapperError};
use crate::argument::Kind;
use crate::wrapper::{After, Histogram, PreCall, Wrapper};
use parking_lot::Mutex;

/// The number of runs that are followed at the same time.
const RUNS: usize = 8;

/// Accesses that follow each other.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    /// The offset of its latest access.
    start: u64,
    end: u64,
    /// The number of accesses in it; 0 if there is none.
    length: u64,
    /// The time of its latest access, in accesses.
    latest: u64,
}

#[derive(Debug, Default)]
struct Runs {
    runs: [Run; RUNS],
    accesses: u64,
}

#[derive(Debug)]
pub(super) struct Sequential {
    options: String,
    /// For each method, the indices of `offset` and `length`.
    places: Vec<Option<(usize, Option<usize>)>>,
    unit: u64,
    runs: Padded<Mutex<Runs>>,
    accesses: AtomicU64,
    following: AtomicU64,
    ended: Powers,
}

impl Sequential {
    pub(super) fn new(settings: &Settings<'_>) -> Result<Self, WrapperError> {
        let offset = settings.text("offset").unwrap_or("offset");
        let offsets = settings.arguments(|a| a.name == offset && (a.kind)() == Kind::Number)?;
        if offsets.iter().all(Option::is_none) {
            let there = settings.visible_arguments();
            return Err(if settings.text("offset").is_some() {
                settings.bad("offset", format!("no chosen method has such a number; {there}"))
            } else {
                settings
                    .missing("offset", format!("no chosen method has a number `offset`; {there}"))
            });
        }
        let length = settings.text("length");
        let fits = |a: &crate::description::ArgumentInfo| match length {
            Some(name) => a.name == name && (a.kind)() != Kind::Opaque,
            None => (a.kind)() == Kind::Length,
        };
        let lengths = settings.arguments(fits)?;
        if length.is_some() && lengths.iter().all(Option::is_none) {
            return Err(settings.bad("length", settings.visible_arguments()));
        }
        // Without a length an offset does not determine where the next access would follow, unless
        // only that method is chosen.
        let named = settings.text("method").is_some();
        let place = |(o, l): (Option<usize>, Option<usize>)| {
            o.filter(|_| l.is_some() || named).map(|o| (o, l))
        };
        let places: Vec<_> = offsets.into_iter().zip(lengths).map(place).collect();
        if places.iter().all(Option::is_none) {
            return Err(settings.missing("length", settings.visible_arguments()));
        }
        let unit = match settings.text("unit") {
            None => 1,
            Some(text) => match text.parse() {
                Ok(unit) if unit > 0 => unit,
                _ => return Err(settings.bad("unit", "it is not a number above 0".to_owned())),
            },
        };
        Ok(Sequential {
            options: settings.given(),
            places,
            unit,
            runs: Padded::default(),
            accesses: AtomicU64::new(0),
            following: AtomicU64::new(0),
            ended: Powers::default(),
        })
    }

    fn access(&self, offset: u64, length: u64) {
        let end = offset.saturating_add(length);
        let mut all = self.runs.0.lock();
        if all.runs.iter().any(|run| run.length > 0 && run.start == offset) {
            return;
        }
        count(&self.accesses);
        all.accesses += 1;
        let latest = all.accesses;
        let follows = |run: &&mut Run| run.start < offset && offset <= run.end;
        if let Some(run) = all.runs.iter_mut().filter(|run| run.length > 0).find(follows) {
            *run = Run { start: offset, end, length: run.length + 1, latest };
            drop(all);
            count(&self.following);
            return;
        }
        let oldest = all.runs.iter_mut().min_by_key(|run| run.latest);
        let ended =
            oldest.map(|run| std::mem::replace(run, Run { start: offset, end, length: 1, latest }));
        drop(all);
        if let Some(run) = ended.filter(|run| run.length > 0) {
            self.ended.add(run.length);
        }
    }
}

impl Wrapper for Sequential {
    fn name(&self) -> &str {
        "sequential"
    }

    fn precall(&self, call: &PreCall<'_>) -> After {
        if let Some(Some((offset, length))) = self.places.get(call.method())
            && let Some(offset) = call.argument(*offset).number()
        {
            // Without a length, an access has the length of one unit: offsets are counted in the
            // object's own unit.
            let length = length.and_then(|l| call.argument(l).number()).unwrap_or(self.unit);
            self.access(offset.saturating_mul(self.unit), length);
        }
        After::Forward
    }

    fn options(&self) -> String {
        self.options.clone()
    }

    fn stats(&self) -> Vec<(String, u64)> {
        let (accesses, following) = (read(&self.accesses), read(&self.following));
        let runs = self.runs.0.lock().runs;
        let longest = runs.iter().map(|run| run.length).max().unwrap_or(0);
        let percent = (following * 100).checked_div(accesses).unwrap_or(0);
        vec![
            ("accesses".into(), accesses),
            ("following".into(), following),
            ("following_percent".into(), percent),
            ("longest_present_run".into(), longest),
        ]
    }

    fn histograms(&self) -> Vec<Histogram> {
        // Runs in progress count as they are.
        let now = Powers::default();
        let runs = self.runs.0.lock().runs;
        runs.iter().filter(|run| run.length > 0).for_each(|run| now.add(run.length));
        vec![Powers::histogram([&self.ended, &now].into_iter(), "run", "accesses")]
    }
}
