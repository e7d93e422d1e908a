//! The instruments of a session, as seen by a process other than its programs.

use std::sync::atomic::Ordering;

use super::Session;
use super::definitions::{Kind, Switch};
use crate::definition::Definition;

/// An instrument of a session.
#[derive(Clone, Debug)]
pub struct SessionInstrument {
    /// Its name and the meaning of its records.
    pub definition: Definition,
    /// Its kind.
    pub kind: Kind,
    /// The number of its records, additions or runs, as far as the recorder has seen them.
    pub count: u64,
    /// The reasons for its suspension; empty if it is not suspended.
    pub suspended: Vec<&'static str>,
}

impl Session {
    /// Returns all instruments except managers.
    pub fn instruments(&self) -> Vec<SessionInstrument> {
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
            SessionInstrument { definition, kind, count, suspended }
        };
        self.entries().filter(|(_, kind, _)| *kind != Kind::Manager).map(known).collect()
    }

    /// Suspends or resumes an instrument in all processes; `id` is that of its definition.
    pub fn suspend(&self, id: u32, suspended: bool) {
        self.switch_one(id, Switch::Own, suspended);
    }

    /// Resets the values of an instrument to zero.
    pub fn reset(&self, id: u32) {
        self.area().reset(id);
    }
}
