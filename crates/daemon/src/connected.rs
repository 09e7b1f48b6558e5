//! The groups of processes that are connected to the API, as they were when they connected.
//!
//! A request counts against the caps of all groups of the process that asks. `/proc` does not show the groups of a
//! process that has ended, but its connection may live on in another process. Then the groups in this table count:
//! with the primary group alone, the request would evade the caps of all other groups.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;

use qfabric_linux::rights::peer_groups;
use qfabric_sync::{Lock, rank};

use crate::auth::Peer;

/// Number and user of a process.
type Key = (i32, u32);

/// The supplementary groups of each process, and the number of its connections. As many entries as there are
/// connections, whose number is bounded.
static CONNECTED: Lock<BTreeMap<Key, (Vec<u32>, usize)>, { rank::CONNECTED }> = Lock::new(BTreeMap::new());

/// A connection of a process, whose groups are known until this value is dropped.
#[derive(Debug)]
pub(crate) struct Connected(Key);

impl Connected {
    /// Reads the groups of the peer of a connected Unix socket.
    ///
    /// # Errors
    /// Those of the kernel.
    pub(crate) fn of(socket: impl AsFd, peer: Peer) -> io::Result<Connected> {
        peer_groups(socket).map(|groups| Connected::with(peer, groups))
    }

    fn with(peer: Peer, groups: Vec<u32>) -> Connected {
        let key = key(peer);
        CONNECTED.with(|connected| {
            let (known, connections) = connected.entry(key).or_default();
            // The last connection counts: the number may have become that of another process.
            *known = groups;
            *connections += 1;
        });
        Connected(key)
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        CONNECTED.with(|connected| {
            let Some((_, connections)) = connected.get_mut(&self.0) else { return };
            *connections -= 1;
            if *connections == 0 {
                connected.remove(&self.0);
            }
        });
    }
}

/// The supplementary groups that the peer's process had when it connected; `None` if it has no connection.
pub(crate) fn groups_of(peer: Peer) -> Option<Vec<u32>> {
    CONNECTED.with(|connected| connected.get(&key(peer)).map(|(groups, _)| groups.clone()))
}

fn key(peer: Peer) -> Key {
    (peer.pid, peer.owner.uid)
}

#[cfg(test)]
mod tests {
    use qfabric_types::Owner;

    use super::*;
    use crate::auth;

    #[test]
    fn after_the_end_of_a_process_its_groups_count_as_long_as_a_connection_of_it_lives() {
        let ended = Peer { pid: i32::MAX, owner: Owner { uid: 54_329, gid: 7 } };
        assert_eq!(auth::groups(ended), [7]);
        let (first, second) = (Connected::with(ended, vec![44]), Connected::with(ended, vec![44, 101]));
        assert_eq!(auth::groups(ended), [7, 44, 101]);
        drop(first);
        assert_eq!(auth::groups(ended), [7, 44, 101]);
        let other = Peer { owner: Owner { uid: 54_330, gid: 7 }, ..ended };
        assert_eq!(auth::groups(other), [7], "another user");
        drop(second);
        assert_eq!(auth::groups(ended), [7]);
    }
}
