//! The part of a report about transferred state: the negotiated protocol, the amount, and the time.

use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// The way in which a protocol transfers state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// The new part gets its own state, created from what the old one exports.
    #[default]
    Copy,
    /// Both parts refer to the same state until one of them relinquishes it.
    Reference,
    /// As by copy, partition by partition, with the same partitions on both sides.
    Partitioned,
    /// The new part looks up what it does not have in the old one, and a drain moves the rest after
    /// the commit.
    Lazy,
    /// No state is transferred: the new part began without the state of the old one, as requested.
    None,
}

/// A protocol in the list of one side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Ranked {
    /// The name of the protocol.
    pub name: String,
    /// The position in the list, from 1, most preferred first.
    pub rank: u32,
    /// The way in which it transfers state.
    pub way: Way,
}

/// The protocols of both sides, the choice, and its reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Negotiation {
    /// The protocols in which the old part can export, most preferred first.
    pub from: Vec<Ranked>,
    /// The protocols that the new part can import, most preferred first.
    pub to: Vec<Ranked>,
    /// The protocol in which the old part exports; `None` if there is no common one.
    pub chosen: Option<String>,
    /// The protocols to which it is converted, in order; the last is the one that the new part
    /// imports. Usually empty.
    pub via: Vec<String>,
    /// The reason for this protocol, or for the lack of one.
    pub why: String,
}

/// The items that moved after the commit, while calls continued.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Drained {
    /// Number of items that calls needed before the drain had reached them.
    pub on_demand: u64,
    /// Number of items that the drain moved.
    pub by_drain: u64,
    /// Number of items that are still with the old part. They move when they are needed, or with
    /// the next swap.
    pub left: u64,
    /// The duration of the drain, in nanoseconds.
    pub ns: u64,
    /// Whether the rest was moved at the deadline, with calls for it waiting.
    pub forced: bool,
    /// The reason that it ended before everything had moved; empty if everything has.
    pub why: String,
}

/// A transfer of state from the old part to the new one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Transferred {
    /// The name of the object, if the change is one of several.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub object: String,
    /// The protocol in which it left the old part, and those to which it was converted; empty if
    /// none was negotiated.
    pub route: Vec<String>,
    /// The way in which the first of them transfers state.
    pub way: Way,
    /// Number of partitions that were transferred separately; 1 unless the way is partitioned.
    pub parts: u32,
    /// Number of items that were transferred, if the old part counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<u64>,
    /// Bytes of state that were transferred, if the old part reports them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Time to export, in nanoseconds; the sum of all threads.
    pub export_ns: u64,
    /// Time to convert, in nanoseconds.
    pub convert_ns: u64,
    /// Time to import, in nanoseconds.
    pub import_ns: u64,
    /// Noteworthy facts, for example that a field was dropped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The items that moved after the commit; only if the way is lazy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained: Option<Drained>,
    /// The course of the negotiation; only in rehearsals and if none was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub negotiation: Option<Negotiation>,
}
