//! What the player tells Q-Fabric of its jobs, and what it is told.

use anyhow::Result;
use qfabric_types::ring::Grant;
use qfabric_types::{JobRecord, Nanos};

use crate::options::ContractOptions;

/// A session with the daemon, or nothing at all.
pub enum Marks {
    /// No contract was asked for.
    None,
}

impl Marks {
    /// Asks for the contract where one is wanted.
    pub fn start(_options: &ContractOptions, _period: Nanos, _first_bytes: usize) -> Result<Marks> {
        Ok(Marks::None)
    }

    /// A job begins. Returns the grant in force.
    pub fn begin(&mut self, _k: u64) -> Grant {
        Grant::default()
    }

    /// A job has ended; the next one decodes `next_bytes`.
    pub fn end(&mut self, _job: &JobRecord, _next_bytes: usize) {}
}
