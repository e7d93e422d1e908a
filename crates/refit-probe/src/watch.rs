//! What is watched in a program: specifications resolved to sites, put in together, read while it runs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use refit_analysis::functions::Convention;
use refit_analysis::{Module, OpenError};
use refit_instruments::session::Session;
use refit_splice::process::{Program, Refusal};
use refit_splice::remains::{self, Removed};
use refit_splice::{At, DURATIONS, Installed, Plan, Site, Stood, TIMER, Why};

use crate::modules::{self, Mapped};
use crate::reading::{self, Told};
use crate::sites::{self, Found};
use crate::spec::{Do, Place, Spec, What};
use crate::steps::{About, NoEvent, Steps, Watching};

/// How many names are told that are much like one that is not there.
const NEAR: usize = 5;

/// How many threads all timers together have room for: what a thread needs is a cache line, so these take 32 MiB if all are used.
const TIMED: usize = 1 << 19;

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
    /// Several functions are called so, where one is meant.
    #[error("several functions are called {wanted}: {}", .there.join(", "))]
    Several {
        /// What was asked for.
        wanted: String,
        /// Some of them, as they can be named.
        there: Vec<String>,
    },
    /// The file has been replaced since the program was started.
    #[error(
        "{path} is not the file any more that the program runs: restart the program, or put the old file back"
    )]
    Replaced {
        /// Its path.
        path: PathBuf,
    },
    /// Events have nowhere to go.
    #[error("{name} cannot be recorded: {why}")]
    NoEvent {
        /// What was to be recorded.
        name: String,
        /// Why not.
        why: &'static str,
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
    /// What is done there.
    pub actions: Vec<Watching>,
}

/// Places that can be watched, and how.
#[derive(Debug)]
pub struct Prepared<'s> {
    /// What will be watched.
    pub watched: Vec<Watched>,
    /// Places that cannot be, and why.
    pub refused: Vec<(String, String)>,
    plan: Plan,
    cells: u32,
    session: Option<&'s Session>,
}

/// Probes in a program. They stay until [`remove`](Self::remove) or [`remains::repair`].
#[derive(Debug)]
pub struct Watch {
    /// What is watched.
    pub watched: Vec<Watched>,
    installed: Installed,
    process: u32,
    began: Instant,
}

/// Places before it is decided which of them can be had.
#[derive(Default)]
struct Wanted<'s> {
    session: Option<&'s Session>,
    threads: u32,
    sites: Vec<Site>,
    /// Sites by address.
    at: BTreeMap<(u64, At), usize>,
    /// Of each site: the place that it is of.
    of: Vec<usize>,
    watched: Vec<Watched>,
    refused: Vec<(String, String)>,
    cells: u32,
}

