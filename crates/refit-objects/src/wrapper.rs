//! What a wrapper is: code that runs before and after every call of an object (Soules 2003, §4.3.1).
//!
//! There are two kinds. A [`Wrapper`] fits any interface: it sees the object, the method, the arguments and the result
//! as plain [`Value`](crate::Value)s, and may put others in their places; it can let a call fail. A *typed* wrapper knows its interface: from
//! `trait Counter` the macro makes `trait CounterWrapper` with `pre_add(&self, n: &mut u64) -> Pre<u64>` and
//! `post_add(&self, state, result: &mut u64)` for each method, so that arguments and results can be read and changed.
//!
//! `precall` decides whether there is a `postcall`. If not, nothing of the call is kept. If so, it hands over one
//! number, which stands in the frame of the call; nothing is allocated either way.
//!
//! A wrapper runs within the request of the call that it wraps. What it does there takes the caller's time; it must
//! not call the object it wraps, which would call it again.

use std::any::Any;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::argument::{Kind, Value};
use crate::object::ObjectId;
use crate::rep::{InterfaceInfo, VtPtr};

/// How a call goes on after an untyped `precall`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// To the object; there is no postcall.
    Forward,
    /// To the object, then to `postcall`, which is given this number.
    Postcall(u64),
    /// Back to the caller with this `errno`, if the method can express it (see [`PreCall::can_fail`]); as
    /// [`After::Forward`] otherwise.
    Fail(i32),
}

/// How a call goes on after the `pre_…` of a typed wrapper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pre<R> {
    /// To the object; there is no postcall.
    Forward,
    /// To the object, then to `post_…`, which is given this number.
    Postcall(u64),
    /// Back to the caller with this result; the object is not called.
    Answer(R),
}

/// Code around the calls of an object of any interface.
pub trait Wrapper: Send + Sync {
    /// Its name, by which it is shown and detached.
    fn name(&self) -> &str;

    /// Before the call.
    fn precall(&self, call: &PreCall<'_>) -> After;

    /// After the call, if `precall` wanted that; also when the method panicked.
    fn postcall(&self, call: &PostCall<'_>) {
        let _ = call;
    }

    /// What it is set to, as `key=value …`; empty if there is nothing to set.
    fn options(&self) -> String {
        String::new()
    }

    /// What it has counted: `(what, how much)`. Names that end in `_ns` are times in nanoseconds.
    fn stats(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// How what it measures is spread.
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

/// Which call it is.
#[derive(Clone, Copy, Debug)]
pub struct CallInfo {
    pub(crate) object: ObjectId,
    pub(crate) interface: &'static InterfaceInfo,
    pub(crate) method: u16,
    pub(crate) processor: u32,
}

impl CallInfo {
    /// The object.
    pub fn object(&self) -> ObjectId {
        self.object
    }

    /// Its interface.
    pub fn interface(&self) -> &'static InterfaceInfo {
        self.interface
    }

    /// Number of the method in the interface.
    pub fn method(&self) -> usize {
        usize::from(self.method)
    }

    /// Name of the method.
    pub fn method_name(&self) -> &'static str {
        self.interface.methods.get(self.method()).map_or("", |m| m.name)
    }

    /// Processor on which the call came in. A hint: the thread may have been moved since.
    pub fn processor(&self) -> usize {
        self.processor as usize
    }
}

/// What is done with a value of a call by who does not know its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It is looked at.
    Read,
    /// It is replaced.
    Write(Value),
    /// It becomes the error with this `errno`; only results can.
    Fail(i32),
}

/// Does it with the argument of this number, or with the result: what is there then, or `None` if that cannot be.
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

    /// An argument; [`Value::Opaque`] beyond the last.
    pub fn argument(&self, index: usize) -> Value {
        (self.arguments.borrow_mut())(index, Access::Read).unwrap_or(Value::Opaque)
    }

    /// Puts another value in the place of an argument; whether that could be done. A number must be one of the
    /// argument's type; a [`Value::Length`] can only cut off.
    pub fn set_argument(&self, index: usize, value: Value) -> bool {
        (self.arguments.borrow_mut())(index, Access::Write(value)).is_some()
    }

    /// Names of the arguments and what can be seen of them.
    pub fn arguments(&self) -> &'static [ArgumentInfo] {
        self.shape().map_or(&[], |shape| shape.arguments)
    }

    /// Whether the method's result can express an `errno`.
    pub fn can_fail(&self) -> bool {
        self.shape().is_some_and(|shape| (shape.can_fail)())
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It returned, and not with `Err`.
    Returned,
    /// It returned an `Err`.
    Failed,
    /// It panicked; the panic goes on to the caller.
    Unwound,
}

/// A call that comes back from the object.
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
    /// The number that `precall` handed over.
    pub fn state(&self) -> u64 {
        self.state
    }

    /// How it ended.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// The result, or what is in its `Ok` or `Some`; [`Value::Opaque`] for an error or a panic.
    pub fn result(&self) -> Value {
        self.reach(Access::Read).unwrap_or(Value::Opaque)
    }

    /// Puts another value in the place of what [`Self::result`] shows; whether that could be done. As for
    /// [`PreCall::set_argument`]. An error stays an error.
    pub fn set_result(&self, value: Value) -> bool {
        self.reach(Access::Write(value)).is_some()
    }

    /// Makes the result the error with this `errno`; whether the method can express that.
    pub fn fail(&self, errno: i32) -> bool {
        self.reach(Access::Fail(errno)).is_some()
    }

    fn reach(&self, access: Access) -> Option<Value> {
        (self.result.borrow_mut())(0, access)
    }
}

/// An error type that can express an `errno`, so that a wrapper can make calls fail.
pub trait FromErrno {
    /// The error with this `errno`.
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

/// An argument as the interface declares it.
#[derive(Clone, Copy, Debug)]
pub struct ArgumentInfo {
    /// Its name.
    pub name: &'static str,
    /// What can be seen of it.
    pub kind: fn() -> Kind,
}

/// What an interposer knows of a method beyond its name.
#[derive(Clone, Copy, Debug)]
pub struct MethodShape {
    /// Its arguments, in order.
    pub arguments: &'static [ArgumentInfo],
    /// Whether its result can express an `errno`.
    pub can_fail: fn() -> bool,
}

/// The generic interposer of an interface.
#[derive(Clone, Copy, Debug)]
pub struct InterposerInfo {
    /// Vtable of its reps, for wrappers that fit any interface.
    pub vtable: VtPtr,
    /// Its methods, in the order of the vtable.
    pub methods: &'static [MethodShape],
}

/// How a measure is spread: how many measurements lie in which range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// What was measured, e.g. `read` or `read.offset`.
    pub name: String,
    /// `ns`, `bytes` …; empty for plain numbers.
    pub unit: String,
    /// `(from, how many)`: measurements of at least `from`, below the `from` of the next range. Empty ranges are
    /// left out.
    pub ranges: Vec<(u64, u64)>,
}

/// What one attached wrapper tells about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrapperInfo {
    /// Number of the attachment; no other one of this process has it.
    pub id: u64,
    /// Name of the wrapper.
    pub name: String,
    /// What it is set to.
    pub options: String,
    /// What it has counted.
    pub stats: Vec<(String, u64)>,
    /// What it has measured.
    pub histograms: Vec<Histogram>,
}

/// A wrapper for one interface, made by the interface's `wrapper(…)`.
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
    /// `vtable` must be a vtable of interface `I` whose functions expect an interposer's rep with a wrapper of type
    /// `T`.
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
