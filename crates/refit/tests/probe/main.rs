//! `refit probe`, `refit repair`, `refit cover` and `refit drill`, on programs that know nothing of
//! it.

mod cover;
mod killed;
mod probes;
mod refused;
mod shell;
