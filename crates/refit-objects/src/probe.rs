//! How generated code asks a type for what it can do when it may not be able to do it.
//!
//! `(&mut ProbeMut(&mut x)).reach(…)` finds the first of these two traits if `x` is an [`Argument`], since a method that
//! takes the receiver as it is goes before one that needs another reference; otherwise the second. So generated code need not
//! know, and nothing is decided at run time. Used by what `#[interface]` generates; not for others.

use std::marker::PhantomData;

use crate::argument::{Argument, Kind, Value};
use crate::wrapper::{Access, FromErrno};

/// A value that is asked.
#[derive(Debug)]
pub struct Probe<'a, T>(pub &'a T);

/// A type that is asked.
#[derive(Debug)]
pub struct TypeProbe<T>(PhantomData<T>);

impl<T> TypeProbe<T> {
    /// Asks for `T`.
    pub const fn new() -> Self {
        TypeProbe(PhantomData)
    }
}

impl<T> Default for TypeProbe<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// A value that is to be changed.
#[derive(Debug)]
pub struct ProbeMut<'a, T>(pub &'a mut T);

/// For values that can be seen and may be changed.
pub trait ReachedValue {
    /// Does it; what is there then.
    fn reach(&mut self, access: Access) -> Option<Value>;
}

impl<T: Argument> ReachedValue for ProbeMut<'_, T> {
    #[inline]
    fn reach(&mut self, access: Access) -> Option<Value> {
        match access {
            Access::Read => Some(self.0.value()),
            Access::Write(value) => self.0.set(value).then(|| self.0.value()),
            Access::Fail(_) => None,
        }
    }
}

/// For all others.
pub trait UnreachedValue {
    /// Nothing can be done.
    fn reach(&mut self, access: Access) -> Option<Value> {
        let _ = access;
        None
    }
}

impl<T> UnreachedValue for &mut ProbeMut<'_, T> {}

/// For argument types that can be seen.
pub trait SeenKind {
    /// What is seen.
    fn kind(&self) -> Kind;
}

impl<T: Argument> SeenKind for TypeProbe<T> {
    fn kind(&self) -> Kind {
        T::KIND
    }
}

/// For all others.
pub trait OpaqueKind {
    /// What is seen.
    fn kind(&self) -> Kind {
        Kind::Opaque
    }
}

impl<T> OpaqueKind for &TypeProbe<T> {}

/// For results that can be errors.
pub trait FallibleResult {
    /// Whether this one is.
    fn failed(&self) -> bool;
}

impl<T, E> FallibleResult for Probe<'_, Result<T, E>> {
    #[inline]
    fn failed(&self) -> bool {
        self.0.is_err()
    }
}

/// For all others.
pub trait InfallibleResult {
    /// Whether this one is.
    fn failed(&self) -> bool {
        false
    }
}

impl<T> InfallibleResult for &Probe<'_, T> {}

/// For result types that can express an `errno`.
pub trait ErrnoResult<R> {
    /// Whether they can.
    fn can_fail(&self) -> bool {
        true
    }
    /// The result.
    fn with_errno(&self, errno: i32) -> Option<R>;
}

impl<T, E: FromErrno> ErrnoResult<Result<T, E>> for TypeProbe<Result<T, E>> {
    fn with_errno(&self, errno: i32) -> Option<Result<T, E>> {
        Some(Err(E::from_errno(errno)))
    }
}

/// For all others.
pub trait NoErrnoResult<R> {
    /// Whether they can.
    fn can_fail(&self) -> bool {
        false
    }
    /// The result.
    fn with_errno(&self, errno: i32) -> Option<R> {
        let _ = errno;
        None
    }
}

impl<R> NoErrnoResult<R> for &TypeProbe<R> {}
