//! Watches programs: resolves specifications to sites, installs these together, and reads their
//! counts while the program runs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use rayon::prelude::*;
use refit_instruments::session::Session;
use refit_splice::process::Program;
use refit_splice::remains::Removed;
use refit_splice::{
    AHEAD, Changed, DURATIONS, Installed, Key, Lanes, Moved, Plan, StopTimes, TIMER, Why,
};

use crate::action::Do;
use crate::argument::{Argument, PlaceKind};
use crate::datum::{Context, Datum, Moment};
pub use crate::error::Error;
use crate::files::{Files, Spot};
use crate::hot::Hot;
use crate::kept_maps;
use crate::kept_types::{self, TypesOfFiles};
use crate::modules::Mapped;
use crate::places::CodePlace;
use crate::placing::{self, Placed};
use crate::printing::{Printed, Printing};
use crate::reading::{self, Counts};
use crate::session::ProbeSession;
use crate::spec::Spec;
use crate::stacks::{Images, StackFrame};
use crate::steps::Watching;
use crate::tail_calls::{Followed, TailCalls};
use crate::wanted::{Decided, Sites, Wanted};
pub use crate::wanted::{Unseen, Watched};

/// Number of threads that all timers together have room for. A thread needs a cache line in each
/// timer, so that number of them takes 32 MiB.
const TIMED: usize = 1 << 19;

/// Places that can be watched, with the plan for it.
#[derive(Debug)]
pub struct Prepared<'s> {
    /// Places that will be watched.
    pub watched: Vec<Watched>,
    /// Places that cannot be, and why.
    pub refused: Vec<(String, String)>,
    plan: Plan,
    cells: u32,
    /// The map that has the marks of functions that others return for, if there are any.
    marks: Option<u16>,
    session: Option<&'s Session>,
    files: Files,
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
    marks: Option<u16>,
    began: Instant,
    /// The functions that are only counted, unless their sites stay where they are.
    hot: Option<Hot>,
}

/// A reader of counts. What it reads ahead is as old as itself.
#[derive(Debug)]
pub struct Reader<'w> {
    watch: &'w Watch,
    lanes: Lanes<'w>,
}

impl Reader<'_> {
    /// Reads what an action of a place has counted.
    ///
    /// # Errors
    /// The error of reading the cells.
    pub fn read(&mut self, watching: &Watching) -> std::io::Result<Counts> {
        let Watch { installed, process, began, .. } = self.watch;
        reading::read(installed, &mut self.lanes, watching, *process, began.elapsed())
    }
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
    let mut files = Files::new(program)?;
    let Named { places, missing } = named(&mut files, specs)?;
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
    let mut types = TypesOfFiles::new();
    let kept_types = kept_types::find(&places, &files, &mut types, &maps)?;
    let mut wanted = Wanted::new(session, threads, (maps, kept_types), missing);
    let mut asked = Vec::with_capacity(places.len());
    for (spec, index, found) in places {
        let Some((module, bias)) = files.opened(index) else { continue };
        let at = (index, found.address.wrapping_add(bias));
        let module = (module, &*types.entry(index).or_default());
        asked.extend(wanted.ask(files.mapped(index).name(), module, at, found, spec)?);
    }
    let mut shared = BTreeMap::<Spot, usize>::new();
    asked.iter().for_each(|one| *shared.entry(one.spot()).or_default() += 1);
    // A probe that follows tail calls has sites in functions that no other one names.
    let follows = asked.iter().any(|one| one.steps.tail.is_some());
    // The functions are analysed on all processors.
    let placed: Vec<_> = asked
        .par_iter()
        .map(|one| {
            let (module, bias) = files.opened(one.file)?;
            let sole = shared[&one.spot()] == 1 && !follows;
            let at_entry =
                if sole { placing::at_entry(module, &one.found, bias, &one.steps) } else { None };
            Some(at_entry.map_or_else(|| placing::place(module, &one.found, bias, &one.steps), Ok))
        })
        .collect();
    let mut tail_calls = TailCalls::new(program, &mut files);
    for (one, placed) in asked.into_iter().zip(placed) {
        let Some(placed) = placed else { continue };
        let sites = placed.map_err(|why| why.to_string()).and_then(|placed| {
            let Placed { sites: mut own, jumps } = placed;
            let Followed { jumps, others, why } =
                tail_calls.follow(one.spot(), &one.steps, jumps)?;
            if let (true, true, Some(why)) = (own.is_empty(), others.is_empty(), &why) {
                return Err(format!("{why} (tail call)"));
            }
            own.extend(jumps);
            Ok(Sites { own, others, unseen: why })
        });
        wanted.add(one, sites);
    }
    let Decided { watched, refused, plan, cells, marks } = wanted.decide()?;
    Ok(Prepared { watched, refused, plan, cells, marks, session, files })
}

/// The places that specifications name.
struct Named<'s> {
    /// Each with the index of its file.
    places: Vec<(&'s Spec, usize, CodePlace)>,
    /// Places that the program does not have, and why.
    missing: Vec<(String, String)>,
}

