//! Tests of two layers that exchange messages, by each transport.

mod here;
mod pair;
mod process;
mod tcp;
mod tls;
