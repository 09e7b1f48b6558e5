//! From steps to a loaded BPF program.

use super::Counters;

/// A chain of steps in the kernel. Dropping it takes it out.
#[derive(Debug)]
pub struct Installed {
    program_ids: Vec<u32>,
}

impl Installed {
    /// What it has done so far.
    pub fn counters(&self) -> Counters {
        Counters::default()
    }

    /// The kernel's numbers of its BPF programs, as `bpftool prog` shows them.
    pub fn program_ids(&self) -> &[u32] {
        &self.program_ids
    }
}
