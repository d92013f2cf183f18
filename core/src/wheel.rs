//! placeholder until the wheel lands
