//! Watches programs: resolves specifications to sites, installs these together, and reads their
//! counts while the program runs.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::time::Instant;

use rayon::prelude::*;
use refit_analysis::Module;
use refit_analysis::functions::Convention;
use refit_analysis::types::Types;
use refit_instruments::session::Session;
use refit_splice::process::Program;
use refit_splice::remains::Removed;
use refit_splice::{At, DURATIONS, Installed, Key, Plan, Site, StopTimes, TIMER, Why};

use crate::action::Do;
use crate::argument::{Argument, Maps};
use crate::computing::Facts;
use crate::datum::{Context, Datum, Moment};
pub use crate::error::Error;
use crate::kept_maps;
use crate::modules::{self, Mapped};
use crate::places::{self, CodePlace};
use crate::printing::{Printed, Printing};
use crate::reading::{self, Counts};
use crate::session::ProbeSession;
use crate::sites::{self, NoSite};
use crate::spec::{Place, Spec, What};
use crate::stacks::{Images, StackFrame};
use crate::steps::{About, NoSteps, Steps, Watching};

/// Maximum number of similar names that an error lists.
const NEAR: usize = 5;

/// Number of threads that all timers together have room for. A thread needs a cache line in each
/// timer, so that number of them takes 32 MiB.
const TIMED: usize = 1 << 19;

/// Maximum number of bytes that are gathered on the stack in Go code.
const MOST_IN_GO: usize = 128;

/// A place that is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// Name of the file.
    pub module: String,
    /// The function, or function and offset.
    pub name: String,
    /// Address in the program.
    pub address: u64,
    /// Address of the semaphore that a static tracepoint has.
    pub semaphore: Option<u64>,
    /// Its actions.
    pub actions: Vec<Watching>,
}

/// Places that can be watched, with the plan for it.
#[derive(Debug)]
pub struct Prepared<'s> {
    /// Places that will be watched.
    pub watched: Vec<Watched>,
    /// Places that cannot be, and why.
    pub refused: Vec<(String, String)>,
    plan: Plan,
    cells: u32,
    session: Option<&'s Session>,
}

/// Probes installed in a program. They stay until [`remove`](Self::remove) or
/// [`remains::repair`](refit_splice::remains::repair).
#[derive(Debug)]
pub struct Watch {
    /// Places that are watched.
    pub watched: Vec<Watched>,
    installed: Installed,
    session: ProbeSession,
    process: u32,
    /// The files whose code is on stacks, if stacks or names of functions are asked for.
    images: Option<Images>,
    printing: Option<Printing>,
    began: Instant,
}

/// Requested places, before it is decided which of them can be watched.
#[derive(Default)]
struct Wanted<'s> {
    session: Option<&'s Session>,
    threads: u32,
    sites: Vec<Site>,
    /// Sites by address.
    at: BTreeMap<(u64, At), usize>,
    /// The place of each site.
    of: Vec<usize>,
    watched: Vec<Watched>,
    refused: Vec<(String, String)>,
    cells: u32,
    messages: u32,
    maps: Maps,
}

/// A place that was asked for, with the steps of its actions.
struct Asked {
    /// Its name with that of its file.
    label: String,
    /// Name of its file.
    module: String,
    /// Index of its file.
    file: usize,
    found: CodePlace,
    semaphore: Option<u64>,
    steps: Steps,
    own: Vec<Watching>,
}

/// Resolves specifications in a program, and decides how each place is spliced. Changes nothing.
/// Events go to `session`.
///
/// # Errors
/// [`Error`]: a name that nothing has, a file that cannot be read, no place that can be watched.
pub fn prepare<'s>(
    program: &Program,
    specs: &[Spec],
    session: Option<&'s Session>,
) -> Result<Prepared<'s>, Error> {
    if specs.iter().any(Spec::prints) && specs.iter().any(Spec::records) {
        return Err(Error::Mixed);
    }
    let mapped = modules::of(program)?;
    let mut opened = BTreeMap::new();
    let (mut places, mut missing) = (Vec::new(), Vec::new());
    for spec in specs {
        let before = places.len();
        let mut why = None;
        for place in &spec.places {
            match found(&mapped, &mut opened, place) {
                Ok(found) => {
                    places.extend(found.into_iter().map(|(index, found)| (spec, index, found)));
                }
                Err(
                    error @ (Error::NoModule { .. }
                    | Error::NoFunction { .. }
                    | Error::NoTracepoint { .. }),
                ) => {
                    missing.push((place.to_string(), error.to_string()));
                    why = why.or(Some(error));
                }
                Err(error) => return Err(error),
            }
        }
        // A probe may name places that only some programs have.
        match why {
            Some(error) if places.len() == before => return Err(error),
            _ => {}
        }
    }
    let lines = |action: &Do| match action {
        Do::Durations(_) => (DURATIONS / TIMER) as usize,
        _ => usize::from(action.is_timed()),
    };
    let timers = places
        .iter()
        .map(|(spec, ..)| spec.actions.iter().map(|one| lines(&one.what)).sum::<usize>());
    let threads = (TIMED / timers.sum::<usize>().max(1)).clamp(16, 1024) as u32;
    let threads = 1 << threads.ilog2();
    let maps = kept_maps::number(specs)?;
    let mut wanted = Wanted { session, threads, refused: missing, maps, ..Wanted::default() };
    let mut asked = Vec::with_capacity(places.len());
    let mut types = BTreeMap::<usize, OnceCell<Option<Types>>>::new();
    for (spec, index, found) in places {
        let (module, bias) = &opened[&index];
        let at = (index, found.address.wrapping_add(*bias));
        let module = (module, &*types.entry(index).or_default());
        asked.extend(wanted.ask(mapped[index].name(), module, at, found, spec)?);
    }
    // The functions are analysed on all processors.
    let sites: Vec<_> = asked
        .par_iter()
        .map(|one| {
            let (module, bias) = &opened[&one.file];
            sites::sites(module, &one.found, *bias, &one.steps)
        })
        .collect();
    asked.into_iter().zip(sites).for_each(|(one, sites)| wanted.add(one, sites));
    wanted.decide()
}

