//! Traces of every kind, whole and damaged, are read as far as they go, and say what they hold.

mod analysis;
mod builder;
mod exhaust;
mod exports;
mod mutation;
mod perfetto;
mod reading;
