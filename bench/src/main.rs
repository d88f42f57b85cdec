//! Benchmarks of weft.
fn main() {}
