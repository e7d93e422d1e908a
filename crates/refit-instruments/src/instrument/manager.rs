//! Instrument managers: groups of instruments that are switched together (Kohr 1994, §3.2, figure 2).

use crate::session::Session;

/// A *user instrument manager*: all instruments of a session that were declared with its name, in whatever process,
/// those to come too.
#[derive(Clone, Copy, Debug)]
pub struct Manager<'a> {
    session: &'static Session,
    name: &'a str,
}

impl<'a> Manager<'a> {
    /// The manager of this name.
    pub fn new(session: &'static Session, name: &'a str) -> Self {
        Self { session, name }
    }

    /// Suspends its instruments, until [`resume`](Manager::resume).
    pub fn suspend(&self) {
        self.session.switch_manager(self.name, true);
    }

    /// Resumes those of its instruments that were not suspended by themselves, too.
    pub fn resume(&self) {
        self.session.switch_manager(self.name, false);
    }

    /// Whether it is suspended.
    pub fn suspended(&self) -> bool {
        self.session.manager_suspended(self.name)
    }

    /// How many records, counts and runs its instruments made.
    pub fn volume(&self) -> u64 {
        let own = self.session.definitions().into_iter().filter(|d| d.manager == self.name);
        own.map(|definition| self.session.area().totals(definition.id)[0]).sum()
    }
}

/// The *system instrument manager*, over all managers and instruments of a session.
#[derive(Clone, Copy, Debug)]
pub struct System(&'static Session);

impl System {
    /// That of this session.
    pub fn new(session: &'static Session) -> Self {
        Self(session)
    }

    /// Suspends all instruments, until [`resume`](System::resume).
    pub fn suspend(&self) {
        self.0.switch_system(true);
    }

    /// Resumes those that were not suspended by themselves or by their manager, too.
    pub fn resume(&self) {
        self.0.switch_system(false);
    }

    /// Whether all are suspended.
    pub fn suspended(&self) -> bool {
        self.0.system_suspended()
    }

    /// The names of all managers.
    pub fn managers(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.0.definitions().into_iter().map(|definition| definition.manager).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}
