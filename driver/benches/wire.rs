//! What encoding one request and decoding its reply cost.

fn main() {}
