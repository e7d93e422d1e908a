//! The instruments of a session, for who is not one of its programs: what there is, what it holds, what is suspended.

use std::sync::atomic::Ordering;

use super::Session;
use super::definitions::{Kind, Switch};
use crate::definition::Definition;

/// An instrument of a session.
#[derive(Clone, Debug)]
pub struct Known {
    /// What it is called and what its records mean.
    pub definition: Definition,
    /// What it is.
    pub kind: Kind,
    /// How often it recorded, counted or ran, as far as the recorder has seen.
    pub count: u64,
    /// Why it is suspended; empty if it is not.
    pub suspended: Vec<&'static str>,
}

impl Session {
    /// All instruments but managers.
    pub fn instruments(&self) -> Vec<Known> {
        let known = |(_, kind, definition): (usize, Kind, Definition)| {
            let reasons = self.switch(definition.id).load(Ordering::Acquire);
            let why = [
                (Switch::Own, "itself"),
                (Switch::Manager, "manager"),
                (Switch::System, "system"),
                (Switch::Parent, "inherited"),
            ];
            let suspended = why.iter().filter(|(why, _)| reasons & *why as u64 != 0);
            let suspended = suspended.map(|(_, name)| *name).collect();
            let [count, _] = self.area().totals(definition.id);
            Known { definition, kind, count, suspended }
        };
        self.entries().filter(|(_, kind, _)| *kind != Kind::Manager).map(known).collect()
    }

    /// Suspends an instrument in all processes, or resumes it; `id` is that of its definition.
    pub fn suspend(&self, id: u32, suspended: bool) {
        self.switch_one(id, Switch::Own, suspended);
    }

    /// What an instrument holds begins at zero.
    pub fn reset(&self, id: u32) {
        self.area().reset(id);
    }
}
