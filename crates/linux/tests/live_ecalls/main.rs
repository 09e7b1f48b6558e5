//! Handlers in the running kernel: each service's events, each way of delivery.

mod common;
mod delivery;
mod pressure;
mod services;
