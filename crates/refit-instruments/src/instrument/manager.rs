//! Instrument managers, which are groups of instruments that are switched together (Kohr 1994,
//! §3.2, figure 2).

use crate::session::Session;

/// A *user instrument manager*: all instruments of a session that are declared with its name, in
/// any process, including future ones.
#[derive(Clone, Copy, Debug)]
pub struct Manager<'a> {
    session: &'static Session,
    name: &'a str,
}

impl<'a> Manager<'a> {
    /// Returns the manager of this name.
    pub fn new(session: &'static Session, name: &'a str) -> Self {
        Self { session, name }
    }

    /// Suspends its instruments until [`resume`](Manager::resume).
    pub fn suspend(&self) {
        self.session.switch_manager(self.name, true);
    }

    /// Resumes its instruments, except those that are suspended individually.
    pub fn resume(&self) {
        self.session.switch_manager(self.name, false);
    }

    /// Returns whether it is suspended.
    pub fn suspended(&self) -> bool {
        self.session.manager_suspended(self.name)
    }

    /// Returns the number of records, additions and runs of its instruments.
    pub fn volume(&self) -> u64 {
        let own = self.session.definitions().into_iter().filter(|d| d.manager == self.name);
        own.map(|definition| self.session.area().totals(definition.id)[0]).sum()
    }
}

/// The *system instrument manager*, which controls all managers and instruments of a session.
#[derive(Clone, Copy, Debug)]
pub struct System(&'static Session);

impl System {
    /// Returns the system manager of a session.
    pub fn new(session: &'static Session) -> Self {
        Self(session)
    }

    /// Suspends all instruments until [`resume`](System::resume).
    pub fn suspend(&self) {
        self.0.switch_system(true);
    }

    /// Resumes all instruments, except those that are suspended individually or by their manager.
    pub fn resume(&self) {
        self.0.switch_system(false);
    }

    /// Returns whether all instruments are suspended together.
    pub fn suspended(&self) -> bool {
        self.0.system_suspended()
    }

    /// Returns the names of all managers.
    pub fn managers(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.0.definitions().into_iter().map(|definition| definition.manager).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}
