//! Models a session that joins its daemon again. A helper thread sends the request while the session continues.

use loom::sync::Arc;
use loom::thread;
use qfabric_models::attempt::Attempt;
use qfabric_models::explore;

#[test]
fn exactly_one_side_holds_the_lease_when_the_session_leaves() {
    explore(4, || {
        let attempt = Arc::new(Attempt::new("lost"));
        let shared = attempt.clone();
        let helping = thread::spawn(move || {
            shared.failed("no daemon".to_owned());
            if shared.is_wanted() { shared.joined("lease") } else { Some("not wanted") }
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
        let shared = attempt.clone();
        let helping = thread::spawn(move || shared.joined("lease"));
        let early = attempt.adopt();
        assert_eq!(helping.join().unwrap(), None);
        let late = attempt.adopt();
        assert_eq!([early, late].iter().flatten().count(), 1, "{early:?}, {late:?}");
    });
}
