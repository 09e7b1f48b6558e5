//! The parts of a stream whose computation and packets share one clock (the thesis, §2.4.2). The contest measures
//! the same parts.
//!
//! ```text
//!  CPU      |--- frame k computed ---|--- k+1 ---|           T each, from `start`
//!  packets        |--- frame k sent ---|--- k+1 ---|         the same T, from `start` + Θ
//!           <------- Θ + T ----------->                      the largest age of a packet when it leaves
//! ```
#![forbid(unsafe_code)]

mod pace;
mod packet;
mod receiver;
mod sender;
mod together;

pub use pace::{Shape, sleep_until};
pub use packet::pieces;
pub use receiver::{Arrival, Receiver};
pub use sender::send;
pub use together::{StreamRequest, Together};
