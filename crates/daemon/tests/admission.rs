//! Tests of admission with the real scheduler and real credentials: accepted and refused contracts, and the
//! refusals' texts.

mod common;

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use common::*;
use qfabric_client::{Client, ClientError, JointBuilder};
use qfabric_linux::books;
use qfabric_linux::hrtick::DEBUGFS;
use qfabric_linux::sched_attr::Policy;
use qfabric_linux::testing::live_lock;
use qfabric_types::api::{
    ApplicationRequest, ApplicationScope, Change, HostLimits, LimitsPatch, MemoryLimitsPatch, Problem,
};
use qfabric_types::{Bytes, Class, Contract, JobSource, Nanos, Resource, Share, ThreadId};

fn guaranteed(name: &str, ppm: u32) -> Contract {
    Contract { class: Class::B, guaranteed: Some(Share::from_ppm(ppm)), ..contract(name, 40) }
}

fn ask(client: &Client, pid: i32, contract: Contract) -> Result<qfabric_types::api::Application, Problem> {
    client.admit(&ApplicationRequest { pid, covers: ApplicationScope::Program, contract }).map_err(refused)
}

fn refused(error: ClientError) -> Problem {
    match error {
        ClientError::Refused(problem) => problem,
        other => panic!("not a refusal: {other}"),
    }
}

#[test]
fn a_program_is_admitted_shown_changed_and_released() {
    let _lock = live_lock();
    let (_service, client) = service(quiet());
    let program = Process::shell("sleep 60");
    let app = ask(&client, program.pid(), Contract::new("sleeper", Nanos::from_millis(40))).unwrap();
    assert_eq!((app.pid, app.owner.uid), (program.pid(), 0));
    assert_eq!(client.applications().unwrap().len(), 1);
    let changed = client.change(app.id, &Contract { weight: 7, ..app.contract }).unwrap();
    assert_eq!(changed.contract.weight, 7);
    client.release(app.id).unwrap();
    assert!(client.status().unwrap().applications.is_empty());
    // One that has used up its budget leaves the policy after its refill.
    eventually("its threads are back", || {
        threads_of(program.0.id()).into_iter().all(|thread| policy(thread) == Some(Policy::OTHER))
    });
}

#[test]
fn the_contract_that_would_cross_the_total_is_refused_with_what_is_free_and_who_holds_the_rest() {
    let _lock = live_lock();
    let (_service, client) = service(with_capacity("0.5"));
    let (first, second) = (Process::shell("sleep 60"), Process::shell("sleep 60"));
    let holder = ask(&client, first.pid(), guaranteed("first", 300_000)).unwrap();
    let problem = ask(&client, second.pid(), guaranteed("second", 300_000)).unwrap_err();
    assert_eq!(problem.code, "over_committed");
    assert_eq!((problem.asked, problem.free), (Some(Share::from_ppm(300_000)), Some(Share::from_ppm(200_000))));
    assert_eq!((problem.holders[0].id, problem.holders[0].name.as_str()), (holder.id, "first"));
    assert_eq!(client.status().unwrap().applications.len(), 1, "a refusal changes nothing");
    ask(&client, second.pid(), guaranteed("second", 200_000)).expect("the free amount is admitted");
}

/// The right is checked before memory is promised: the refusal does not tell what is free.
#[test]
fn an_unknown_claim_is_refused_before_its_memory_is_promised() {
    let _lock = live_lock();
    let (_service, client) = service(quiet());
    let program = Process::shell("sleep 60");
    let contract = Contract { memory: Bytes::from_mib(1 << 20), ..guaranteed("thief", 100_000) };
    let request = ApplicationRequest { pid: program.pid(), covers: ApplicationScope::Program, contract };
    let refusal = client.claim(&"nobody:7".parse().unwrap(), &request).map_err(refused).unwrap_err();
    assert_eq!(refusal.code, "no_such_claim", "{refusal}");
}

/// Otherwise the kernel would refuse promised reservations.
#[test]
fn a_configured_capacity_excludes_the_services_own_reservation() {
    let _lock = live_lock();
    let all = books::ceiling(Path::new(DEBUGFS)).expect("this kernel has a limit");
    let mut config = with_capacity(&all.to_string());
    config.control.budget = Nanos::new(config.control.period.get() / 5);
    let (_service, client) = service(config);
    let status = client.status().unwrap();
    assert_eq!(status.capacity, all.saturating_sub(Share::from_ppm(200_000)));
}

