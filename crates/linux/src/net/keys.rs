//! Translates a selector into the key by which the kernel finds its packets.

use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use qfabric_types::api::net::{Flow, Selector};

use super::error::NetError;
use crate::cgroup::Mounts;

/// A selector in the form for the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Mark(u32),
    /// Id of a cgroup: the inode of its folder.
    Cgroup(u64),
    Flow(Flow),
}

impl Key {
    pub(super) fn of(selector: &Selector) -> Result<Key, NetError> {
        selector.check()?;
        match selector {
            Selector::Mark(mark) => Ok(Key::Mark(*mark)),
            Selector::Flow(flow) => Ok(Key::Flow(*flow)),
            Selector::Cgroup(path) => cgroup(path).map(Key::Cgroup),
        }
    }
}

fn cgroup(path: &str) -> Result<u64, NetError> {
    let failed = |source| NetError::NoCgroup { path: path.to_owned(), source };
    std::fs::metadata(cgroup_folder(path)?).map(|folder| folder.ino()).map_err(failed)
}

/// The folder of a cgroup, which need not exist.
pub(super) fn cgroup_folder(path: &str) -> Result<PathBuf, NetError> {
    let unmounted = || {
        let source = std::io::Error::other("cgroup v2 is not mounted");
        NetError::NoCgroup { path: path.to_owned(), source }
    };
    Ok(Mounts::here().v2.ok_or_else(unmounted)?.join(path.trim_start_matches('/')))
}

/// An address in network byte order; an IPv4 address is in the first word.
pub(super) fn words(address: IpAddr) -> [u32; 4] {
    match address {
        IpAddr::V4(address) => [u32::from_ne_bytes(address.octets()), 0, 0, 0],
        IpAddr::V6(address) => {
            let octets = address.octets();
            std::array::from_fn(|at| u32::from_ne_bytes(std::array::from_fn(|byte| octets[4 * at + byte])))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_cgroup_is_refused_by_name() {
        let refusal = Key::of(&Selector::Cgroup("/no/such/group".into())).unwrap_err().to_string();
        assert!(refusal.contains("/no/such/group"), "{refusal}");
    }

    #[test]
    fn addresses_keep_the_order_of_their_bytes() {
        let words = words("fe80::102".parse().unwrap());
        assert_eq!(words[0].to_ne_bytes(), [0xfe, 0x80, 0, 0]);
        assert_eq!(words[3].to_ne_bytes(), [0, 0, 1, 2]);
    }
}
