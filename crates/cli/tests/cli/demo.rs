//! `qfabric demo`: what it refuses before it measures anything.

use crate::harness::answer;

#[test]
fn the_demo_under_ext_needs_sched_ext_and_plays_no_other_experiment() {
    for word in ["conference", "events", "qualman"] {
        let line = format!("demo --mechanism ext --only {word}");
        answer(&line).expect(2, &[&format!("--only {word}"), "leave --mechanism out"]);
    }
    answer("demo --only qualman --full --runs 1").expect(2, &["--full means three runs", "leave --runs or --full out"]);
    answer("demo --mechanism dispatcher").expect(2, &["dispatcher", "deadline, ext"]);
    if let Err(why) = qfabric_linux::ext::Ext::supported() {
        answer("demo --mechanism ext").expect(1, &["cannot play under ext", &why.to_string()]);
    }
}
