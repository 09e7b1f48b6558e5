//! Meters read a tree of files in the form of `/sys`.

use std::path::Path;

use proptest::prelude::*;
use qfabric_types::{Energy, EnergySource, Instant};
use tempfile::TempDir;

use super::*;
use crate::testing::power::PowerTree;

const RAPL: EnergySource = EnergySource::Rapl;

fn tree() -> (TempDir, PowerTree) {
    let folder = tempfile::tempdir().unwrap();
    let tree = PowerTree::new(folder.path());
    (folder, tree)
}

fn after(seconds: u64) -> Instant {
    Instant::new(seconds * 1_000_000_000)
}

/// The only reading of the meters.
fn only(meters: &mut Meters, seconds: u64) -> Reading {
    let mut readings = meters.look(after(seconds));
    assert_eq!(readings.len(), 1, "{readings:?}");
    readings.remove(0)
}

fn code(reading: &Reading) -> Option<String> {
    reading.fault.as_ref().map(|fault| fault.problem().code)
}

#[test]
fn a_host_without_meters_has_none() {
    let (_folder, tree) = tree();
    assert!(Meters::find(tree.root()).is_empty());
    assert!(Meters::find(Path::new("/nowhere")).look(after(1)).is_empty());
    assert_eq!((MeanClock::default().take(tree.root()), traffic(tree.root())), (None, None));
}

#[test]
fn a_counter_that_wraps_loses_nothing() {
    let (_folder, tree) = tree();
    tree.zone("intel-rapl:0", "package-0", 900, Some(1_000));
    tree.set("class/powercap/intel-rapl/enabled", 1);
    let mut meters = Meters::find(tree.root());
    let first = only(&mut meters, 1);
    assert_eq!((first.name.as_str(), first.package, first.step), ("package-0-0", true, None));
    tree.zone("intel-rapl:0", "package-0", 950, Some(1_000));
    assert_eq!(only(&mut meters, 2).step, Some(Energy::new(50e-6, RAPL)));
    tree.zone("intel-rapl:0", "package-0", 150, Some(1_000));
    let wrapped = only(&mut meters, 4);
    assert_eq!((wrapped.step, wrapped.power_w), (Some(Energy::new(200e-6, RAPL)), Some(100e-6)));
    assert_eq!(wrapped.energy, Energy::new(250e-6, RAPL));
}

#[test]
fn a_counter_that_goes_back_without_a_reason_is_a_fault_and_counts_again() {
    for range in [None, Some(400), Some(0)] {
        let (_folder, tree) = tree();
        tree.zone("intel-rapl:0", "package-0", 500, range);
        let mut meters = Meters::find(tree.root());
        only(&mut meters, 1);
        tree.zone("intel-rapl:0", "package-0", 100, range);
        let fault = only(&mut meters, 2);
        assert_eq!((code(&fault).as_deref(), fault.step), (Some("meter_backwards"), None), "range {range:?}");
        tree.zone("intel-rapl:0", "package-0", 130, range);
        assert_eq!(only(&mut meters, 3).energy, Energy::new(30e-6, RAPL));
    }
}

#[test]
fn a_counter_that_a_suspend_has_reset_did_not_wrap() {
    let (_folder, tree) = tree();
    let count = |uj| tree.zone("intel-rapl:0", "package-0", uj, Some(262_143_328_850));
    count(100_000_000_000);
    let mut meters = Meters::find(tree.root());
    only(&mut meters, 1);
    count(5_000_000);
    let fault = only(&mut meters, 6);
    assert_eq!((code(&fault).as_deref(), fault.step), (Some("meter_backwards"), None), "162 kJ in 5 s");
    let text = fault.fault.unwrap().to_string();
    assert!(text.contains("from 100000 to 5 J; its range is 262143 J"), "no fine reading: {text}");
    count(9_000_000);
    assert_eq!(only(&mut meters, 11).energy, Energy::new(4.0, RAPL));
}

#[test]
fn a_file_that_vanishes_or_holds_garbage_is_a_fault_that_names_it() {
    let (_folder, tree) = tree();
    tree.zone("intel-rapl:0", "package-0", 500, None);
    let mut meters = Meters::find(tree.root());
    only(&mut meters, 1);
    let file = "class/powercap/intel-rapl:0/energy_uj";
    for (text, expected) in [("", "meter_garbage"), ("-7", "meter_garbage"), ("1e9", "meter_garbage")] {
        tree.set(file, text);
        let fault = only(&mut meters, 2);
        assert_eq!(code(&fault).as_deref(), Some(expected), "{text:?}");
        assert!(fault.fault.unwrap().to_string().contains("energy_uj"));
    }
    tree.remove(file);
    assert_eq!(code(&only(&mut meters, 3)).as_deref(), Some("meter_unreadable"));
    tree.set(file, 900);
    assert_eq!(only(&mut meters, 4).step, None, "the time of the fault is not counted");
}

