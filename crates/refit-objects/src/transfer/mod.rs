//! State transfer: how the state of one implementation gets to another (Hui 2000, §4.4.4; Soules 2003, §4.3.2).
//!
//! # How it goes
//!
//! 1. Before anything is touched, the old root says what it can export and the new one what it can import, each by
//!    preference ([`Protocols`]). The best common protocol is chosen, or a chain of converters (`choice` says what
//!    "best" means). If there is none the change is refused: nobody has waited for it.
//! 2. While nobody is in any method, the old root exports and the new one imports (`moving`): by copy, by reference,
//!    or partition by partition, with several threads if that is worth it. What was counted before must be there
//!    afterwards; an error, a panic or a missing item takes the change back. Export does not consume, so nothing is lost.
//! 3. With a lazy protocol the new root imports a way to ask the old one ([`LazySource`]). After the commit, calls move
//!    what they need, and a drain moves the rest (`lazy` has the algorithm and why it is right, `drain` who does it).
//!
//! | module | idea |
//! |---|---|
//! | `protocol`, `known` | names, types and numbers of protocols; converters |
//! | `choice`, `negotiation` | which one is the best; saying why |
//! | `exported`, `moving`, `notes` | state on its way |
//! | `parted` | foreign code on a thread of its own, which a deadline can part from |
//! | `lazy`, `lazy_map`, `drain` | state that moves later |
//! | `value`, `record`, `encode` | the self-describing form, for `#[derive(Transfer)]` |

// The algorithm is model-checked on its own; the rest stands on the object system.
mod error;
mod lazy;
mod lazy_map;

#[cfg(not(loom))]
mod choice;
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
mod value;

pub use self::error::TransferError;
pub use self::lazy::{AttachedSource, InHand, Lazy, LazySource, Progress};
pub use self::lazy_map::LazyMap;
#[cfg(not(loom))]
pub use self::{
    drain::{AtDeadline, DrainOptions, Watch},
    encode::EncodingError,
    exported::Exported,
    known::{NotConvertible, register_converter},
    negotiation::{NoCommonProtocol, negotiate},
    notes::note,
    protocol::{Protocol, ProtocolInfo, Protocols, TooManyProtocols, Typed},
    record::{Field, FieldError, Record, Transfer, nested},
    value::{Mismatch, Storable, Value},
};
