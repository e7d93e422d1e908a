//! Follows functions that end with a jump to another one (tail call) to where control returns to
//! their callers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use refit_analysis::Module;
use refit_splice::process::Program;
use refit_splice::{Site, Step};

use crate::error::Error;
use crate::exits::{Callee, Destination, callee_of};
use crate::files::{Files, Spot};
use crate::placing::Jump;
use crate::sites::{NoSite, Place};
use crate::steps::Steps;
use crate::tails::{Frame, Tail};

/// Maximum number of functions that return for one.
const MOST_CALLEES: usize = 64;
/// Maximum number of functions for which one returns: its exits have code for each of them.
const MOST_CALLERS: usize = 16;
/// Maximum number of stubs that lead to a function.
const MOST_STUBS: usize = 4;

/// The functions of a program that return for others.
pub(crate) struct TailCalls<'f> {
    program: &'f Program,
    files: &'f mut Files,
    known: BTreeMap<Spot, Result<Arc<Callable>, String>>,
    /// For how many functions each returns.
    callers: BTreeMap<Spot, usize>,
}

/// The sites at which a function is entered and left, without steps.
#[derive(Debug)]
struct Callable {
    entries: Vec<(Frame, Site)>,
    exits: Vec<(Destination, Frame, Site)>,
}

/// The sites at which the return of a function is seen.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    /// Sites where it jumps to others.
    pub(crate) jumps: Vec<Site>,
    /// Sites in other functions.
    pub(crate) others: Vec<Site>,
    /// Why some returns are not seen.
    pub(crate) why: Option<String>,
}

/// The way from one function to those that return for it.
struct Course {
    of: Spot,
    /// The functions that were found.
    seen: BTreeSet<Spot>,
    /// Functions among them that are not followed yet.
    left: Vec<Spot>,
    /// Whether one of them jumps to the first function.
    jumps_back: bool,
    followed: Followed,
}

impl<'f> TailCalls<'f> {
    pub(crate) fn new(program: &'f Program, files: &'f mut Files) -> Self {
        Self { program, files, known: BTreeMap::new(), callers: BTreeMap::new() }
    }

    /// Returns the sites at which the steps of a function run although others return for it: those
    /// to which it jumps, and those to which they jump.
    ///
    /// # Errors
    /// The reason why the steps cannot run there.
    pub(crate) fn follow(
        &mut self,
        of: Spot,
        steps: &Steps,
        jumps: Vec<Jump>,
    ) -> Result<Followed, String> {
        if jumps.is_empty() {
            return Ok(Followed::default());
        }
        let tail = steps.tail.as_ref().ok_or("the function ends with a jump to another one (tail call), and the probe has too many variables and computed values to see its return")?;
        let (seen, left, followed) = (BTreeSet::from([of]), Vec::new(), Followed::default());
        let mut course = Course { of, seen, left, jumps_back: false, followed };
        for Jump { mut site, frame, callee } in jumps {
            match frame.filter(|_| self.goes_on(&mut course, of, callee)) {
                Some(frame) => site.actions.extend(tail.leave(frame)),
                None => {
                    let why = &mut course.followed.why;
                    why.get_or_insert_with(|| {
                        "no frame description says where its frame is".to_owned()
                    });
                    site.actions.extend(tail.lose());
                }
            }
            course.followed.jumps.push(site);
        }
        while let Some(spot) = course.left.pop() {
            self.finish(&mut course, tail, spot)?;
        }
        if course.jumps_back {
            if steps.times() {
                return Err("the function jumps to others (tail calls) that jump back to it, so its calls cannot be timed".to_owned());
            }
            let callable = self.callable(of)?;
            course.followed.others.extend(callable.entries(|frame| tail.forget(frame)));
        }
        Ok(course.followed)
    }

    /// Adds the sites in a function that returns for another.
    fn finish(&mut self, course: &mut Course, tail: &Tail, spot: Spot) -> Result<(), String> {
        let callable = self.callable(spot)?;
        course.followed.others.extend(callable.entries(|frame| tail.enter(frame)));
        for (left, frame, site) in &callable.exits {
            let steps = match *left {
                Destination::Callee(callee) if self.goes_on(course, spot, callee) => {
                    tail.pass_on(*frame)
                }
                Destination::Callee(_) => tail.lose_there(*frame),
                Destination::Unwinder => tail.end(*frame),
                Destination::Caller | Destination::Nowhere => tail.finish(*frame),
            };
            course.followed.others.push(with(site, steps));
        }
        Ok(())
    }

