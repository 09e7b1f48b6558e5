//! Applications that save energy, through the real API, on the kernel's own drivers for the firmware of
//! `tests/vm/acpi/energy.asl` and for wireless cards. Only in the test machine: the tests set the clocks of the CPUs.

mod common;

use std::path::Path;

use common::*;
use qfabric_client::Client;
use qfabric_daemon::{Config, EnergyConfig};
use qfabric_linux::power::{Radio, SYS, radios};
use qfabric_linux::testing::{live_lock, skip};
use qfabric_types::EnergySource;
use qfabric_types::api::{Application, ApplicationRequest, ApplicationScope};
use qfabric_types::{Class, Contract, Share};

const CPUFREQ: &str = "/sys/devices/system/cpu/cpufreq/policy0";

fn text(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// The lock of the live tests and the wireless card; `None` outside of the machine with this firmware.
fn machine() -> Option<(std::fs::File, Radio)> {
    if text("/sys/class/power_supply/BAT0/model_name") != "scratch" {
        skip("these tests set clocks and cards of the test machine: make vm-test");
        return None;
    }
    Some((live_lock(), radios(Path::new(SYS)).into_iter().next().expect("mac80211_hwsim is loaded")))
}

fn all_allowed() -> Config {
    Config { energy: EnergyConfig { clocks: true, radios: true, ..EnergyConfig::default() }, ..quiet() }
}

/// A program that keeps 0.1 of a CPU and saves energy. 0.1 / 0.95 of 206 MHz are 22 MHz; the lowest clock is 59 MHz.
fn saver(client: &Client) -> (Process, Application) {
    let program = Process::shell("exec sleep 60");
    let share = Some(Share::from_ppm(100_000));
    let contract = Contract { class: Class::B, guaranteed: share, fixed: share, ..contract("saver", 40) };
    let request = ApplicationRequest { pid: program.pid(), covers: ApplicationScope::Program, contract };
    let app = client.admit(&request).unwrap();
    let saving = client.save_energy(app.id).unwrap();
    assert!(saving.limited && saving.missing.is_empty(), "{saving:?}");
    (program, app)
}

/// Limit of the clocks in kHz, and whether the card may sleep.
fn knobs(radio: &Radio) -> (String, bool) {
    (text(format!("{CPUFREQ}/scaling_max_freq")), radio.power_save().unwrap())
}

#[test]
fn clock_and_card_save_energy_while_an_application_does_and_a_battery_is_a_meter() {
    let Some((_live, radio)) = machine() else { return };
    let before = knobs(&radio);
    assert_eq!(before.0, "206000");
    let (_service, client) = service(all_allowed());
    let (_program, app) = saver(&client);
    assert_eq!(knobs(&radio), ("59000".to_owned(), true));
    let devices = client.energy().unwrap().devices;
    let battery = devices.iter().find(|device| device.name == "BAT0").expect("the battery is a meter");
    assert_eq!(battery.energy.source(), EnergySource::Battery);
    client.release(app.id).unwrap();
    assert_eq!(knobs(&radio), before);
}

#[test]
fn under_the_governor_userspace_the_clock_itself_is_set_and_returns() {
    let Some((_live, _radio)) = machine() else { return };
    let file = |name: &str| format!("{CPUFREQ}/{name}");
    let governor = text(file("scaling_governor"));
    std::fs::write(file("scaling_governor"), "userspace").unwrap();
    std::fs::write(file("scaling_setspeed"), "162000").unwrap();
    let clock = || (text(file("scaling_setspeed")), text(file("scaling_max_freq")));
    let (_service, client) = service(all_allowed());
    let (_program, app) = saver(&client);
    assert_eq!(clock(), ("59000".to_owned(), "206000".to_owned()));
    client.release(app.id).unwrap();
    assert_eq!(clock(), ("162000".to_owned(), "206000".to_owned()));
    std::fs::write(file("scaling_governor"), governor).unwrap();
}

#[test]
fn the_next_start_puts_back_what_a_killed_daemon_turned() {
    let Some((_live, radio)) = machine() else { return };
    let before = knobs(&radio);
    let folder = tempfile::tempdir().unwrap();
    let (mut process, client) = daemon(folder.path());
    let (_program, _app) = saver(&client);
    process.0.kill().unwrap();
    process.wait();
    assert_eq!(knobs(&radio), ("59000".to_owned(), true), "nobody put it back yet");
    let (_process, _client) = daemon(folder.path());
    assert_eq!(knobs(&radio), before);
}

#[test]
#[ignore = "run as another process by the_next_start_puts_back_what_a_killed_daemon_turned"]
fn a_daemon() {
    qfabric_daemon::run(all_allowed().in_directory(given("FOLDER"))).unwrap();
}
