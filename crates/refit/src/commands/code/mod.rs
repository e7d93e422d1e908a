//! What the code of programs and libraries is: `refit funcs` and `refit cfg`.

pub(crate) mod cfg;
mod edge;
pub(crate) mod funcs;
mod layout;
mod listing;
mod picture;
mod subject;