    /// Whether the function to which one jumps is followed; if not, says why.
    fn goes_on(&mut self, course: &mut Course, from: Spot, callee: Callee) -> bool {
        let found = self.resolve(from, callee).and_then(|to| {
            course.jumps_back |= to == course.of;
            if course.seen.contains(&to) {
                return Ok(());
            }
            let callers = self.callers.get(&to).copied().unwrap_or(0);
            if course.seen.len() > MOST_CALLEES || callers >= MOST_CALLERS {
                let name = self.files.name(to);
                return Err(format!("too many functions end with a jump to {name}"));
            }
            self.callable(to)?;
            self.callers.insert(to, callers + 1);
            course.seen.insert(to);
            course.left.push(to);
            Ok(())
        });
        match found {
            Ok(()) => true,
            Err(why) => {
                course.followed.why.get_or_insert(why);
                false
            }
        }
    }

    /// Returns the sites at which a function is entered and left.
    fn callable(&mut self, spot: Spot) -> Result<Arc<Callable>, String> {
        if let Some(known) = self.known.get(&spot) {
            return known.clone();
        }
        let name = self.files.name(spot);
        let callable = match self.files.of(spot) {
            Ok((module, bias)) => Callable::new(module, spot, bias),
            Err(error) => Err(error.to_string()),
        };
        let callable =
            callable.map_err(|why| format!("it ends with a jump to {name}, where {why}"));
        self.known.insert(spot, callable.map(Arc::new));
        self.known[&spot].clone()
    }

    /// Returns the function to which one jumps.
    fn resolve(&mut self, from: Spot, callee: Callee) -> Result<Spot, String> {
        let failed = |error: Error| error.to_string();
        let (mut from, mut callee) = (from, callee);
        for _ in 0..MOST_STUBS {
            let (module, bias) = self.files.of(from).map_err(failed)?;
            let slot = match callee {
                Callee::Function(function) => return Ok(Spot { file: from.file, function }),
                Callee::Stored(slot) => slot,
                Callee::Unknown => break,
            };
            let name = module.image().import_at(slot).unwrap_or("another one").to_owned();
            let mut word = [0; 8];
            let unknown = || {
                format!("it ends with a jump to {name}, which the program had not called before")
            };
            let read = self.program.read(slot.wrapping_add(bias), &mut word);
            let there = read.ok().map(|()| u64::from_le_bytes(word)).unwrap_or_default();
            let to = self.files.entered_at(there).map_err(failed)?.ok_or_else(unknown)?;
            let is_stub = self.files.is_stub(to);
            let (module, _) = self.files.of(to).map_err(failed)?;
            (from, callee) = match callee_of(module, to.function) {
                // The stub that finds the function when it is called first.
                Callee::Function(_) if is_stub => return Err(unknown()),
                callee => (to, callee),
            };
        }
        Err("it ends with a jump to a function that only the program knows".to_owned())
    }
}

impl Callable {
    /// Returns the sites at the entries, with the steps that `steps` returns for a frame.
    fn entries(&self, steps: impl Fn(Frame) -> Vec<Step>) -> impl Iterator<Item = Site> {
        self.entries.iter().map(move |(frame, site)| with(site, steps(*frame)))
    }

    fn new(module: &Module, spot: Spot, bias: u64) -> Result<Self, String> {
        let place = Place::new(module, spot.function, bias);
        let frame = |address| {
            let frame = place.frame(address);
            frame.ok_or_else(|| {
                format!("no frame description says where the frame is at {address:#x}")
            })
        };
        let site = |why: NoSite| why.to_string();
        let entries = place.entries().into_iter().map(|(address, at)| {
            Ok((frame(address)?, place.site(address, at, Vec::new()).map_err(site)?))
        });
        let exits = place.exits(place.entry(), true).into_iter();
        let exits = exits.filter(|exit| exit.to != Destination::Nowhere).map(|exit| {
            let there = place.site(exit.address, exit.at, Vec::new()).map_err(site)?;
            Ok((exit.to, frame(exit.address)?, there))
        });
        Ok(Self {
            entries: entries.collect::<Result<_, String>>()?,
            exits: exits.collect::<Result<_, String>>()?,
        })
    }
}

/// Returns a site with these steps.
fn with(site: &Site, actions: Vec<Step>) -> Site {
    Site { actions, ..site.clone() }
}
