//! The interfaces of a chain that names none: those that are up, and those that come up later.

use std::collections::BTreeMap;
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
    /// The links by the number of the interface, which Linux does not use again.
    links: BTreeMap<u32, Vec<Link>>,
    programs: Vec<Loaded>,
}

impl Followed {
    pub(super) fn new(programs: Vec<Loaded>) -> Arc<Followed> {
        Arc::new(Followed { attached: Lock::new(Some(Attached { links: BTreeMap::new(), programs })) })
    }

    /// Attaches the chain to the interfaces that have come up since. Returns their names. An interface that disappears
    /// meanwhile is left out.
    pub fn attach_new(&self) -> io::Result<Vec<String>> {
        let up: BTreeMap<u32, String> = interfaces::up_by_number()?;
        let mut attached = self.attached.lock();
        let Some(Attached { links, programs }) = attached.as_mut() else { return Ok(Vec::new()) };
        links.retain(|number, _| up.contains_key(number));
        let mut names = Vec::new();
        for (number, name) in up {
            if links.contains_key(&number) {
                continue;
            }
            let made: io::Result<Vec<Link>> = programs.iter().map(|one| one.attach_interface(number)).collect();
            match made {
                Ok(made) => {
                    links.insert(number, made);
                    names.push(name);
                }
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(names)
    }

    pub(super) fn end(&self) {
        let ended = self.attached.lock().take();
        drop(ended);
    }
}
