//! The refusal of an admission: names the requested share, the free share and the holders of the rest. A refusal
//! changes nothing.

use std::fmt;

use qfabric_types::Share;
use qfabric_types::api::{Holder, Problem};

/// The limit that the request exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// U_lub of the host.
    Capacity(Share),
    User {
        uid: u32,
        cap: Share,
    },
    Group {
        gid: u32,
        cap: Share,
    },
}

/// A guarantee that the host cannot give (AQuoSA (9), §5.3.2). A refusal changes nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    pub bound: Bound,
    pub asked: Share,
    /// The share that can still be guaranteed.
    pub free: Share,
    /// The applications with guarantees, largest first; at most [`Refusal::MOST_HOLDERS`].
    pub holders: Vec<Holder>,
}

impl Refusal {
    /// The message names the holders; a longer list would hide the rest of it.
    pub const MOST_HOLDERS: usize = 16;

    /// Stable name of the reason, for programs.
    pub fn code(&self) -> &'static str {
        match self.bound {
            Bound::Capacity(_) => "over_committed",
            Bound::User { .. } => "user_cap",
            Bound::Group { .. } => "group_cap",
        }
    }

    fn next_step(&self) -> String {
        let who = match self.bound {
            Bound::Capacity(_) => "or stop one of the holders (`qfabric status` lists them)".to_owned(),
            Bound::User { uid, .. } => format!("or ask the administrator to raise the maximum of user {uid}"),
            Bound::Group { gid, .. } => format!("or ask the administrator to raise the maximum of group {gid}"),
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
        write_share_holders(f, &self.holders)
    }
}

/// Ends the message of a refusal with those who hold the rest.
pub(crate) fn write_holders<H: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    holders: impl IntoIterator<Item = H>,
) -> fmt::Result {
    for (at, holder) in holders.into_iter().enumerate() {
        write!(f, "{} {holder}", if at == 0 { "; held by" } else { "," })?;
    }
    Ok(())
}

/// Like [`write_holders`], for applications that hold shares.
pub(crate) fn write_share_holders(f: &mut fmt::Formatter<'_>, holders: &[Holder]) -> fmt::Result {
    write_holders(f, holders.iter().map(|Holder { name, id, share, .. }| format!("{name} ({id}): {share}")))
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
            holders: refusal.holders.into(),
            ..Problem::default()
        }
    }
}
