//! What is watched in a program: specifications resolved to sites, put in together, read while it runs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::modules::{self, Mapped};
use super::sites::{self, Found};
use super::spec::{Do, Place, Spec, What};
use crate::process::{Program, Refusal};
use crate::splice::{At, Installed, Plan, Site, Stood, Why, remains};
use crate::{Module, OpenError};

/// How many names are told that are much like one that is not there.
const NEAR: usize = 5;

/// Why nothing is watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program, or what happens in it.
    #[error(transparent)]
    Splice(#[from] Why),
    /// A file of it cannot be analysed.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// No file of the program is called so.
    #[error("the program runs no code of a file called {wanted}; it does of: {}", .there.join(", "))]
    NoModule {
        /// What was asked for.
        wanted: String,
        /// What there is.
        there: Vec<String>,
    },
    /// No function is called so.
    #[error("no function is called {wanted}{}", nearest(.near))]
    NoFunction {
        /// What was asked for.
        wanted: String,
        /// What is called much like it.
        near: Vec<String>,
    },
    /// The file has been replaced since the program was started.
    #[error(
        "{path} is not the file any more that the program runs: restart the program, or put the old file back"
    )]
    Replaced {
        /// Its path.
        path: PathBuf,
    },
    /// Every place was refused.
    #[error("nothing can be watched: {first}")]
    Nothing {
        /// The first reason.
        first: String,
    },
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::Splice(refusal.into())
    }
}

fn nearest(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!("; there is: {}", near.join(", ")) }
}

/// Something that is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// The file's name.
    pub module: String,
    /// The function, or function and offset.
    pub name: String,
    /// Address in the program.
    pub address: u64,
    /// What is done there, and the first cell of each.
    pub actions: Vec<(Do, u32)>,
}

/// Places that can be watched, and how.
#[derive(Debug)]
pub struct Prepared {
    /// What will be watched.
    pub watched: Vec<Watched>,
    /// Places that cannot be, and why.
    pub refused: Vec<(String, String)>,
    plan: Plan,
    cells: u32,
}

/// Probes in a program. They stay until [`remove`](Self::remove) or [`remains::repair`].
#[derive(Debug)]
pub struct Watch {
    /// What is watched.
    pub watched: Vec<Watched>,
    installed: Installed,
}

/// What a place has told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// How often.
    Count(u64),
    /// Calls that have ended, calls that go on, and the time in all of both up to now.
    Latency {
        /// Calls that have ended.
        ended: u64,
        /// Calls that go on now.
        inside: u64,
        /// Time in all of them, in nanoseconds.
        nanos: u64,
    },
    /// Nothing: the action tells none.
    Nothing,
    /// How often each size.
    Histogram(Box<[u64; 65]>),
}

/// Places before it is decided which of them can be had.
#[derive(Default)]
struct Wanted {
    sites: Vec<Site>,
    /// Of each site: the place that it is of.
    of: Vec<usize>,
    watched: Vec<Watched>,
    refused: Vec<(String, String)>,
    cells: u32,
}

/// Resolves specifications in a program, and decides how each place is spliced. Nothing is changed.
///
/// # Errors
/// [`Error`]: a name that nothing has, a file that cannot be read, nothing that can be watched.
pub fn prepare(program: &Program, specs: &[Spec]) -> Result<Prepared, Error> {
    let mapped = modules::of(program)?;
    let mut opened = BTreeMap::new();
    let mut wanted = Wanted::default();
    for spec in specs {
        for place in &spec.places {
            let found = found(&mapped, &mut opened, place)?;
            for (index, found) in found {
                let (module, bias) = &opened[&index];
                wanted.add(&mapped[index], module, *bias, &found, &spec.actions);
            }
        }
    }
    wanted.decide()
}

/// Places that a specification names, by the number of their file.
///
/// # Errors
/// As [`prepare`].
pub fn list(program: &Program, specs: &[Spec]) -> Result<Vec<(Mapped, Found)>, Error> {
    let mapped = modules::of(program)?;
    let mut opened = BTreeMap::new();
    let mut all = Vec::new();
    for place in specs.iter().flat_map(|spec| &spec.places) {
        let found = found(&mapped, &mut opened, place)?;
        all.extend(found.into_iter().map(|(index, found)| (mapped[index].clone(), found)));
    }
    Ok(all)
}

fn found(
    mapped: &[Mapped],
    opened: &mut BTreeMap<usize, (Module, u64)>,
    place: &Place,
) -> Result<Vec<(usize, Found)>, Error> {
    let name = place.module.as_deref().unwrap_or("*");
    let called: Vec<usize> =
        (0..mapped.len()).filter(|&index| mapped[index].is_called(name)).collect();
    if called.is_empty() {
        let there = mapped.iter().map(Mapped::name).collect();
        return Err(Error::NoModule { wanted: name.to_owned(), there });
    }
    let (mut all, mut near) = (Vec::new(), Vec::new());
    for index in called {
        if let std::collections::btree_map::Entry::Vacant(free) = opened.entry(index) {
            let module = mapped[index].open()?;
            let bias = mapped[index]
                .bias(&module)
                .ok_or_else(|| Error::Replaced { path: mapped[index].path.clone() })?;
            free.insert((module, bias));
        }
        let (module, _) = &opened[&index];
        let found = sites::find(module, &place.what);
        if let (true, What::Functions(name) | What::Behind(name, _)) =
            (found.is_empty(), &place.what)
        {
            near.extend(module.near(name, NEAR));
        }
        all.extend(found.into_iter().map(|found| (index, found)));
    }
    if all.is_empty() {
        let wanted = match &place.what {
            What::Functions(name) | What::Behind(name, _) => name.clone(),
            What::At(address) => format!("{address:#x}"),
        };
        near.truncate(NEAR);
        return Err(Error::NoFunction { wanted, near });
    }
    Ok(all)
}

