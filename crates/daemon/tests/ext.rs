//! Tests of the service with its own scheduler in the kernel (mechanism `ext`), end to end. They run in the test
//! machine (`make vm-test`); on other kernels only the refusal is tested.

mod common;

use std::path::Path;
use std::time::Duration;

use common::*;
use qfabric_client::ecalls::{Ecalls, MemoryUp, SubscriptionBuilder};
use qfabric_client::{Client, ClientError};
use qfabric_daemon::{Config, Embedded, MechanismName};
use qfabric_linux::clock;
use qfabric_linux::ext::{Ext, ExtError};
use qfabric_linux::testing::{live_lock, skip};
use qfabric_types::api::{Application, ApplicationRequest, ApplicationScope, HostStatus};
use qfabric_types::{Contract, JobSource, Nanos, Reclaiming, ServerCounts, Share};

/// Time of a measurement: long enough to show a wrong share, short enough for an emulated machine.
const LOOK: Duration = Duration::from_millis(2_500);

fn ext() -> Config {
    let mut config = quiet();
    config.mechanism.name = MechanismName::Ext;
    config
}

/// Whether the scheduler can be loaded here; if not, prints why nothing is tested.
fn is_here() -> bool {
    match Ext::supported() {
        Ok(()) => true,
        Err(ExtError::Unsupported { .. }) if expects_none() => {
            eprintln!("this kernel of the test machine has no sched_ext: only the refusal is tested");
            false
        }
        Err(why) => {
            skip(why.to_string());
            false
        }
    }
}

/// The kernels of the test machine on which only the refusal is tested.
fn expects_none() -> bool {
    std::env::var("QFABRIC_VM_KERNEL").is_ok_and(|kernel| kernel.starts_with("6.12") || kernel.starts_with("6.18"))
}

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

fn fixed(name: &str, service_ms: u64, period_ms: u64, window: Option<&str>) -> Contract {
    let window = window.map(|text| text.parse().unwrap());
    Contract { window, ..Contract::fixed(name, ms(period_ms), ms(service_ms)) }
}

fn burner() -> Process {
    Process::shell("while :; do :; done")
}

fn admit(client: &Client, process: &Process, contract: Contract) -> Result<Application, ClientError> {
    client.admit(&ApplicationRequest { pid: process.pid(), covers: ApplicationScope::Program, contract })
}

fn counts(client: &Client, app: &Application) -> ServerCounts {
    client.application(app.id).unwrap().server.expect("its server counts")
}

/// CPUs that a process used during the measurement.
fn used(process: &Process) -> f64 {
    let clock = |process: &Process| qfabric_linux::clock::process_cpu(process.pid()).unwrap().get();
    let (before, from) = (clock(process), std::time::Instant::now());
    std::thread::sleep(LOOK);
    (clock(process) - before) as f64 / from.elapsed().as_nanos() as f64
}

fn state() -> String {
    std::fs::read_to_string("/sys/kernel/sched_ext/state").unwrap_or_default().trim().to_owned()
}

#[test]
fn a_kernel_without_sched_ext_is_refused_with_an_alternative() {
    let Err(why) = Ext::supported() else { return };
    let refused = Embedded::start(ext()).unwrap_err().to_string();
    match why {
        // This check comes before the kernel is asked.
        _ if refused.contains("CAP_SYS_NICE") => {}
        ExtError::Unsupported { release, .. } => {
            assert!(refused.contains(&release) && refused.contains("--mechanism deadline"), "{refused}");
        }
        other => assert_eq!(refused, other.to_string()),
    }
}

#[test]
fn a_windowed_service_is_held_against_hogs_and_counted() {
    let _lock = live_lock();
    if !is_here() {
        return;
    }
    let (_service, client) = service(ext());
    let player = burner();
    let app = admit(&client, &player, fixed("player", 10, 40, Some("1/5"))).unwrap();
    let _hogs: Vec<_> = (0..6).map(|_| burner()).collect();
    let before = counts(&client, &app);
    let share = used(&player);
    let after = counts(&client, &app);
    assert_eq!(after.violations, 0, "{after:?}");
    assert!(after.served > before.served + 20, "{before:?} then {after:?}");
    // A quarter of a CPU is promised; the kind of reclaiming is soft, so time of best effort may come on top.
    assert!(share > 0.22, "{share} of a CPU");
    let status = client.status().unwrap();
    assert_eq!((status.mechanism.as_str(), status.fallback), ("ext", None));
    let cpu = status.cpus.iter().find(|cpu| cpu.granted > Share::ZERO).expect("it has its CPU");
    assert_eq!(status.applications[0].cpus, [cpu.cpu]);
}

