//! Triggers, which switch instruments on and off depending on the number of records, their rate, or
//! a condition (Kohr 1994, §3.1). The recorder evaluates them while it records.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::session::{Session, Switch};

/// One or several instruments of a session, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// The instruments of this name that the session knows at the time of use.
    Instrument(String),
    /// All instruments that belong to this manager.
    Manager(String),
    /// All instruments.
    System,
}

/// The measurements of the instruments that a trigger watches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observed {
    /// The number of records, additions and runs of all of them.
    pub volume: u64,
    /// The same number per second since the last evaluation.
    pub rate: f64,
}

/// The condition of a trigger.
#[derive(Clone)]
pub enum When {
    /// There were at least this many records, additions and runs.
    Volume(u64),
    /// There are at least this many per second.
    Rate(f64),
    /// There are fewer than this many per second.
    Calm(f64),
    /// The function returns true.
    Condition(Arc<dyn Fn(Observed) -> bool + Send + Sync>),
}

impl fmt::Debug for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Volume(volume) => write!(f, "Volume({volume})"),
            Self::Rate(rate) => write!(f, "Rate({rate})"),
            Self::Calm(rate) => write!(f, "Calm({rate})"),
            Self::Condition(_) => f.write_str("Condition(…)"),
        }
    }
}

/// The action of a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Suspends the instruments.
    Suspend,
    /// Resumes instruments that were suspended in the same way.
    Resume,
}

/// Watches some instruments and switches some. Acts once each time that its condition becomes true.
#[derive(Clone, Debug)]
pub struct Trigger {
    watched: Chosen,
    when: When,
    act: Act,
    target: Chosen,
    acted: bool,
    volume: Option<u64>,
}

impl Trigger {
    /// Creates a trigger that performs `act` on `target` when `watched` satisfies the condition.
    pub fn new(watched: Chosen, when: When, act: Act, target: Chosen) -> Self {
        Self { watched, when, act, target, acted: false, volume: None }
    }

    /// Evaluates the condition, `elapsed` after the last evaluation, and acts if it has become
    /// true. Returns whether it acted.
    pub fn look(&mut self, session: &Session, elapsed: Duration) -> bool {
        let volume = volume(session, &self.watched);
        // There is no rate before the first evaluation; a reset starts again.
        let more = volume.saturating_sub(self.volume.unwrap_or(volume));
        self.volume = Some(volume);
        let seconds = elapsed.as_secs_f64();
        let rate = if seconds > 0.0 { more as f64 / seconds } else { 0.0 };
        let is = match &self.when {
            When::Volume(most) => volume >= *most,
            When::Rate(most) => rate >= *most,
            When::Calm(least) => rate < *least,
            When::Condition(is) => is(Observed { volume, rate }),
        };
        let acts = is && !self.acted;
        self.acted = is;
        if acts {
            switch(session, &self.target, self.act == Act::Suspend);
        }
        acts
    }
}

fn volume(session: &Session, chosen: &Chosen) -> u64 {
    let ids = session.definitions().into_iter().filter(|definition| match chosen {
        Chosen::Instrument(name) => definition.name == *name,
        Chosen::Manager(name) => definition.manager == *name,
        Chosen::System => true,
    });
    ids.map(|definition| session.area().totals(definition.id)[0]).sum()
}

fn switch(session: &Session, chosen: &Chosen, suspended: bool) {
    match chosen {
        Chosen::System => session.switch_system(suspended),
        Chosen::Manager(name) => session.switch_manager(name, suspended),
        Chosen::Instrument(name) => {
            let named = session.definitions().into_iter().filter(|d| d.name == *name);
            named.for_each(|d| session.switch_one(d.id, Switch::Own, suspended));
        }
    }
}