/// Resolves specifications in a program, and decides how each place is spliced. Nothing is changed. Events go to `session`.
///
/// # Errors
/// [`Error`]: a name that nothing has, a file that cannot be read, nothing that can be watched.
pub fn prepare<'s>(
    program: &Program,
    specs: &[Spec],
    session: Option<&'s Session>,
) -> Result<Prepared<'s>, Error> {
    let mapped = modules::of(program)?;
    let mut opened = BTreeMap::new();
    let mut places = Vec::new();
    for spec in specs {
        for place in &spec.places {
            let found = found(&mapped, &mut opened, place)?;
            places.extend(found.into_iter().map(|(index, found)| (spec, index, found)));
        }
    }
    let lines = |action: &Do| match action {
        Do::Durations(_) => (DURATIONS / TIMER) as usize,
        _ => usize::from(action.is_timed()),
    };
    let timers = places.iter().map(|(spec, ..)| spec.actions.iter().map(lines).sum::<usize>());
    let threads = (TIMED / timers.sum::<usize>().max(1)).clamp(16, 1024) as u32;
    let threads = 1 << threads.ilog2();
    let mut wanted = Wanted { session, threads, ..Wanted::default() };
    for (spec, index, found) in places {
        let (module, bias) = &opened[&index];
        wanted.add(&mapped[index], module, *bias, &found, spec)?;
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

/// A file of the program, analysed, and what the program adds to its addresses.
pub(crate) fn open(mapped: &Mapped) -> Result<(Module, u64), Error> {
    let module = mapped.open()?;
    let bias = mapped.bias(&module);
    let bias = bias.ok_or_else(|| Error::Replaced { path: mapped.path.clone() })?;
    Ok((module, bias))
}

/// Places that one place of a specification names, by the number of their file; files are opened as they are needed.
pub(crate) fn found(
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
            free.insert(open(&mapped[index])?);
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

impl<'s> Wanted<'s> {
    fn add(
        &mut self,
        file: &Mapped,
        module: &Module,
        bias: u64,
        found: &Found,
        spec: &Spec,
    ) -> Result<(), Error> {
        let label = format!("{}:{}", file.name(), found.name);
        let go = module.function(found.function).convention == Convention::Go;
        let (threads, session) = (self.threads, self.session);
        let about = About { name: &label, go, threads, session };
        let (steps, own) = Steps::new(spec, &about, self.cells).map_err(|NoEvent| {
            let why = match self.session {
                Some(_) => "there are too many events; name fewer places",
                None => "records go into traces: see `refit record -e`",
            };
            Error::NoEvent { name: label.clone(), why }
        })?;
        let sites = match sites::sites(module, found, bias, &steps) {
            Ok(sites) => sites,
            Err(why) => {
                self.refused.push((label, why.to_string()));
                return Ok(());
            }
        };
        self.cells = own.last().map_or(self.cells, Watching::end);
        let Some(address) = sites.first().map(|site| site.address) else { return Ok(()) };
        let taken = |site: &Site| self.at.get(&(site.address, site.at)).map(|&at| self.of[at]);
        let place = match sites.iter().find_map(taken) {
            None => self.watched.len(),
            // Another probe of the same place.
            Some(place) if self.watched[place].address == address => place,
            Some(_) => {
                let why = "another probe is in its way; name each function once";
                self.refused.push((label, why.to_owned()));
                return Ok(());
            }
        };
        for site in sites {
            match self.at.get(&(site.address, site.at)) {
                Some(&at) => self.sites[at].actions.extend(site.actions),
                None => {
                    self.of.push(place);
                    self.at.insert((site.address, site.at), self.sites.len());
                    self.sites.push(site);
                }
            }
        }
        match self.watched.get_mut(place) {
            Some(watched) => watched.actions.extend(own),
            None => {
                let (name, module) = (found.name.clone(), file.name());
                self.watched.push(Watched { module, name, address, actions: own });
            }
        }
        Ok(())
    }

    /// A place is watched if all its sites can be had.
    fn decide(mut self) -> Result<Prepared<'s>, Error> {
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
        let Self { session, watched, refused, cells, .. } = self;
        Ok(Prepared { watched, refused, plan, cells, session })
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

impl Prepared<'_> {
    /// What will change in the program, a line per site.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.plan.lines()
    }

    /// Puts the probes into the program.
    ///
    /// # Errors
    /// [`Error`]; the program is as before then.
    pub fn install(self, program: &Program) -> Result<Watch, Error> {
        let installed = Installed::new(program, &self.plan, self.cells, self.session)?;
        let (watched, process) = (self.watched, program.id());
        Ok(Watch { watched, installed, process, began: Instant::now() })
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
    pub fn read(&self, watching: &Watching) -> std::io::Result<Told> {
        reading::read(&self.installed, watching, self.process, self.began.elapsed())
    }

    /// Takes the probes out; what they told can still be read. Returns what has become of all that was in the program.
    ///
    /// # Errors
    /// [`Why`]: the program cannot be changed any more.
    pub fn remove(&self, program: &Program) -> Result<Removed, Why> {
        take_out(program)
    }
}

/// Takes out of the program whatever refit has put there.
pub(crate) fn take_out(program: &Program) -> Result<Removed, Why> {
    match remains::repair(program) {
        // With the program its code is gone.
        Err(_) if program.ended() => Ok(Removed::default()),
        repaired => repaired,
    }
}