impl Wanted {
    fn add(&mut self, file: &Mapped, module: &Module, bias: u64, found: &Found, actions: &[Do]) {
        let label = || format!("{}:{}", file.name(), found.name);
        let sites = match sites::sites(module, found, bias, actions, self.cells) {
            Ok(sites) => sites,
            Err(why) => return self.refused.push((label(), why.to_string())),
        };
        let mut own = Vec::new();
        for &action in actions {
            own.push((action, self.cells));
            self.cells += sites::cells(action);
        }
        let address = sites[0].address;
        // Two probes at one place are one site.
        let same = |site: &Site| site.address == address && site.at == At::Before;
        if let Some(at) = self.sites.iter().position(same) {
            if sites.len() == 1 {
                let [site] = <[Site; 1]>::try_from(sites).unwrap_or_else(|_| unreachable!("one"));
                self.sites[at].actions.extend(site.actions);
                return self.watched[self.of[at]].actions.extend(own);
            }
            return self
                .refused
                .push((label(), "it is named twice; name it once with all actions".into()));
        }
        let (name, module) = (found.name.clone(), file.name());
        for site in sites {
            self.of.push(self.watched.len());
            self.sites.push(site);
        }
        self.watched.push(Watched { module, name, address, actions: own });
    }

    /// A place is watched if all its sites can be had.
    fn decide(mut self) -> Result<Prepared, Error> {
        let (mut plan, mut refused) = Plan::new(self.sites.clone());
        while !refused.is_empty() {
            let mut lost = BTreeMap::new();
            for (at, why) in refused {
                lost.entry(self.of[at]).or_insert_with(|| why.to_string());
            }
            self.drop_places(lost);
            (plan, refused) = Plan::new(self.sites.clone());
        }
        if self.watched.is_empty() {
            let first = self.refused.first().map(|(name, why)| format!("{name}: {why}"));
            return Err(Error::Nothing { first: first.unwrap_or_default() });
        }
        let Self { watched, refused, cells, .. } = self;
        Ok(Prepared { watched, refused, plan, cells })
    }

    fn drop_places(&mut self, lost: BTreeMap<usize, String>) {
        let mut of = self.of.iter();
        self.sites.retain(|_| of.next().is_some_and(|place| !lost.contains_key(place)));
        self.of.retain(|place| !lost.contains_key(place));
        for place in &mut self.of {
            *place -= lost.range(..*place).count();
        }
        let mut index = 0;
        self.watched.retain(|watched| {
            let why = lost.get(&index);
            index += 1;
            let label = || format!("{}:{}", watched.module, watched.name);
            self.refused.extend(why.map(|why| (label(), why.clone())));
            why.is_none()
        });
    }
}

impl Prepared {
    /// What will change in the program, a line per site.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.plan.lines()
    }

    /// Puts the probes into the program.
    ///
    /// # Errors
    /// [`Error`]; the program is as before then.
    pub fn install(self, program: &Program) -> Result<Watch, Error> {
        let installed = Installed::new(program, &self.plan, self.cells)?;
        Ok(Watch { watched: self.watched, installed })
    }
}

impl Watch {
    /// How long the program stood still while they were put in.
    pub fn stood(&self) -> Stood {
        self.installed.stood
    }

    /// What an action of a place has told up to now.
    ///
    /// # Errors
    /// What reading the memory says.
    pub fn read(&self, action: Do, first: u32) -> std::io::Result<Reading> {
        let cell = |number: u32| self.installed.cell(first + number);
        Ok(match action {
            Do::Count => Reading::Count(cell(0)?),
            Do::Poison => Reading::Nothing,
            Do::Latency => {
                // Exits before the time before entries: who comes or goes meanwhile is inside, for no time.
                let (ended, sum, entered) = (cell(2)?, cell(0)?, cell(1)?);
                let inside = entered.saturating_sub(ended);
                let cycles = sum.wrapping_add(inside.wrapping_mul(refit_sys::clock::counter()));
                // Less than nothing, or more than can be, is what a call that went while we read looks like.
                let cycles = if cycles.cast_signed() < 0 { 0 } else { cycles };
                Reading::Latency { ended, inside, nanos: refit_sys::clock::nanos(cycles) }
            }
            Do::Histogram(_) => {
                let mut cells = Box::new([0; 65]);
                for (number, place) in (0_u32..).zip(cells.iter_mut()) {
                    *place = cell(number)?;
                }
                Reading::Histogram(cells)
            }
        })
    }

    /// Takes the probes out; what they told can still be read. Returns for how long the program stood still.
    ///
    /// # Errors
    /// [`Why`]: the program cannot be changed any more.
    pub fn remove(&self, program: &Program) -> Result<Duration, Why> {
        match remains::repair(program) {
            Ok(removed) => Ok(removed.stood),
            // With the program its code is gone.
            Err(_) if program.ended() => Ok(Duration::ZERO),
            Err(why) => Err(why),
        }
    }
}