/// Returns the places that specifications name, with their files.
///
/// # Errors
/// As [`prepare`].
pub fn list(program: &Program, specs: &[Spec]) -> Result<Vec<(Mapped, CodePlace)>, Error> {
    let mapped = modules::of(program)?;
    let mut opened = BTreeMap::new();
    let mut all = Vec::new();
    for place in specs.iter().flat_map(|spec| &spec.places) {
        let found = found(&mapped, &mut opened, place)?;
        all.extend(found.into_iter().map(|(index, found)| (mapped[index].clone(), found)));
    }
    Ok(all)
}

/// Analyses a file of the program; also returns the distance of addresses in the program from those
/// in the file.
pub(crate) fn open(mapped: &Mapped) -> Result<(Module, u64), Error> {
    let module = mapped.open()?;
    let bias = mapped.bias(module.image());
    let bias = bias.ok_or_else(|| Error::Replaced { path: mapped.path.clone() })?;
    Ok((module, bias))
}

/// Returns the places that match one place of a specification, with the index of their file; opens
/// files on demand.
pub(crate) fn found(
    mapped: &[Mapped],
    opened: &mut BTreeMap<usize, (Module, u64)>,
    place: &Place,
) -> Result<Vec<(usize, CodePlace)>, Error> {
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
        let found = places::find(module, &place.what);
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

impl<'s> Wanted<'s> {
    /// Assigns cells to the actions of a place. `None` if it is refused.
    fn ask(
        &mut self,
        name: String,
        (module, types): (&Module, &OnceCell<Option<Types>>),
        (file, address): (usize, u64),
        found: CodePlace,
        spec: &Spec,
    ) -> Result<Option<Asked>, Error> {
        let label = format!("{name}:{}", found.name);
        let go = module.function(found.function).convention == Convention::Go;
        if go && spec.actions.iter().any(|one| one.gathered() > MOST_IN_GO) {
            let why = format!(
                "a goroutine's stack may have no room for more than {MOST_IN_GO} bytes of texts and values"
            );
            self.refused.push((label, why));
            return Ok(None);
        }
        let Self { threads, session, messages, ref maps, .. } = *self;
        let find = || types.get_or_init(|| Types::of(module.image())).as_ref();
        let in_file = found.address;
        let tracepoint = found.tracepoint.and_then(|at| module.image().tracepoints().get(at));
        let semaphore = tracepoint.and_then(|one| one.semaphore);
        let semaphore = semaphore.map(|at| at.wrapping_add(address.wrapping_sub(in_file)));
        let facts = Facts { maps, address, in_file, module: &name, tracepoint, types: &find };
        let about = About { name: &label, go, threads, messages, session, facts };
        let (steps, own) = match Steps::new(spec, &about, self.cells) {
            Ok(steps) => steps,
            Err(NoSteps::NoNumber(why)) => {
                self.refused.push((label, why));
                return Ok(None);
            }
            Err(NoSteps::NoEvent) => {
                let why = match self.session {
                    Some(_) => "there are too many events; name fewer places",
                    None => "records go into traces: see `refit record -e`",
                };
                return Err(Error::NoEvent { name: label, why });
            }
        };
        self.cells = own.last().map_or(self.cells, Watching::end);
        self.messages += own.iter().filter(|one| one.what.prints()).count() as u32;
        Ok(Some(Asked { label, module: name, file, found, semaphore, steps, own }))
    }

    /// Adds a place with its sites, unless they are not possible.
    fn add(&mut self, asked: Asked, sites: Result<Vec<Site>, NoSite>) {
        let Asked { label, module, found, semaphore, own, .. } = asked;
        let sites = match sites {
            Ok(sites) => sites,
            Err(why) => {
                self.refused.push((label, why.to_string()));
                return;
            }
        };
        let Some(address) = sites.first().map(|site| site.address) else { return };
        let taken = |site: &Site| self.at.get(&(site.address, site.at)).map(|&at| self.of[at]);
        let place = match sites.iter().find_map(taken) {
            None => self.watched.len(),
            // Another specification names the same place.
            Some(place) if self.watched[place].address == address => place,
            Some(_) => {
                let why = "another probe is at the same place; name each function once";
                self.refused.push((label, why.to_owned()));
                return;
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
                let name = found.name;
                self.watched.push(Watched { module, name, address, semaphore, actions: own });
            }
        }
    }

    /// Decides which places are watched: those of which every site is possible.
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
    /// Describes the changes, a line per site.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.plan.lines()
    }

    /// Installs the probes in the program.
    ///
    /// # Errors
    /// [`Error`]; the program is unchanged then.
    pub fn install(mut self, program: &Program) -> Result<Watch, Error> {
        self.plan.raise(self.watched.iter().filter_map(|place| place.semaphore));
        let walks = self.plan.walks_stacks();
        let actions = self.watched.iter().flat_map(|place| &place.actions);
        let names = walks || actions.flat_map(Watching::arguments).any(Argument::is_symbol);
        let images = names.then(|| Images::of(program)).transpose()?;
        if let Some(images) = images.as_ref().filter(|_| walks) {
            self.plan.walk(images.table());
        }
        let actions =
            self.watched.iter().enumerate().flat_map(|(index, place)| {
                place.actions.iter().map(move |watching| (index, watching))
            });
        let printing = Printing::of(actions).map_err(Error::Messages)?;
        let records = printing.as_ref().map(Printing::session).or(self.session);
        let (session, installed) =
            ProbeSession::install("watch", program, self.plan, self.cells, records)?;
        let (watched, process, began) = (self.watched, program.id(), Instant::now());
        Ok(Watch { watched, installed, session, process, images, printing, began })
    }
}

