//! The C ABI between a host and a plugin: the tables that a plugin exports, and how a call crosses.
//!
//! ```text
//! refit_plugin() ─► PluginTable ─► RawImplementation ─ make ─► RawRoot ─ make_rep ─► RawRep
//!                    note             (one for each)            export, import …       methods
//! ```
//!
//! Every function of the plugin catches the panics of the code it runs and returns a [`Status`];
//! the message of the panic, or of the error, is passed through its last argument. State crosses as
//! bytes. Tables only grow at the end; `size` or `methods_len` says how long this one is.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::abi::{RawSlice, RawVec};

/// The first word of the exported table.
pub const TABLE_MAGIC: u64 = u64::from_le_bytes(*b"refit-so");

/// The version of the format that this module and the note describe.
pub const FORMAT: u32 = 2;

/// The result of a call.
pub type Status = u32;
/// The function has returned.
pub(crate) const DONE: Status = 0;
/// The function has failed with an error, whose message is passed.
pub(crate) const REFUSED: Status = 1;
/// The function has panicked, and the message of the panic is passed.
pub(crate) const PANICKED: Status = 2;

/// The destination of the message. Created by the host alone, from an empty vector that lives until
/// the call returns.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Why(*mut RawVec<u8>);

/// The table that a plugin exports.
#[repr(C)]
#[derive(Debug)]
pub struct PluginTable {
    /// [`TABLE_MAGIC`].
    pub magic: u64,
    /// [`FORMAT`].
    pub format: u32,
    /// The number of implementations.
    pub count: u32,
    /// One for each implementation, in the order of the note.
    pub implementations: *const RawImplementation,
    /// The note, as it is in the file.
    pub note: *const u8,
    /// Bytes of the note.
    pub note_len: usize,
}

// SAFETY: it points to constants.
unsafe impl Sync for PluginTable {}

/// An implementation of a plugin.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawImplementation {
    /// Creates a root.
    pub make: unsafe extern "C" fn(out: *mut MaybeUninit<RawRoot>, why: Why) -> Status,
}

/// A root that lives in a plugin.
#[repr(C)]
#[derive(Debug)]
pub struct RawRoot {
    pub(crate) root: *mut c_void,
    pub(crate) calls: *const RootCalls,
}

/// The functions of a root.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct RootCalls {
    pub(crate) size: usize,
    pub(crate) drop: unsafe extern "C" fn(*mut c_void, Why) -> Status,
    pub(crate) cluster: unsafe extern "C" fn(*const c_void, usize, *mut usize, Why) -> Status,
    pub(crate) make_rep:
        unsafe extern "C" fn(*const c_void, usize, *mut MaybeUninit<RawRep>, Why) -> Status,
    pub(crate) export: unsafe extern "C" fn(*const c_void, *mut RawVec<u8>, Why) -> Status,
    pub(crate) import: unsafe extern "C" fn(*const c_void, RawSlice<u8>, Why) -> Status,
    /// The flag says whether the swap was rolled back; see [`Ending`](crate::Ending).
    pub(crate) relinquish: unsafe extern "C" fn(*const c_void, bool, Why) -> Status,
    pub(crate) stats: unsafe extern "C" fn(*const c_void, *mut RawVec<u8>, Why) -> Status,
}

/// A rep that lives in a plugin.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct RawRep {
    pub(crate) rep: *mut c_void,
    pub(crate) drop: unsafe extern "C" fn(*mut c_void, Why) -> Status,
    /// The functions of the interface, one pointer each.
    pub(crate) methods: *const c_void,
    pub(crate) methods_len: usize,
}

/// Runs the code that the host has asked for; nothing unwinds out of it.
pub fn guarded(why: Why, run: impl FnOnce() -> Result<(), String>) -> Status {
    let (status, text) = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => return DONE,
        Ok(Err(text)) => (REFUSED, text),
        Err(panic) => (PANICKED, text_of(panic)),
    };
    // SAFETY: a `Why` is created by `call` only, and the call is in progress.
    unsafe { why.0.write(RawVec::give(text.into_bytes())) };
    status
}

fn text_of(panic: Box<dyn std::any::Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => match panic.downcast::<&'static str>() {
            Ok(text) => (*text).to_owned(),
            Err(other) => {
                // Its destructor could panic again.
                std::mem::forget(other);
                "no text".to_owned()
            }
        },
    }
}

/// The failure of a call into a plugin.
#[derive(Debug)]
pub(crate) enum Failed {
    Refused(String),
    Panicked(String),
}

/// Calls into a plugin.
pub(crate) fn call(run: impl FnOnce(Why) -> Status) -> Result<(), Failed> {
    let mut why = RawVec::empty();
    let status = run(Why(&raw mut why));
    // SAFETY: it is still empty, or the plugin has stored a message.
    let text = || String::from_utf8_lossy(&unsafe { why.take() }).into_owned();
    match status {
        DONE => Ok(()),
        REFUSED => Err(Failed::Refused(text())),
        _ => Err(Failed::Panicked(text())),
    }
}
