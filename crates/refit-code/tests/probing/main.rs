//! What probes tell of a program whose blocks and times are known.

mod cover;
mod drill;
mod program;
