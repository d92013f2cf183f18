//! Bandog for Node: converts, submits, settles. What a lock does is decided in `bandog-core`, done by `bandog`.

// The exported items are documented for JS; this crate has no Rust users.
#![allow(missing_docs, unreachable_pub, clippy::needless_pass_by_value)]

mod cancel;
mod carrier;
mod client;
mod convert;
mod errors;
mod events;
mod hold;
mod host;
mod lock;
mod looped;
mod owner;
mod quick;
mod raw;
mod settle;
mod slots;
mod uv;
mod waker;
mod wire;
mod words;
