//! What a wrapper is: code that runs before and after every call of an object (Soules 2003, §4.3.1).
//!
//! There are two kinds. A [`Wrapper`] fits any interface: it sees the object, the method and the arguments as plain
//! values, and whether the result is an error; it can let a call fail. A *typed* wrapper knows its interface: from
//! `trait Counter` the macro makes `trait CounterWrapper` with `pre_add(&self, n: &mut u64) -> Pre<u64>` and
//! `post_add(&self, state, result: &mut u64)` for each method, so that arguments and results can be read and changed.
//!
//! `precall` decides whether there is a `postcall`. If not, nothing of the call is kept. If so, it hands over one
//! number, which stands in the frame of the call; nothing is allocated either way.
//!
//! A wrapper runs within the request of the call that it wraps. What it does there takes the caller's time; it must
//! not call the object it wraps, which would call it again.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

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

/// A call before it reaches the object.
pub struct PreCall<'a> {
    pub(crate) info: CallInfo,
    pub(crate) arguments: &'a dyn Fn(usize) -> Value,
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
        (self.arguments)(index)
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
#[derive(Debug)]
pub struct PostCall<'a> {
    pub(crate) info: CallInfo,
    pub(crate) state: u64,
    pub(crate) outcome: Outcome,
    pub(crate) borrowed: PhantomData<&'a ()>,
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
}

/// What a wrapper that does not know the interface sees of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Unsigned(u64),
    /// A number that can be negative.
    Signed(i64),
    /// Length of a slice, a string or a vector.
    Length(u64),
    /// Nothing.
    Opaque,
}

impl Value {
    /// As one number, if it is one; negative numbers count as 0.
    pub fn number(self) -> Option<u64> {
        match self {
            Value::Unsigned(n) | Value::Length(n) => Some(n),
            Value::Signed(n) => Some(u64::try_from(n).unwrap_or(0)),
            Value::Opaque => None,
        }
    }
}

/// What sort of [`Value`] an argument shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number.
    Number,
    /// The length of something.
    Length,
    /// Nothing.
    Opaque,
}

/// A type whose values wrappers can see without knowing the interface. Types without it are opaque to them.
pub trait Argument {
    /// What is seen.
    const KIND: Kind;
    /// The value.
    fn value(&self) -> Value;
}

macro_rules! numbers {
    ($($ty:ty => $variant:ident as $wide:ty),*) => {$(
        impl Argument for $ty {
            const KIND: Kind = Kind::Number;
            fn value(&self) -> Value {
                Value::$variant(*self as $wide)
            }
        }
    )*};
}

numbers!(u8 => Unsigned as u64, u16 => Unsigned as u64, u32 => Unsigned as u64, u64 => Unsigned as u64,
    usize => Unsigned as u64, bool => Unsigned as u64, i8 => Signed as i64, i16 => Signed as i64,
    i32 => Signed as i64, i64 => Signed as i64, isize => Signed as i64);

macro_rules! lengths {
    ($([$($parameter:ident)?] $ty:ty),*) => {$(
        impl$(<$parameter>)? Argument for $ty {
            const KIND: Kind = Kind::Length;
            fn value(&self) -> Value {
                Value::Length(self.len() as u64)
            }
        }
    )*};
}

lengths!([T] &[T], [T] &mut [T], [T] Vec<T>, [T] &Vec<T>, [T] &mut Vec<T>, [] &str, [] String, [] &String);

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
