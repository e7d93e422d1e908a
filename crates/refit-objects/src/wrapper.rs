//! Wrappers: code that runs before and after every call of an object (Soules 2003, §4.3.1).
//!
//! There are two kinds. A [`Wrapper`] fits any interface: it sees the object, the method, the
//! arguments and the result as plain [`Value`](crate::Value)s, may replace them, and can make a
//! call fail. A *typed* wrapper knows its interface: from `trait Counter` the macro generates
//! `trait CounterWrapper` with `pre_add(&self, n: &mut u64) -> Pre<u64>` and `post_add(&self,
//! state, result: &mut u64)` for each method, so that arguments and results can be read and
//! changed.
//!
//! `precall` decides whether there is a `postcall`. If there is one, `precall` passes one number to
//! it, which is kept in the frame of the call. If not, no state of the call is kept. Nothing is
//! allocated in either case.
//!
//! A wrapper runs within the request of the call that it wraps. It takes the caller's time. It must
//! not call the object that it wraps, since that call would run the wrapper again.

use std::any::Any;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::argument::Value;
use crate::description::{ArgumentInfo, InterfaceInfo, MethodShape};
use crate::id::ObjectId;
use crate::rep::VtPtr;

/// The continuation of a call after an untyped `precall`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// The call goes to the object; there is no postcall.
    Forward,
    /// The call goes to the object, then to `postcall`, which gets this number.
    Postcall(u64),
    /// The call returns to the caller with this `errno`, if the method can express it (see
    /// [`PreCall::can_fail`]); otherwise as [`After::Forward`].
    Fail(i32),
}

/// The continuation of a call after the `pre_…` of a typed wrapper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pre<R> {
    /// The call goes to the object; there is no postcall.
    Forward,
    /// The call goes to the object, then to `post_…`, which gets this number.
    Postcall(u64),
    /// The call returns to the caller with this result; the object is not called.
    Answer(R),
}

/// Code around the calls of an object of any interface.
pub trait Wrapper: Send + Sync {
    /// Returns its name, by which it is shown and detached.
    fn name(&self) -> &str;

    /// Called before the call.
    fn precall(&self, call: &PreCall<'_>) -> After;

    /// Called after the call, if `precall` asked for that; also if the method panicked.
    fn postcall(&self, call: &PostCall<'_>) {
        let _ = call;
    }

    /// Returns its settings as `key=value …`; empty if it has none.
    fn options(&self) -> String {
        String::new()
    }

    /// Returns its counters, as pairs of a name and a value. Names that end in `_ns` are times in
    /// nanoseconds.
    fn stats(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// Returns the distributions of its measurements.
    fn histograms(&self) -> Vec<Histogram> {
        Vec::new()
    }
}

impl<W: Wrapper + ?Sized> Wrapper for Arc<W> {
    fn name(&self) -> &str {
        (**self).name()
    }
    fn precall(&self, call: &PreCall<'_>) -> After {
        (**self).precall(call)
    }
    fn postcall(&self, call: &PostCall<'_>) {
        (**self).postcall(call);
    }
    fn options(&self) -> String {
        (**self).options()
    }
    fn stats(&self) -> Vec<(String, u64)> {
        (**self).stats()
    }
    fn histograms(&self) -> Vec<Histogram> {
        (**self).histograms()
    }
}

/// The identity of a call.
#[derive(Clone, Copy, Debug)]
pub struct CallInfo {
    pub(crate) object: ObjectId,
    pub(crate) interface: &'static InterfaceInfo,
    pub(crate) method: u16,
    pub(crate) processor: u32,
}

impl CallInfo {
    /// Returns the object.
    pub fn object(&self) -> ObjectId {
        self.object
    }

    /// Returns the object's interface.
    pub fn interface(&self) -> &'static InterfaceInfo {
        self.interface
    }

    /// Returns the number of the method in the interface.
    pub fn method(&self) -> usize {
        usize::from(self.method)
    }

    /// Returns the name of the method.
    pub fn method_name(&self) -> &'static str {
        self.interface.methods.get(self.method()).map_or("", |m| m.name)
    }

    /// Returns the processor on which the call arrived. A hint: the thread may have been moved
    /// since.
    pub fn processor(&self) -> usize {
        self.processor as usize
    }
}

/// An access to a value of a call by code that does not know its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads the value.
    Read,
    /// Replaces the value.
    Write(Value),
    /// Replaces the value by the error with this `errno`; possible for results only.
    Fail(i32),
}

/// Accesses the argument of this number, or the result. Returns the value afterwards, or `None` if
/// the access is impossible.
pub(crate) type Reach<'a> = RefCell<&'a mut dyn FnMut(usize, Access) -> Option<Value>>;

/// A call before it reaches the object.
pub struct PreCall<'a> {
    pub(crate) info: CallInfo,
    pub(crate) arguments: Reach<'a>,
}

impl std::ops::Deref for PreCall<'_> {
    type Target = CallInfo;
    fn deref(&self) -> &CallInfo {
        &self.info
    }
}

impl std::fmt::Debug for PreCall<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PreCall").field("info", &self.info).finish_non_exhaustive()
    }
}

