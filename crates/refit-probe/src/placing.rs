//! Places the steps of a probe: at the place itself, and where its function is entered and left.

use refit_analysis::Module;
use refit_splice::{At, Site, Step};

use crate::code::behind_mark;
use crate::exits::{Callee, Destination};
use crate::places::CodePlace;
use crate::sites::{self, NoSite, Place};
use crate::steps::Steps;
use crate::tails::Frame;

/// The steps of a place, as sites.
#[derive(Debug, Default)]
pub struct Placed {
    /// The sites. The first one is the place itself, if it has actions; others are where its
    /// function is left.
    pub sites: Vec<Site>,
    /// Where its function jumps to others, which return for it.
    pub(crate) jumps: Vec<Jump>,
}

/// A jump to a function that returns for the one that jumps.
#[derive(Debug)]
pub(crate) struct Jump {
    /// The site, whose actions do not see the return yet.
    pub(crate) site: Site,
    /// Where the frame is at the site, if that is known.
    pub(crate) frame: Option<Frame>,
    /// The other function.
    pub(crate) callee: Callee,
}

/// Returns the site for a place at the entry of a function, `bias` bytes from its address in the
/// file, if nothing is at the exits and the function need not be analysed for it. No other probe
/// may be in the function.
pub(crate) fn at_entry(
    module: &Module,
    found: &CodePlace,
    bias: u64,
    steps: &Steps,
) -> Option<Placed> {
    let at_entry = found.address == module.function(found.function).entry;
    let site = (at_entry && steps.are_here_only())
        .then(|| sites::at_entry(module, found.function, bias, &steps.here));
    Some(Placed { sites: vec![site??], jumps: Vec::new() })
}

/// Returns the sites for a place, `bias` bytes from their addresses in the file.
///
/// # Errors
/// [`NoSite`]: no site is possible there.
pub fn place(
    module: &Module,
    found: &CodePlace,
    bias: u64,
    steps: &Steps,
) -> Result<Placed, NoSite> {
    let place = Place::new(module, found.function, bias);
    let flow = place.flow();
    let instruction = flow.instruction_at(found.address).ok_or_else(|| {
        let before = flow.instructions().iter().rev().find(|one| one.address < found.address);
        let near = before.filter(|one| one.end() > found.address).map(|one| one.address);
        NoSite::Inside { address: found.address, near }
    })?;
    let address = behind_mark(module, instruction.address);
    let mut placed = Placed::default();
    let mut here = steps.here.clone();
    if !steps.entering.is_empty() && place.is_turned_to(address) {
        // Control that returns to the loop with which the function begins does not enter the
        // function.
        here.retain(|step| !steps.entering.contains(step));
        placed.sites.push(place.entered(address, steps.entering.clone())?);
    }
    if !here.is_empty() {
        placed.sites.push(place.site(address, At::Before, here)?);
    }
    if !steps.entering.is_empty() {
        for inner in place.other_entries() {
            placed.sites.push(place.site(inner, At::Entered, steps.entering.clone())?);
        }
    }
    if steps.leave() {
        placed.leave(&place, address, steps)?;
    }
    Ok(placed)
}

impl Placed {
    /// Adds the steps where a function is left.
    fn leave(&mut self, place: &Place<'_>, entry: u64, steps: &Steps) -> Result<(), NoSite> {
        for exit in place.exits(entry, steps.returning) {
            let mut leaving = match exit.to {
                Destination::Nowhere => Vec::new(),
                Destination::Unwinder => steps.ending.clone(),
                Destination::Callee(_) if steps.returning => Vec::new(),
                _ => steps.leaving.clone(),
            };
            leaving.extend(steps.ways[exit.to.way()].iter().cloned());
            match exit.to {
                Destination::Callee(callee) if steps.returning => {
                    let site = place.site(exit.address, exit.at, leaving)?;
                    let frame = place.frame(exit.address);
                    self.jumps.push(Jump { site, frame, callee });
                }
                _ if leaving.is_empty() => {}
                _ => self.sites.push(place.site(exit.address, exit.at, leaving)?),
            }
        }
        Ok(())
    }
}

impl Place<'_> {
    /// Returns a site at the entry, for control that comes from outside of the function although
    /// the function itself jumps there.
    fn entered(&self, address: u64, steps: Vec<Step>) -> Result<Site, NoSite> {
        if self.body().is_none() {
            return Err(NoSite::Loop { address });
        }
        self.site(address, At::Entered, steps)
    }

    /// Returns where control enters the function from outside.
    pub(crate) fn entries(&self) -> Vec<(u64, At)> {
        let entry = self.entry();
        let at = if self.is_turned_to(entry) { At::Entered } else { At::Before };
        let others = self.other_entries().into_iter().map(|inner| (inner, At::Entered));
        std::iter::once((entry, at)).chain(others).collect()
    }

    /// Returns the address of its first instruction that can be a site.
    pub(crate) fn entry(&self) -> u64 {
        behind_mark(self.module, self.module.function(self.function).entry)
    }
}
