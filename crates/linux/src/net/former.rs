//! The queueing discipline that an interface had, and how it is put back.
//!
//! What the kernel gives an interface by itself has no handle: taking ours away brings it back. What somebody has set
//! up is recorded with its options, as the kernel tells them, and made again from these. Disciplines with classes or
//! children of their own are more than their options: an interface that has one is refused.

use std::io;

use serde::{Deserialize, Serialize};

use super::netlink::{self, Message, NLM_F_CREATE, NLM_F_REPLACE, Object, RTM_DELQDISC, RTM_GETQDISC, RTM_NEWQDISC};

/// The parent of what is at the root.
pub(super) const ROOT: u32 = u32::MAX;
/// The handle of ours: `5146:`.
pub(super) const HANDLE: u32 = 0x5146_0000;
/// How the kinds of our own begin.
pub(super) const DWCS_KIND: &str = "qf_dwcs";

pub(super) const TCA_KIND: u16 = 1;
pub(super) const TCA_OPTIONS: u16 = 2;

/// Disciplines that are no more than their options.
const CLASSLESS: [&str; 15] = [
    "pfifo",
    "bfifo",
    "pfifo_fast",
    "pfifo_head_drop",
    "noqueue",
    "fq",
    "fq_codel",
    "fq_pie",
    "codel",
    "pie",
    "cake",
    "sfq",
    "tbf",
    "red",
    "etf",
];

/// What was there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Former {
    /// What the kernel gives by itself, of this kind.
    Default {
        /// Such as `noqueue`, `mq`, `fq_codel`.
        kind: String,
    },
    /// What somebody has set up.
    Configured {
        /// Such as `fq`.
        kind: String,
        /// Its number.
        handle: u32,
        /// Its options, as the kernel tells them.
        options: Vec<u8>,
    },
}

/// What is at an interface's root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Root {
    /// Ours.
    Own { kind: String },
    /// Somebody's that can be put back.
    Former(Former),
    /// Somebody's that cannot.
    Classful { kind: String },
}

impl std::fmt::Display for Former {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Former::Default { kind } => f.pad(kind),
            Former::Configured { kind, handle, .. } => f.pad(&format!("{kind} {:x}:", handle >> 16)),
        }
    }
}

/// What is at the root of an interface now.
pub(super) fn root(ifindex: u32) -> io::Result<Root> {
    let all = netlink::list(Message::new(RTM_GETQDISC, 0, Object { ifindex, ..Object::default() }))?;
    let root = all.iter().find(|found| found.object.ifindex == ifindex && found.object.parent == ROOT);
    let Some(root) = root else { return Ok(Root::Former(Former::Default { kind: "none".to_owned() })) };
    let (kind, handle) = (root.name(TCA_KIND).unwrap_or_default(), root.object.handle);
    Ok(match handle {
        HANDLE => Root::Own { kind },
        _ if kind.starts_with(DWCS_KIND) => Root::Own { kind },
        0 => Root::Former(Former::Default { kind }),
        _ if !CLASSLESS.contains(&kind.as_str()) => Root::Classful { kind },
        _ => {
            let options = root.attribute(TCA_OPTIONS).unwrap_or_default().to_vec();
            Root::Former(Former::Configured { kind, handle, options })
        }
    })
}

/// Puts a discipline at the root, in place of what is there.
pub(super) fn replace(ifindex: u32, handle: u32, kind: &str, options: Option<&[u8]>) -> io::Result<()> {
    let object = Object { ifindex, handle, parent: ROOT, info: 0 };
    let message = Message::new(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE, object).name(TCA_KIND, kind);
    netlink::act(match options {
        Some(options) => message.attribute(TCA_OPTIONS, options),
        None => message,
    })
}

impl Former {
    /// Puts it back in place of ours. Where ours is not there any more, nothing is done.
    pub(super) fn put_back(&self, ifindex: u32) -> io::Result<()> {
        if !matches!(root(ifindex)?, Root::Own { .. }) {
            return Ok(());
        }
        match self {
            Former::Default { .. } => remove(ifindex),
            Former::Configured { kind, handle, options } => {
                replace(ifindex, *handle, kind, Some(options).filter(|options| !options.is_empty()).map(Vec::as_slice))
            }
        }
    }
}

fn remove(ifindex: u32) -> io::Result<()> {
    netlink::act(Message::new(RTM_DELQDISC, 0, Object { ifindex, parent: ROOT, ..Object::default() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_is_recorded_as_it_is_read() {
        let former = Former::Configured { kind: "fq".into(), handle: 0x10000, options: vec![8, 0, 1, 0, 9, 0, 0, 0] };
        let text = serde_json::to_string(&former).unwrap();
        assert_eq!(serde_json::from_str::<Former>(&text).unwrap(), former);
        assert_eq!(former.to_string(), "fq 1:");
    }

    #[test]
    fn an_interface_that_is_not_there_has_nothing_at_its_root() {
        let none = Root::Former(Former::Default { kind: "none".into() });
        assert_eq!(root(u32::MAX >> 1).unwrap(), none);
    }
}
