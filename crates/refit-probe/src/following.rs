//! Follows functions that end with a jump to another one (tail call) to where control returns to
//! their callers.

use std::collections::{BTreeMap, BTreeSet};

use refit_splice::process::Program;
use refit_splice::{Site, Step};

use crate::exits::{Callee, Left, callee_of};
use crate::files::{Files, Spot};
use crate::sites::{NoSite, Place};
use crate::steps::Steps;
use crate::tails::Tail;

/// Maximum number of functions that return for one.
const MOST_CALLEES: usize = 64;
/// Maximum number of functions for which one returns: its exits have code for each of them.
const MOST_CALLERS: usize = 16;
/// Maximum number of stubs that lead to a function.
const MOST_STUBS: usize = 4;

/// The functions of a program that return for others.
pub(crate) struct Following<'f> {
    program: &'f Program,
    files: &'f mut Files,
    /// For how many functions each returns.
    callers: BTreeMap<Spot, usize>,
}

impl<'f> Following<'f> {
    pub(crate) fn new(program: &'f Program, files: &'f mut Files) -> Self {
        Self { program, files, callers: BTreeMap::new() }
    }

    /// Returns the sites at which the steps of a function run although others return for it: those
    /// to which it jumps, and those to which they jump.
    ///
    /// # Errors
    /// Why some of them would be missed.
    pub(crate) fn sites(
        &mut self,
        of: Spot,
        steps: &Steps,
        callees: Vec<Callee>,
    ) -> Result<Vec<Site>, String> {
        let Some(tail) = steps.tail.as_ref().filter(|_| !callees.is_empty()) else {
            return Ok(Vec::new());
        };
        let (mut sites, mut seen) = (Vec::new(), BTreeSet::from([of]));
        let mut left: Vec<_> = callees.into_iter().map(|callee| (of, callee)).collect();
        while let Some((from, callee)) = left.pop() {
            let to = self.resolve(from, callee)?;
            if to == of && steps.times() {
                return Err("the function jumps to others (tail calls) that jump back to it, so its calls cannot be timed".to_owned());
            }
            if to == of {
                sites.extend(self.entries(of, |frame| tail.forget(frame))?);
                continue;
            }
            if !seen.insert(to) {
                continue;
            }
            let callers = self.callers.entry(to).or_default();
            *callers += 1;
            if seen.len() > MOST_CALLEES || *callers > MOST_CALLERS {
                let name = self.files.name(to);
                return Err(format!(
                    "too many functions are followed from one to the next (tail calls), up to {name}; name fewer functions"
                ));
            }
            left.extend(self.follow(to, tail, &mut sites)?.into_iter().map(|next| (to, next)));
        }
        Ok(sites)
    }

    /// Adds the sites in a function that returns for another. Returns the functions to which it
    /// jumps itself.
    fn follow(
        &mut self,
        spot: Spot,
        tail: &Tail,
        sites: &mut Vec<Site>,
    ) -> Result<Vec<Callee>, String> {
        sites.extend(self.entries(spot, |frame| tail.enter(frame))?);
        let mut callees = Vec::new();
        let exits = self.with(spot, |place| {
            let exits = place.exits(place.entry(), true).into_iter();
            let exits = exits.map(|exit| {
                let address = exit.address;
                let frame = place.frame(address).ok_or(NoSite::Frame { address })?;
                let steps = match exit.to {
                    Left::Caller => tail.finish(frame),
                    Left::Callee(Callee::Unknown) => return Err(NoSite::Result { address }),
                    Left::Callee(callee) => {
                        callees.push(callee);
                        tail.pass_on(frame)
                    }
                };
                place.site(address, exit.at, steps)
            });
            exits.collect::<Result<Vec<_>, _>>()
        })?;
        sites.extend(exits);
        Ok(callees)
    }

    /// Returns the sites at the entries of a function.
    fn entries(
        &mut self,
        spot: Spot,
        steps: impl Fn((u8, i64)) -> Vec<Step>,
    ) -> Result<Vec<Site>, String> {
        self.with(spot, |place| {
            place.entries(|address| {
                place.frame(address).map(&steps).ok_or(NoSite::Frame { address })
            })
        })
    }

    /// Returns the sites that `make` returns for a function.
    fn with(
        &mut self,
        spot: Spot,
        make: impl FnOnce(&Place<'_>) -> Result<Vec<Site>, NoSite>,
    ) -> Result<Vec<Site>, String> {
        let name = self.files.name(spot);
        let (module, bias) = self.files.of(spot).map_err(|error| error.to_string())?;
        let place = Place::new(module, spot.function, bias);
        make(&place).map_err(|why| format!("its calls may end in {name} (tail call), where {why}"))
    }

    /// Returns the function to which one jumps.
    fn resolve(&mut self, from: Spot, callee: Callee) -> Result<Spot, String> {
        let failed = |error: crate::error::Error| error.to_string();
        let (mut from, mut callee) = (from, callee);
        for _ in 0..MOST_STUBS {
            let (module, bias) = self.files.of(from).map_err(failed)?;
            let slot = match callee {
                Callee::Function(function) => return Ok(Spot { file: from.file, function }),
                Callee::Imported(slot) => slot,
                Callee::Unknown => break,
            };
            let name = module.image().import_at(slot).unwrap_or("another file").to_owned();
            let mut word = [0; 8];
            let unknown = format!(
                "the function ends with a jump to {name} (tail call), which the program has not called yet, so it is not known which function that is; try again once it has"
            );
            let read = self.program.read(slot.wrapping_add(bias), &mut word);
            let there = read.ok().map(|()| u64::from_le_bytes(word)).unwrap_or_default();
            let to =
                self.files.entered_at(there).map_err(failed)?.ok_or_else(|| unknown.clone())?;
            let is_stub = self.files.is_stub(to);
            let (module, _) = self.files.of(to).map_err(failed)?;
            (from, callee) = match callee_of(module, to.function) {
                // The stub that finds the function when it is called first.
                Callee::Function(_) if is_stub => return Err(unknown),
                callee => (to, callee),
            };
        }
        Err("the function ends with a jump (tail call) through too many stubs".to_owned())
    }
}
