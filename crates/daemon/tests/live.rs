//! The service with the real scheduler and real clients. Needs CAP_SYS_NICE; tests wait for each other.

use std::time::Duration;

use qfabric_client::{Client, Contract, Foresight, Nanos, Session};
use qfabric_daemon::{Config, Embedded};
use qfabric_linux::testing::live_lock;

#[test]
fn a_marked_client_gets_a_reservation_that_follows_its_jobs() {
    let _lock = live_lock();
    let service = Embedded::start(Config::default()).unwrap();
    let client = Client::connect_to(service.socket()).unwrap();
    let contract = Contract::new("marked", Nanos::from_millis(20));
    let mut session = Session::start(&client, contract).unwrap();
    for _ in 0..40 {
        let until = std::time::Instant::now() + Duration::from_millis(2);
        while std::time::Instant::now() < until {}
        session.end_cycle(Foresight::Nothing);
        session.wait_for_next_job();
    }
    let status = client.status().unwrap();
    println!("{status:#?}");
    println!("{:?}", session.grant());
    assert_eq!(status.applications.len(), 1);
}