impl Watch {
    /// Returns how long the program was stopped to install them.
    pub fn stood(&self) -> StopTimes {
        self.installed.stood
    }

    /// Reads what an action of a place has counted up to now.
    ///
    /// # Errors
    /// The error of reading the cells.
    pub fn read(&self, watching: &Watching) -> std::io::Result<Counts> {
        reading::read(&self.installed, watching, self.process, self.began.elapsed())
    }

    /// Reads the stack with this number, as [`Installed::stack`] does. Numbers are the keys of
    /// actions by stacks; 0 stands for all stacks for which there was no room.
    ///
    /// # Errors
    /// The error of reading the cells.
    pub fn stack(&self, number: u64) -> std::io::Result<Option<Vec<u64>>> {
        self.installed.stack(number)
    }

    /// Names the frames of a stack. Those of inlined functions come before the frame that they are
    /// in.
    pub fn name_frames(&self, stack: &[u64]) -> Vec<StackFrame> {
        self.images.as_ref().map_or_else(Vec::new, |images| images.name(stack))
    }

    /// Returns the parts of a key of an action of a place; `None` if there was no room for it, or
    /// if it is not complete yet.
    ///
    /// # Errors
    /// The error of reading the cells.
    pub fn key(
        &self,
        place: &Watched,
        watching: &Watching,
        key: u64,
    ) -> std::io::Result<Option<Vec<Datum>>> {
        let words = match watching.key() {
            Some(Key::Tuple(_)) => self.installed.tuple(key)?,
            _ => Some(vec![key]),
        };
        let Some(words) = words else { return Ok(None) };
        let context = self.context(place, watching.kind, Moment::default());
        let data = context.decode(&watching.by, &words)?;
        Ok(Some(data).filter(|data| !data.contains(&Datum::NoStack)))
    }

    /// Takes the messages that the program has written since the last call, in the order of their
    /// times.
    ///
    /// # Errors
    /// The error of reading a stack.
    pub fn printed(&self) -> std::io::Result<Vec<Printed>> {
        let Some(printing) = &self.printing else { return Ok(Vec::new()) };
        printing.take(|place, kind, moment| self.context(&self.watched[place], kind, moment))
    }

    /// Returns the number of messages for which there was no room so far.
    pub fn unprinted(&self) -> u64 {
        self.printing.as_ref().map_or(0, Printing::lost)
    }

    fn context<'a>(
        &'a self,
        place: &'a Watched,
        kind: &'static str,
        moment: Moment,
    ) -> Context<'a> {
        let (installed, images) = (&self.installed, self.images.as_ref());
        let (module, name) = (place.module.as_str(), place.name.as_str());
        Context { installed, images, module, name, kind, moment }
    }

    /// Removes the probes; their counts can still be read. Returns what has been removed from the
    /// program.
    ///
    /// # Errors
    /// [`Why`]: the program can no longer be changed.
    pub fn remove(&self, program: &Program) -> Result<Removed, Why> {
        self.session.remove(program)
    }
}
