//! The network interfaces of this host.

use std::io;
use std::path::Path;

use crate::files;

/// Bit of an interface's flags that says that it is up.
const IFF_UP: u32 = 1;

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Whether packets may pass it.
    pub is_up: bool,
}

/// All of this network namespace, by name.
pub fn present() -> io::Result<Vec<Interface>> {
    present_in(Path::new("/sys/class/net"))
}

fn present_in(folder: &Path) -> io::Result<Vec<Interface>> {
    let mut present: Vec<_> = files::folder(folder)?.filter_map(|entry| interface(&entry.ok()?.path())).collect();
    present.sort();
    Ok(present)
}

/// None for what is no interface, such as the file `bonding_masters`, and for one that has gone meanwhile.
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
    fn those_that_are_up_are_told_from_the_others_and_from_what_is_no_interface() {
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
