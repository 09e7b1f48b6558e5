//! Reads the queueing discipline of an interface, and puts it back later.
//!
//! A default discipline of the kernel has no handle; it comes back when our discipline is removed. A discipline that a
//! user or program configured is recorded with its options as the kernel reports them, and created again from them. A
//! discipline with classes or children has more state than its options, so an interface with such a discipline is
//! refused.

use std::io;

use serde::{Deserialize, Serialize};

use super::netlink::{self, Message, NLM_F_CREATE, NLM_F_REPLACE, Object, RTM_DELQDISC, RTM_GETQDISC, RTM_NEWQDISC};

/// Parent of the root discipline.
pub(super) const ROOT: u32 = u32::MAX;
/// Handle of our discipline: `5146:`.
pub(super) const HANDLE: u32 = 0x5146_0000;
/// Prefix of the kinds of our disciplines.
pub(super) const DWCS_KIND: &str = "qf_dwcs";

pub(super) const TCA_KIND: u16 = 1;
pub(super) const TCA_OPTIONS: u16 = 2;

/// Disciplines whose whole state is in their options.
const CLASSLESS: [&str; 14] = [
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
    "etf",
];

/// The discipline that an interface had before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Former {
    /// A default discipline of the kernel.
    Default {
        /// Such as `noqueue`, `mq`, `fq_codel`.
        kind: String,
    },
    /// A discipline that a user or program configured.
    Configured {
        /// Such as `fq`.
        kind: String,
        handle: u32,
        /// Its options as the kernel reports them.
        options: Vec<u8>,
    },
}

/// The discipline at the root of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Root {
    /// Our discipline.
    Own { kind: String },
    /// Another discipline, which can be put back later.
    Former(Former),
    /// Another discipline, which could not be put back later.
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

/// Reads the present discipline at the root of an interface.
pub(super) fn root(ifindex: u32) -> io::Result<Root> {
    let all = netlink::list(Message::new(RTM_GETQDISC, 0, Object { ifindex, ..Object::default() }))?;
    let root = all.iter().find(|found| found.object.ifindex == ifindex && found.object.parent == ROOT);
    let Some(root) = root else { return Ok(Root::Former(Former::Default { kind: "none".to_owned() })) };
    let (kind, handle) = (root.name(TCA_KIND).unwrap_or_default(), root.object.handle);
    // The kernel's own child of a tbf has no handle.
    let is_child = |object: &Object| object.handle != 0 && object.parent != ROOT && object.parent >> 16 == handle >> 16;
    let has_child = all.iter().any(|found| found.object.ifindex == ifindex && is_child(&found.object));
    Ok(match handle {
        HANDLE => Root::Own { kind },
        _ if kind.starts_with(DWCS_KIND) => Root::Own { kind },
        0 => Root::Former(Former::Default { kind }),
        _ if has_child || !CLASSLESS.contains(&kind.as_str()) => Root::Classful { kind },
        _ => {
            let options = root.attribute(TCA_OPTIONS).unwrap_or_default().to_vec();
            Root::Former(Former::Configured { kind, handle, options })
        }
    })
}

/// Installs a discipline at the root, in place of the present one.
pub(super) fn replace(ifindex: u32, handle: u32, kind: &str, options: Option<&[u8]>) -> io::Result<()> {
    let object = Object { ifindex, handle, parent: ROOT, info: 0 };
    let message = Message::new(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE, object).name(TCA_KIND, kind);
    netlink::act(match options {
        Some(options) => message.attribute(TCA_OPTIONS, options),
        None => message,
    })
}

impl Former {
    /// Puts the discipline back in place of ours. Does nothing if ours is no longer there.
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
    fn a_recorded_discipline_is_read_back() {
        let former = Former::Configured { kind: "fq".into(), handle: 0x10000, options: vec![8, 0, 1, 0, 9, 0, 0, 0] };
        let text = serde_json::to_string(&former).unwrap();
        assert_eq!(serde_json::from_str::<Former>(&text).unwrap(), former);
        assert_eq!(former.to_string(), "fq 1:");
    }

    #[test]
    fn an_interface_that_does_not_exist_has_no_root_discipline() {
        let none = Root::Former(Former::Default { kind: "none".into() });
        assert_eq!(root(u32::MAX >> 1).unwrap(), none);
    }
}
