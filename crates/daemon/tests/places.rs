//! Places that users leave to root: a real user takes all that it gets, of each kind.

mod common;

use std::process::{Child, Command, Stdio};

use common::*;
use qfabric_client::channel::Channels;
use qfabric_client::ecalls::Ecalls;
use qfabric_client::{Client, Contract, Share};
use qfabric_daemon::{Config, EngineName};
use qfabric_linux::testing::{live_lock, may_reserve, skip};
use qfabric_types::api::{ApplicationRequest, ApplicationScope};

const SAMPLE: &str = "struct sample { long value; };";
/// Places of each kind on the host. One user alone could take them all, but for root's eighth.
const PLACES: usize = 8;
/// More than there are.
const MANY: usize = 20;

fn few_places() -> Config {
    let mut config = quiet();
    (config.ecalls.max_leases, config.ecalls.max_leases_per_user) = (PLACES, PLACES);
    (config.ecalls.max_services, config.ecalls.max_services_per_user) = (PLACES, PLACES);
    (config.channels.max_leases, config.channels.max_leases_per_user) = (PLACES, PLACES);
    (config.limits.max_applications, config.limits.max_applications_per_user) = (PLACES, PLACES);
    (config.channels.enabled, config.channels.engine) = (true, EngineName::None);
    config.channels.host = Some("alpha".parse().unwrap());
    config
}

/// A program that ends with this process.
fn program() -> Child {
    Command::new("sh").args(["-c", "read end"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

/// Whether a small contract for `program` is admitted.
fn is_admitted(client: &Client, program: &Child) -> bool {
    let contract = Contract { max_bandwidth: Share::from_ppm(10_000), ..contract("small", 40) };
    let pid = program.id() as i32;
    client.admit(&ApplicationRequest { pid, covers: ApplicationScope::Program, contract }).is_ok()
}

#[test]
fn all_users_together_leave_places_of_each_kind_to_root() {
    if !may_reserve() || !rustix::process::geteuid().is_root() {
        return skip("only root can be another user");
    }
    let _alone = live_lock();
    let (service, client) = service(few_places());
    let socket = service.socket().display().to_string();
    let _user = role("user_takes_all", Some(NOBODY), &[("SOCKET", &socket)]);
    // The user takes the applications last.
    eventually("the user has all that users get", || client.applications().unwrap().len() == PLACES - 1);
    let ecalls = Ecalls::connect(&client).unwrap();
    ecalls.register_service("root.sample", "", SAMPLE, false).unwrap();
    Channels::connect(&client).unwrap();
    assert!(is_admitted(&client, &program()));
}

#[test]
#[ignore = "run by all_users_together_leave_places_of_each_kind_to_root, as another user"]
fn user_takes_all() {
    let client = connected(given("SOCKET"));
    let ecalls: Vec<_> = (0..MANY).map_while(|_| Ecalls::connect(&client).ok()).collect();
    let register = |number: usize| ecalls[0].register_service(&format!("user.sample{number}"), "", SAMPLE, false).ok();
    let services: Vec<_> = (0..MANY).map_while(register).collect();
    let channels: Vec<_> = (0..MANY).map_while(|_| Channels::connect(&client).ok()).collect();
    assert_eq!([ecalls.len(), services.len(), channels.len()], [PLACES - 1; 3]);
    let programs: Vec<_> = (0..MANY).map(|_| program()).collect();
    let admitted = programs.iter().take_while(|program| is_admitted(&client, program)).count();
    assert_eq!(admitted, PLACES - 1);
    loop {
        std::thread::park();
    }
}