impl PreCall<'_> {
    fn shape(&self) -> Option<&'static MethodShape> {
        self.interface.interposer.methods.get(self.method())
    }

    /// Returns an argument; [`Value::Opaque`] beyond the last.
    pub fn argument(&self, index: usize) -> Value {
        (self.arguments.borrow_mut())(index, Access::Read).unwrap_or(Value::Opaque)
    }

    /// Replaces an argument. Returns whether that was possible: a number must be one of the
    /// argument's type, and a [`Value::Length`] can only cut off.
    pub fn set_argument(&self, index: usize, value: Value) -> bool {
        (self.arguments.borrow_mut())(index, Access::Write(value)).is_some()
    }

    /// Returns the names of the arguments, and the kinds of their visible values.
    pub fn arguments(&self) -> &'static [ArgumentInfo] {
        self.shape().map_or(&[], |shape| shape.arguments)
    }

    /// Returns whether the method's result can express an `errno`.
    pub fn can_fail(&self) -> bool {
        self.shape().is_some_and(|shape| (shape.can_fail)())
    }
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The call returned, and not with `Err`.
    Returned,
    /// The call returned an `Err`.
    Failed,
    /// The call panicked; the panic continues to the caller.
    Unwound,
}

/// A call that returns from the object.
pub struct PostCall<'a> {
    pub(crate) info: CallInfo,
    pub(crate) state: u64,
    pub(crate) outcome: Outcome,
    pub(crate) result: Reach<'a>,
}

impl std::fmt::Debug for PostCall<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let PostCall { info, state, outcome, .. } = self;
        let mut all = f.debug_struct("PostCall");
        all.field("info", info).field("state", state).field("outcome", outcome);
        all.finish_non_exhaustive()
    }
}

impl std::ops::Deref for PostCall<'_> {
    type Target = CallInfo;
    fn deref(&self) -> &CallInfo {
        &self.info
    }
}

impl PostCall<'_> {
    /// Returns the number that `precall` passed on.
    pub fn state(&self) -> u64 {
        self.state
    }

    /// Returns the outcome.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Returns the result, or the value in its `Ok` or `Some`; [`Value::Opaque`] for an error or a
    /// panic.
    pub fn result(&self) -> Value {
        self.reach(Access::Read).unwrap_or(Value::Opaque)
    }

    /// Replaces the value that [`Self::result`] returns. Returns whether that was possible, as for
    /// [`PreCall::set_argument`]. An error stays an error.
    pub fn set_result(&self, value: Value) -> bool {
        self.reach(Access::Write(value)).is_some()
    }

    /// Replaces the result by the error with this `errno`. Returns whether the method can express
    /// that.
    pub fn fail(&self, errno: i32) -> bool {
        self.reach(Access::Fail(errno)).is_some()
    }

    fn reach(&self, access: Access) -> Option<Value> {
        (self.result.borrow_mut())(0, access)
    }
}

/// An error type that can express an `errno`, so that a wrapper can make calls fail.
pub trait FromErrno {
    /// Returns the error with this `errno`.
    fn from_errno(errno: i32) -> Self;
}

impl FromErrno for i32 {
    fn from_errno(errno: i32) -> Self {
        errno
    }
}

impl FromErrno for std::io::Error {
    fn from_errno(errno: i32) -> Self {
        std::io::Error::from_raw_os_error(errno)
    }
}

/// The distribution of a measure: the number of measurements in each range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// The name of the measure, for example `read` or `read.offset`.
    pub name: String,
    /// The unit, `ns`, `bytes` …; empty for plain numbers.
    pub unit: String,
    /// Pairs `(from, count)`: the number of measurements from `from` to below the `from` of the
    /// next range. Empty ranges are omitted.
    pub ranges: Vec<(u64, u64)>,
}

/// The description of an attached wrapper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrapperInfo {
    /// The number of the attachment, unique within the process.
    pub id: u64,
    /// The name of the wrapper.
    pub name: String,
    /// Its settings.
    pub options: String,
    /// Its counters.
    pub stats: Vec<(String, u64)>,
    /// Its distributions.
    pub histograms: Vec<Histogram>,
}

/// A wrapper that panicked and was detached for that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrapperFailure {
    /// The full name of the object.
    pub object: String,
    /// The name of the wrapper.
    pub wrapper: String,
    /// The reason.
    pub why: String,
    /// The composition before, for example `count(shared)`.
    pub from: String,
    /// The composition since.
    pub to: String,
}

/// A wrapper for one interface, created by the interface's `wrapper(…)`.
pub struct TypedWrapper<I> {
    pub(crate) vtable: VtPtr,
    pub(crate) name: String,
    pub(crate) value: Box<dyn Any + Send + Sync>,
    pub(crate) stats: fn(&(dyn Any + Send + Sync)) -> Vec<(String, u64)>,
    interface: PhantomData<fn() -> I>,
}

impl<I> TypedWrapper<I> {
    /// Called by generated code only.
    ///
    /// # Safety
    /// `vtable` must be a vtable of interface `I` whose functions expect an interposer's rep with a
    /// wrapper of type `T`.
    #[doc(hidden)]
    pub unsafe fn new<T: Send + Sync + 'static>(
        vtable: VtPtr,
        name: String,
        value: T,
        stats: fn(&(dyn Any + Send + Sync)) -> Vec<(String, u64)>,
    ) -> Self {
        TypedWrapper { vtable, name, value: Box::new(value), stats, interface: PhantomData }
    }
}

impl<I> std::fmt::Debug for TypedWrapper<I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TypedWrapper").field("name", &self.name).finish_non_exhaustive()
    }
}
