//! A session that joins its daemon again: the helper thread that asks, and the session that goes on meanwhile.

use loom::sync::Arc;
use loom::thread;
use qfabric_models::attempt::Attempt;
use qfabric_models::explore;

#[test]
fn a_lease_that_was_won_is_with_one_of_the_two_whenever_the_session_leaves() {
    explore(4, || {
        let attempt = Arc::new(Attempt::new("lost"));
        let theirs = attempt.clone();
        let helping = thread::spawn(move || {
            theirs.failed("no daemon".to_owned());
            if theirs.is_wanted() { theirs.joined("lease") } else { Some("never asked for") }
        });
        let adopted = attempt.adopt();
        let left = attempt.give_up();
        let back = helping.join().unwrap();
        assert_eq!([adopted, left, back].iter().flatten().count(), 1, "{adopted:?}, {left:?}, {back:?}");
        assert!(!attempt.is_wanted() && attempt.adopt().is_none() && attempt.give_up().is_none());
    });
}

#[test]
fn a_session_that_stays_gets_its_lease_once() {
    explore(4, || {
        let attempt = Arc::new(Attempt::new("lost"));
        let theirs = attempt.clone();
        let helping = thread::spawn(move || theirs.joined("lease"));
        let early = attempt.adopt();
        assert_eq!(helping.join().unwrap(), None);
        let late = attempt.adopt();
        assert_eq!([early, late].iter().flatten().count(), 1, "{early:?}, {late:?}");
    });
}
