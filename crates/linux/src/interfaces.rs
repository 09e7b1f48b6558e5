//! Lists the network interfaces of this host.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use crate::files;

/// Flag bit of an interface that is up.
const IFF_UP: u32 = 1;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interface {
    pub name: String,
    /// True if packets can pass the interface.
    pub is_up: bool,
}

/// All interfaces of this network namespace, sorted by name.
pub fn present() -> io::Result<Vec<Interface>> {
    present_in(Path::new("/sys/class/net"))
}

/// The interfaces that are up, by their numbers.
pub fn up_by_number() -> io::Result<BTreeMap<u32, String>> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::DGRAM, None)?;
    // An interface that disappears meanwhile has no number.
    let number = |interface: Interface| {
        let number = rustix::net::netdevice::name_to_index(&socket, &interface.name).ok()?;
        Some((number, interface.name))
    };
    Ok(present()?.into_iter().filter(|interface| interface.is_up).filter_map(number).collect())
}

fn present_in(folder: &Path) -> io::Result<Vec<Interface>> {
    let mut present: Vec<_> = files::folder(folder)?.filter_map(|entry| interface(&entry.ok()?.path())).collect();
    present.sort();
    Ok(present)
}

/// `None` for an entry that is not an interface, such as the file `bonding_masters`, and for one that has disappeared.
fn interface(path: &Path) -> Option<Interface> {
    let flags = files::text(path.join("flags")).ok()?;
    let flags = u32::from_str_radix(flags.trim().strip_prefix("0x")?, 16).ok()?;
    Some(Interface { name: path.file_name()?.to_str()?.to_owned(), is_up: flags & IFF_UP != 0 })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn interfaces_are_listed_with_their_state_and_other_entries_are_skipped() {
        let folder = tempfile::tempdir().unwrap();
        for (name, flags) in [("eth1", "0x1002\n"), ("eth0", "0x1003\n"), ("odd", "nonsense")] {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join("flags"), flags).unwrap();
        }
        fs::write(folder.path().join("bonding_masters"), "").unwrap();
        let expected = [("eth0", true), ("eth1", false)];
        let expected = expected.map(|(name, is_up)| Interface { name: name.to_owned(), is_up });
        assert_eq!(present_in(folder.path()).unwrap(), expected);
    }
}
