//! `qfabric monitor`: attributes of applications, and thresholds that the kernel watches.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use qfabric_client::{Foresight, Session};
use qfabric_linux::testing::skip;
use qfabric_types::{Contract, Nanos};
use serde_json::Value;

use crate::channels::{Host, eventually, live};

/// The entry of `qfabric monitor ls` for an attribute of an application.
fn watched(host: &Host, application: u64, attribute: &str) -> Option<Value> {
    let list = host.run(&["monitor", "ls", "--json"]).json();
    let is_it = |info: &&Value| info["attribute"] == attribute && info["application"] == application;
    list.as_array().unwrap().iter().find(is_it).cloned()
}

#[test]
fn jobs_misses_and_budget_of_an_application_are_monitored_until_it_leaves() {
    let Some((_alone, all)) = live() else { return };
    let alpha = Host::among(all.path(), "alpha", &["beta"]);
    let client = alpha.client();
    let mut session = Session::start(&client, Contract::new("x", Nanos::from_millis(40))).unwrap();
    let id = session.id().unwrap().0;
    let application = id.to_string();
    for attribute in ["app.jobs", "app.misses", "app.budget"] {
        let set = ["monitor", "set", attribute, "--application", &application, "--poll", "20ms", "--summary", "max"];
        alpha.run(&set).expect(0, &[attribute]);
    }
    let value = |attribute: &str| watched(&alpha, id, attribute).and_then(|info| info["value"].as_i64());
    eventually("ended jobs are reported", || {
        for _ in 0..5 {
            session.wait_for_next_job();
            session.end_cycle(Foresight::Nothing);
        }
        value("app.jobs").is_some_and(|jobs| jobs > 0)
    });
    let grant = || i64::try_from(session.grant().budget.get()).unwrap();
    eventually("the budget in force is reported", || value("app.budget") == Some(grant()));
    assert!(grant() > 0 && value("app.misses").is_some());
    session.end().unwrap();
    eventually("its watches end with the application", || watched(&alpha, id, "app.jobs").is_none());
    let set = ["monitor", "set", "app.jobs", "--application", &application];
    alpha.run(&set).expect(3, &[&application]);
}

/// Two threads for each CPU, so that one of them always waits. The time between two looks is longer than the test.
#[test]
fn the_kernel_reports_a_crossed_pressure_between_looks() {
    let Some((_alone, all)) = live() else { return };
    let alpha = Host::among(all.path(), "alpha", &["beta"]);
    let set = ["monitor", "set", "cpu.pressure", "--poll", "3600s", "--threshold", "> 1%", "--json"];
    let info = alpha.run(&set).json();
    if info["by_kernel"] != true {
        assert!(info["trigger_refused"].is_string() || info["by_kernel"].is_null(), "{info}");
        return skip(format!("no PSI trigger here: {info}"));
    }
    alpha.run(&["monitor", "ls"]).expect(0, &["by the kernel"]);
    let is_over = AtomicBool::new(false);
    let hog = || {
        while !is_over.load(Relaxed) {
            std::hint::spin_loop();
        }
    };
    std::thread::scope(|scope| {
        let threads = 2 * std::thread::available_parallelism().unwrap().get();
        (0..threads).for_each(|_| drop(scope.spawn(hog)));
        let result = catch_unwind(AssertUnwindSafe(|| {
            eventually("a crossing is reported", || watched(&alpha, 0, "cpu.pressure").unwrap()["value"].is_i64());
        }));
        is_over.store(true, Relaxed);
        result.unwrap_or_else(|panic| resume_unwind(panic));
    });
    let info = alpha.run(&["monitor", "set", "cpu.pressure", "--threshold", "", "--json"]).json();
    assert!(info["by_kernel"].is_null(), "{info}");
}
