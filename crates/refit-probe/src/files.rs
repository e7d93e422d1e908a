//! The files of a program, analysed on demand, and the functions at its addresses.

use std::collections::BTreeMap;
use std::ops::Range;

use rayon::prelude::*;
use refit_analysis::functions::Sources;
use refit_analysis::{FunctionId, Module};
use refit_splice::process::{Program, Refusal};

use crate::error::Error;
use crate::file_pattern::FilePattern;
use crate::modules::{self, Mapped};
use crate::places::{self, CodePlace};
use crate::spec::{Place, What};

/// Maximum number of functions of the same name that an error lists.
const TOLD: usize = 5;
/// Maximum number of similar names that an error lists.
const NEAR: usize = 5;

/// The files whose code a program runs.
#[derive(Debug)]
pub struct Files {
    process: u32,
    mapped: Vec<Mapped>,
    opened: BTreeMap<usize, (Module, u64)>,
}

/// A function of a program: its file, and its id there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot {
    pub(crate) file: usize,
    pub(crate) function: FunctionId,
}

impl Spot {
    /// Returns the index of the file.
    pub fn file(self) -> usize {
        self.file
    }

    /// Returns the function.
    pub fn function(self) -> FunctionId {
        self.function
    }
}

impl Files {
    /// Lists the files that the program has mapped now.
    ///
    /// # Errors
    /// [`Refusal`]: the program has ended.
    pub fn new(program: &Program) -> Result<Self, Refusal> {
        let (process, mapped) = (program.face(), modules::of(program)?);
        Ok(Self { process, mapped, opened: BTreeMap::new() })
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
        let found = self.found(&place)?;
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

    /// Returns the places that match one place of a specification, with the index of their file.
    ///
    /// # Errors
    /// [`Error`]: there are none, or a file cannot be read.
    pub(crate) fn found(&mut self, place: &Place) -> Result<Vec<(usize, CodePlace)>, Error> {
        let name = place.module.as_deref().unwrap_or("*");
        let pattern = FilePattern::new(name, self.process);
        let called: Vec<usize> =
            (0..self.mapped.len()).filter(|&index| pattern.matches(&self.mapped[index])).collect();
        if called.is_empty() {
            let there = self.mapped.iter().map(Mapped::name).collect();
            return Err(Error::NoModule { wanted: name.to_owned(), there });
        }
        self.open_all(&called)?;
        let modules = called.into_par_iter().filter_map(|index| Some((index, self.opened(index)?)));
        let found: Vec<_> = modules
            .map(|(index, (module, _))| (index, module, places::find(module, &place.what)))
            .collect();
        let (mut all, mut near) = (Vec::new(), Vec::new());
        for (index, module, found) in found {
            if let (true, What::Functions(name) | What::Behind(name, _)) =
                (found.is_empty(), &place.what)
            {
                near.extend(module.near(name, NEAR));
            }
            if matches!(place.what, What::Tracepoint { .. }) {
                let all = module.image().tracepoints().iter();
                near.extend(all.map(|one| format!("{}:{}", one.provider, one.name)));
            }
            all.extend(found.into_iter().map(|found| (index, found)));
        }
        if all.is_empty() {
            let wanted = match &place.what {
                what @ What::Tracepoint { .. } => {
                    near.sort_unstable();
                    near.dedup();
                    return Err(Error::NoTracepoint { wanted: what.to_string(), there: near });
                }
                What::Functions(name) | What::Behind(name, _) => name.clone(),
                What::At(address) => format!("{address:#x}"),
            };
            near.truncate(NEAR);
            return Err(Error::NoFunction { wanted, near });
        }
        Ok(all)
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

    /// Returns the function that a byte of the program belongs to, by its address, if its file has
    /// been analysed.
    pub(crate) fn spot_at(&self, address: u64) -> Option<Spot> {
        let file = self.mapped.iter().position(|file| file.contains(address))?;
        let (module, bias) = self.opened(file)?;
        let function = module.function_at(address.wrapping_sub(bias))?;
        Some(Spot { file, function })
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

    /// Returns a file that has been analysed, by its index.
    pub fn opened(&self, file: usize) -> Option<(&Module, u64)> {
        self.opened.get(&file).map(|(module, bias)| (module, *bias))
    }

    /// Returns a file by its index.
    pub fn mapped(&self, file: usize) -> &Mapped {
        &self.mapped[file]
    }

    /// Analyses files, on all processors.
    fn open_all(&mut self, files: &[usize]) -> Result<(), Error> {
        let new = files.par_iter().filter(|file| !self.opened.contains_key(file));
        let new: Vec<_> = new.map(|&file| (file, open(&self.mapped[file]))).collect();
        for (file, module) in new {
            self.opened.insert(file, module?);
        }
        Ok(())
    }

    /// Returns the index of the program's own file.
    pub fn own(&self, program: &Program) -> Option<usize> {
        let own = modules::own_path(program);
        self.all().find(|&file| self.mapped(file).path.to_string_lossy() == own)
    }

    /// Returns the indices of all files.
    pub fn all(&self) -> Range<usize> {
        0..self.mapped.len()
    }

    /// Analyses a file, unless that has been done. Also returns the distance of addresses in the
    /// program from those in the file.
    ///
    /// # Errors
    /// [`Error`]: it cannot be read, or has been replaced.
    pub fn open(&mut self, file: usize) -> Result<(&Module, u64), Error> {
        if !self.opened.contains_key(&file) {
            self.opened.insert(file, open(&self.mapped[file])?);
        }
        let (module, bias) = &self.opened[&file];
        Ok((module, *bias))
    }
}

/// Analyses a file of the program; also returns the distance of addresses in the program from those
/// in the file.
pub(crate) fn open(mapped: &Mapped) -> Result<(Module, u64), Error> {
    let module = mapped.open()?;
    let bias = mapped.bias(module.image());
    let bias = bias.ok_or_else(|| Error::Replaced { path: mapped.path.clone() })?;
    Ok((module, bias))
}