#[test]
fn a_hard_service_gets_no_more_than_it_asked_for() {
    let _lock = live_lock();
    if !is_here() {
        return;
    }
    let (_service, client) = service(ext());
    let program = burner();
    admit(&client, &program, Contract { reclaiming: Reclaiming::Hard, ..fixed("hard", 10, 50, None) }).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let share = used(&program);
    assert!((0.17..0.23).contains(&share), "{share} of a CPU on an idle machine");
}

/// `run --fixed 0.3 --hard`: a share in every server period, instead of a service in every period of the application.
#[test]
fn a_fixed_share_is_kept_against_hogs_and_without_them() {
    let _lock = live_lock();
    if !is_here() {
        return;
    }
    let (_service, client) = service(ext());
    let program = burner();
    let contract = Contract {
        fixed: Some(Share::from_ppm(300_000)),
        jobs: JobSource::Consumption,
        reclaiming: Reclaiming::Hard,
        ..Contract::new("fixed", ms(40))
    };
    let app = admit(&client, &program, contract).unwrap();
    assert_eq!(app.granted, Share::from_ppm(300_000));
    std::thread::sleep(Duration::from_millis(200));
    let before = counts(&client, &app);
    let alone = used(&program);
    let _hogs: Vec<_> = (0..4).map(|_| burner()).collect();
    let beside = used(&program);
    let after = counts(&client, &app);
    for share in [alone, beside] {
        assert!((0.291..=0.309).contains(&share), "{alone} of a CPU alone, {beside} beside hogs");
    }
    let (periods, charged) = (after.served - before.served, after.used_ns - before.used_ns);
    assert_eq!((after.missed, after.violations), (0, 0), "{after:?}");
    // 3 ms in every server period of 10 ms.
    let each_ms = charged as f64 / periods as f64 / 1e6;
    assert!(periods > 400 && (2.9..3.1).contains(&each_ms), "{each_ms} ms in each of {periods} periods");
    assert_eq!(client.application(app.id).unwrap().granted, app.granted, "no feedback changes it");
}

#[test]
fn more_than_a_cpu_has_is_refused_with_the_numbers_and_changes_nothing() {
    let _lock = live_lock();
    if !is_here() {
        return;
    }
    let (_service, client) = service(ext());
    let cpus = client.status().unwrap().cpus.len();
    let programs: Vec<_> = (0..=cpus).map(|_| burner()).collect();
    for program in &programs[..cpus] {
        admit(&client, program, fixed("holder", 60, 100, None)).unwrap();
    }
    let before: HostStatus = client.status().unwrap();
    let ClientError::Refused(problem) = admit(&client, &programs[cpus], fixed("late", 60, 100, None)).unwrap_err()
    else {
        panic!("not a refusal")
    };
    assert_eq!(problem.code, "over_committed");
    assert!(problem.message.contains("U = 0.6 CPU") && problem.message.contains("holder"), "{}", problem.message);
    let after = client.status().unwrap();
    assert_eq!((after.cpus, after.applications.len()), (before.cpus, cpus));
}

#[test]
fn feedback_drives_servers_as_it_drives_reservations() {
    let _lock = live_lock();
    if !is_here() {
        return;
    }
    let (_service, client) = service(ext());
    let program = role("works_every_40_ms", None, &[]);
    let contract = Contract { jobs: JobSource::Activations, ..Contract::new("periodic", ms(40)) };
    let app = admit(&client, &program, contract).unwrap();
    let _hogs: Vec<_> = (0..4).map(|_| burner()).collect();
    std::thread::sleep(LOOK);
    let seen = client.application(app.id).unwrap();
    assert!(seen.quality.jobs > 20, "{:?}", seen.quality);
    let budget = seen.granted.as_f64();
    assert!((0.03..0.8).contains(&budget), "{budget} for 4 ms in 40");
    assert_eq!(seen.server.expect("its server counts").violations, 0);
}

#[test]
#[ignore = "run by feedback_drives_servers_as_it_drives_reservations"]
fn works_every_40_ms() {
    loop {
        spin(4);
        std::thread::sleep(Duration::from_millis(36));
    }
}

