//! The files of a program, analysed on demand, and the functions at its addresses.

use std::collections::BTreeMap;

use refit_analysis::functions::Sources;
use refit_analysis::{FunctionId, Module};
use refit_splice::process::{Program, Refusal};

use crate::modules::{self, Mapped};
use crate::spec::{Place, What};
use crate::watch::{self, Error, found};

/// Maximum number of functions of the same name that an error lists.
const TOLD: usize = 5;

/// The files whose code a program runs.
#[derive(Debug)]
pub struct Files {
    mapped: Vec<Mapped>,
    opened: BTreeMap<usize, (Module, u64)>,
}

/// A function of a program: its file, and its id there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot {
    file: usize,
    pub(crate) function: FunctionId,
}

impl Files {
    /// Lists the files that the program has mapped now.
    ///
    /// # Errors
    /// [`Refusal`]: the program has ended.
    pub fn new(program: &Program) -> Result<Self, Refusal> {
        Ok(Self { mapped: modules::of(program)?, opened: BTreeMap::new() })
    }

    /// Finds the function called `name`, or `FILE:NAME`.
    ///
    /// # Errors
    /// [`Error`]: there is none, or there are several.
    pub fn find(&mut self, name: &str) -> Result<Spot, Error> {
        let file = name.find(':').filter(|&at| !name[at..].starts_with("::"));
        let (module, function) = match file {
            Some(at) => (Some(name[..at].to_owned()), &name[at + 1..]),
            None => (None, name),
        };
        let place = Place { module, what: What::Functions(function.to_owned()) };
        let found = found(&self.mapped, &mut self.opened, &place)?;
        let spots: Vec<Spot> =
            found.iter().map(|(file, one)| Spot { file: *file, function: one.function }).collect();
        match spots[..] {
            [spot] => Ok(spot),
            // `found` reports similar names; here it has found nothing but stubs.
            [] => Err(Error::NoFunction { wanted: name.to_owned(), near: Vec::new() }),
            _ => {
                let there = spots.iter().take(TOLD).map(|&spot| self.name(spot)).collect();
                Err(Error::Several { wanted: name.to_owned(), there })
            }
        }
    }

    /// Returns the function that is entered at this address of the program.
    ///
    /// # Errors
    /// [`Error`]: its file cannot be read, or has been replaced.
    pub fn entered_at(&mut self, address: u64) -> Result<Option<Spot>, Error> {
        let Some(file) = self.mapped.iter().position(|file| file.contains(address)) else {
            return Ok(None);
        };
        let (module, bias) = self.open(file)?;
        let there = address.wrapping_sub(bias);
        let entered = module.function_at(there).filter(|id| module.function(*id).entry == there);
        Ok(entered.map(|function| Spot { file, function }))
    }

    /// Whether it is a stub, which only jumps: the loader has not resolved its symbol yet.
    pub(crate) fn is_stub(&self, spot: Spot) -> bool {
        let module = self.opened.get(&spot.file);
        module.is_some_and(|(module, _)| {
            module.function(spot.function).sources.contains(Sources::STUB)
        })
    }

    /// Returns its name: file and function.
    pub fn name(&self, spot: Spot) -> String {
        let file = self.mapped[spot.file].name();
        match self.opened.get(&spot.file) {
            Some((module, _)) => format!("{file}:{}", module.function(spot.function).name()),
            None => file,
        }
    }

    /// Returns its file, and the distance of addresses in the program from those in the file.
    pub(crate) fn of(&mut self, spot: Spot) -> Result<(&Module, u64), Error> {
        self.open(spot.file)
    }

    fn open(&mut self, file: usize) -> Result<(&Module, u64), Error> {
        if !self.opened.contains_key(&file) {
            self.opened.insert(file, watch::open(&self.mapped[file])?);
        }
        let (module, bias) = &self.opened[&file];
        Ok((module, *bias))
    }
}
