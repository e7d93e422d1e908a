//! Moves the sites of functions that are called often, while they are counted.
//!
//! A counter costs most where many functions are called often: its jumps take room in the
//! processor's caches and predictors that the program needs. Which functions these are, their
//! counts say. Their sites are moved together, so that calls lead to them directly
//! ([`Installed::move_sites`]).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};

use rayon::prelude::*;
use refit_analysis::Module;
use refit_splice::process::{Program, Refusal};
use refit_splice::{AHEAD, Action, At, Installed, JUMP, Moved, Plan, Site, Step, Why};
use tracing::debug;

use crate::code::behind_mark;
use crate::direct_calls;
use crate::files::{Files, Spot};
use crate::libunwind;
use crate::sites::Place;
use crate::wanted::Watched;

/// Time before the first look, and the factor by which the time to the next one grows.
const FIRST: Duration = Duration::from_millis(250);
const GROWTH: u32 = 4;
/// The longest time between two looks.
const LONGEST: Duration = Duration::from_secs(64);
/// Calls per second, of functions whose sites are where they were installed, from which on a move
/// is worth while: together they take about a thousandth of a processor.
const WORTH: u64 = 100_000;
/// The least part of all calls that they make, as a divisor.
const PART: u64 = 20;
/// Functions are moved, in the order of their calls, up to all but this part of their calls.
const REST: u64 = 100;
/// Maximum number of sites that move together, and of moves.
const MOST_SITES: usize = 4096;
const MOST_MOVES: usize = 8;

/// The functions of a program that are only counted.
#[derive(Debug)]
pub(crate) struct Hot {
    files: Files,
    /// Functions whose sites can be moved, in the order of their cells.
    counted: Vec<Counted>,
    /// Addresses of all sites at entries that are watched.
    watched: BTreeSet<u64>,
    looked: Instant,
    pause: Duration,
    moves: usize,
}

/// A function that is counted.
#[derive(Debug)]
struct Counted {
    /// Address of its site.
    address: u64,
    step: Step,
    cell: u32,
    /// The count of the last look, and that from there to the one before.
    count: u64,
    since: u64,
    moved: bool,
}

impl Hot {
    /// Returns the functions of these places that are only counted; `None` if there are none.
    pub(crate) fn new(files: Files, places: &[Watched], installed: &Installed) -> Option<Self> {
        let counted = places.iter().filter_map(|place| {
            let [watching] = &place.actions[..] else { return None };
            let step = watching.step.clone();
            let plain = matches!(step.action, Action::Count { .. })
                && step.key.is_none()
                && step.when.is_empty()
                && place.unseen.is_none();
            let movable = plain && installed.is_movable(place.address);
            let (address, cell) = (place.address, watching.first);
            movable.then_some(Counted { address, step, cell, count: 0, since: 0, moved: false })
        });
        let mut counted: Vec<Counted> = counted.collect();
        counted.sort_by_key(|one| one.cell);
        let watched = places.iter().map(|place| place.address).collect();
        let (looked, pause) = (Instant::now(), FIRST);
        let hot = Self { files, counted, watched, looked, pause, moves: 0 };
        (!hot.counted.is_empty()).then_some(hot)
    }

    /// Moves the sites of functions that are called often, if it is time to look for them.
    ///
    /// # Errors
    /// [`Why`]: the counts cannot be read, or the program cannot be stopped or changed; then all
    /// sites are where they were.
    pub(crate) fn look(
        &mut self,
        program: &Program,
        installed: &mut Installed,
        now: Instant,
    ) -> Result<Option<Moved>, Why> {
        let time = now.saturating_duration_since(self.looked);
        if time < self.pause || self.moves == MOST_MOVES {
            return Ok(None);
        }
        self.read(installed).map_err(|source| Refusal::System {
            id: program.id(),
            what: "read its counts",
            source,
        })?;
        (self.looked, self.pause) = (now, (self.pause * GROWTH).min(LONGEST));
        let chosen = self.choose(time);
        if chosen.is_empty() {
            return Ok(None);
        }
        let moved = self.move_sites(program, installed, &chosen)?;
        self.moves += 1;
        Ok(Some(moved))
    }