#[test]
fn an_event_raised_for_the_cpu_favours_its_sink_and_is_counted() {
    let _lock = live_lock();
    if !is_here() {
        return;
    }
    let (_service, client) = service(ext());
    let covers = ApplicationScope::Thread(own_thread());
    let contract = Contract { favour_events: true, ..fixed("sink", 5, 50, None) };
    let app = client.admit(&ApplicationRequest { pid: std::process::id() as i32, covers, contract }).unwrap();
    let ecalls = Ecalls::connect(&client).unwrap();
    let own = ecalls.register_service("test.favour", "", "struct sample { long value; };", false).unwrap();
    let mut events = ecalls.subscribe(&SubscriptionBuilder::to("test.favour").memory_up(MemoryUp::default())).unwrap();
    for cpu in [true, true, false] {
        own.raise_event(-1, &7i64.to_le_bytes(), Nanos::ZERO, cpu).unwrap();
        assert!(events.next(common::PATIENCE).unwrap().is_some());
    }
    eventually("both are counted", || metric(&client, "qfabric_events_favoured_total") == 2);
    client.release(app.id).unwrap();
    own.raise_event(-1, &7i64.to_le_bytes(), Nanos::ZERO, true).unwrap();
    eventually("no server is favoured", || metric(&client, "qfabric_events_not_favoured_total") == 1);
}

