//! Energy through the real API: who may cause a reading of the meters, and when the clock follows a contract.

mod common;

use common::*;
use qfabric_client::{Client, Session};
use qfabric_daemon::{Config, EnergyConfig};
use qfabric_linux::testing::live_lock;
use qfabric_linux::testing::power::PowerTree;
use qfabric_types::api::{Application, ApplicationRequest, ApplicationScope};
use qfabric_types::{Class, Contract, Foresight, Nanos, Share};

const LEAST: &str = "devices/system/cpu/cpufreq/policy0/scaling_min_freq";
const MOST: &str = "devices/system/cpu/cpufreq/policy0/scaling_max_freq";

/// A host with the files of `tree`, whose own thread looks at them once in ten minutes.
fn with_meters(tree: &PowerTree) -> Config {
    let (sys, root) = (tree.root().to_owned(), tree.root().to_owned());
    let energy =
        EnergyConfig { sys, root, clocks: true, period: Nanos::from_millis(600_000), ..EnergyConfig::default() };
    Config { energy, ..quiet() }
}

/// A contract that keeps `ppm` of a CPU, whatever the program does.
fn fixed(client: &Client, pid: i32, ppm: u32) -> Application {
    let share = Share::from_ppm(ppm);
    let kept = Contract { class: Class::B, guaranteed: Some(share), fixed: Some(share), ..contract("kept", 40) };
    client.admit(&ApplicationRequest { pid, covers: ApplicationScope::Program, contract: kept }).unwrap()
}

#[test]
fn the_clock_follows_before_an_admission_a_change_and_a_leave_are_answered() {
    let _lock = live_lock();
    let folder = tempfile::tempdir().unwrap();
    let tree = PowerTree::new(folder.path());
    tree.clock("policy0", 3_000_000, (800_000, 3_000_000));
    let (_service, client) = service(with_meters(&tree));
    let programs: Vec<_> = (0..2).map(|_| Process::shell("exec sleep 60")).collect();
    let mhz = || tree.get(MOST).parse::<u64>().unwrap() / 1_000;
    let saver = fixed(&client, programs[0].pid(), 100_000);
    assert!(client.save_energy(saver.id).unwrap().limited);
    let alone = mhz();
    assert!(alone < 1_500, "{alone} MHz");
    let other = fixed(&client, programs[1].pid(), 500_000);
    let both = mhz();
    // 0.5 CPU / 0.95 of 3 GHz are 1.58 GHz.
    assert!(both >= 1_600, "{both} MHz after the admission");
    let share = Some(Share::from_ppm(300_000));
    client.change(other.id, &Contract { guaranteed: share, fixed: share, ..other.contract }).unwrap();
    assert!((1_000..both).contains(&mhz()), "{} MHz after the change", mhz());
    client.release(other.id).unwrap();
    assert_eq!(mhz(), alone, "after the leave");
    client.release(saver.id).unwrap();
    assert_eq!(mhz(), 3_000);
}

#[test]
fn a_checkpoint_within_a_job_raises_the_clock_at_once_and_the_end_puts_it_back() {
    let _lock = live_lock();
    let folder = tempfile::tempdir().unwrap();
    let tree = PowerTree::new(folder.path());
    tree.clock("policy0", 3_000_000, (800_000, 3_000_000));
    let (_service, client) = service(with_meters(&tree));
    let share = Some(Share::from_ppm(200_000));
    let slow = Contract { class: Class::B, guaranteed: share, fixed: share, ..contract("slow", 4_000) };
    let slow = Contract { server_period: Nanos::from_millis(40), ..slow };
    let mut session = Session::start(&client, slow).unwrap();
    session.begin(Foresight::Nothing);
    assert!(!session.checkpoint(0.5, 10), "it does not save energy");
    assert!(session.save_energy().unwrap().unwrap().limited);
    // Files that are being written are empty.
    let range = || (tree.get(LEAST).parse::<u64>().ok(), tree.get(MOST).parse::<u64>().ok());
    let before = range();
    assert!(before.1 < Some(3_000_000), "{before:?}");
    // Again and again, because the clock falls at the deadline.
    eventually("it is higher", || session.checkpoint(0.5, 10) && range().1 > before.1 && range().0 == range().1);
    session.end().unwrap();
    assert_eq!(range(), (Some(800_000), Some(3_000_000)));
}

/// What is missing on a host with these files, if wireless cards may sleep.
fn missing_with_radios(tree: &PowerTree) -> String {
    let mut config = with_meters(tree);
    config.energy.radios = true;
    let (_service, client) = service(config);
    let program = Process::shell("exec sleep 60");
    let saver = fixed(&client, program.pid(), 100_000);
    client.save_energy(saver.id).unwrap().missing.join("\n")
}

#[test]
fn why_no_card_sleeps_is_said() {
    let _lock = live_lock();
    let folder = tempfile::tempdir().unwrap();
    let tree = PowerTree::new(folder.path());
    tree.clock("policy0", 3_000_000, (800_000, 3_000_000));
    assert!(missing_with_radios(&tree).contains("no wireless card can sleep: this host has none"));
    tree.set("class/net/wlan7/phy80211/index", 0);
    // No interface has this number.
    tree.set("class/net/wlan7/ifindex", i32::MAX);
    let missing = missing_with_radios(&tree);
    assert!(missing.contains("power save of wlan7: "), "{missing}");
    tree.set("proc/77/comm", "auto-cpufreq");
    let missing = missing_with_radios(&tree);
    assert!(missing.contains("wireless cards stay as they are: auto-cpufreq manages"), "{missing}");
}

#[test]
fn no_request_of_a_user_and_no_scrape_reads_the_meters() {
    let _lock = live_lock();
    if !rustix::process::geteuid().is_root() {
        return qfabric_linux::testing::skip("only root may become another user");
    }
    let folder = tempfile::tempdir().unwrap();
    let tree = PowerTree::new(folder.path());
    tree.zone("intel-rapl:0", "package-0", 0, Some(1 << 40));
    let (service, client) = service(with_meters(&tree));
    tree.zone("intel-rapl:0", "package-0", 7_654_321, Some(1 << 40));
    let socket = service.socket().to_str().unwrap();
    let mut user = role("a_user_reads_energy", Some(NOBODY), &[("SOCKET", socket)]);
    assert!(user.wait(), "see the output above");
    let (status, metrics) = call(service.socket(), "GET", "/metrics", "");
    let joules = "qfabric_energy_device_joules_total{device=\"package-0-0\",source=\"rapl\"}";
    let line = metrics.lines().find(|line| line.starts_with(joules)).unwrap();
    assert!(status == 200 && line.ends_with(" 0.0"), "{line}");
    let (first, second) = (client.energy().unwrap(), client.energy().unwrap());
    assert_eq!((first.looks, second.looks), (2, 3), "an administrator reads at each request");
    assert_eq!(qfabric_types::Energy::new(7.654_321, qfabric_types::EnergySource::Rapl), first.devices[0].energy);
}

#[test]
#[ignore = "run as another user by no_request_of_a_user_and_no_scrape_reads_the_meters"]
fn a_user_reads_energy() {
    let client = connected(given("SOCKET"));
    for _ in 0..20 {
        let status = client.energy().unwrap();
        assert_eq!((status.looks, status.devices[0].name.as_str()), (1, "package-0-0"));
        assert_eq!(qfabric_types::Energy::new(0.0, qfabric_types::EnergySource::Rapl), status.devices[0].energy);
    }
}