#[test]
fn zones_of_two_processors_have_their_own_names_and_parts_are_no_packages() {
    let (_folder, tree) = tree();
    tree.zone("intel-rapl:0", "package-0", 1, None);
    tree.zone("intel-rapl:0:0", "core", 1, None);
    tree.zone("intel-rapl:1", "package-1", 1, None);
    tree.zone("intel-rapl:1:0", "core", 1, None);
    let readings = Meters::find(tree.root()).look(after(1));
    let names: Vec<_> = readings.iter().map(|r| (r.name.as_str(), r.package)).collect();
    assert_eq!(names, [("package-0-0", true), ("core-0-0", false), ("package-1-1", true), ("core-1-0", false)]);
}

#[test]
fn a_power_sensor_is_integrated_and_an_energy_counter_of_the_same_number_counts_once() {
    let (_folder, tree) = tree();
    tree.set("class/hwmon/hwmon3/name", "ina226");
    tree.set("class/hwmon/hwmon3/power1_input", 2_000_000);
    tree.set("class/hwmon/hwmon3/power1_label", "VDD_IN");
    let mut meters = Meters::find(tree.root());
    only(&mut meters, 1);
    tree.set("class/hwmon/hwmon3/power1_input", 4_000_000);
    let reading = only(&mut meters, 3);
    assert_eq!((reading.name.as_str(), reading.power_w), ("ina226-hwmon3-VDD_IN", Some(4.0)));
    assert_eq!(reading.energy, Energy::new(6.0, EnergySource::Ina));
    tree.set("class/hwmon/hwmon3/energy1_input", 77);
    assert_eq!(Meters::find(tree.root()).look(after(1)).len(), 1);
}

#[test]
fn a_meter_that_appears_is_found_again_and_the_others_continue() {
    let (_folder, tree) = tree();
    tree.zone("intel-rapl:0", "package-0", 100, None);
    let mut meters = Meters::find(tree.root());
    meters.look(after(1));
    tree.battery("BAT0", "Discharging", 40_000_000);
    tree.zone("intel-rapl:0", "package-0", 300, None);
    meters.rescan(tree.root());
    let readings = meters.look(after(2));
    let names: Vec<&str> = readings.iter().map(|reading| reading.name.as_str()).collect();
    assert_eq!(names, ["package-0-0", "BAT0"]);
    assert_eq!((readings[0].step, readings[1].step), (Some(Energy::new(200e-6, RAPL)), None));
    tree.remove("class/power_supply/BAT0");
    meters.rescan(tree.root());
    assert_eq!(code(&meters.look(after(3))[1]).as_deref(), Some("meter_unreadable"));
}

#[test]
fn a_battery_counts_only_while_it_discharges() {
    let (_folder, tree) = tree();
    tree.battery("BAT0", "Discharging", 40_000_000);
    let mut meters = Meters::find(tree.root());
    let first = only(&mut meters, 0);
    assert_eq!((first.step, first.power_w), (None, Some(9.0)));
    assert_eq!(first.left, Some(Energy::new(144_000.0, EnergySource::Battery)));
    tree.battery("BAT0", "Discharging", 39_990_000);
    assert_eq!(only(&mut meters, 4).energy, Energy::new(36.0, EnergySource::Battery));
    tree.battery("BAT0", "Charging", 39_995_000);
    only(&mut meters, 8);
    tree.battery("BAT0", "Charging", 45_000_000);
    let charging = only(&mut meters, 12);
    assert_eq!((charging.energy, charging.power_w), (Energy::new(36.0, EnergySource::Battery), Some(0.0)));
    tree.battery("BAT0", "Discharging", 44_000_000);
    assert_eq!(only(&mut meters, 16).step, None, "the first reading after the mains is a new begin");
}