fn metric(client: &Client, name: &str) -> u64 {
    let (_, text) = call(client.socket(), "GET", "/metrics", "");
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_handler_in_the_kernel_favours_its_sink_on_any_cpu_without_the_control_thread() {
    let _lock = live_lock();
    if !is_here() {
        return;
    }
    let (_service, client) = service(ext());
    // The sink never sleeps, so none of its own wake-ups favours it.
    let sink = burner();
    let ecalls = Ecalls::connect(&client).unwrap();
    let wanted =
        SubscriptionBuilder::to("timer").option("period", "20ms").code("return 1;").process(sink.pid()).favour();
    let chain = ecalls.subscribe(&wanted).unwrap();
    let contract = |service_ms| Contract { favour_events: true, ..fixed("sink", service_ms, 400, None) };
    for service_ms in [4, 8] {
        let app = admit(&client, &sink, contract(service_ms)).unwrap();
        eventually("it is favoured", || counts(&client, &app).boosts > 2);
        client.release(app.id).unwrap();
    }
    let plain = admit(&client, &sink, Contract { favour_events: false, ..contract(4) }).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(counts(&client, &plain).boosts, 0, "a server without favour_events is not favoured");
    drop(chain);
    for name in ["qfabric_events_favoured_total", "qfabric_events_not_favoured_total"] {
        assert_eq!(metric(&client, name), 0, "the control thread was not involved: {name}");
    }
}

/// Event-driven players, the frames of each, and the time from frame to frame.
const PLAYERS: u64 = 4;
const FRAMES: u64 = 20;
const FRAME_PERIOD: Nanos = Nanos::from_millis(100);

/// Plays with all players at once; returns the frames that were ready before the next one was due.
fn play(client: &Client, mode: &str) -> u64 {
    let (folder, socket) = (tempfile::tempdir().unwrap(), client.socket().to_str().unwrap());
    let result = |player: u64| folder.path().join(player.to_string());
    let start = |player: u64| {
        let result = result(player);
        let variables = [("SOCKET", socket), ("MODE", mode), ("RESULT", result.to_str().unwrap())];
        role("an_event_driven_player", None, &variables)
    };
    let mut players: Vec<Process> = (0..PLAYERS).map(start).collect();
    assert!(players.iter_mut().all(Process::wait), "a player has failed: {mode}");
    (0..PLAYERS).map(|player| std::fs::read_to_string(result(player)).unwrap().parse::<u64>().unwrap()).sum()
}

#[test]
fn event_driven_players_are_favoured_at_the_display_times_of_their_frames() {
    let _lock = live_lock();
    if !is_here() {
        return;
    }
    let _hogs: Vec<_> = (0..8).map(|_| burner()).collect();
    let deadline = {
        let mut config = quiet();
        config.mechanism.name = MechanismName::Deadline;
        let (_service, client) = service(config);
        play(&client, "reserved")
    };
    let (_service, client) = service(ext());
    let favoured = || metric(&client, "qfabric_events_favoured_total");
    let (plain, reserved) = (play(&client, "plain"), play(&client, "reserved"));
    assert_eq!(favoured(), 0, "these players ask for no favour");
    let events = play(&client, "events");
    eventually("frames have favoured their players", || favoured() > 0);
    let all = PLAYERS * FRAMES;
    eprintln!("frames in time, of {all}: plain {plain}, SCHED_DEADLINE {deadline}, ext {reserved}, events {events}");
}

#[test]
#[ignore = "run by event_driven_players_are_favoured_at_the_display_times_of_their_frames"]
fn an_event_driven_player() {
    let (client, mode) = (connected(given("SOCKET")), given("MODE"));
    let favours = mode == "events";
    if mode != "plain" {
        let contract = Contract {
            fixed: Some(Share::from_ppm(80_000)),
            server_period: FRAME_PERIOD,
            jobs: JobSource::Consumption,
            reclaiming: Reclaiming::Hard,
            favour_events: favours,
            ..Contract::new("player", FRAME_PERIOD)
        };
        let covers = ApplicationScope::Thread(own_thread());
        client.admit(&ApplicationRequest { pid: std::process::id() as i32, covers, contract }).unwrap();
    }
    let (ecalls, name) = (Ecalls::connect(&client).unwrap(), format!("frames.of-{}", std::process::id()));
    let frames = ecalls.register_service(&name, "", "struct frame { long display; };", false).unwrap();
    let held = SubscriptionBuilder::to(&name).hold_until("display").memory_up(MemoryUp::default());
    let mut notified = ecalls.subscribe(&if favours { held.favour() } else { held }).unwrap();
    let used = || clock::process_cpu(std::process::id() as i32).unwrap().get();
    let (mut display, mut in_time) = (clock::now() + FRAME_PERIOD, 0);
    for _ in 0..FRAMES {
        frames.raise_event(-1, &(display.get() as i64).to_le_bytes(), Nanos::ZERO, false).unwrap();
        assert!(notified.next(PATIENCE).unwrap().is_some(), "the frame is announced");
        assert!(clock::now() >= display, "not before its display time");
        let begin = used();
        while used() - begin < 4_000_000 {
            std::hint::spin_loop();
        }
        display = display + FRAME_PERIOD;
        in_time += u64::from(clock::now() < display);
    }
    std::fs::write(given("RESULT"), in_time.to_string()).unwrap();
}

/// A service in a separate process, on `folder`.
fn daemon(folder: &Path) -> (Process, Client) {
    let process = role("a_daemon", None, &[("FOLDER", folder.to_str().unwrap())]);
    let socket = folder.join("qfabric.sock");
    let end = std::time::Instant::now() + Duration::from_secs(120);
    while !Client::connect_to(&socket).is_ok_and(|client| client.status().is_ok()) {
        assert!(std::time::Instant::now() < end, "the daemon does not serve");
        std::thread::sleep(Duration::from_millis(50));
    }
    (process, Client::connect_to(&socket).unwrap())
}

#[test]
#[ignore = "run by other tests: a service until it is stopped"]
fn a_daemon() {
    qfabric_daemon::run(ext().in_directory(given("FOLDER"))).unwrap();
}

#[test]
fn a_killed_daemon_leaves_every_thread_under_the_kernels_own_scheduler() {
    let _lock = live_lock();
    if !is_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (mut process, client) = daemon(folder.path());
    assert_eq!(state(), "enabled");
    let player = burner();
    admit(&client, &player, fixed("player", 10, 100, Some("1/5"))).unwrap();
    process.0.kill().unwrap();
    process.0.wait().unwrap();
    eventually("the kernel has its own scheduler back", || state() == "disabled");
    let share = used(&player);
    assert!(share > 0.5, "the thread is not throttled: {share} of a CPU on an idle machine");
    let (_again, client) = daemon(folder.path());
    assert_eq!(client.status().unwrap().applications.len(), 0, "there was nothing to restore");
}

#[test]
fn an_ejected_scheduler_is_detected_reported_and_replaced() {
    let _lock = live_lock();
    if !is_here() {
        return;
    }
    let (_service, client) = service(ext());
    let (windowed, plain) = (burner(), burner());
    let needs_ext = admit(&client, &windowed, fixed("windowed", 10, 40, Some("1/5"))).unwrap();
    let consumption = Contract {
        jobs: JobSource::Consumption,
        max_bandwidth: Share::from_ppm(300_000),
        ..Contract::new("plain", ms(40))
    };
    let goes_on = admit(&client, &plain, consumption).unwrap();
    // The kernel's emergency key ends every sched_ext scheduler.
    std::fs::write("/proc/sysrq-trigger", "S").unwrap();
    eventually("the ejection is detected", || client.status().unwrap().fallback.is_some());
    let status = client.status().unwrap();
    assert!(status.fallback.unwrap().contains("ext was ended by the kernel"));
    assert_eq!((state().as_str(), status.mechanism.as_str()), ("disabled", "deadline"));
    eventually("the application without a window continues", || {
        client.application(goes_on.id).unwrap().threads.iter().any(|thread| thread.reservation.is_some())
    });
    let suspended = client.application(needs_ext.id).unwrap();
    assert_eq!((suspended.granted, suspended.threads[0].reservation), (Share::ZERO, None));
    let ClientError::Refused(problem) = admit(&client, &burner(), fixed("late", 10, 40, Some("1/5"))).unwrap_err()
    else {
        panic!("not a refusal")
    };
    assert_eq!(problem.code, "unavailable");
    assert!(metric(&client, "qfabric_mechanism_ejections_total") == 1);
}
