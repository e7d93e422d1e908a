//! Clustered objects that can be swapped while they are called.
//!
//! ```
//! use refit_objects::{Implementations, Interface, OwnedRep, Root, SwapOptions, TransferError, create, interface};
//! use std::sync::{Arc, Mutex};
//!
//! #[interface(name = "counter", state = u64)]
//! pub trait Counter {
//!     fn add(&self, n: u64) -> u64;
//! }
//!
//! struct Locked(Arc<Mutex<u64>>); // a rep
//! impl Counter for Locked {
//!     fn add(&self, n: u64) -> u64 {
//!         let mut count = self.0.lock().unwrap();
//!         *count += n;
//!         *count
//!     }
//! }
//!
//! struct LockedRoot(Arc<Mutex<u64>>); // its root: makes reps, moves state
//! impl Root<CounterInterface> for LockedRoot {
//!     fn implementation(&self) -> &str { "locked" }
//!     fn make_rep(&self, _processor: usize) -> OwnedRep<CounterInterface> {
//!         CounterInterface::rep(Locked(Arc::clone(&self.0)))
//!     }
//!     fn export(&self) -> Result<u64, TransferError> { Ok(*self.0.lock().unwrap()) }
//!     fn import(&self, state: u64) -> Result<(), TransferError> { *self.0.lock().unwrap() = state; Ok(()) }
//! }
//!
//! struct All;
//! impl Implementations<CounterInterface> for All {
//!     fn names(&self) -> Vec<&'static str> { vec!["locked"] }
//!     fn root(&self, name: &str) -> Option<Box<dyn Root<CounterInterface>>> {
//!         (name == "locked").then(|| Box::new(LockedRoot(Arc::default())) as _)
//!     }
//! }
//!
//! let counter: CounterRef = create("example", All.root("locked").unwrap(), Arc::new(All));
//! assert_eq!(counter.add(3), 3);
//! let report = refit_objects::swap_named(counter.id(), "locked", 1, &SwapOptions::default());
//! assert!(report.committed());
//! assert_eq!(counter.add(4), 7); // nothing was lost
//! # refit_objects::destroy(counter.id());
//! ```
//!
//! Does: translate references per processor, make reps on demand, account for requests, negotiate and transfer state,
//! swap, upgrade classes, roll back, wrap objects in code that sees every call, load implementations that were built
//! apart.
//!
//! | module | idea |
//! |---|---|
//! | `request`, `generation` | who is inside, and when everybody who was has left |
//! | `table`, `rep` | from a reference to the rep of this processor |
//! | `object`, `registry`, `retire`, `limbo` | life and death of objects, miss handling |
//! | `interposer`, `wrapper`, `wrapping`, [`wrappers`] | code around calls: how it gets there, what it is, ready ones |
//! | [`mod@plugin`] | implementations that are built apart and loaded while the process runs |
//! | `adapter` | an implementation of one interface, presented as another |
//! | `mediation`, `mediator`, `swap` | the phases of a swap: as calls see them, as an object, as the swapper drives them |
//! | `transfer` | how state gets from one implementation to another: protocols, negotiation, lazy transfer, records |

#![cfg_attr(loom, expect(dead_code, reason = "what only reports need is not modelled"))]

#[cfg(not(loom))]
mod fnv;
mod generation;
#[cfg(all(test, loom))]
mod interposition_model;
mod limbo;
mod mediation;
mod panics;
mod sync;
pub mod transfer;

#[cfg(not(loom))]
mod adapter;
#[cfg(not(loom))]
mod class;
#[cfg(not(loom))]
mod clustering;
#[cfg(not(loom))]
pub mod composition;
#[cfg(not(loom))]
mod condition;
#[cfg(not(loom))]
mod interface;
#[cfg(not(loom))]
mod interposer;
#[cfg(not(loom))]
mod mediator;
#[cfg(not(loom))]
mod name;
#[cfg(not(loom))]
mod object;
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
mod rep;
#[cfg(not(loom))]
mod request;
#[cfg(not(loom))]
mod retire;
#[cfg(not(loom))]
mod swap;
#[cfg(not(loom))]
mod switch;
#[cfg(not(loom))]
mod table;
#[cfg(not(loom))]
mod ticket;
#[cfg(not(loom))]
mod upgrade;
#[cfg(not(loom))]
mod wrapper;
#[cfg(not(loom))]
pub mod wrappers;
#[cfg(not(loom))]
mod wrapping;

#[cfg(not(loom))]
pub use self::{
    adapter::{Adapted, Adapter, NewState, OldState},
    class::{ClassInfo, CreateError, Factory, classes},
    clustering::{Clustering, NoClustering},
    condition::{Condition, Measure, Measured, NoCondition},
    interface::{Implementations, Import, Interface, Root, TransferError, reference},
    interposer::WrapperId,
    name::Name,
    object::{ObjectId, ObjectInfo, create, destroy, discard_entries, object, objects},
    probation::{Probation, swap_on_probation},
    rep::{InterfaceInfo, MethodInfo, OwnedRep},
    request::{RequestToken, request},
    retire::settle,
    swap::{Hook, SwapOptions, swap, swap_named, swap_together},
    upgrade::{UpgradeControl, UpgradeOptions, upgrade},
    wrapper::{
        After, Argument, ArgumentInfo, CallInfo, FromErrno, Histogram, Kind, Outcome, PostCall,
        Pre, PreCall, TypedWrapper, Value, Wrapper, WrapperInfo,
    },
    wrapping::{
        Which, WrapError, WrapperFailure, attach, attach_typed, can_wrap, detach, observe_failures,
        unwrap_named, wrap_named,
    },
};
/// What a change reports: phases, end, who stood in the way.
pub use refit_change as change;
#[cfg(not(loom))]
pub use refit_objects_macros::{Transfer, interface};

/// What the code that `#[interface]` generates is made of. Not for others.
#[cfg(not(loom))]
#[doc(hidden)]
pub mod rt {
    pub use crate::interposer::{
        InterposerRep, OnUnwind, guarded, inner, postcall, precall, typed,
    };
    pub use crate::mediator::{Mediated, mediate};
    pub use crate::object::{Bound, miss};
    pub use crate::probe;
    pub use crate::rep::{
        InterfaceInfo, MethodInfo, Rep, RepHeader, VT_MAGIC, VtHeader, VtPtr, drop_rep, keep_rep,
    };
    pub use crate::request::Call;
    pub use crate::wrapper::{InterposerInfo, MethodShape};

    /// The rep that is owned, to be called through its vtable.
    #[inline(always)]
    pub fn rep<I>(owned: &crate::rep::OwnedRep<I>) -> *const RepHeader {
        owned.as_ptr()
    }

    /// Functions of an interface's vtable start after the head.
    ///
    /// # Safety
    /// The rep must be live, and its vtable one of the interface whose vtable type is `V`.
    #[inline(always)]
    pub unsafe fn vtable<V: 'static>(rep: *const RepHeader) -> &'static V {
        // SAFETY: the caller's promise.
        unsafe { (*rep).vtable.of::<V>() }
    }
}

/// What the code that `plugin!` and `#[interface(…, loadable)]` generate is made of. Not for others.
#[cfg(not(loom))]
#[doc(hidden)]
pub mod plugin_rt {
    pub use crate::fnv::{FNV, fnv1a};
    pub use crate::plugin::{
        abi::{Abi, shape},
        export::{Loadable, Make},
        foreign::{FORMAT, PluginTable, RawImplementation, Status, TABLE_MAGIC, Why, guarded},
        note::{Description, Exported, MethodDescription, Note, UNWINDS, length},
        proxy::ForeignRep,
    };
}
