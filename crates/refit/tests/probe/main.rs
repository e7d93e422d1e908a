//! `refit probe`, `refit repair`, `refit cover` and `refit drill`, on programs that know nothing of it.

mod cover;
mod probes;
mod refused;
mod shell;
