//! Clustered objects that can be swapped while they are called.
//!
//! ```
//! use refit_objects::{Choices, State, SwapOptions, TransferError, interface, swap_named};
//! # use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
//! #[interface(name = "counter", state = u64)]
//! pub trait Counter { fn add(&self, n: u64) -> u64; }
//!
//! // One implementation; another may have a lock, or a number per processor.
//! #[derive(Default)] struct Sum(AtomicU64);
//! impl Counter for Sum { fn add(&self, n: u64) -> u64 { self.0.fetch_add(n, Relaxed) + n } }
//! impl State<u64> for Sum {
//!     fn export(&self) -> Result<u64, TransferError> { Ok(self.0.load(Relaxed)) }
//!     fn import(&self, state: u64) -> Result<(), TransferError> {
//!         Ok(self.0.store(state, Relaxed))
//!     }
//! }
//! let choices = Choices::new().with("sum", CounterInterface::rep, Sum::default);
//! let counter: CounterRef = choices.create("example", "sum").unwrap();
//! assert_eq!(counter.add(3), 3);
//! // Other threads may call the object meanwhile.
//! assert!(swap_named(counter.id(), "sum", 1, &SwapOptions::default()).committed());
//! assert_eq!(counter.add(4), 7); // nothing was lost
//! # refit_objects::destroy(counter.id());
//! ```
//!
//! The crate translates references per processor, creates reps on demand, tracks requests,
//! negotiates and transfers state, swaps, upgrades classes, rolls back, wraps objects in code that
//! sees every call, and loads implementations that were built separately.
//!
//! | module | purpose |
//! |---|---|
//! | `request`, `generation` | the threads in a request, and the end of all earlier requests |
//! | `id`, `bound`, `table`, `rep`, `rep_cell`, `attached` | from a reference to its rep |
//! | `interface`, `description` | the methods of an interface, and its description |
//! | `slot`, `registry`, `object` | creation, destruction, miss handling |
//! | `retire`, `limbo`, `reaper` | freeing objects that no request can use any more |
//! | `maker`, `class`, `upgrade` | factories, and upgrades of all objects of a class |
//! | `interposer` | the mechanism of wrappers |
//! | `wrapper`, `argument` | the traits of wrappers, and the values that they see |
//! | `wrapping`, [`wrappers`] | attaching wrappers; ready-made wrappers |
//! | [`mod@plugin`] | implementations that are built separately and loaded while the process runs |
//! | `choices` | the simplest way: implementations that are one value each |
//! | `adapter` | an implementation of one interface, presented as another |
//! | `mediation`, `inside` | the phases of a swap as calls see them |
//! | `mediator` | the object that takes the place of a swapped one |
//! | `switch`, `successor`, `swap` | the phases as the swapper drives them; requests for swaps |
//! | `transfer` | the transfer of state between implementations |
//!
//! `transfer` contains protocols, negotiation, lazy transfer and records.

#![deny(unsafe_code)]
#![cfg_attr(loom, expect(dead_code, reason = "what only reports need is not modelled"))]

// The code that `#[interface]` generates names the crate, in the crate's own tests, too.
#[cfg(all(test, not(loom)))]
extern crate self as refit_objects;

mod ending;
#[cfg(not(loom))]
mod fnv;
mod generation;
#[cfg(all(test, loom))]
#[expect(unsafe_code, reason = "it models cells that are read and freed")]
mod interposition_model;
mod limbo;
mod mediation;
mod panics;
mod reaper;
mod rep_cell;
mod sync;
pub mod transfer;

#[cfg(not(loom))]
mod adapter;
#[cfg(not(loom))]
mod argument;
#[cfg(not(loom))]
mod attached;
#[cfg(not(loom))]
#[expect(unsafe_code, reason = "a handle is bound to an id of its interface")]
mod bound;
#[cfg(not(loom))]
mod by_name;
#[cfg(not(loom))]
mod choices;
#[cfg(not(loom))]
mod class;
#[cfg(not(loom))]
mod clustering;
#[cfg(not(loom))]
pub mod composition;
#[cfg(not(loom))]
mod condition;
#[cfg(not(loom))]
mod description;
#[cfg(not(loom))]
mod id;
#[cfg(not(loom))]
mod inside;
#[cfg(not(loom))]
#[expect(unsafe_code, reason = "an interface promises the shape of its vtables")]
mod interface;
#[cfg(not(loom))]
#[expect(unsafe_code, reason = "shims call what they stand in for")]
mod interposer;
#[cfg(not(loom))]
mod maker;
#[cfg(not(loom))]
#[expect(unsafe_code, reason = "shims call the rep that they mediate")]
mod mediator;
#[cfg(not(loom))]
mod name;
#[cfg(not(loom))]
#[expect(unsafe_code, reason = "references are made for objects of their interface")]
mod object;
#[cfg(not(loom))]
pub mod pace;
#[cfg(not(loom))]
pub mod plugin;
#[cfg(not(loom))]
mod probation;
#[cfg(not(loom))]
#[doc(hidden)]
pub mod probe;
#[cfg(not(loom))]
mod registry;
#[cfg(not(loom))]
#[expect(unsafe_code, reason = "reps are used by pointers")]
mod rep;
#[cfg(not(loom))]
#[expect(unsafe_code, reason = "a rep is called within a request")]
mod request;
#[cfg(not(loom))]
mod retire;
#[cfg(not(loom))]
#[expect(unsafe_code, reason = "entries of the table point to reps")]
mod slot;
#[cfg(not(loom))]
mod successor;
#[cfg(not(loom))]
mod swap;
#[cfg(not(loom))]
mod swap_options;
#[cfg(not(loom))]
mod switch;
#[cfg(not(loom))]
#[expect(unsafe_code, reason = "the table holds pointers to reps")]
mod table;
#[cfg(not(loom))]
mod ticket;
#[cfg(not(loom))]
mod upgrade;
#[cfg(not(loom))]
#[expect(unsafe_code, reason = "an interposer is called with the wrapped rep")]
mod wrapper;
#[cfg(not(loom))]
pub mod wrappers;
#[cfg(not(loom))]
mod wrapping;

