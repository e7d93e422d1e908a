//! Places that were asked for, with their actions and sites, until it is decided which of them are
//! watched.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use rayon::prelude::*;
use refit_analysis::Module;
use refit_analysis::functions::Convention;
use refit_analysis::types::Types;
use refit_instruments::session::Session;
use refit_splice::{At, Plan, Site};

use crate::argument::Maps;
use crate::error::Error;
use crate::files::Spot;
use crate::forms::{Facts, KeptTypes};
use crate::places::CodePlace;
use crate::spec::Spec;
use crate::steps::{About, NoSteps, Steps, Watching};
use crate::tails::{self, Tail};

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
    /// The returns of its function that are not seen, if there may be some.
    pub unseen: Option<Unseen>,
}

/// Returns of a function that are not seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unseen {
    /// Number of the cell that has their count.
    pub(crate) cell: u32,
    /// Why they are not seen.
    pub why: String,
}

/// Requested places, before it is decided which of them can be watched.
#[derive(Default)]
pub(crate) struct Wanted<'s> {
    session: Option<&'s Session>,
    threads: u32,
    /// The maps that keep values. The next one has the marks of functions that others return for.
    maps: Maps,
    /// The types of the addresses that they keep.
    kept_types: KeptTypes,
    /// Sites, each with the index of its place.
    sites: Vec<(usize, Site)>,
    /// The place that has a site there, in its own function.
    at: BTreeMap<(u64, At), usize>,
    watched: Vec<Watched>,
    refused: Vec<(String, String)>,
    cells: u32,
    messages: u32,
    /// Number of places that were asked for.
    asked: usize,
}

/// A place that was asked for, with the steps of its actions.
pub(crate) struct Asked {
    /// Its name with that of its file.
    label: String,
    /// Name of its file.
    module: String,
    /// Index of its file.
    pub(crate) file: usize,
    pub(crate) found: CodePlace,
    semaphore: Option<u64>,
    pub(crate) steps: Steps,
    own: Vec<Watching>,
}

impl Asked {
    /// Returns its function.
    pub(crate) fn spot(&self) -> Spot {
        Spot { file: self.file, function: self.found.function }
    }
}

/// The sites of a place.
#[derive(Default)]
pub(crate) struct Sites {
    /// Sites in its function.
    pub(crate) own: Vec<Site>,
    /// Sites in functions that return for it.
    pub(crate) others: Vec<Site>,
    /// Why some returns of its function are not seen.
    pub(crate) unseen: Option<String>,
}

/// Places that can be watched.
pub(crate) struct Decided {
    pub(crate) watched: Vec<Watched>,
    /// Places that cannot be, and why.
    pub(crate) refused: Vec<(String, String)>,
    pub(crate) plan: Plan,
    /// Number of their cells.
    pub(crate) cells: u32,
    /// The map that has the marks of functions that others return for, if there are any.
    pub(crate) marks: Option<u16>,
}

impl<'s> Wanted<'s> {
    /// Begins without places. Records go to `session`, a timer has room for `threads`; places that
    /// the program does not have are refused already.
    pub(crate) fn new(
        session: Option<&'s Session>,
        threads: u32,
        (maps, kept_types): (Maps, KeptTypes),
        refused: Vec<(String, String)>,
    ) -> Self {
        Self { session, threads, maps, kept_types, refused, ..Self::default() }
    }

