//! The description of an interface, without its type.

use crate::argument::Kind;
use crate::rep::{MethodInfo, VtPtr};

/// The description of an interface, without its type.
#[derive(Debug)]
pub struct InterfaceInfo {
    /// The short name, the part of an object's name before the colon.
    pub name: &'static str,
    /// Incremented whenever a method is appended.
    pub version: u32,
    /// The methods in the order of the vtable.
    pub methods: &'static [MethodInfo],
    /// The vtable of the default object (miss handling).
    pub default: VtPtr,
    /// The vtable of the mediator's reps.
    pub mediator: VtPtr,
    /// The data of the generic interposer.
    pub interposer: InterposerInfo,
}

/// An argument, as the interface declares it.
#[derive(Clone, Copy, Debug)]
pub struct ArgumentInfo {
    /// The name of the argument.
    pub name: &'static str,
    /// The kind of its visible value.
    pub kind: fn() -> Kind,
}

/// An interposer's knowledge of a method beyond its name.
#[derive(Clone, Copy, Debug)]
pub struct MethodShape {
    /// The arguments, in order.
    pub arguments: &'static [ArgumentInfo],
    /// Whether its result can express an `errno`.
    pub can_fail: fn() -> bool,
}

/// The generic interposer of an interface.
#[derive(Clone, Copy, Debug)]
pub struct InterposerInfo {
    /// The vtable of its reps, for wrappers that fit any interface.
    pub vtable: VtPtr,
    /// The methods, in the order of the vtable.
    pub methods: &'static [MethodShape],
}
