//! Turns actions into the steps at the entry and the exits of a function.

use std::sync::Arc;

use refit_instruments::definition::{FieldKind, Role};
use refit_instruments::record::{Phase, What};
use refit_instruments::session::{Described, Kind, Session};
use refit_splice::{Action, Base, Clock, Key, Step, TIMER, Value, Width};

use crate::action::Do;
use crate::argument::{self, Argument, PlaceKind};
use crate::forms::Facts;
use crate::spec::Spec;
use crate::statement::Statement;
use crate::tails::Tail;

/// Number of ways in which control leaves a function.
pub const WAYS: usize = 4;

/// The steps for one place.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    /// Steps at the place itself.
    pub here: Vec<Step>,
    /// Steps of `here` with a counterpart at the exits: they also run at other entries of the
    /// function.
    pub entering: Vec<Step>,
    /// Steps at the exits of its function.
    pub leaving: Vec<Step>,
    /// Steps at some exits only, by the way in which control leaves: to the caller, to another
    /// function by a jump, nowhere, in a call that never returns, or to the unwinder.
    pub ways: [Vec<Step>; WAYS],
    /// Whether a step at the exits reads a value that exists only when the function returns.
    pub returning: bool,
    /// Steps of `leaving` that end the time of a call. They also run where an exception leaves the
    /// function, and where it is not seen how the call goes on.
    pub ending: Vec<Step>,
    /// Means by which its return is seen in other functions.
    pub tail: Option<Tail>,
}

/// Facts about a place.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// Its name.
    pub name: &'a str,
    /// Whether it is Go code, whose goroutines move between threads.
    pub go: bool,
    /// Number of threads that a timer has room for: a power of two.
    pub threads: u32,
    /// The number of the next message.
    pub messages: u32,
    /// Session that receives records.
    pub session: Option<&'a Session>,
    /// Facts for formulas.
    pub facts: Facts<'a>,
}

/// An action at a place, with the cells that it counts into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watching {
    /// The action.
    pub what: Do,
    /// The parts of the key by which counts are separated.
    pub by: Vec<Argument>,
    /// The map that has the results of all places together, if there is one.
    pub map: Option<String>,
    /// Its step, which contains the number of its first cell.
    pub step: Step,
    /// Number of its first cell.
    pub first: u32,
    /// The kind of its place.
    pub kind: PlaceKind,
}

impl Watching {
    /// Returns the parts of its key, and the arguments of its message.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = &Argument> {
        self.by.iter().chain(self.what.arguments())
    }

    /// Returns the key under which its results are.
    pub(crate) fn key(&self) -> Option<&Key> {
        match &self.step.action {
            Action::Keep { kept, .. } => kept.key.as_ref(),
            _ => self.step.key.as_ref(),
        }
    }

    /// Returns the number of the cell after its last one.
    pub fn end(&self) -> u32 {
        self.first
            + match self.what {
                Do::Exits => 1 + WAYS as u32,
                _ => self.step.cells(),
            }
    }
}

/// Why an action is not possible at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoSteps {
    /// There is no session for its records, or the session is full of events.
    NoEvent,
    /// A number is not known there.
    NoNumber(String),
}

/// Name of the manager of the events of probes.
const MANAGER: &str = "probe";

impl Steps {
    /// Whether there are steps at exits.
    pub(crate) fn leave(&self) -> bool {
        !self.leaving.is_empty() || self.ways.iter().any(|way| !way.is_empty())
    }

    /// Whether all steps are at the place itself.
    pub(crate) fn are_here_only(&self) -> bool {
        !self.here.is_empty() && self.entering.is_empty() && !self.leave() && self.tail.is_none()
    }

    /// Returns the steps of `spec` at a place; cells are numbered from `first` on.
    ///
    /// # Errors
    /// [`NoSteps`]: an action is not possible there.
    pub fn new(
        spec: &Spec,
        about: &About<'_>,
        first: u32,
    ) -> Result<(Self, Vec<Watching>), NoSteps> {
        // Most probes of many places have one action.
        let number = spec.actions.len();
        let mut steps = Self { here: Vec::with_capacity(number), ..Self::default() };
        let (mut all, mut cell) = (Vec::with_capacity(number), first);
        let mut about = *about;
        for statement in &spec.actions {
            let watching = steps.add(spec, statement, &about, cell)?;
            about.messages += u32::from(statement.what.prints());
            cell = watching.end();
            if !matches!(watching.what, Do::Assign { .. }) {
                all.push(watching);
            }
        }
        if steps.leave() && spec.actions.iter().any(|one| one.what == Do::Poison) {
            steps.entering.push(Action::POISON.into());
            steps.leaving.push(Action::POISON.into());
        }
        Ok((steps, all))
    }

    /// Whether each step at an exit needs its own one at an entry.
    pub(crate) fn times(&self) -> bool {
        let poisons = |step: &Step| matches!(step.action, Action::Poison { .. });
        !self.entering.iter().all(poisons)
    }

