//! Tests of handlers in the running kernel: the events of each service and each way of delivery.

mod calls;
mod common;
mod delivery;
mod pressure;
mod services;
mod shared;
mod streams;