#[test]
fn invalid_requests_are_refused_without_effect() {
    let _lock = live_lock();
    let (service, client) = service(quiet());
    let own = std::process::id();
    let body = |contract: &str| format!(r#"{{"pid":{own},"contract":{contract}}}"#);
    let unclear = [
        ("{", 400, "invalid"),
        ("", 400, "invalid"),
        (r#"{"pid":1}"#, 400, "invalid"),
        (r#"{"pid":"x","contract":{}}"#, 400, "invalid"),
        (r#"{"pid":1,"contract":{},"root":true}"#, 400, "invalid"),
        (r#"{"pid":0,"contract":{}}"#, 400, "invalid"),
        (r#"{"pid":-1,"contract":{}}"#, 400, "invalid"),
        (r#"{"pid":2147483647,"contract":{}}"#, 410, "gone"),
        (r#"{"pid":99999999999,"contract":{}}"#, 400, "invalid"),
    ];
    let senseless = [
        (r#"{"period_ns":0}"#, 422, "invalid_contract"),
        (r#"{"period_ns":40000000,"server_period_ns":7000000}"#, 422, "invalid_contract"),
        (r#"{"max_bandwidth":0}"#, 422, "invalid_contract"),
        (r#"{"max_bandwidth":-1}"#, 400, "invalid"),
        (r#"{"predictor":"kalman:3"}"#, 400, "invalid"),
        (r#"{"early":1e999}"#, 400, "invalid"),
        (r#"{"name":""}"#, 422, "invalid_contract"),
        (r#"{"budget_ns":1}"#, 400, "invalid"),
        (r#"{"guaranteed":0.9,"max_bandwidth":0.5}"#, 422, "invalid_contract"),
    ];
    let bodies = unclear.map(|(text, status, code)| (text.to_owned(), status, code));
    let contracts = senseless.map(|(text, status, code)| (body(text), status, code));
    for (text, status, code) in bodies.into_iter().chain(contracts) {
        let (answered, answer) = call(service.socket(), "POST", "/v1/applications", &text);
        let problem = problem(&answer);
        assert_eq!((answered, problem.code.as_str()), (status, code), "{text} → {problem:?}");
        assert!(!problem.message.is_empty() && !problem.next_step.is_empty());
    }
    assert!(client.applications().unwrap().is_empty());
}

#[test]
fn a_body_above_the_limit_is_not_read_to_its_end() {
    let _lock = live_lock();
    let (service, _client) = service(quiet());
    let body = format!(r#"{{"pid":1,"contract":{{"name":"{}"}}}}"#, "x".repeat(300 << 10));
    let (status, answer) = call(service.socket(), "POST", "/v1/applications", &body);
    assert_eq!((status, problem(&answer).code.as_str()), (413, "too_large"));
}

#[test]
fn a_process_that_has_ended_is_gone() {
    let _lock = live_lock();
    let (_service, client) = service(quiet());
    let mut program = Process::shell("true");
    let pid = program.pid();
    program.wait();
    assert_eq!(ask(&client, pid, Contract::default()).unwrap_err().code, "gone");
}

#[test]
fn a_process_has_one_contract_and_a_thread_has_one() {
    let _lock = live_lock();
    let (_service, client) = service(quiet());
    let program = Process::shell("sleep 60");
    let app = ask(&client, program.pid(), Contract::default()).unwrap();
    let problem = ask(&client, program.pid(), Contract::default()).unwrap_err();
    assert_eq!(problem.code, "already_covered");
    assert!(problem.message.contains(&app.id.to_string()), "{problem:?}");
}

/// The contract of the program gives way to one of the thread, and takes the thread back: twenty times, under
/// observation.
#[test]
fn a_thread_that_changes_its_contract_is_never_without_a_reservation() {
    let _lock = live_lock();
    let (_service, client) = service(with_capacity("0.8"));
    let program = Process::shell("while :; do :; done");
    let contract = |name: &str| Contract {
        jobs: JobSource::Consumption,
        max_bandwidth: Share::from_ppm(300_000),
        ..contract(name, 40)
    };
    let whole = ask(&client, program.pid(), contract("program")).unwrap();
    let thread = ThreadId(program.pid());
    eventually("the program is under reservation", || policy(thread) == Some(Policy::DEADLINE));
    let (stop, looks, without) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                looks.fetch_add(1, Relaxed);
                without.fetch_add(u64::from(policy(thread) != Some(Policy::DEADLINE)), Relaxed);
            }
        });
        for _ in 0..20 {
            let covers = ApplicationScope::Thread(thread);
            let request = ApplicationRequest { pid: program.pid(), covers, contract: contract("thread") };
            let own = client.admit(&request).unwrap();
            assert_eq!((own.threads.len(), client.application(whole.id).unwrap().threads.len()), (1, 0));
            client.release(own.id).unwrap();
            assert_eq!(client.application(whole.id).unwrap().threads.len(), 1);
        }
        let enough = looks.load(Relaxed) + 100;
        eventually("it was looked at", || looks.load(Relaxed) > enough);
        stop.store(true, Relaxed);
    });
    assert_eq!(without.into_inner(), 0, "of {} looks", looks.into_inner());
}

#[test]
fn an_application_leaves_with_its_process() {
    let _lock = live_lock();
    let (_service, client) = service(quiet());
    let program = Process::shell("sleep 60");
    ask(&client, program.pid(), Contract::default()).unwrap();
    drop(program);
    eventually("the application left", || client.applications().unwrap().is_empty());
}

#[test]
fn a_thread_pinned_to_a_part_of_the_cpus_is_refused_with_the_reason() {
    let _lock = live_lock();
    let (_service, client) = service(quiet());
    let program = Process::shell("exec taskset -c 0 sleep 60");
    eventually("taskset has become sleep", || {
        std::fs::read_to_string(format!("/proc/{}/comm", program.pid())).is_ok_and(|comm| comm == "sleep\n")
    });
    let contract = Contract { jobs: JobSource::Consumption, ..guaranteed("pinned", 100_000) };
    let problem = ask(&client, program.pid(), contract).unwrap_err();
    assert_eq!(problem.code, "affinity", "{problem:?}");
    assert!(problem.message.contains("CPUs 0"), "{problem:?}");
    assert!(client.applications().unwrap().is_empty(), "the promise is withdrawn");
}

#[test]
fn a_user_may_change_only_its_own_processes_within_its_own_maximum() {
    let _lock = live_lock();
    let mut config = with_capacity("0.9");
    config.limits.users.insert(NOBODY, Share::from_ppm(200_000));
    config.limits.max_applications_per_user = 2;
    let (service, client) = service(config);
    let roots = Process::shell("sleep 60");
    let held = ask(&client, roots.pid(), Contract::default()).unwrap();
    let socket = service.socket().to_str().unwrap();
    let (pid, id) = (roots.pid().to_string(), held.id.to_string());
    let mut nobody = role("nobody", Some(NOBODY), &[("SOCKET", socket), ("ROOTS", &pid), ("HELD", &id)]);
    assert!(nobody.wait(), "the role `nobody` failed; see its output above");
    eventually("its applications left with it", || client.applications().unwrap().len() == 1);
}

#[test]
fn limits_change_while_applications_run_and_guarantees_are_kept() {
    let _lock = live_lock();
    let (service, client) = service(with_capacity("0.5"));
    let program = Process::shell("sleep 60");
    let contract = Contract { jobs: JobSource::Marked, ..guaranteed("player", 200_000) };
    let app = ask(&client, program.pid(), contract).unwrap();
    let granted = || client.application(app.id).unwrap().granted;
    let in_force = || client.application(app.id).unwrap().threads[0].reservation.map_or(Share::ZERO, |r| r.share());
    assert_eq!(granted(), Share::from_ppm(500_000), "a controller without jobs requests the maximum");
    let before = client.limits().unwrap();
    let lower = |ppm: u32| HostLimits { users: [(0, Share::from_ppm(ppm))].into(), ..before.clone() };
    assert_eq!(client.set_limits(&lower(300_000)).unwrap(), lower(300_000));
    // On a shared machine the kernel may have had less room than our accounting.
    assert_eq!((granted(), in_force() <= granted()), (Share::from_ppm(300_000), true));
    client.set_limits(&lower(100_000)).unwrap();
    assert_eq!((granted(), in_force() <= granted()), (Share::from_ppm(200_000), true), "the guarantee is kept");
    let more = Process::shell("sleep 60");
    assert_eq!(ask(&client, more.pid(), guaranteed("more", 10_000)).unwrap_err().code, "user_cap");

    let path = "/v1/limits";
    for (body, status, code) in [
        ("{", 400, "invalid"),
        (r#"{"user":{"0":1}}"#, 400, "invalid"),
        (r#"{"users":{"0":-1}}"#, 400, "invalid"),
        (r#"{"capacity":0.1,"max_threads":0}"#, 422, "invalid_limit"),
        (r#"{"capacity":0.1,"levels":{"10":0.5}}"#, 422, "invalid_limit"),
    ] {
        let (answered, answer) = call(service.socket(), "PUT", path, body);
        let problem = problem(&answer);
        assert_eq!((answered, problem.code.as_str()), (status, code), "{body} → {problem:?}");
    }
    assert_eq!(client.limits().unwrap(), lower(100_000), "a refusal changes nothing");
    assert_eq!(granted(), Share::from_ppm(200_000));
    client.set_limits(&before).unwrap();
    assert_eq!(granted(), Share::from_ppm(500_000));
}

#[test]
fn concurrent_changes_of_limits_by_two_administrators_are_all_kept() {
    const CHANGES: u32 = 200;
    let _lock = live_lock();
    let (service, client) = service(with_capacity("0.5"));
    let each = |first_uid: u32| {
        let client = connected(service.socket());
        for uid in first_uid..first_uid + CHANGES {
            let users = Change::Set([(uid, Some(Share::from_ppm(uid)))].into());
            let answer = client.change_limits(&LimitsPatch { users, ..LimitsPatch::default() }).unwrap();
            assert_eq!(answer.users.get(&uid), Some(&Share::from_ppm(uid)), "the answer has the limits in force");
        }
    };
    std::thread::scope(|scope| {
        for first_uid in [1_000, 2_000] {
            scope.spawn(move || each(first_uid));
        }
    });
    let uids = (1_000..1_000 + CHANGES).chain(2_000..2_000 + CHANGES);
    let expected: std::collections::BTreeMap<_, _> = uids.map(|uid| (uid, Share::from_ppm(uid))).collect();
    assert_eq!(client.limits().unwrap().users, expected);
}

#[test]
fn a_change_of_limits_that_is_refused_changes_nothing() {
    let _lock = live_lock();
    let (service, client) = service(with_capacity("0.5"));
    let before = client.limits().unwrap();
    for (body, status, code, named) in [
        ("{", 400, "invalid", "EOF"),
        (r#"{"capacity":0.1,"user":{"0":1}}"#, 400, "invalid", "unknown field `user`, expected one of `capacity`"),
        (r#"{"capacity":0.1,"users":{"7":-1}}"#, 400, "invalid", "users.7: share -1 is not between 0 and 4096 CPU"),
        (r#"{"capacity":0.1,"users":{"x":1}}"#, 400, "invalid", "users"),
        (r#"{"capacity":0.1,"max_threads":0}"#, 422, "invalid_limit", "limits.max_threads is 0; use 1 to 10000"),
        (r#"{"capacity":0.1,"max_threads":null}"#, 422, "invalid_limit", "limits.max_threads is null; use 1 to 10000"),
        (r#"{"capacity":0.1,"levels":{"10":0.5}}"#, 422, "invalid_limit", "limits.levels is 10; use levels 0 (last)"),
        (r#"{"capacity":0.1,"memory":{"reserve":1}}"#, 400, "invalid", "unknown field `reserve`"),
        (r#"{"capacity":0.1,"memory":{"global_reserve":1e18}}"#, 400, "invalid", "floating point"),
        (r#"{"capacity":0.1,"memory":{"global_reserve":1125899906842624}}"#, 422, "invalid_limit", "at most 80 %"),
    ] {
        let (answered, answer) = call(service.socket(), "PATCH", "/v1/limits", body);
        let problem = problem(&answer);
        assert_eq!((answered, problem.code.as_str()), (status, code), "{body} → {problem:?}");
        assert!(problem.to_string().contains(named) && !problem.next_step.is_empty(), "{body} → {problem:?}");
        assert!(!problem.message.contains("; use"), "{body} → {problem:?}");
    }
    assert_eq!(client.limits().unwrap(), before);
    let none = r#"{"default_user":null}"#;
    let (answered, answer) = call(service.socket(), "PATCH", "/v1/limits", none);
    let expected = HostLimits { default_user: None, ..before };
    assert_eq!(
        (answered, serde_json::from_str(&answer).ok()),
        (200, Some(expected)),
        "null removes the maximum instead of restoring the default"
    );
}

#[test]
fn the_global_reserve_is_never_lowered_below_what_is_promised() {
    let _lock = live_lock();
    let (_service, client) = service(with_capacity("0.5"));
    let reserve = |mib| MemoryLimitsPatch { global_reserve: Change::Set(Bytes::from_mib(mib)), ..Default::default() };
    let set = |memory| client.change_limits(&LimitsPatch { memory, ..LimitsPatch::default() });
    let reported = || client.status().unwrap().memory.unwrap();
    assert_eq!(set(reserve(100)).unwrap().memory.global_reserve, Some(Bytes::from_mib(100)));
    let program = Process::shell("sleep 60");
    let contract =
        Contract { memory: Bytes::from_mib(48), ..Contract { name: "player".into(), ..Contract::default() } };
    let app = ask(&client, program.pid(), contract).unwrap();
    let problem = refused(set(reserve(47)).unwrap_err());
    assert_eq!(problem.code, "below_promises");
    for part in ["cannot be 47 MiB", "48 MiB is promised", "player", "48 MiB"] {
        assert!(problem.message.contains(part), "{problem:?}");
    }
    assert_eq!((reported().global_reserve, reported().promised), (Bytes::from_mib(100), Bytes::from_mib(48)));
    set(reserve(48)).unwrap();
    client.release(app.id).unwrap();
    eventually("the memory is free", || reported().promised == Bytes::ZERO);
    set(MemoryLimitsPatch { users: Change::Set([(0, Some(Bytes::from_mib(1)))].into()), ..reserve(64) }).unwrap();
    let more = Process::shell("sleep 60");
    let asked = Contract { memory: Bytes::from_mib(2), ..Contract::default() };
    assert_eq!(ask(&client, more.pid(), asked).unwrap_err().code, "user_cap");
}

#[test]
#[ignore = "run as another user by a_user_may_change_only_its_own_processes_within_its_own_maximum"]
fn nobody() {
    let client = connected(given("SOCKET"));
    let (roots, held) = (given("ROOTS").parse().unwrap(), qfabric_types::AppId(given("HELD").parse().unwrap()));
    let problem = ask(&client, roots, Contract::default()).unwrap_err();
    assert_eq!(problem.code, "not_yours", "{problem:?}");
    assert!(problem.message.contains("user 0") && problem.message.contains("user 65534"), "{problem:?}");
    assert_eq!(refused(client.release(held).unwrap_err()).code, "not_yours");
    assert_eq!(refused(client.change(held, &Contract::default()).unwrap_err()).code, "not_yours");
    let limits = client.limits().expect("every user may read limits");
    assert_eq!(refused(client.set_limits(&limits).unwrap_err()).code, "not_administrator");
    assert_eq!(refused(client.change_limits(&LimitsPatch::default()).unwrap_err()).code, "not_administrator");

    let own: Vec<_> = (0..3).map(|_| Process::shell("sleep 60")).collect();
    let problem = ask(&client, own[0].pid(), guaranteed("greedy", 300_000)).unwrap_err();
    assert_eq!(problem.code, "user_cap", "{problem:?}");
    let app = ask(&client, own[0].pid(), guaranteed("modest", 100_000)).unwrap();
    assert_eq!(app.owner.uid, NOBODY);
    ask(&client, own[1].pid(), Contract::default()).unwrap();
    assert_eq!(ask(&client, own[2].pid(), Contract::default()).unwrap_err().code, "too_many_applications");
}

#[test]
fn a_groups_maximum_also_counts_programs_that_run_under_another_of_their_groups() {
    if !rustix::process::geteuid().is_root() {
        return qfabric_linux::testing::skip("only root can give a process groups");
    }
    let _lock = live_lock();
    let mut config = with_capacity("0.6");
    config.limits.groups = [(4_000, Share::from_ppm(200_000))].into();
    config.limits.users = [(54_321, Share::from_ppm(300_000))].into();
    let (_service, client) = service(config);
    let member = |own: &str, others: &str| {
        Process::shell(&format!("exec setpriv --reuid 54321 --regid {own} --groups {others} sleep 600"))
    };
    let programs = [member("4000", "4001"), member("4001", "4000"), member("4001", "4001"), member("4001", "4001")];
    for program in &programs {
        eventually("it runs under its groups", || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", program.pid())).unwrap();
            status.starts_with("Name:\tsleep\n")
        });
    }
    ask(&client, programs[0].pid(), guaranteed("first", 150_000)).unwrap();
    let problem = ask(&client, programs[1].pid(), guaranteed("second", 100_000)).unwrap_err();
    assert_eq!((problem.code.as_str(), problem.free), ("group_cap", Some(Share::from_ppm(50_000))), "{problem:?}");
    // Without the group only the user's maximum holds.
    ask(&client, programs[2].pid(), guaranteed("third", 100_000)).unwrap();
    let problem = ask(&client, programs[3].pid(), guaranteed("fourth", 100_000)).unwrap_err();
    assert_eq!((problem.code.as_str(), problem.free), ("user_cap", Some(Share::from_ppm(50_000))), "{problem:?}");
}

#[test]
fn a_joint_contract_counts_for_the_groups_of_the_program_that_asks() {
    if !rustix::process::geteuid().is_root() {
        return qfabric_linux::testing::skip("only root can give a process groups");
    }
    let _lock = live_lock();
    let mut config = with_capacity("0.6");
    config.limits.groups = [(4_000, Share::from_ppm(200_000))].into();
    let (service, _client) = service(config);
    let asks = role_command("a_member", &[]);
    let mut member = Command::new("setpriv");
    member.args(["--reuid", "54321", "--regid", "4001", "--groups", "4000"]).arg(asks.get_program());
    let member = member.args(asks.get_args()).env("SOCKET", service.socket()).current_dir("/").output().unwrap();
    assert!(member.status.success(), "{}", String::from_utf8_lossy(&member.stdout));
}

#[test]
#[ignore = "run in another group by a_joint_contract_counts_for_the_groups_of_the_program_that_asks"]
fn a_member() {
    let client = connected(given("SOCKET"));
    let ask = |share| JointBuilder::new().want("", Resource::Cpu, share, share).unwrap().apply(&client);
    let error = ask(0.3).unwrap_err();
    let ClientError::JointRefused(refusal) = error else { panic!("{error}") };
    assert_eq!(refusal.largest, Some(0.2));
    assert!(refusal.problem.message.contains("group 4000"), "{}", refusal.problem);
    ask(0.2).unwrap().end().unwrap();
}

#[test]
fn by_default_no_user_gets_more_than_half_a_cpu_and_root_does() {
    if !rustix::process::geteuid().is_root() {
        return qfabric_linux::testing::skip("only root can be another user");
    }
    let _lock = live_lock();
    let (_service, client) = service(with_capacity("0.7"));
    let [theirs, roots] = ["exec setpriv --reuid 54321 --clear-groups sleep 600", "exec sleep 600"].map(Process::shell);
    eventually("it runs as its user", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", theirs.pid())).unwrap();
        status.starts_with("Name:\tsleep\n")
    });
    let problem = ask(&client, theirs.pid(), guaranteed("greedy", 510_000)).unwrap_err();
    assert_eq!((problem.code.as_str(), problem.free), ("user_cap", Some(Share::from_ppm(500_000))), "{problem:?}");
    ask(&client, roots.pid(), guaranteed("roots", 510_000)).unwrap();
}

#[test]
fn a_joint_contract_over_a_link_that_is_not_open_names_it_with_all_amounts_and_the_remedy() {
    let _lock = live_lock();
    let (_service, client) = service(quiet());
    let link: qfabric_types::Resource = "network qf-none out".parse().unwrap();
    let request = JointBuilder::new().want("", link.clone(), 5e6, 1e6).unwrap();
    let error = request.apply(&client).unwrap_err();
    let ClientError::JointRefused(refusal) = error else { panic!("{error}") };
    assert_eq!(refusal.refused_by, client.host_name().unwrap());
    assert_eq!((refusal.resource.as_ref(), refusal.asked), (Some(&link), Some(5e6)));
    assert_eq!((refusal.free, refusal.largest), (Some(0.0), Some(0.0)));
    assert!(refusal.problem.message.contains("network qf-none out"), "{}", refusal.problem);
    assert!(refusal.problem.next_step.contains("qfabric net link add"), "{}", refusal.problem);
    assert!(client.joint_contracts().unwrap().is_empty());
}
