//! Maintains the access list beside an authority's key: each host that gets a certificate is added.

use std::fs;
use std::path::{Path, PathBuf};

use qfabric_types::channel::Name;

use crate::{Access, Error, Right, Rule};

/// The comment at the top of a new list; it explains what may be changed.
const HEAD: &str = "# Who takes part, and what each may do: create, join, send, install (filters on other hosts),\n\
                    # connect (to services of this name, over METP).\n\
                    # `qfabric channel issue` adds hosts here; rules are yours. Every host has a copy beside its certificate.\n\n";

/// Adds hosts to the list `access.toml` in an authority's folder. In a new list all hosts may create, join and send on all
/// channels, and connect to all services; an existing list keeps its rules.
///
/// # Errors
/// The list cannot be read or written, or it would have more hosts than every host can read.
pub fn enlist(folder: &Path, hosts: &[Name]) -> Result<PathBuf, Error> {
    let path = folder.join("access.toml");
    let mut access = if path.exists() { Access::read(&path)? } else { open() };
    let before = access.clone();
    access.hosts.extend(hosts.iter().cloned());
    if access != before || !path.exists() {
        let bad = |reason| Error::Access { path: path.clone(), reason };
        access.check().map_err(bad)?;
        let text = toml::to_string(&access).map_err(|error| bad(error.to_string()))?;
        fs::write(&path, format!("{HEAD}{text}")).map_err(|source| Error::File { path: path.clone(), source })?;
    }
    Ok(path)
}

fn open() -> Access {
    let rights = [Right::Create, Right::Join, Right::Send, Right::Connect].into();
    let rule = Rule { channels: vec!["*".into()], hosts: vec!["*".into()], rights };
    Access { rules: vec![rule], ..Access::default() }
}

/// Gives a host a copy of its authority's list if the host has no list.
///
/// # Errors
/// The list cannot be read or written.
pub fn hand_out(list: &Path, folder: &Path) -> Result<bool, Error> {
    let copy = folder.join("access.toml");
    let fresh = !copy.exists();
    if fresh {
        fs::copy(list, &copy).map_err(|source| Error::File { path: copy, source })?;
    }
    Ok(fresh)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[test]
    fn who_gets_a_certificate_takes_part_and_rules_stay() {
        let folder = tempfile::tempdir().unwrap();
        let list = enlist(folder.path(), &[name("a"), name("b")]).unwrap();
        let access = Access::read(&list).unwrap();
        let video = "video".parse().unwrap();
        assert!(access.gives(&name("a"), Right::Create, &video) && access.gives(&name("b"), Right::Connect, &video));
        assert!(!access.gives(&name("a"), Right::Install, &video) && !access.gives(&name("c"), Right::Join, &video));
        fs::write(&list, "hosts = ['a', 'b']\nrouters = ['b']\n").unwrap();
        enlist(folder.path(), &[name("c")]).unwrap();
        let access = Access::read(&list).unwrap();
        assert_eq!(access.hosts.len(), 3);
        assert!(access.rules.is_empty() && access.routers.contains(&name("b")));
    }

    #[test]
    fn a_list_with_too_many_hosts_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let hosts: Vec<Name> = (0..crate::MAX_HOSTS).map(|number| name(&format!("host-{number}"))).collect();
        let list = enlist(folder.path(), &hosts).unwrap();
        assert!(enlist(folder.path(), &[name("one-more")]).is_err());
        assert_eq!(Access::read(&list).unwrap().hosts.len(), crate::MAX_HOSTS);
    }

    #[test]
    fn a_list_that_a_host_has_is_its_own() {
        let (authority, host) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let list = enlist(authority.path(), &[name("a")]).unwrap();
        assert!(hand_out(&list, host.path()).unwrap());
        fs::write(host.path().join("access.toml"), "hosts = ['a']").unwrap();
        assert!(!hand_out(&list, host.path()).unwrap());
        assert_eq!(fs::read_to_string(host.path().join("access.toml")).unwrap(), "hosts = ['a']");
    }
}
