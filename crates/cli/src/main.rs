//! The `entresol` command.
fn main() {}
