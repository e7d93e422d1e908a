//! The `#[interface]` macro.