    fn add(
        &mut self,
        spec: &Spec,
        statement: &Statement,
        about: &About<'_>,
        cell: u32,
    ) -> Result<Watching, NoSteps> {
        let Statement { what, by, map, .. } = statement;
        if *what == Do::Exits {
            return Ok(self.count_exits(statement, spec.kind(), cell));
        }
        let cell = if what.is_timed() { cell.next_multiple_of(TIMER) } else { cell };
        let (entry, exit) = match what {
            _ if what.is_timed() => timed(statement, about, cell)?,
            _ => (single(statement, about, cell)?, None),
        };
        let (what, map, kind) = (what.clone(), map.clone(), spec.kind());
        let watching =
            Watching { what, by: by.clone(), map, step: entry.clone(), first: cell, kind };
        let leaves = spec.leaving || statement.leaves();
        self.returning |= leaves;
        match exit {
            // A timed action begins at the entry, and ends where the function returns.
            Some(exit) => {
                self.entering.push(entry.clone());
                self.here.push(entry);
                self.leaving.push(exit.clone());
                self.ending.push(exit);
            }
            None if leaves => self.leaving.push(entry),
            None => self.here.push(entry),
        }
        Ok(watching)
    }
}

impl Steps {
    /// Adds the counts of entries, and of exits by each way, in cells one after the other.
    fn count_exits(&mut self, statement: &Statement, kind: PlaceKind, first: u32) -> Watching {
        let count = |cell| {
            let when = statement.when.clone();
            Step { when, key: None, action: Action::Count { cell } }
        };
        let step = count(first);
        self.here.push(step.clone());
        self.entering.push(step.clone());
        for (way, cell) in self.ways.iter_mut().zip(first + 1..) {
            way.push(count(cell));
        }
        Watching { what: Do::Exits, by: Vec::new(), map: None, step, first, kind }
    }
}

/// Returns the step of an action that is not timed.
fn single(statement: &Statement, about: &About<'_>, cell: u32) -> Result<Step, NoSteps> {
    let Statement { what, by, map, when, .. } = statement;
    let action = match what {
        Do::Histogram(number) => Action::Histogram { cell, value: value(number) },
        Do::Linear { bucket, buckets, .. } => {
            Action::Buckets { cell, value: value(bucket), count: buckets.number() }
        }
        Do::Fold(fold, number) => Action::Fold { cell, value: value(number), fold: fold.kept() },
        Do::Assign { local, value, first } => {
            let formula = value.formula(&about.facts).map_err(NoSteps::NoNumber)?;
            let formula = Arc::new(formula);
            Action::Assign { local: *local, formula, first: *first }
        }
        Do::Keep { value: number, adds, .. } => {
            let name = map.as_deref().unwrap_or_default();
            let kept = argument::kept(name, by, about.facts.maps);
            Action::Keep { kept, value: value(number), adds: *adds }
        }
        Do::Poison => return Ok(Action::POISON.into()),
        Do::Event(numbers) => {
            let payload = [0, 1].map(|at| numbers.get(at).map(value));
            Action::Event { what: define(about, numbers, Phase::Point)?, payload }
        }
        Do::Print(format) => {
            let items = format.arguments().iter().flat_map(Argument::items).collect();
            Action::Print { what: about.messages, items }
        }
        // Timed actions have two steps.
        Do::Count
        | Do::Latency
        | Do::Cpu
        | Do::Concurrency
        | Do::Exits
        | Do::Durations(_)
        | Do::Span => Action::Count { cell },
    };
    // A value is kept under a key in a map, not in cells of its own.
    let counts = action.cells() > 0;
    Ok(Step { when: when.clone(), key: argument::key(by).filter(|_| counts), action })
}

/// Returns the steps of a timed action at the entry and at the exits.
fn timed(
    statement: &Statement,
    about: &About<'_>,
    cell: u32,
) -> Result<(Step, Option<Step>), NoSteps> {
    let Statement { what, by, when, .. } = statement;
    let step = |action, key| Step { when: when.clone(), key, action };
    if *what == Do::Span {
        let event = |phase| {
            let what = define(about, &[], phase)?;
            Ok(step(Action::Event { what, payload: [None, None] }, None))
        };
        return Ok((event(Phase::Begin)?, Some(event(Phase::End)?)));
    }
    let clock = match *what {
        Do::Cpu => Clock::Thread,
        Do::Durations(clock) => clock,
        _ => Clock::Wall,
    };
    // The reader of the cells looks up the CPU time of a thread by its id.
    let base = match (clock, &by[..]) {
        (_, [_, ..]) | (Clock::Thread, _) => Base::Thread,
        _ if about.go => Base::Goroutine,
        _ => Base::Context,
    };
    let threads = about.threads;
    let time = |enters| {
        let action = match what {
            Do::Durations(_) => Action::Durations { cell, threads, enters, clock },
            _ => Action::Time { cell, threads, enters, clock },
        };
        step(action, Some(Key::Value(Value { base, width: Width::Whole })))
    };
    Ok((time(true), Some(time(false))))
}

/// Returns the value that a number is once it is lowered.
fn value(number: &Argument) -> Value {
    let none = Value { base: Base::Process, width: Width::Whole };
    number.operand().map_or(none, |operand| operand.value)
}

/// Defines the event that the records of a place have, and returns its word for a phase.
fn define(about: &About<'_>, numbers: &[Argument], phase: Phase) -> Result<u32, NoSteps> {
    let names: Vec<String> = numbers.iter().map(Argument::to_string).collect();
    let signed = |number| matches!(value(number).width, Width::I8 | Width::I16 | Width::I32);
    let kind = |number| if signed(number) { FieldKind::I64 } else { FieldKind::U64 };
    let fields: Vec<_> = names.iter().map(String::as_str).zip(numbers.iter().map(kind)).collect();
    let described = Described {
        name: about.name,
        manager: MANAGER,
        kind: Kind::Event,
        role: Role::Plain,
        fields: &fields,
        parent: 0,
    };
    let id =
        about.session.and_then(|session| session.define(&described)).ok_or(NoSteps::NoEvent)?;
    Ok(What::new(id, phase).word())
}
