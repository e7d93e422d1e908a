//! Tests of `refit probe`, `refit repair`, `refit cover`, `refit drill` and `refit knob` on
//! unmodified programs.

mod cover;
mod followed;
mod hot;
mod kept;
mod killed;
mod knobs;
mod messages;
mod optimised;
mod paged;
mod probes;
mod refused;
mod scripts;
mod shell;
mod specialised;
mod victim;
