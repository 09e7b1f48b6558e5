//! examples/player
fn main() {}
