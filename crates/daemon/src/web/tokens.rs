//! The tokens of the page: one for each user that asked for the page, until the daemon ends.
//!
//! A token stands for the peer credentials of the connection through which it was asked for. So a page sees what this
//! user sees through the Unix socket.

use std::collections::HashMap;

use qfabric_types::api::Problem;
use qfabric_types::{Instant, Nanos};

use crate::auth::{Peer, is_same_secret, random_bytes};
use crate::problem;

/// Users (other than administrators) with a token at the same time. Each entry has about 150 bytes.
const USERS: usize = 256;
/// A token that was not used for this time gives its place to another user, if all places are taken.
const IDLE: Nanos = Nanos::from_millis(60_000);
/// Requests that a user's pages may send in a second. One page sends seven.
const PER_SECOND: u64 = 128;
/// Time for which one request uses a place in the allowance.
const COST: Nanos = Nanos::new(1_000_000_000 / PER_SECOND);
/// Unused allowance is kept up to one second.
const LARGEST_ALLOWANCE: Nanos = Nanos::from_millis(1_000);

#[derive(Default)]
pub(super) struct Tokens {
    by_uid: HashMap<u32, Entry>,
}

struct Entry {
    token: String,
    peer: Peer,
    last_used: Instant,
    /// Time for requests that the user has left.
    allowance: Nanos,
}

impl Tokens {
    /// The token of the user; made by `fresh` if the user has none. Refused if too many users use theirs.
    pub(super) fn issue(
        &mut self,
        peer: Peer,
        fresh: impl FnOnce() -> Result<String, Problem>,
        now: Instant,
    ) -> Result<&str, Problem> {
        let uid = peer.owner.uid;
        if !self.by_uid.contains_key(&uid) {
            if !peer.administers() {
                self.make_room(now)?;
            }
            let entry = Entry { token: fresh()?, peer, last_used: now, allowance: LARGEST_ALLOWANCE };
            self.by_uid.insert(uid, entry);
        }
        let entry = self.by_uid.get_mut(&uid).expect("is in the table");
        // The process that asked last is the one that the user knows.
        (entry.peer, entry.last_used) = (peer, now);
        Ok(&entry.token)
    }

    fn make_room(&mut self, now: Instant) -> Result<(), Problem> {
        let users = || self.by_uid.values().filter(|entry| !entry.peer.administers());
        if users().count() < USERS {
            return Ok(());
        }
        let oldest = users().min_by_key(|entry| entry.last_used).filter(|oldest| now.since(oldest.last_used) >= IDLE);
        let uid = oldest.ok_or_else(|| problem::too_many_page_users(USERS))?.peer.owner.uid;
        self.by_uid.remove(&uid);
        Ok(())
    }

    /// The user of a token. Refused if there is no such token, or if the user sends too many requests.
    pub(super) fn admit(&mut self, given: &str, now: Instant) -> Result<Peer, Problem> {
        let known =
            self.by_uid.values_mut().filter(|entry| is_same_secret(entry.token.as_bytes(), given.as_bytes())).last();
        let entry = known.ok_or_else(problem::no_page_token)?;
        let refilled = entry.allowance + now.since(entry.last_used);
        (entry.allowance, entry.last_used) = (refilled.min(LARGEST_ALLOWANCE), now);
        if entry.allowance < COST {
            return Err(problem::too_many_page_requests(entry.peer.owner.uid, PER_SECOND));
        }
        entry.allowance = entry.allowance.saturating_sub(COST);
        Ok(entry.peer)
    }
}

/// 256 random bits in hexadecimal digits.
pub(super) fn random() -> Result<String, Problem> {
    let bytes: [u8; 32] =
        random_bytes().map_err(|error| problem::internal(format!("cannot read /dev/urandom: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use qfabric_types::Owner;

    use super::*;

    const START: Instant = Instant::new(1_000_000_000_000);

    fn peer(uid: u32) -> Peer {
        Peer { pid: 1, owner: Owner { uid, gid: uid } }
    }

    fn issue(tokens: &mut Tokens, uid: u32, now: Instant) -> Result<String, Problem> {
        tokens.issue(peer(uid), random, now).map(str::to_owned)
    }

    #[test]
    fn a_user_keeps_one_token_and_each_token_stands_for_its_user() {
        let mut tokens = Tokens::default();
        let (one, other) = (issue(&mut tokens, 54_321, START).unwrap(), issue(&mut tokens, 54_322, START).unwrap());
        assert_eq!(issue(&mut tokens, 54_321, START).unwrap(), one);
        assert!(one != other && one.len() == 64 && one.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_eq!(tokens.admit(&one, START).unwrap().owner.uid, 54_321);
        assert_eq!(tokens.admit(&other, START).unwrap().owner.uid, 54_322);
        for wrong in ["", &one[1..], one.replace(&one[..1], "x").as_str(), format!("{one}0").as_str()] {
            assert_eq!(tokens.admit(wrong, START).unwrap_err().code, "no_token", "{wrong}");
        }
    }

    #[test]
    fn a_user_has_a_number_of_requests_each_second_and_others_keep_theirs() {
        let mut tokens = Tokens::default();
        let (one, other) = (issue(&mut tokens, 54_321, START).unwrap(), issue(&mut tokens, 54_322, START).unwrap());
        assert!((0..PER_SECOND).all(|_| tokens.admit(&one, START).is_ok()));
        let refusal = tokens.admit(&one, START).unwrap_err();
        assert!(refusal.code == "too_many_requests" && refusal.message.contains("128"), "{refusal:?}");
        assert!(tokens.admit(&other, START).is_ok());
        let later = START + Nanos::from_millis(500);
        assert_eq!((0..PER_SECOND).filter(|_| tokens.admit(&one, later).is_ok()).count() as u64, PER_SECOND / 2);
    }

    #[test]
    fn a_full_table_refuses_until_a_token_is_unused_for_a_minute_and_root_always_gets_one() {
        let mut tokens = Tokens::default();
        let first = issue(&mut tokens, 50_000, START).unwrap();
        (1..USERS as u32).for_each(|user| drop(issue(&mut tokens, 50_000 + user, START).unwrap()));
        let refusal = issue(&mut tokens, 60_000, START).unwrap_err();
        assert!(refusal.code == "too_many_requests" && refusal.message.contains("256"), "{refusal:?}");
        issue(&mut tokens, 0, START).expect("administrators have no limit");
        let later = START + IDLE;
        tokens.admit(&first, later).unwrap();
        issue(&mut tokens, 60_000, later).expect("another user's token is unused");
        assert!(tokens.admit(&first, later).is_ok(), "a token in use stays");
        assert_eq!(tokens.by_uid.len(), USERS + 1);
    }
}
