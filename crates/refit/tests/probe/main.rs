//! Tests of `refit probe`, `refit repair`, `refit cover` and `refit drill` on unmodified programs.

mod cover;
mod followed;
mod hot;
mod kept;
mod killed;
mod messages;
mod optimised;
mod paged;
mod probes;
mod refused;
mod scripts;
mod shell;
mod specialised;
mod victim;
