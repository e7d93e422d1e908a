//! Finding what is mapped at an address: by protocols that are exchanged while programs run.
//!
//! ```text
//!   refit swap retrieval:PID chain ──► object ── plan ──► coordinator ── Follow ──► Replica
//!                                                                                  │ a thread touches what is not there
//!                                                             Seek ──► others ─────┤
//!                                                             Retrieve ──► origin ─┴──► Known ──► mapped
//! ```
//!
//! | protocol | whom an instance asks | messages |
//! |---|---|---|
//! | `directory` | the origin, which knows all | 2 |
//! | `all` | all instances at once (Katz 2014, §5.7.3) | 2 for each other instance |
//! | `chain` | one, which answers or passes the question on, the origin last (§8.2.1) | 2, and 1 for each that passes it on |
//! | `group` | those that have a replica, and the origin, at once (§8.2.2) | 2 for each of them |
//!
//! An object of its origin, `retrieval:PID`, says for each instance whom it is to ask ([`Retrieval::plan`]); the coordinator tells it. Any instance that has
//! the address mapped may answer; that there is nothing only the origin may say, and only it makes private memory frames (the precedence of §5.7.3,
//! in which a mapping beats a mere area, and that beats nothing). Whatever else comes of a question, it is put to the origin then.
//!
//! When an answer may be used is [`cache`]'s matter, and why that is enough is said there.

pub(crate) mod cache;
mod pending;
mod query;

use refit_objects::{Choices, Name, State, TransferError, destroy};
use serde::{Deserialize, Serialize};

pub(crate) use cache::MappingCache;
use cache::Mark;
pub(crate) use pending::PendingQueries;
pub(crate) use query::{LookupAnswer, pass_on};

/// The protocols there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// The origin is asked.
    #[default]
    Directory,
    /// All instances are.
    All,
    /// One after the other, each by the one before.
    Chain,
    /// All that have a replica.
    Group,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Directory, Self::All, Self::Chain, Self::Group];

    /// How its implementation is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Directory => "directory",
            Self::All => "all",
            Self::Chain => "chain",
            Self::Group => "group",
        }
    }
}

/// Whom one instance asks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Besides the origin.
    pub(crate) whom: Vec<u16>,
    /// All at once, or each by the one before, the origin last.
    pub(crate) at_once: bool,
}

/// How instances find what is mapped at an address.
#[refit_objects::interface(name = "retrieval", state = ())]
pub(crate) trait Retrieval {
    /// Whom `asker` asks besides the origin: of `others`, all instances but the two, those with a replica are `members`.
    fn plan(&self, asker: u16, others: &[u16], members: &[u16]) -> Plan;
}

/// A program's object, which goes with it.
pub(crate) struct Object(RetrievalRef);

impl Object {
    /// Makes it; `changed` is called whenever it may plan otherwise from now on, with its next call.
    pub(crate) fn new(
        name: impl Into<Name>,
        first: Protocol,
        changed: impl Fn() + Clone + Send + Sync + 'static,
    ) -> Self {
        let mut choices = Choices::new();
        for protocol in Protocol::ALL {
            let changed = changed.clone();
            let make = move || Planned { protocol, changed: changed.clone() };
            choices = choices.with(protocol.name(), RetrievalInterface::rep, make);
        }
        Self(choices.create(name, first.name()).expect("it is one of the choices"))
    }

    /// See [`Retrieval::plan`].
    pub(crate) fn plan(&self, asker: u16, others: &[u16], members: &[u16]) -> Plan {
        self.0.plan(asker, others, members)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        destroy(self.0.id());
    }
}

struct Planned<F> {
    protocol: Protocol,
    changed: F,
}

impl<F: Fn() + Send + Sync + 'static> Retrieval for Planned<F> {
    fn plan(&self, asker: u16, others: &[u16], members: &[u16]) -> Plan {
        let mut members: Vec<u16> = members.iter().copied().filter(|&one| one != asker).collect();
        match self.protocol {
            Protocol::Directory => Plan::default(),
            Protocol::All => Plan { whom: others.to_vec(), at_once: true },
            Protocol::Group => Plan { whom: members, at_once: true },
            Protocol::Chain => {
                // Each begins with another one, so that not all ask the same.
                members.sort_unstable_by_key(|&one| (one < asker, one));
                Plan { whom: members, at_once: false }
            }
        }
    }
}

impl<F: Fn() + Send + Sync + 'static> State<()> for Planned<F> {
    const PROMPT: bool = true;

    fn export(&self) -> Result<(), TransferError> {
        Ok(())
    }

    /// It takes over: who plans by it waits until that is done, or undone.
    fn import(&self, (): ()) -> Result<(), TransferError> {
        (self.changed)();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use refit_objects::{SwapOptions, swap_named};

    use super::*;

    #[test]
    fn each_protocol_asks_others_and_swaps_are_told() {
        let told = Arc::new(AtomicU32::new(0));
        let tells = Arc::clone(&told);
        let changed = move || {
            tells.fetch_add(1, SeqCst);
        };
        let object = Object::new("test", Protocol::Directory, changed);
        let plan = || object.plan(2, &[1, 3, 4], &[1, 2, 3]);
        assert_eq!(plan(), Plan::default());
        for (turn, protocol, whom, at_once) in [
            (1, Protocol::All, vec![1, 3, 4], true),
            (2, Protocol::Chain, vec![3, 1], false),
            (3, Protocol::Group, vec![1, 3], true),
        ] {
            let swapped =
                swap_named(object.0.id(), protocol.name(), turn.into(), &SwapOptions::default());
            assert!(swapped.committed());
            assert_eq!((told.load(SeqCst), plan()), (turn, Plan { whom, at_once }));
        }
    }
}
