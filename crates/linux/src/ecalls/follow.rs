//! The interfaces of a chain that names none: those that are up, and those that come up later.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use qfabric_sync::{Lock, rank};

use crate::bpf::{Link, Loaded};
use crate::interfaces;

/// The interfaces to which a chain is attached. The chain ends when its [`super::Installed`] is dropped, although the
/// value may live longer.
#[derive(Debug)]
pub struct Followed {
    attached: Lock<Option<Attached>, { rank::FOLLOWED }>,
}

#[derive(Debug)]
struct Attached {
    links: Links<Vec<Link>>,
    programs: Vec<Loaded>,
}

/// Interfaces by their numbers, which Linux does not use again.
#[derive(Debug)]
struct Links<L> {
    attached: BTreeMap<u32, L>,
    /// Interfaces that refused; each is tried again, but reported once.
    refused: BTreeSet<u32>,
}

/// The result of a look at the interfaces: names of those to which the chain is attached now, and of those that
/// refused for the first time.
#[derive(Debug, Default)]
pub struct FollowReport {
    pub attached: Vec<String>,
    pub refused: Vec<(String, io::Error)>,
}

impl Followed {
    pub(super) fn new(programs: Vec<Loaded>) -> Arc<Followed> {
        let links = Links { attached: BTreeMap::new(), refused: BTreeSet::new() };
        Arc::new(Followed { attached: Lock::new(Some(Attached { links, programs })) })
    }

    /// Attaches the chain to the interfaces that have come up since. An interface that disappears meanwhile is left
    /// out, and one that refuses does not keep the chain from the others.
    pub fn attach_new(&self) -> io::Result<FollowReport> {
        let up: BTreeMap<u32, String> = interfaces::up_by_number()?;
        let mut attached = self.attached.lock();
        let Some(Attached { links, programs }) = attached.as_mut() else { return Ok(FollowReport::default()) };
        Ok(links.follow(up, |number| programs.iter().map(|one| one.attach_interface(number)).collect()))
    }

    pub(super) fn end(&self) {
        let ended = self.attached.lock().take();
        drop(ended);
    }
}

impl<L> Links<L> {
    fn follow(&mut self, up: BTreeMap<u32, String>, attach: impl Fn(u32) -> io::Result<L>) -> FollowReport {
        self.attached.retain(|number, _| up.contains_key(number));
        self.refused.retain(|number| up.contains_key(number));
        let mut found = FollowReport::default();
        for (number, name) in up {
            if self.attached.contains_key(&number) {
                continue;
            }
            match attach(number) {
                Ok(link) => {
                    self.attached.insert(number, link);
                    found.attached.push(name);
                }
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
                Err(error) if self.refused.insert(number) => found.refused.push((name, error)),
                Err(_) => {}
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_refuses_is_reported_once_and_keeps_the_chain_from_no_other() {
        let mut links = Links { attached: BTreeMap::new(), refused: BTreeSet::new() };
        let up = |numbers: &[u32]| numbers.iter().map(|number| (*number, format!("if{number}"))).collect();
        let attach = |number| match number {
            2 => Err(io::ErrorKind::PermissionDenied.into()),
            3 => Err(io::Error::from_raw_os_error(libc::ENODEV)),
            _ => Ok(()),
        };
        let found = links.follow(up(&[1, 2, 3, 4]), attach);
        assert_eq!((found.attached, found.refused.len()), (vec!["if1".to_owned(), "if4".to_owned()], 1));
        let found = links.follow(up(&[1, 2, 3, 4, 5]), attach);
        assert_eq!((found.attached, found.refused.len()), (vec!["if5".to_owned()], 0));
        let found = links.follow(up(&[1, 2]), |_| Ok(()));
        assert_eq!((found.attached, links.attached.len()), (vec!["if2".to_owned()], 2), "it is tried again");
    }
}
