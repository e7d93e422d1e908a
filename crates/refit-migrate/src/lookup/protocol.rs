//! The lookup protocols, and the object that chooses one for a program.

use refit_objects::{Choices, Name, State, TransferError, destroy};
use serde::{Deserialize, Serialize};

/// Which nodes a node asks in a lookup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// The origin.
    #[default]
    Directory,
    /// All nodes at once.
    All,
    /// One after the other: each passes the question on to the next.
    Chain,
    /// All nodes that have a replica, at once.
    Group,
}

impl Protocol {
    /// All protocols.
    pub const ALL: [Self; 4] = [Self::Directory, Self::All, Self::Chain, Self::Group];

    /// Returns the name of its implementation.
    pub fn name(self) -> &'static str {
        match self {
            Self::Directory => "directory",
            Self::All => "all",
            Self::Chain => "chain",
            Self::Group => "group",
        }
    }
}

/// The nodes that one node asks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Nodes other than the origin.
    pub(crate) whom: Vec<u16>,
    /// Whether they are asked all at once; otherwise each passes the question on, the origin last.
    pub(crate) at_once: bool,
}

/// Plans lookups.
#[refit_objects::interface(name = "retrieval", state = ())]
pub(crate) trait Retrieval {
    /// Returns the nodes that `asker` asks besides the origin. `others` are all nodes but the two;
    /// those with a replica are `members`.
    fn plan(&self, asker: u16, others: &[u16], members: &[u16]) -> Plan;
}

/// The object that plans the lookups of one program, and ends with it.
pub(crate) struct RetrievalObject(RetrievalRef);

impl RetrievalObject {
    /// Makes the object. It calls `changed` whenever it may plan differently from its next call on.
    pub(crate) fn new(
        name: impl Into<Name>,
        first: Protocol,
        changed: impl Fn() + Clone + Send + Sync + 'static,
    ) -> Self {
        let mut choices = Choices::new();
        for protocol in Protocol::ALL {
            let changed = changed.clone();
            let make = move || Planner { protocol, changed: changed.clone() };
            choices = choices.with(protocol.name(), RetrievalInterface::rep, make);
        }
        Self(choices.create(name, first.name()).expect("it is one of the choices"))
    }

    /// See [`Retrieval::plan`].
    pub(crate) fn plan(&self, asker: u16, others: &[u16], members: &[u16]) -> Plan {
        self.0.plan(asker, others, members)
    }
}

impl Drop for RetrievalObject {
    fn drop(&mut self) {
        destroy(self.0.id());
    }
}

struct Planner<F> {
    protocol: Protocol,
    changed: F,
}

impl<F: Fn() + Send + Sync + 'static> Retrieval for Planner<F> {
    fn plan(&self, asker: u16, others: &[u16], members: &[u16]) -> Plan {
        let mut members: Vec<u16> = members.iter().copied().filter(|&one| one != asker).collect();
        match self.protocol {
            Protocol::Directory => Plan::default(),
            Protocol::All => Plan { whom: others.to_vec(), at_once: true },
            Protocol::Group => Plan { whom: members, at_once: true },
            Protocol::Chain => {
                // Each node begins with another one, so that not all ask the same one first.
                members.sort_unstable_by_key(|&one| (one < asker, one));
                Plan { whom: members, at_once: false }
            }
        }
    }
}

impl<F: Fn() + Send + Sync + 'static> State<()> for Planner<F> {
    const PROMPT: bool = true;

    fn export(&self) -> Result<(), TransferError> {
        Ok(())
    }

    /// Notifies the coordinator that this planner takes over. A caller of [`RetrievalObject::plan`]
    /// waits until that is done, or undone.
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
    fn each_protocol_asks_other_nodes_and_swaps_are_notified() {
        let notified = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&notified);
        let changed = move || {
            counter.fetch_add(1, SeqCst);
        };
        let object = RetrievalObject::new("test", Protocol::Directory, changed);
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
            assert_eq!((notified.load(SeqCst), plan()), (turn, Plan { whom, at_once }));
        }
    }
}