fn named<'s>(files: &mut Files, specs: &'s [Spec]) -> Result<Named<'s>, Error> {
    let (mut places, mut missing) = (Vec::new(), Vec::new());
    for spec in specs {
        let before = places.len();
        let mut why = None;
        for place in &spec.places {
            match files.found(place) {
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
    Ok(Named { places, missing })
}

/// Returns the places that specifications name, with their files.
///
/// # Errors
/// As [`prepare`].
pub fn list(program: &Program, specs: &[Spec]) -> Result<Vec<(Mapped, CodePlace)>, Error> {
    let mut files = Files::new(program)?;
    let mut all = Vec::new();
    for place in specs.iter().flat_map(|spec| &spec.places) {
        let found = files.found(place)?.into_iter();
        all.extend(found.map(|(index, found)| (files.mapped(index).clone(), found)));
    }
    Ok(all)
}

impl Prepared<'_> {
    /// Describes the changes, a line per site.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.plan.lines()
    }

    /// Leaves out the places that would replace, or have to copy, bytes that have been changed
    /// already.
    pub fn leave_out(&mut self, changed: &Changed) {
        let left_out = self.plan.leave_out(changed);
        self.watched.retain(|place| !left_out.contains(&place.address));
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
        let (session, installed) = ProbeSession::install(
            "watch",
            program,
            &mut self.files,
            self.plan,
            self.cells,
            records,
        )?;
        let (watched, marks) = (self.watched, self.marks);
        let (process, began) = (program.id(), Instant::now());
        // A move takes some tenths of a second, in which messages would have to wait.
        let hot =
            if printing.is_none() { Hot::new(self.files, &watched, &installed) } else { None };
        Ok(Watch { watched, installed, session, process, images, printing, marks, began, hot })
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
        Reader { watch: self, lanes: self.installed.lanes(0) }.read(watching)
    }

    /// Begins to read what the actions of all places have counted, which takes few calls if they
    /// are read in order.
    pub fn reader(&self) -> Reader<'_> {
        Reader { watch: self, lanes: self.installed.lanes(AHEAD) }
    }

    /// Takes what an action of a place has counted up to now, if its least or greatest values, or
    /// numbers that it keeps ([`Do::is_taken`]): it begins anew. Each value is taken once.
    ///
    /// # Errors
    /// The error of mapping the cells.
    pub fn take(&self, watching: &Watching) -> std::io::Result<Counts> {
        reading::take(&self.installed, watching, None)
    }

    /// The same for some keys only, as [`Counts::keys`] has them.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn take_keys(&self, watching: &Watching, keys: &BTreeSet<u64>) -> std::io::Result<Counts> {
        reading::take(&self.installed, watching, Some(keys))
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

    /// Returns the number of returns of a place's function that were not seen so far
    /// ([`Watched::unseen`]).
    ///
    /// # Errors
    /// The error of reading the cells.
    pub fn unseen(&self, place: &Watched) -> std::io::Result<u64> {
        let Some(Unseen { cell, .. }) = &place.unseen else { return Ok(0) };
        self.installed.cell(*cell)
    }

    /// Returns the number of returns that were not seen so far for another reason: too many calls
    /// at a time had ended with a jump to another function.
    ///
    /// # Errors
    /// The error of reading the marks.
    pub fn unmarked(&self) -> std::io::Result<u64> {
        let Some(marks) = self.marks else { return Ok(0) };
        Ok(self.installed.kept(marks, false)?.lost)
    }

    /// Returns the number of messages for which there was no room so far.
    pub fn unprinted(&self) -> u64 {
        self.printing.as_ref().map_or(0, Printing::lost)
    }

    fn context<'a>(&'a self, place: &'a Watched, kind: PlaceKind, moment: Moment) -> Context<'a> {
        let (installed, images) = (&self.installed, self.images.as_ref());
        let (module, name) = (place.module.as_str(), place.name.as_str());
        Context { installed, images, module, name, kind, moment }
    }

    /// Moves the sites of functions that are only counted, and called often, to where they cost the
    /// program less; returns `None` if it is not time to look for them, or if there are none. To be
    /// called some times per second. If it fails, the sites stay where they are, and are not moved
    /// any more.
    ///
    /// # Errors
    /// [`Why`]: the counts cannot be read, or the program cannot be stopped or changed.
    pub fn move_hot(&mut self, program: &Program) -> Result<Option<Moved>, Why> {
        let Some(hot) = &mut self.hot else { return Ok(None) };
        let moved = hot.look(program, &mut self.installed, Instant::now());
        self.session.moved(&moved);
        if moved.is_err() {
            self.hot = None;
        }
        moved
    }

    /// Removes the probes; their counts can still be read. Returns what has been removed from the
    /// program.
    ///
    /// # Errors
    /// [`Why`]: the program can no longer be changed.
    pub fn remove(&self, program: &Program) -> Result<Removed, Why> {
        self.session.remove(program)
    }

    /// Removes the probes as [`remove`](Self::remove) does. Many probes are removed in several
    /// stops, which are shorter than one; their counts end one after the other.
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    pub fn remove_in_parts(&self, program: &Program) -> Result<Removed, Why> {
        self.session.remove_in_parts(program)
    }
}
