//! Why an admission is refused: asked, free, and who holds the rest. Nothing is changed by a refusal.

use std::fmt;

use qfabric_types::Share;
use qfabric_types::api::{Holder, Problem};

/// What ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// U_lub of the host.
    Capacity(Share),
    /// The maximum of a user.
    User {
        /// Which.
        uid: u32,
        /// Its maximum.
        cap: Share,
    },
    /// The maximum of a group.
    Group {
        /// Which.
        gid: u32,
        /// Its maximum.
        cap: Share,
    },
}

/// A guarantee that cannot be given (AQuoSA (9), §5.3.2). Nothing was changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// What ran out.
    pub bound: Bound,
    /// The guarantee asked for.
    pub asked: Share,
    /// What could still be guaranteed.
    pub free: Share,
    /// Who was guaranteed the rest, largest first; at most [`Refusal::MOST_HOLDERS`].
    pub holders: Vec<Holder>,
}

impl Refusal {
    /// Longer lists help nobody who reads them.
    pub const MOST_HOLDERS: usize = 16;

    /// Stable name of the reason.
    pub fn code(&self) -> &'static str {
        match self.bound {
            Bound::Capacity(_) => "over_committed",
            Bound::User { .. } => "user_cap",
            Bound::Group { .. } => "group_cap",
        }
    }

    fn next_step(&self) -> String {
        let who = match self.bound {
            Bound::Capacity(_) => "or let one of the holders go (`qfabric status` lists them)".to_owned(),
            Bound::User { uid, .. } => format!("or have the administrator raise the maximum of user {uid}"),
            Bound::Group { gid, .. } => format!("or have the administrator raise the maximum of group {gid}"),
        };
        format!("ask for at most {}, ask for class C, which needs no guarantee, {who}", self.free)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { asked, free, .. } = self;
        match self.bound {
            Bound::Capacity(cap) => write!(f, "asked for a guarantee of {asked}, {free} of {cap} is free")?,
            Bound::User { uid, cap } => {
                write!(f, "asked for a guarantee of {asked}, user {uid} has {free} left of its maximum of {cap}")?
            }
            Bound::Group { gid, cap } => {
                write!(f, "asked for a guarantee of {asked}, group {gid} has {free} left of its maximum of {cap}")?
            }
        }
        for (i, holder) in self.holders.iter().enumerate() {
            let lead = if i == 0 { "; held by" } else { "," };
            write!(f, "{lead} {} ({}): {}", holder.name, holder.id, holder.share)?;
        }
        Ok(())
    }
}

impl std::error::Error for Refusal {}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Problem {
        Problem {
            code: refusal.code().to_owned(),
            message: refusal.to_string(),
            next_step: refusal.next_step(),
            asked: Some(refusal.asked),
            free: Some(refusal.free),
            holders: refusal.holders,
            ..Problem::default()
        }
    }
}
