//! Events preprocessed and filtered where they happen: the four examples of 000 §3.2.5.
//!
//! | example | its handler, in the kernel | then |
//! |---|---|---|
//! | [`requests`] | reads the requests that arrive at a port into shared memory | a signal tells the server |
//! | [`averages`] | averages 64 samples of a CPU | a signal carries the average |
//! | [`filter`] | looks at what arrives and discards what is of no interest | the rest is in shared memory |
//! | [`accelerator`] | tells static requests from dynamic ones | static ones never reach the server's socket |
//!
//! Each is a function that a test calls, and a command of the program beside it.

#![forbid(unsafe_code)]

pub mod accelerator;
pub mod averages;
pub mod filter;
pub mod requests;

use std::time::Duration;

use qfabric_client::ecalls::Event;

/// How long an example waits for what it made happen itself.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// An unsigned number of `N` bytes (at most 8) at `offset`.
fn number<const N: usize>(event: &Event<'_>, offset: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes[..N].copy_from_slice(&event.data[offset..offset + N]);
    u64::from_le_bytes(bytes)
}
