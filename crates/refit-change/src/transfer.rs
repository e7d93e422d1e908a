//! What a change says about the state that it moved: what was agreed on, how much went how, and how long it took.

use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// How a protocol hands state over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// The new part gets its own state, made from what the old one tells.
    #[default]
    Copy,
    /// Both parts refer to the same state until one of them lets go.
    Reference,
    /// As by copy, partition by partition: both parts are cut alike.
    Partitioned,
    /// The new part looks up what it does not have in the old one, and a drain moves the rest after the commit.
    Lazy,
    /// Not at all: the new part began without the state of the old one, as asked.
    None,
}

/// A protocol in the list of one side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Ranked {
    /// Its name.
    pub name: String,
    /// Place in the list, from 1: the smaller, the better liked.
    pub rank: u32,
    /// How it hands state over.
    pub way: Way,
}

/// What both sides know, what was chosen, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Negotiation {
    /// What the old part can export, best liked first.
    pub from: Vec<Ranked>,
    /// What the new part can import, best liked first.
    pub to: Vec<Ranked>,
    /// The protocol that the old part exports in; `None`: they have nothing in common.
    pub chosen: Option<String>,
    /// The protocols that it is converted to, in order; the last is what the new part imports. Mostly none.
    pub via: Vec<String>,
    /// Why this one, or why none.
    pub why: String,
}

/// What moved after the commit, while calls went on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Drained {
    /// Items that calls needed before the drain had come to them.
    pub on_demand: u64,
    /// Items that the drain moved.
    pub by_drain: u64,
    /// Items that are still with the old part. They move when they are needed, or with the next swap.
    pub left: u64,
    /// How long the drain took, in nanoseconds.
    pub ns: u64,
    /// Whether the rest was moved at the deadline with calls for it waiting.
    pub forced: bool,
    /// Why it ended before everything had moved; empty if it did not.
    pub why: String,
}

/// How state went from the old part to the new one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Transferred {
    /// Name of the object, if the change is one of several.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub object: String,
    /// The protocol it left the old part in, and those it was converted to; empty if none was agreed on.
    pub route: Vec<String>,
    /// How the first of them hands state over.
    pub way: Way,
    /// Partitions that went separately; 1 unless the way is partitioned.
    pub parts: u32,
    /// Items that were handed over, if the old part counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<u64>,
    /// Bytes of state that were handed over, if the old part tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Time to export, in nanoseconds; with several threads at once: the sum of them.
    pub export_ns: u64,
    /// Time to convert, in nanoseconds.
    pub convert_ns: u64,
    /// Time to import, in nanoseconds.
    pub import_ns: u64,
    /// What is worth knowing, e.g. that a field was dropped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What moved after the commit; only if the way is lazy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained: Option<Drained>,
    /// How the protocol was found; only in rehearsals and where none was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub negotiation: Option<Negotiation>,
}
