//! The refit command.
fn main() {}
