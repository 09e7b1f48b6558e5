//! Tests of ECalls: hostile connections, and the rights of users.

mod common;

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{NOBODY, PATIENCE, call, connected, eventually, given, quiet, role, service};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use qfabric_client::ecalls::{Ecalls, MemoryUp, Notice, SubscriptionBuilder};
use qfabric_client::{Client, ClientError, Nanos, Problem};
use qfabric_daemon::Config;
use qfabric_linux::testing::{live_lock, may_reserve};
use qfabric_shm::fds;
use qfabric_types::api::ecalls::{State, SubscriptionInfo};
use qfabric_types::ecalls_wire::{FromClient, FromDaemon, MAX_MESSAGE, RaiseRequest, VERSION};

const SAMPLE: &str = "struct sample { long value; };";

fn metric(client: &Client, name: &str) -> u64 {
    let (_, text) = call(client.socket(), "GET", "/metrics", "");
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn connect_with_hello(client: &Client) -> std::os::fd::OwnedFd {
    let socket = fds::connect(&client.ecalls_socket(), PATIENCE).unwrap();
    let mut bytes = Vec::new();
    FromClient::Hello { version: VERSION }.encode(&mut bytes);
    fds::send(&socket, &bytes, &[]).unwrap();
    let mut answer = [0; 64];
    let length = fds::recv(&socket, &mut answer).unwrap().length;
    assert!(matches!(FromDaemon::decode(&answer[..length]), Some(FromDaemon::Welcome(_))));
    socket
}

#[test]
fn hostile_messages_are_counted_and_disturb_no_other_connection() {
    if !may_reserve() {
        return;
    }
    let _alone = live_lock();
    let (_service, client) = service(quiet());
    let (ours, theirs) = (Ecalls::connect(&client).unwrap(), connect_with_hello(&client));
    let own = ours.register_service("test.sample", "", SAMPLE, false).unwrap();
    let mut events = ours.subscribe(&SubscriptionBuilder::to("test.sample").memory_up(MemoryUp::default())).unwrap();
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let bytes = prop::collection::vec(any::<u8>(), 1..200);
    for _ in 0..300 {
        let mut message = bytes.new_tree(&mut runner).unwrap().current();
        message[0] %= 9;
        // A call without a caller, a descriptor that is no socket, a subscription of another user: any message may
        // be sent.
        let _ = fds::send_now(&theirs, &[std::io::IoSlice::new(&message)]);
        let _ = fds::recv_now(&theirs, &mut [0; MAX_MESSAGE]);
    }
    let _ = fds::send_now(&theirs, &[std::io::IoSlice::new(&vec![2; MAX_MESSAGE + 1])]);
    own.raise_event(-1, &7i64.to_le_bytes(), Nanos::ZERO, false).unwrap();
    assert_eq!(events.next(PATIENCE).unwrap().unwrap().data, 7i64.to_le_bytes());
    assert!(metric(&client, "qfabric_ecalls_nonsense_total") > 100);
}

/// Connects, asks for descriptors, and closes the connection. Returns the descriptors; `Err`: the refusal.
fn kept_of_an_ended_connection(client: &Client, ask: &FromClient<'_>) -> Result<Vec<std::os::fd::OwnedFd>, String> {
    let socket = connect_with_hello(client);
    let mut message = Vec::new();
    ask.encode(&mut message);
    fds::send(&socket, &message, &[]).unwrap();
    let mut answer = [0; MAX_MESSAGE];
    let got = fds::recv(&socket, &mut answer).unwrap();
    let taken = match FromDaemon::decode(&answer[..got.length]) {
        Some(FromDaemon::Descriptors(_)) => Ok(got.fds),
        Some(FromDaemon::Refused(why)) => Err(why.to_owned()),
        other => panic!("{other:?}"),
    };
    drop(socket);
    let has_ended = || call(client.socket(), "GET", "/metrics", "").1.contains("\nqfabric_ecalls_connections 0");
    eventually("the connection has ended", has_ended);
    taken
}

/// Takes what `ask` gives, and ends the connection, until `most` are held; then `refusal` is the answer until they are
/// closed.
fn counts_until_closed(config: Config, most: usize, ask: &FromClient<'_>, refusal: &str) {
    if !may_reserve() || qfabric_linux::ecalls::Kernel::open().is_err() {
        return;
    }
    let _alone = live_lock();
    let (_service, client) = service(config);
    let take = || kept_of_an_ended_connection(&client, ask);
    let kept: Vec<_> = (0..most).map(|_| take().unwrap()).collect();
    let refused = take().unwrap_err();
    assert!(refused.contains(refusal), "{refused}");
    drop(kept);
    eventually("it is given again", || take().is_ok());
}

#[test]
fn the_memory_of_ended_connections_counts_until_their_process_closes_it() {
    let mut config = quiet();
    config.ecalls.max_leases = 3;
    counts_until_closed(config, 3, &FromClient::TakeDown, "3 ended connections, 3 is the limit");
}

#[test]
fn pages_of_ready_sockets_keep_their_place_until_their_process_closes_them() {
    let refusal = "32 connections have pages of ready sockets, 32 is the limit";
    counts_until_closed(quiet(), 32, &FromClient::TakeSockets, refusal);
}

#[test]
fn a_client_of_another_version_is_refused_with_the_daemons_version() {
    if !may_reserve() {
        return;
    }
    let _alone = live_lock();
    let (_service, client) = service(quiet());
    for theirs in [VERSION - 1, VERSION + 1] {
        let socket = fds::connect(&client.ecalls_socket(), PATIENCE).unwrap();
        fds::send(&socket, &[1, theirs], &[]).unwrap();
        let mut answer = [0; 600];
        let length = fds::recv(&socket, &mut answer).unwrap().length;
        let Some(FromDaemon::Refused(why)) = FromDaemon::decode(&answer[..length]) else { panic!() };
        assert!(why.contains(&format!("the client {theirs}")) && why.contains("install"), "{why}");
    }
}

#[test]
fn events_of_another_owners_service_are_rejected_and_counted() {
    if !may_reserve() {
        return;
    }
    let _alone = live_lock();
    let (_service, client) = service(quiet());
    let theirs = connect_with_hello(&client);
    let kernels = client.services().unwrap();
    let raise = RaiseRequest { service: kernels[0].id, pid: -1, deadline_us: 0, cpu: true, data: &[0; 8] };
    fds::send_now(&theirs, &[std::io::IoSlice::new(&raise.head()), std::io::IoSlice::new(raise.data)]).unwrap();
    eventually("the message is counted", || metric(&client, "qfabric_ecalls_nonsense_total") == 1);
}

#[test]
fn a_user_may_subscribe_for_its_own_processes_and_to_granted_services() {
    if !may_reserve() || qfabric_linux::ecalls::Kernel::open().is_err() {
        return;
    }
    let _alone = live_lock();
    let mut config = quiet();
    config.ecalls.users.insert(NOBODY, vec!["timer".into()]);
    config.ecalls.max_subscriptions_per_user = 3;
    let (_service, client) = service(config);
    let roots = Ecalls::connect(&client).unwrap();
    let own = roots.register_service("root.sample", "", SAMPLE, false).unwrap();
    let open = roots.register_service("root.open", "", SAMPLE, true).unwrap();
    let socket = client.socket().display().to_string();
    let mut child =
        role("user_subscribes", Some(NOBODY), &[("QF_SOCKET", &socket), ("QF_ROOT", &std::process::id().to_string())]);
    assert!(child.wait(), "the user's part failed");
    eventually("the user's subscriptions have ended", || client.subscriptions().unwrap().is_empty());
    drop((own, open));
}

#[test]
#[ignore = "run by a_user_may_subscribe_for_its_own_processes_and_to_granted_services, as another user"]
fn user_subscribes() {
    let client = connected(given("QF_SOCKET"));
    let root: i32 = given("QF_ROOT").parse().unwrap();
    let ecalls = Ecalls::connect(&client).unwrap();
    let refused = |wanted: SubscriptionBuilder| -> Problem {
        match ecalls.subscribe(&wanted.memory_up(MemoryUp::default())) {
            Err(ClientError::Refused(problem)) => problem,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused(SubscriptionBuilder::to("net.rx").option("interface", "lo")).code, "not_granted");
    assert_eq!(refused(SubscriptionBuilder::to("sock.stream").option("listen", ":80")).code, "not_granted");
    assert_eq!(refused(SubscriptionBuilder::to("sched.wakeup").only(root)).code, "not_yours");
    assert_eq!(refused(SubscriptionBuilder::to("sched.wakeup").process(root)).code, "not_yours");
    assert_eq!(refused(SubscriptionBuilder::to("root.sample")).code, "not_yours");
    let with_memory = |wanted: SubscriptionBuilder| ecalls.subscribe(&wanted.memory_up(MemoryUp::default())).unwrap();
    let mut wakeups = with_memory(SubscriptionBuilder::to("sched.wakeup"));
    assert_eq!(wakeups.info().only_pid, Some(std::process::id() as i32), "restricted to the caller");
    std::thread::sleep(Duration::from_millis(5));
    assert!(wakeups.next(PATIENCE).unwrap().is_some());
    let mut timer = with_memory(SubscriptionBuilder::to("timer").option("period", "5ms"));
    assert!(timer.next(PATIENCE).unwrap().is_some());
    let _open = with_memory(SubscriptionBuilder::to("root.open"));
    let problem = refused(SubscriptionBuilder::to("root.open"));
    assert!(problem.code == "ecalls_limit" && problem.next_step.contains("max_subscriptions_per_user"), "{problem:?}");
}

/// The process executes a set-uid program; the events are those of a granted service and of an open service.
#[test]
fn a_subscription_ends_when_its_process_no_longer_belongs_to_the_user() {
    if !may_reserve() || qfabric_linux::ecalls::Kernel::open().is_err() || !rustix::process::geteuid().is_root() {
        return qfabric_linux::testing::skip("only root can make set-uid programs and be another user");
    }
    let _alone = live_lock();
    let mut config = quiet();
    config.ecalls.users.insert(NOBODY, vec!["timer".into()]);
    let (_service, client) = service(config);
    let roots = Ecalls::connect(&client).unwrap();
    let _open = roots.register_service("root.open", "", SAMPLE, true).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let set_uid = folder.path().join("sleep");
    std::fs::copy("/bin/sleep", &set_uid).unwrap();
    std::fs::set_permissions(&set_uid, Permissions::from_mode(0o4755)).unwrap();
    let socket = client.socket().display().to_string();
    let mut child =
        role("user_executes", Some(NOBODY), &[("QF_SOCKET", &socket), ("QF_SLEEP", set_uid.to_str().unwrap())]);
    assert!(child.wait(), "the user's part failed");
}

#[test]
#[ignore = "run by a_subscription_ends_when_its_process_no_longer_belongs_to_the_user, as another user"]
fn user_executes() {
    let ecalls = Ecalls::connect(&connected(given("QF_SOCKET"))).unwrap();
    let script = format!("read go; exec {} 600", given("QF_SLEEP"));
    let mut process = Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).spawn().unwrap();
    let pid = process.id() as i32;
    let of_process = |service: &str| SubscriptionBuilder::to(service).process(pid).memory_up(MemoryUp::default());
    let subscriptions = [of_process("timer").option("period", "100ms"), of_process("root.open")]
        .map(|wanted| ecalls.subscribe(&wanted).unwrap());
    process.stdin.take().unwrap().write_all(b"\n").unwrap();
    let mut ended: Vec<_> = (0..2).map(|_| ended(&ecalls)).collect();
    ended.sort_unstable();
    assert_eq!(ended, subscriptions.iter().map(|one| one.id()).collect::<Vec<_>>());
    // Allowed, because the user who started it is still its real user.
    process.kill().and_then(|()| process.wait()).unwrap();
}

fn ended(ecalls: &Ecalls) -> u64 {
    match ecalls.next_notice(PATIENCE).unwrap() {
        Some(Notice::Ended { subscription, why }) if why.contains("another user") => subscription,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_chain_in_the_kernel_works_without_a_scheduler_that_favours() {
    if !may_reserve() {
        return;
    }
    let _alone = live_lock();
    let (_service, client) = service(quiet());
    let ecalls = Ecalls::connect(&client).unwrap();
    let every_20_ms = || SubscriptionBuilder::to("timer").option("period", "20ms").favour();
    let mut events = match ecalls.subscribe(&every_20_ms().code("return 1;").memory_up(MemoryUp::default())) {
        Ok(events) => events,
        Err(ClientError::Refused(Problem { code, .. })) if code == "unavailable" => {
            return qfabric_linux::testing::skip("no handlers in this kernel");
        }
        Err(error) => panic!("{error}"),
    };
    for _ in 0..3 {
        assert!(events.next(PATIENCE).unwrap().is_some());
    }
    let _thread = ecalls.subscribe(&every_20_ms().thread().code("return 1;")).unwrap();
    eventually("events that leave the kernel are counted", || metric(&client, "qfabric_events_not_favoured_total") > 2);
    assert_eq!(metric(&client, "qfabric_events_favoured_total"), 0);
}

/// A limit of 20 microseconds per second: more than the wake-ups while both handlers are installed, less than those
/// of a second afterwards. The kernel measures the run time.
#[test]
fn a_users_handlers_in_the_kernel_that_take_more_than_the_share_are_removed() {
    if !may_reserve() || qfabric_linux::ecalls::Kernel::open().is_err() || !rustix::process::geteuid().is_root() {
        return qfabric_linux::testing::skip("only root can be another user with handlers in the kernel");
    }
    let _alone = live_lock();
    let mut config = quiet();
    config.ecalls.max_cpu_per_user = qfabric_types::Share::from_ppm(20);
    let (_service, client) = service(config);
    let roots = Ecalls::connect(&client).unwrap();
    let own = roots
        .subscribe(&SubscriptionBuilder::to("sched.wakeup").code("return 1;").memory_up(MemoryUp::default()))
        .unwrap();
    let socket = client.socket().display().to_string();
    let _theirs = role("user_naps", Some(NOBODY), &[("QF_SOCKET", &socket)]);
    let reasons = |uid: u32| -> Vec<String> {
        let all = client.subscriptions().unwrap();
        let reason = |one: SubscriptionInfo| match one.state {
            State::TakenOut { why } => Some(why),
            _ => None,
        };
        all.into_iter().filter(|one| one.owner.uid == uid).filter_map(reason).collect()
    };
    eventually("both handlers are removed", || reasons(NOBODY).len() == 2);
    let why = reasons(NOBODY);
    assert!(why[0].contains("ecalls.max_cpu_per_user") && why[0] == why[1], "removed at the same time: {why:?}");
    assert_eq!(reasons(0).len(), 0, "root has no such limit");
    drop(own);
}

#[test]
#[ignore = "run by a_users_handlers_in_the_kernel_that_take_more_than_the_share_are_removed, as another user"]
fn user_naps() {
    let ecalls = Ecalls::connect(&connected(given("QF_SOCKET"))).unwrap();
    let wanted = SubscriptionBuilder::to("sched.wakeup").code("return 1;").memory_up(MemoryUp::default());
    let _both = [ecalls.subscribe(&wanted).unwrap(), ecalls.subscribe(&wanted).unwrap()];
    loop {
        std::thread::sleep(Duration::from_millis(1));
    }
}
