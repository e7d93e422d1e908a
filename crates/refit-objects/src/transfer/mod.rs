//! State transfer: how the state of one implementation gets to another (Hui 2000, §4.4.4; Soules
//! 2003, §4.3.2).
//!
//! # Steps
//!
//! 1. Before anything is changed, the old root lists the protocols in which it can export, and the
//!    new one those that it can import, each by preference ([`Protocols`]). The best common
//!    protocol is chosen, or a chain of converters (`choice` defines "best"). If there is none, the
//!    change is refused, and no call has waited for it.
//! 2. While no call is in any method, the old root exports and the new one imports (`moving`): by
//!    copy, by reference, or partition by partition, with several threads if that pays. The items
//!    counted before must be there afterwards; an error, a panic or a missing item rolls the change
//!    back. Export does not consume, so nothing is lost.
//! 3. With a lazy protocol the new root imports the means to query the old one ([`LazySource`]).
//!    After the commit, calls move the items they need, and a drain moves the rest (`lazy` has the
//!    algorithm and its proof, `drain` drives it).
//!
//! | module | purpose |
//! |---|---|
//! | `protocol`, `typed`, `known`, `converter` | names, types, numbers of protocols; converters |
//! | `choice`, `negotiation` | the choice of the best protocol, and its explanation |
//! | `exported`, `moving`, `notes` | state in transit |
//! | `parted` | foreign code on a separate thread, which a deadline can abandon |
//! | `lazy`, `lazy_map`, `drain` | state that moves later |
//! | `value`, `storable`, `record`, `encode` | the self-describing form (`#[derive(Transfer)]`) |

// These are model-checked on their own; the rest needs the object system.
mod error;
mod lazy;
mod lazy_map;

#[cfg(not(loom))]
mod choice;
#[cfg(not(loom))]
mod converter;
#[cfg(not(loom))]
pub(crate) mod drain;
#[cfg(not(loom))]
mod encode;
#[cfg(not(loom))]
mod exported;
#[cfg(not(loom))]
mod known;
#[cfg(not(loom))]
pub(crate) mod moving;
#[cfg(not(loom))]
mod negotiation;
#[cfg(not(loom))]
mod notes;
#[cfg(not(loom))]
mod parted;
#[cfg(not(loom))]
mod protocol;
#[cfg(not(loom))]
mod record;
#[cfg(not(loom))]
mod storable;
#[cfg(not(loom))]
mod typed;
#[cfg(not(loom))]
mod value;

pub use self::error::TransferError;
pub use self::lazy::{AttachedSource, InHand, Lazy, LazySource, Progress};
pub use self::lazy_map::LazyMap;
#[cfg(not(loom))]
pub use self::{
    converter::{NotConvertible, register_converter},
    drain::{AtDeadline, DrainOptions, Watch},
    encode::EncodingError,
    exported::Exported,
    known::TooManyProtocols,
    negotiation::{NoCommonProtocol, negotiate},
    notes::note,
    protocol::{Protocol, ProtocolInfo, Protocols},
    record::{Transfer, nested},
    storable::Storable,
    typed::Typed,
    value::{Field, FieldError, Mismatch, Record, Value},
};