#[test]
fn a_battery_that_jumps_or_vanishes_is_a_fault_and_counts_again() {
    let (_folder, tree) = tree();
    tree.battery("BAT0", "Discharging", 40_000_000);
    let mut meters = Meters::find(tree.root());
    only(&mut meters, 0);
    tree.battery("BAT0", "Discharging", 10_000_000);
    let jump = only(&mut meters, 5);
    assert_eq!(code(&jump).as_deref(), Some("meter_jump"));
    assert!(jump.fault.unwrap().to_string().contains("30000 mWh"));
    tree.remove("class/power_supply/BAT0");
    assert_eq!(code(&only(&mut meters, 10)).as_deref(), Some("meter_unreadable"));
    tree.battery("BAT0", "Discharging", 30_000_000);
    assert_eq!(only(&mut meters, 15).step, None);
    tree.battery("BAT0", "Discharging", 29_990_000);
    assert_eq!(only(&mut meters, 20).energy, Energy::new(36.0, EnergySource::Battery));
}

#[test]
fn a_battery_that_reports_charge_uses_its_nominal_voltage() {
    let (_folder, tree) = tree();
    let charge = |uah: u64, volts_now: u64| {
        let uevent = format!(
            "POWER_SUPPLY_STATUS=Discharging\nPOWER_SUPPLY_CHARGE_NOW={uah}\nPOWER_SUPPLY_CHARGE_FULL=4000000\n\
             POWER_SUPPLY_VOLTAGE_MIN_DESIGN=10000000\nPOWER_SUPPLY_VOLTAGE_NOW={volts_now}\n\
             POWER_SUPPLY_CURRENT_NOW=-500000"
        );
        tree.set("class/power_supply/BAT1/uevent", uevent);
    };
    tree.set("class/power_supply/BAT1/type", "Battery");
    tree.set("class/power_supply/mouse/type", "Battery");
    tree.set("class/power_supply/mouse/scope", "Device");
    charge(3_000_000, 12_000_000);
    let mut meters = Meters::find(tree.root());
    assert_eq!(only(&mut meters, 0).power_w, Some(6.0));
    charge(2_999_000, 11_000_000);
    assert_eq!(only(&mut meters, 10).step, Some(Energy::new(36.0, EnergySource::Battery)));
    tree.set("class/power_supply/BAT1/uevent", "POWER_SUPPLY_STATUS=Discharging");
    assert_eq!(code(&only(&mut meters, 20)).as_deref(), Some("meter_garbage"));
}

#[test]
fn the_clock_is_the_mean_over_all_policies() {
    let (_folder, tree) = tree();
    tree.clock("policy0", 1_000_000, (500_000, 2_000_000));
    tree.clock("policy4", 3_000_000, (500_000, 3_000_000));
    let mut clock = MeanClock::default();
    assert_eq!(clock.take(tree.root()), Some(0.75));
    tree.set("devices/system/cpu/cpufreq/policy4/scaling_cur_freq", "<unknown>");
    assert_eq!(clock.take(tree.root()), Some(0.5));
}

#[test]
fn where_the_kernel_counts_time_at_each_frequency_the_clock_is_its_mean_and_not_a_sample() {
    let (_folder, tree) = tree();
    tree.clock("policy0", 2_000_000, (500_000, 2_000_000));
    let counts = |low: u64, high: u64| {
        let text = format!("500000 {low}\n2000000 {high}");
        tree.set("devices/system/cpu/cpufreq/policy0/stats/time_in_state", text);
    };
    let mut clock = MeanClock::default();
    counts(1_000, 50);
    assert_eq!(clock.take(tree.root()), Some(1.0), "the first reading has no time yet");
    counts(1_300, 150);
    // 300 ticks at 0.5 GHz and 100 at 2 GHz: 0.875 GHz.
    assert_eq!(clock.take(tree.root()), Some(0.4375));
    counts(0, 0);
    assert_eq!(clock.take(tree.root()), Some(1.0), "the counters were reset");
}

#[test]
fn a_clock_takes_the_next_frequency_of_its_driver() {
    let (_folder, tree) = tree();
    tree.clock("policy0", 1_000_000, (800_000, 3_600_000));
    let least = |part| clocks(tree.root())[0].at_least(part);
    assert_eq!([0.1, 0.5, 0.51, 1.0].map(least), [800_000, 1_800_000, 1_900_000, 3_600_000]);
    let listed = "3600000 2400000 1200000 9900000 garbage 800000";
    tree.set("devices/system/cpu/cpufreq/policy0/scaling_available_frequencies", listed);
    assert_eq!([0.1, 0.25, 0.5, 0.9].map(least), [800_000, 1_200_000, 2_400_000, 3_600_000]);
}

#[test]
fn an_impossible_range_of_a_clock_ends_at_its_highest_frequency() {
    let (_folder, tree) = tree();
    tree.clock("policy0", 1, (1, u64::MAX));
    assert_eq!(clocks(tree.root())[0].at_least(1.0), u64::MAX);
}

