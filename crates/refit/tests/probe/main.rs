//! Tests of `refit probe`, `refit repair`, `refit cover` and `refit drill` on unmodified programs.

mod cover;
mod killed;
mod kept;
mod messages;
mod probes;
mod refused;
mod shell;
