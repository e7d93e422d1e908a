//! Queries of a type's abilities by generated code that does not know whether the type has them.
//!
//! `(&mut ProbeMut(&mut x)).reach(…)` finds the first of these two traits if `x` is an
//! [`Argument`], since a method that takes the receiver as it is precedes one that needs another
//! reference; otherwise the second. So generated code need not know whether `x` is one, and nothing
//! is decided at run time. Used by code that `#[interface]` generates; not for other users.

use std::marker::PhantomData;

use crate::argument::{Argument, Kind, Value};
use crate::wrapper::{Access, FromErrno};

/// A value to query.
#[derive(Debug)]
pub struct Probe<'a, T>(pub &'a T);

/// A type to query.
#[derive(Debug)]
pub struct TypeProbe<T>(PhantomData<T>);

impl<T> TypeProbe<T> {
    /// Creates a query of `T`.
    pub const fn new() -> Self {
        TypeProbe(PhantomData)
    }
}

impl<T> Default for TypeProbe<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// A value to change.
#[derive(Debug)]
pub struct ProbeMut<'a, T>(pub &'a mut T);

/// For values that can be seen and possibly changed.
pub trait ReachedValue {
    /// Accesses the value, and returns it as it is afterwards.
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

/// For all other values.
pub trait UnreachedValue {
    /// Has no effect.
    fn reach(&mut self, access: Access) -> Option<Value> {
        let _ = access;
        None
    }
}

impl<T> UnreachedValue for &mut ProbeMut<'_, T> {}

/// For argument types that can be seen.
pub trait SeenKind {
    /// Returns the kind of value.
    fn kind(&self) -> Kind;
}

impl<T: Argument> SeenKind for TypeProbe<T> {
    fn kind(&self) -> Kind {
        T::KIND
    }
}

/// For all other types.
pub trait OpaqueKind {
    /// Returns the kind of value.
    fn kind(&self) -> Kind {
        Kind::Opaque
    }
}

impl<T> OpaqueKind for &TypeProbe<T> {}

/// For results that can be errors.
pub trait FallibleResult {
    /// Returns whether this one is an error.
    fn failed(&self) -> bool;
}

impl<T, E> FallibleResult for Probe<'_, Result<T, E>> {
    #[inline]
    fn failed(&self) -> bool {
        self.0.is_err()
    }
}

/// For all other results.
pub trait InfallibleResult {
    /// Returns whether this one is an error.
    fn failed(&self) -> bool {
        false
    }
}

impl<T> InfallibleResult for &Probe<'_, T> {}

/// For result types that can express an `errno`.
pub trait ErrnoResult<R> {
    /// Returns whether they can.
    fn can_fail(&self) -> bool {
        true
    }
    /// Returns the result for an `errno`.
    fn with_errno(&self, errno: i32) -> Option<R>;
}

impl<T, E: FromErrno> ErrnoResult<Result<T, E>> for TypeProbe<Result<T, E>> {
    fn with_errno(&self, errno: i32) -> Option<Result<T, E>> {
        Some(Err(E::from_errno(errno)))
    }
}

/// For all other result types.
pub trait NoErrnoResult<R> {
    /// Returns whether they can.
    fn can_fail(&self) -> bool {
        false
    }
    /// Returns the result for an `errno`.
    fn with_errno(&self, errno: i32) -> Option<R> {
        let _ = errno;
        None
    }
}

impl<R> NoErrnoResult<R> for &TypeProbe<R> {}