#[test]
fn traffic_counts_devices_and_no_tunnels() {
    let (_folder, tree) = tree();
    for (interface, bytes) in [("eth0", 100), ("wlan0", 20), ("tun0", 7)] {
        tree.set(&format!("class/net/{interface}/statistics/rx_bytes"), bytes);
        tree.set(&format!("class/net/{interface}/statistics/tx_bytes"), bytes * 2);
    }
    tree.set("class/net/eth0/device/vendor", 1);
    tree.set("class/net/wlan0/device/vendor", 1);
    assert_eq!(traffic(tree.root()), Some(Traffic { received: 120, sent: 240 }));
}

#[test]
fn the_cpu_time_of_this_host_is_read() {
    assert!(busy_time(Path::new("/proc")).unwrap() > qfabric_types::Nanos::ZERO);
    let (_folder, tree) = tree();
    for text in ["", "cpu 1 2 3", "cpu a b c d e f g", "cpu0 1 2 3 4 5 6 7 8"] {
        tree.set("stat", text);
        assert_eq!(busy_time(tree.root()), None, "{text:?}");
    }
}

proptest! {
    #[test]
    fn arbitrary_files_give_readings_or_faults(texts in proptest::collection::vec(".{0,60}", 6)) {
        let (_folder, tree) = tree();
        tree.zone("intel-rapl:0", "package-0", 5, Some(1_000));
        tree.battery("BAT0", "Discharging", 40_000_000);
        let mut meters = Meters::find(tree.root());
        for (second, text) in texts.iter().enumerate() {
            let readings = meters.look(after(second as u64));
            prop_assert!(readings.iter().all(|r| r.energy.cmp_amount(Energy::new(0.0, r.energy.source())).is_ge()));
            tree.set("class/powercap/intel-rapl:0/energy_uj", text);
            tree.set("class/power_supply/BAT0/uevent", format!("POWER_SUPPLY_STATUS=Discharging\nPOWER_SUPPLY_ENERGY_NOW={text}"));
        }
    }

    #[test]
    fn the_sum_of_all_steps_is_the_energy(steps in proptest::collection::vec(0..1_000u64, 1..20)) {
        let (_folder, tree) = tree();
        tree.zone("intel-rapl:0", "package-0", 0, Some(1_000));
        let mut meters = Meters::find(tree.root());
        meters.look(after(0));
        let mut counter = 0;
        for (second, step) in steps.iter().enumerate() {
            counter = (counter + step) % 1_000;
            tree.set("class/powercap/intel-rapl:0/energy_uj", counter);
            meters.look(after(second as u64 + 1));
        }
        let total = steps.iter().sum::<u64>() as f64 / 1e6;
        let energy = only(&mut meters, 99).energy;
        prop_assert!((energy.ratio(Energy::new(1.0, RAPL)) - total).abs() < 1e-12, "{energy}, {total} J");
    }
}

#[test]
fn the_frequency_within_limits_is_one_that_the_driver_lists() {
    let (_folder, tree) = tree();
    tree.clock("policy0", 800_000, (800_000, 3_000_000));
    let within = |khz, limits| clocks(tree.root())[0].within(khz, limits);
    assert_eq!(within(1_300_000, (800_000, 3_000_000)), 1_300_000);
    assert_eq!((within(1_300_000, (800_000, 1_000_000)), within(800_000, (900_000, 1_000_000))), (1_000_000, 900_000));
    tree.set("devices/system/cpu/cpufreq/policy0/scaling_available_frequencies", "3000000 1600000 800000");
    let within = |khz, limits| clocks(tree.root())[0].within(khz, limits);
    assert_eq!((within(1_000_000, (0, 3_000_000)), within(3_000_000, (0, 2_000_000))), (1_600_000, 1_600_000));
    assert_eq!(within(1_600_000, (900_000, 1_000_000)), 1_600_000, "the driver has none there, and the kernel decides");
}

#[test]
fn a_governor_that_takes_no_frequency_has_no_such_knob() {
    let (_folder, tree) = tree();
    tree.clock("policy0", 800_000, (800_000, 3_000_000));
    let knob = clocks(tree.root())[0].knob(KnobName::SetFrequency);
    assert!(knob.value().is_none() && knob.is_absent());
    tree.set("devices/system/cpu/cpufreq/policy0/scaling_setspeed", "<unsupported>");
    assert!(knob.value().is_none() && knob.is_absent());
    tree.set("devices/system/cpu/cpufreq/policy0/scaling_setspeed", 800_000);
    assert!(knob.value().as_deref() == Some("800000") && !knob.is_absent());
}
