//! The refusal of a promise on a link: names the asked rate, the free rate, the holders, and the largest rate that
//! fits.

use std::fmt;

use qfabric_types::api::net::{HeldRateId, StreamId};
use qfabric_types::api::{Problem, Shortage};
use qfabric_types::{Amount, BitRate, LinkEnd, Resource};

use crate::refusal::write_holders;

/// The limit that a request exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkBound {
    /// `B_HI` of the link.
    Capacity(BitRate),
    User {
        uid: u32,
        cap: BitRate,
    },
    Group {
        gid: u32,
        cap: BitRate,
    },
    /// The number of streams of one user.
    Streams {
        uid: u32,
        most: u32,
    },
    /// The number of held rates of one user.
    HeldRates {
        uid: u32,
        most: u32,
    },
    /// The held rate from which the stream draws.
    Held(HeldRateId),
    /// Streams draw this rate from the held rate.
    Drawn {
        id: HeldRateId,
        drawn: BitRate,
    },
    /// The promises exceed a new `B_HI`.
    Promised(BitRate),
}

/// What a promise is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkUse {
    Stream(StreamId),
    /// No stream: a held rate.
    Held(HeldRateId),
}

/// A stream or held rate, and what it was promised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkHolder {
    pub by: LinkUse,
    pub name: String,
    pub uid: u32,
    pub rate: BitRate,
}

/// A promise that the link cannot give. A refusal changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkRefusal {
    pub end: LinkEnd,
    pub bound: LinkBound,
    pub asked: BitRate,
    /// The largest rate that fits.
    pub free: BitRate,
    /// Largest first; at most [`crate::Refusal::MOST_HOLDERS`].
    pub holders: Vec<LinkHolder>,
}

impl LinkRefusal {
    pub(crate) fn new(
        end: LinkEnd,
        bound: LinkBound,
        asked: BitRate,
        free: BitRate,
        mut holders: Vec<LinkHolder>,
    ) -> Self {
        holders.truncate(crate::Refusal::MOST_HOLDERS);
        LinkRefusal { end, bound, asked, free, holders }
    }

    /// Stable name of the reason, for programs.
    pub fn code(&self) -> &'static str {
        match self.bound {
            LinkBound::Capacity(_) | LinkBound::Held(_) => "over_link",
            LinkBound::User { .. } => "user_cap",
            LinkBound::Group { .. } => "group_cap",
            LinkBound::Streams { .. }
            | LinkBound::HeldRates { .. }
            | LinkBound::Drawn { .. }
            | LinkBound::Promised(_) => "net_refused",
        }
    }

    pub fn problem(&self) -> Problem {
        let mut problem = Problem::new(self.code(), self.to_string(), self.next_step());
        if self.code() != "net_refused" {
            let (resource, free) = (Resource::Network(self.end.clone()), Amount::Network(self.free));
            problem.shortage = Some(Box::new(Shortage::new(resource, Amount::Network(self.asked), free, free)));
        }
        problem
    }

    fn next_step(&self) -> String {
        let ask = match self.free {
            BitRate::ZERO => String::new(),
            free => format!("ask for at most {free}, or "),
        };
        match self.bound {
            LinkBound::Capacity(_) => format!("{ask}end {}", self.one_of_the_holders()),
            LinkBound::User { uid, .. } => format!("{ask}ask the administrator to raise the maximum of user {uid}"),
            LinkBound::Group { gid, .. } => format!("{ask}ask the administrator to raise the maximum of group {gid}"),
            LinkBound::Streams { .. } => "end one of your streams first (qfabric net stream rm)".to_owned(),
            LinkBound::HeldRates { .. } => "end one of your contracts first (qfabric contract rm)".to_owned(),
            LinkBound::Held(_) => format!("{ask}end another stream that draws from it (qfabric net stream rm)"),
            LinkBound::Drawn { .. } => "end a stream that draws from it first (qfabric net stream rm)".to_owned(),
            LinkBound::Promised(_) => {
                format!("state a rate that leaves {} to promise, or end {}", self.asked, self.one_of_the_holders())
            }
        }
    }

    fn one_of_the_holders(&self) -> &'static str {
        let has_held = self.holders.iter().any(|holder| matches!(holder.by, LinkUse::Held(_)));
        match has_held {
            true => "one of the holders' streams (qfabric net stream rm) or contracts (qfabric contract rm)",
            false => "one of the holders' streams (qfabric net stream rm)",
        }
    }
}

impl fmt::Display for LinkRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LinkRefusal { end, asked, free, .. } = self;
        match self.bound {
            LinkBound::Capacity(cap) => write!(f, "{end}: asked for {asked}, {free} of {cap} is free")?,
            LinkBound::User { uid, cap } => {
                write!(f, "{end}: asked for {asked}, user {uid} has {free} left of its maximum of {cap}")?;
            }
            LinkBound::Group { gid, cap } => {
                write!(f, "{end}: asked for {asked}, group {gid} has {free} left of its maximum of {cap}")?;
            }
            LinkBound::Streams { uid, most } => {
                write!(f, "{end}: user {uid} has {most} streams, which is the limit for one user")?;
            }
            LinkBound::HeldRates { uid, most } => {
                write!(f, "{end}: user {uid} holds {most} rates without a stream, which is the limit for one user")?;
            }
            LinkBound::Held(id) => write!(f, "{end}: asked for {asked}, {free} of held rate {id} is left")?,
            LinkBound::Drawn { id, drawn } => {
                write!(f, "{end}: held rate {id} cannot be lowered to {asked}, because its streams draw {drawn}")?;
            }
            LinkBound::Promised(cap) => {
                write!(f, "{end}: {asked} are promised, more than the {cap} that would remain to promise")?;
            }
        }
        write_holders(f, &self.holders)
    }
}

impl fmt::Display for LinkHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} of user {}): {}", self.name, self.by, self.uid, self.rate)
    }
}

impl fmt::Display for LinkUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkUse::Stream(id) => write!(f, "stream {id}"),
            LinkUse::Held(id) => write!(f, "held rate {id}"),
        }
    }
}

impl std::error::Error for LinkRefusal {}
