//! The refusal of a promise on a link: names the asked rate, the free rate, the holders, and the largest rate that
//! fits.

use std::fmt;

use qfabric_types::api::net::StreamId;
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
}

/// A stream and the rate that it was promised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkHolder {
    pub stream: StreamId,
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
            LinkBound::Capacity(_) => "over_link",
            LinkBound::User { .. } => "user_cap",
            LinkBound::Group { .. } => "group_cap",
            LinkBound::Streams { .. } => "net_refused",
        }
    }

    pub fn problem(&self) -> Problem {
        let mut problem = Problem::new(self.code(), self.to_string(), self.next_step());
        if !matches!(self.bound, LinkBound::Streams { .. }) {
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
            LinkBound::Capacity(_) => format!("{ask}end one of the holders' streams (qfabric net stream rm)"),
            LinkBound::User { uid, .. } => format!("{ask}ask the administrator to raise the maximum of user {uid}"),
            LinkBound::Group { gid, .. } => format!("{ask}ask the administrator to raise the maximum of group {gid}"),
            LinkBound::Streams { .. } => "end one of your streams first (qfabric net stream rm)".to_owned(),
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
        }
        write_holders(f, &self.holders)
    }
}

impl fmt::Display for LinkHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (stream {} of user {}): {}", self.name, self.stream, self.uid, self.rate)
    }
}

impl std::error::Error for LinkRefusal {}