    /// Assigns cells to the actions of a place. `None` if it is refused.
    pub(crate) fn ask(
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
        let Self { threads, session, messages, ref maps, ref kept_types, .. } = *self;
        let find = || types.get_or_init(|| Types::of(module.image())).as_ref();
        let in_file = found.address;
        let tracepoint = found.tracepoint.and_then(|at| module.image().tracepoints().get(at));
        let semaphore = tracepoint.and_then(|one| one.semaphore);
        let semaphore = semaphore.map(|at| at.wrapping_add(address.wrapping_sub(in_file)));
        let (module_name, declared) = (&*name, &*spec.declared);
        let facts = Facts {
            maps,
            kept_types,
            address,
            in_file,
            file,
            module: module_name,
            tracepoint,
            types: &find,
            declared,
        };
        let about = About { name: &label, go, threads, messages, session, facts };
        let (mut steps, own) = match Steps::new(spec, &about, self.cells) {
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
        let numbers = (self.marks(), u16::try_from(self.asked));
        if let (true, (Some(map), Ok(number))) = (steps.returning, numbers) {
            steps.tail = Tail::new(map, number, self.cells, [&steps.leaving, &steps.ending]);
            self.cells += 1;
        }
        self.asked += 1;
        self.messages += own.iter().filter(|one| one.what.prints()).count() as u32;
        Ok(Some(Asked { label, module: name, file, found, semaphore, steps, own }))
    }

    /// Returns the number of the map that has the marks.
    fn marks(&self) -> Option<u16> {
        u16::try_from(self.maps.len()).ok()
    }

    /// Adds a place with its sites, unless they are not possible.
    pub(crate) fn add(&mut self, asked: Asked, sites: Result<Sites, String>) {
        let Asked { label, module, found, semaphore, own, steps, .. } = asked;
        let sites = match sites {
            Ok(sites) => sites,
            Err(why) => {
                self.refused.push((label, why));
                return;
            }
        };
        let Some(address) = sites.own.first().map(|site| site.address) else { return };
        let taken = |site: &Site| self.at.get(&(site.address, site.at)).copied();
        let place = match sites.own.iter().find_map(taken) {
            None => self.watched.len(),
            // Another specification names the same place.
            Some(place) if self.watched[place].address == address => place,
            Some(_) => {
                let why = "another probe is at the same place; name each function once";
                self.refused.push((label, why.to_owned()));
                return;
            }
        };
        let cell = steps.tail.as_ref().map(Tail::unseen);
        let unseen = sites.unseen.zip(cell).map(|(why, cell)| Unseen { cell, why });
        self.at.extend(sites.own.iter().map(|site| ((site.address, site.at), place)));
        let all = sites.own.into_iter().chain(sites.others);
        self.sites.extend(all.map(|site| (place, site)));
        match self.watched.get_mut(place) {
            Some(watched) => {
                watched.actions.extend(own);
                watched.unseen = watched.unseen.take().or(unseen);
            }
            None => {
                let (name, actions) = (found.name, own);
                self.watched.push(Watched { module, name, address, semaphore, actions, unseen });
            }
        }
    }

    /// Decides which places are watched: those of which every site is possible.
    ///
    /// # Errors
    /// [`Error::Nothing`]: none is.
    pub(crate) fn decide(mut self) -> Result<Decided, Error> {
        let plan = loop {
            let (sites, of) = self.joined();
            let (plan, refused) = Plan::new(sites);
            let mut lost = BTreeMap::new();
            for (at, why) in &refused {
                for &place in &of[*at] {
                    lost.entry(place).or_insert_with(|| why.to_string());
                }
            }
            self.drop_places(&lost);
            // The plan may have other sites of places that are lost.
            let sites = of.iter().filter(|places| places.iter().any(|one| lost.contains_key(one)));
            if sites.count() == refused.len() {
                break plan;
            }
        };
        if self.watched.is_empty() {
            let first = self.refused.first().map(|(name, why)| format!("{name}: {why}"));
            return Err(Error::Nothing { first: first.unwrap_or_default() });
        }
        let mut steps = self.sites.iter().flat_map(|(_, site)| &site.actions);
        let marks = self.marks().filter(|map| steps.any(|step| tails::is_mark(step, *map)));
        let Self { watched, refused, cells, .. } = self;
        Ok(Decided { watched, refused, plan, cells, marks })
    }

    /// Returns the sites, those at the same instruction as one, and the places of each.
    fn joined(&self) -> (Vec<Site>, Vec<Vec<usize>>) {
        let mut groups = Vec::<Vec<&(usize, Site)>>::new();
        let mut at = BTreeMap::new();
        for one @ (_, site) in &self.sites {
            match at.entry((site.address, site.at)) {
                Entry::Vacant(free) => {
                    free.insert(groups.len());
                    groups.push(vec![one]);
                }
                Entry::Occupied(there) => groups[*there.get()].push(one),
            }
        }
        let joined = groups.into_par_iter().map(|group| {
            let mut site = group[0].1.clone();
            site.actions.extend(group[1..].iter().flat_map(|(_, other)| &other.actions).cloned());
            (site, group.iter().map(|(place, _)| *place).collect())
        });
        joined.unzip()
    }

    fn drop_places(&mut self, lost: &BTreeMap<usize, String>) {
        self.sites.retain(|(place, _)| !lost.contains_key(place));
        for (place, _) in &mut self.sites {
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
