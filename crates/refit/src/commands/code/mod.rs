//! The code of programs and libraries: `refit funcs` and `refit cfg`.

pub(crate) mod cfg;
mod edge;
pub(crate) mod funcs;
mod layout;
mod listing;
mod picture;
mod subject;
