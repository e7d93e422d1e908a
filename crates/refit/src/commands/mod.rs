//! A module per command, or per handful of commands about the same thing.

pub(crate) mod changes;
pub(crate) mod doctor;
pub(crate) mod documents;
pub(crate) mod mount;
pub(crate) mod mounts;
pub(crate) mod objects;
pub(crate) mod swap;
pub(crate) mod tour;