#[cfg(not(loom))]
pub use self::{
    adapter::{Adapted, Adapter, NewState, OldState},
    argument::{Argument, Kind, Value},
    choices::{Choices, State},
    class::{ClassInfo, CreateError, Factory, classes},
    clustering::{Clustering, NoClustering},
    condition::{Condition, Measure, Measured, NoCondition},
    description::{ArgumentInfo, InterfaceInfo},
    ending::{Ending, RolledBack},
    id::ObjectId,
    interface::{Implementations, Import, Interface, Root, TransferError},
    interposer::WrapperId,
    name::Name,
    object::{
        ObjectActivity, ObjectInfo, activity, create, destroy, discard_entries, object, objects,
        reference,
    },
    probation::{Probation, swap_on_probation},
    rep::{MethodInfo, OwnedRep},
    request::{RequestToken, request},
    retire::settle,
    swap::{swap, swap_named, swap_together},
    swap_options::{Handover, Hook, SwapOptions},
    upgrade::{UpgradeControl, UpgradeOptions, upgrade},
    wrapper::{
        Access, After, CallInfo, FromErrno, Histogram, Outcome, PostCall, Pre, PreCall,
        TypedWrapper, Wrapper, WrapperFailure, WrapperInfo,
    },
    wrapping::{
        Which, WrapError, attach, attach_typed, can_wrap, detach, observe_failures, unwrap_named,
        wrap_named,
    },
};
/// The reports of changes: phases, outcome, and the callers that delayed them.
pub use refit_change as change;
#[cfg(not(loom))]
pub use refit_objects_macros::{Transfer, interface};

/// The building blocks of the code that `#[interface]` generates. Not for other users.
#[cfg(not(loom))]
#[doc(hidden)]
#[expect(unsafe_code, reason = "generated calls find their vtable")]
pub mod rt {
    pub use crate::bound::Bound;
    pub use crate::description::{InterfaceInfo, InterposerInfo, MethodShape};
    pub use crate::interposer::{
        InterposerRep, OnUnwind, guarded, inner, postcall, precall, typed,
    };
    pub use crate::mediator::{Mediated, mediate};
    pub use crate::probe;
    pub use crate::rep::{
        MethodInfo, Rep, RepHeader, VT_MAGIC, VtHeader, VtPtr, drop_rep, keep_rep,
    };
    pub use crate::request::call;
    pub use crate::slot::miss;

    /// Returns the owned rep, for a call through its vtable.
    #[inline(always)]
    pub fn rep<I>(owned: &crate::rep::OwnedRep<I>) -> *const RepHeader {
        owned.as_ptr()
    }

    /// Returns the interface's vtable, whose functions follow the head.
    ///
    /// # Safety
    /// The rep must be live, and its vtable one of the interface whose vtable type is `V`.
    #[inline(always)]
    pub unsafe fn vtable<V: 'static>(rep: *const RepHeader) -> &'static V {
        // SAFETY: guaranteed by the caller.
        unsafe { (*rep).vtable.of::<V>() }
    }
}

/// The building blocks of the code that `plugin!` and `#[interface(…, loadable)]` generate. Not for
/// other users.
#[cfg(not(loom))]
#[doc(hidden)]
pub mod plugin_rt {
    pub use crate::fnv::{FNV, fnv1a};
    pub use crate::plugin::{
        abi::{Abi, shape},
        export::{Loadable, Make},
        foreign::{FORMAT, PluginTable, RawImplementation, Status, TABLE_MAGIC, Why, guarded},
        foreign_rep::ForeignRep,
        note::{Description, Exported, MethodDescription, Note, UNWINDS, length},
    };
}