    fn read(&mut self, installed: &Installed) -> io::Result<()> {
        let mut lanes = installed.lanes(AHEAD);
        for one in &mut self.counted {
            let count = lanes.cell(one.cell)?;
            (one.since, one.count) = (count.wrapping_sub(one.count), count);
        }
        Ok(())
    }

    /// Returns the indices of the functions whose sites are worth moving; `time` is that in which
    /// they were called so often.
    fn choose(&self, time: Duration) -> Vec<usize> {
        let all: u64 = self.counted.iter().map(|one| one.since).sum();
        let here = |one: &&Counted| !one.moved;
        let of_here: u64 = self.counted.iter().filter(here).map(|one| one.since).sum();
        let least = (WORTH as f64 * time.as_secs_f64()) as u64;
        if of_here < least.max(all / PART) {
            return Vec::new();
        }
        let indices = (0..self.counted.len()).filter(|&index| !self.counted[index].moved);
        let mut chosen: Vec<usize> =
            indices.filter(|&index| self.counted[index].since > 0).collect();
        chosen.sort_by_key(|&index| std::cmp::Reverse(self.counted[index].since));
        let mut left = of_here;
        chosen.retain(|&index| {
            let more = left > of_here / REST;
            left -= self.counted[index].since;
            more
        });
        chosen.truncate(MOST_SITES);
        chosen
    }

    fn move_sites(
        &mut self,
        program: &Program,
        installed: &mut Installed,
        chosen: &[usize],
    ) -> Result<Moved, Why> {
        let spots = chosen.iter().filter_map(|&index| {
            let one = &mut self.counted[index];
            // Those that cannot move are not chosen again.
            one.moved = true;
            Some((self.files.spot_at(one.address)?, one.address, one.step.clone()))
        });
        let spots: Vec<(Spot, u64, Step)> = spots.collect();
        let files = &self.files;
        let sites: Vec<Site> = spots
            .par_iter()
            .filter_map(|(spot, address, step)| {
                let (module, bias) = files.opened(spot.file)?;
                site(program, module, bias, *spot, *address, step)
            })
            .collect();
        let mut entries = BTreeMap::<usize, BTreeMap<u64, u64>>::new();
        for (spot, address, _) in &spots {
            let Some((module, _)) = files.opened(spot.file) else { continue };
            let entry = module.function(spot.function).entry;
            entries.entry(spot.file).or_default().insert(entry, *address);
        }
        let (mut plan, refused) = Plan::moved(sites);
        let called: BTreeSet<u64> =
            self.counted.iter().filter(|one| one.count > 0).map(|one| one.address).collect();
        let calls = entries.iter().flat_map(|(&file, sites)| {
            let Some((module, bias)) = files.opened(file) else { return Vec::new() };
            direct_calls::find(program, module, bias, sites, |caller| {
                let entry = behind_mark(module, module.function(caller).entry).wrapping_add(bias);
                called.contains(&entry) || !self.watched.contains(&entry)
            })
        });
        let calls: Vec<_> = calls.collect();
        debug!(chosen = chosen.len(), refused = refused.len(), calls = calls.len(), "sites move");
        if let Some(list) = libunwind::find(program, &mut self.files) {
            plan.register_frames(list);
        }
        installed.move_sites(program, &plan, &calls)
    }
}

/// Returns the site of a function for its move, with the function if it may be copied.
fn site(
    program: &Program,
    module: &Module,
    bias: u64,
    spot: Spot,
    address: u64,
    step: &Step,
) -> Option<Site> {
    let place = Place::new(module, spot.function, bias);
    let mut site = place.site(address.wrapping_sub(bias), At::Before, vec![step.clone()]).ok()?;
    if !is_alone(program, &site) {
        site.function = None;
    }
    Some(site)
}

/// Whether the function of a site has no other change: its bytes are those of its file, but for the
/// jump at the site.
fn is_alone(program: &Program, site: &Site) -> bool {
    let Some(body) = &site.function else { return false };
    body.parts.iter().all(|part| {
        let mut now = vec![0; part.code.len()];
        let read = program.read(part.address, &mut now).is_ok();
        let jump = site.address..site.address + JUMP as u64;
        let mut both = (part.address..).zip(now.iter().zip(&part.code));
        read && both.all(|(at, (now, then))| now == then || jump.contains(&at))
    })
}
