//! The refusal of memory: names the requested amount, the free amount, the holders and the largest amount that fits.

use std::fmt;

use qfabric_types::api::memory::ReserveId;
use qfabric_types::api::{Problem, Shortage};
use qfabric_types::{Amount, Bytes, Resource};

use crate::refusal::write_holders;

/// The limit that a request for memory exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryBound {
    /// Mem_glob_resv of the host.
    Reserve(Bytes),
    User {
        uid: u32,
        cap: Bytes,
    },
    Group {
        gid: u32,
        cap: Bytes,
    },
    /// The number of reserves of one user.
    Reserves {
        uid: u32,
        most: usize,
    },
}

/// A reserve and the amount that it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryHolder {
    pub reserve: ReserveId,
    /// The name and process of the application.
    pub name: String,
    pub pid: i32,
    pub bytes: Bytes,
}

/// An amount of memory that the host cannot promise. A refusal changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryRefusal {
    pub bound: MemoryBound,
    /// In whole pages.
    pub asked: Bytes,
    /// The part of the global reserve that is not promised.
    pub free: Bytes,
    /// The largest amount that this request could be granted.
    pub largest: Bytes,
    /// Largest first; at most [`crate::Refusal::MOST_HOLDERS`].
    pub holders: Vec<MemoryHolder>,
}

/// A global reserve that is smaller than the promises made from it. The old limits stay in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReserveBelowPromises {
    pub asked: Bytes,
    /// The sum of all promises, with decreases that are not settled.
    pub promised: Bytes,
    /// Largest first; at most [`crate::Refusal::MOST_HOLDERS`].
    pub holders: Vec<MemoryHolder>,
}

impl ReserveBelowPromises {
    /// The refusal of a change of limits.
    pub fn problem(&self) -> Problem {
        let next = format!(
            "set memory.global_reserve to at least {} bytes ({}), or stop one of the holders (`qfabric status` lists them)",
            self.promised.get(),
            self.promised
        );
        Problem::new("below_promises", self.to_string(), next)
    }
}

impl fmt::Display for ReserveBelowPromises {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ReserveBelowPromises { asked, promised, holders } = self;
        write!(f, "memory.global_reserve cannot be {asked}, because {promised} is promised")?;
        write_holders(f, holders)
    }
}

impl std::error::Error for ReserveBelowPromises {}

impl MemoryRefusal {
    /// Stable name of the reason, for programs.
    pub fn code(&self) -> &'static str {
        match self.bound {
            MemoryBound::Reserve(_) => "over_committed",
            MemoryBound::User { .. } => "user_cap",
            MemoryBound::Group { .. } => "group_cap",
            MemoryBound::Reserves { .. } => "too_many_reserves",
        }
    }

    /// The refusal of a request, with the amounts as numbers.
    pub fn problem(&self) -> Problem {
        let amounts = [self.asked, self.free, self.largest].map(Amount::Memory);
        let [asked, free, largest] = amounts;
        let shortage = Some(Box::new(Shortage::new(Resource::Memory, asked, free, largest)));
        Problem { shortage, ..Problem::new(self.code(), self.to_string(), self.next_step()) }
    }

    fn next_step(&self) -> String {
        let largest = self.largest;
        match self.bound {
            MemoryBound::Reserve(Bytes::ZERO) => {
                "run without a reserve, or ask the administrator to set memory.global_reserve".to_owned()
            }
            MemoryBound::Reserve(_) => {
                format!("ask for at most {largest}, or stop one of the holders (`qfabric status` lists them)")
            }
            MemoryBound::User { uid, .. } => {
                format!("ask for at most {largest}, or ask the administrator to raise memory.users of user {uid}")
            }
            MemoryBound::Group { gid, .. } => {
                format!("ask for at most {largest}, or ask the administrator to raise memory.groups of group {gid}")
            }
            MemoryBound::Reserves { .. } => "free a reserve first, or let one reserve grow".to_owned(),
        }
    }
}

impl fmt::Display for MemoryRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MemoryRefusal { asked, free, largest, .. } = self;
        match self.bound {
            MemoryBound::Reserve(Bytes::ZERO) => {
                write!(f, "asked for {asked} of resident memory, but the reserves of this host are switched off")?;
            }
            MemoryBound::Reserve(cap) => {
                write!(f, "asked for {asked} of resident memory, {free} of {cap} is free")?;
            }
            MemoryBound::User { uid, cap } => {
                write!(
                    f,
                    "asked for {asked} of resident memory, user {uid} may have {largest} of its maximum of {cap}"
                )?;
            }
            MemoryBound::Group { gid, cap } => {
                write!(
                    f,
                    "asked for {asked} of resident memory, group {gid} may have {largest} of its maximum of {cap}"
                )?;
            }
            MemoryBound::Reserves { uid, most } => {
                write!(f, "user {uid} has {most} reserves, which is the limit for one user")?;
            }
        }
        write_holders(f, &self.holders)
    }
}

impl fmt::Display for MemoryHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {}): {}", self.name, self.pid, self.bytes)
    }
}

impl std::error::Error for MemoryRefusal {}
