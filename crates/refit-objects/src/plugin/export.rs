//! The plugin's side: exposes a root and its reps through functions that a host calls.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::abi::{RawSlice, RawVec};
use super::foreign::{RawImplementation, RawRep, RawRoot, RootCalls, Status, Why, guarded};
use super::foreign_rep::ForeignRep;
use super::note::Description;
use crate::ending::{Ending, RolledBack};
use crate::interface::{Interface, Root};
use crate::rep::{OwnedRep, RepHeader};

/// An interface whose implementations can be loaded. Implemented by `#[interface(…, loadable)]`
/// only.
///
/// # Safety
/// `functions` must be a table of one function per method, in order, of the types that `adopt`
/// calls.
pub unsafe trait Loadable: Interface<State: Serialize + DeserializeOwned> {
    /// The contents of the note.
    const DESCRIPTION: Description;
    /// The plugin's side: returns functions that call a rep of this interface.
    fn functions() -> *const c_void;
    /// The host's side: returns a rep that calls a rep of a plugin.
    fn adopt(rep: ForeignRep) -> OwnedRep<Self>;
}

/// Creates the roots of one implementation of a plugin.
pub trait Make<I: Interface> {
    /// Returns a new, empty root.
    fn make() -> Box<dyn Root<I>>;
}

impl RawImplementation {
    /// Returns the implementation that `M` creates.
    pub const fn of<I: Loadable, M: Make<I>>() -> Self {
        RawImplementation { make: make::<I, M> }
    }
}

unsafe extern "C" fn make<I: Loadable, M: Make<I>>(
    out: *mut MaybeUninit<RawRoot>,
    why: Why,
) -> Status {
    guarded(why, || {
        let root = Box::into_raw(Box::new(M::make()));
        let raw = RawRoot { root: root.cast(), calls: Calls::<I>::CALLS };
        // SAFETY: the host passes a valid destination.
        unsafe { out.write(MaybeUninit::new(raw)) };
        Ok(())
    })
}

struct Calls<I>(std::marker::PhantomData<I>);

impl<I: Loadable> Calls<I> {
    const CALLS: &'static RootCalls = &RootCalls {
        size: size_of::<RootCalls>(),
        drop: drop_root::<I>,
        cluster: cluster::<I>,
        make_rep: make_rep::<I>,
        export: export::<I>,
        import: import::<I>,
        relinquish: relinquish::<I>,
        stats: stats::<I>,
    };
}

/// # Safety
/// `root` must be that of a [`RawRoot`] of `I` that is not dropped yet.
unsafe fn root_of<'a, I: Interface>(root: *const c_void) -> &'a dyn Root<I> {
    // SAFETY: `make` has boxed it as this type; alive by the caller's guarantee.
    unsafe { &**root.cast::<Box<dyn Root<I>>>() }
}

unsafe extern "C" fn drop_root<I: Loadable>(root: *mut c_void, why: Why) -> Status {
    guarded(why, || {
        // SAFETY: `make` has created it; the host drops it once.
        drop(unsafe { Box::from_raw(root.cast::<Box<dyn Root<I>>>()) });
        Ok(())
    })
}

unsafe extern "C" fn cluster<I: Loadable>(
    root: *const c_void,
    processor: usize,
    out: *mut usize,
    why: Why,
) -> Status {
    guarded(why, || {
        // SAFETY: guaranteed by the host to functions of this table, here and below.
        unsafe { out.write(root_of::<I>(root).cluster(processor)) };
        Ok(())
    })
}

unsafe extern "C" fn make_rep<I: Loadable>(
    root: *const c_void,
    processor: usize,
    out: *mut MaybeUninit<RawRep>,
    why: Why,
) -> Status {
    guarded(why, || {
        // SAFETY: as above.
        let rep = unsafe { root_of::<I>(root) }.make_rep(processor);
        let raw = RawRep {
            rep: rep.into_header().as_ptr().cast(),
            drop: drop_rep::<I>,
            methods: I::functions(),
            methods_len: I::DESCRIPTION.methods.len(),
        };
        // SAFETY: as above.
        unsafe { out.write(MaybeUninit::new(raw)) };
        Ok(())
    })
}

unsafe extern "C" fn drop_rep<I: Loadable>(rep: *mut c_void, why: Why) -> Status {
    guarded(why, || {
        let header = NonNull::new(rep.cast::<RepHeader>()).ok_or("no rep")?;
        // SAFETY: `make_rep` took the header of an owned rep of `I`; the host drops it once.
        drop(unsafe { OwnedRep::<I>::from_header(header) });
        Ok(())
    })
}

unsafe extern "C" fn export<I: Loadable>(
    root: *const c_void,
    out: *mut RawVec<u8>,
    why: Why,
) -> Status {
    guarded(why, || {
        // SAFETY: as above.
        let state = unsafe { root_of::<I>(root) }.export().map_err(|error| error.to_string())?;
        let bytes = to_bytes(&state)?;
        // SAFETY: as above.
        unsafe { out.write(RawVec::give(bytes)) };
        Ok(())
    })
}

unsafe extern "C" fn import<I: Loadable>(
    root: *const c_void,
    state: RawSlice<u8>,
    why: Why,
) -> Status {
    guarded(why, || {
        // SAFETY: as above; the bytes stay valid until this returns.
        let (root, bytes) = unsafe { (root_of::<I>(root), state.get()) };
        root.import(from_bytes(bytes)?).map_err(|error| error.to_string())
    })
}

unsafe extern "C" fn relinquish<I: Loadable>(
    root: *const c_void,
    rolled_back: bool,
    why: Why,
) -> Status {
    guarded(why, || {
        // The host has the proof, and passes that as a flag.
        let proof = RolledBack::new();
        let ending = if rolled_back { Ending::RolledBack(&proof) } else { Ending::Committed };
        // SAFETY: as above.
        unsafe { root_of::<I>(root) }.relinquish(ending);
        Ok(())
    })
}

unsafe extern "C" fn stats<I: Loadable>(
    root: *const c_void,
    out: *mut RawVec<u8>,
    why: Why,
) -> Status {
    guarded(why, || {
        // SAFETY: as above.
        let bytes = to_bytes(&unsafe { root_of::<I>(root) }.stats())?;
        // SAFETY: as above.
        unsafe { out.write(RawVec::give(bytes)) };
        Ok(())
    })
}

/// Serializes state: MessagePack with the names of fields, so that state of another shape is an
/// error and is not misread.
pub(crate) fn to_bytes<T: Serialize>(state: &T) -> Result<Vec<u8>, String> {
    rmp_serde::to_vec_named(state).map_err(|error| format!("the state cannot be written: {error}"))
}

/// Deserializes the result of [`to_bytes`].
pub(crate) fn from_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let mut reader = rmp_serde::Deserializer::new(bytes);
    let state = T::deserialize(&mut reader);
    let state = state.map_err(|error| format!("the state cannot be read: {error}"))?;
    if reader.into_inner().is_empty() { Ok(state) } else { Err("the state is too long".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_state_is_refused() {
        let state = vec![("a".to_owned(), 1_u64), ("b".to_owned(), 2)];
        let bytes = to_bytes(&state).expect("it can be written");
        assert_eq!(from_bytes::<Vec<(String, u64)>>(&bytes), Ok(state));
        for end in 0..bytes.len() {
            assert!(from_bytes::<Vec<(String, u64)>>(&bytes[..end]).is_err(), "{end}");
        }
        assert!(from_bytes::<Vec<(String, u64)>>(&[&bytes[..], &[0]].concat()).is_err());
        assert!(from_bytes::<Vec<u64>>(&bytes).is_err());
    }
}
