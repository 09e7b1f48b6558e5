//! Meters and knobs of energy on the kernel's own drivers: `acpi-cpufreq` and `battery` on the firmware of
//! `tests/vm/acpi/energy.asl`, `sbs-battery` on an emulated bus, `mac80211_hwsim` as wireless cards. Only in the test
//! machine: the tests set the clocks of the CPUs.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use qfabric_linux::ext::{Ext, ExtConfig, SchedulerClock};
use qfabric_linux::journal::Journal;
use qfabric_linux::power::{self, Clock, KnobName, MeanClock, Meters, Radio, Reading, SYS};
use qfabric_linux::testing::{Worker, live_lock, skip};
use qfabric_linux::{Deadline, Mechanism};
use qfabric_types::{Energy, EnergySource, Instant, Nanos, Reclaiming, Reservation, Setting};

/// I/O ports of the firmware: the setting of the clock, and the part of the battery that is left, in percent.
const CLOCK_PORT: u64 = 0x2ff;
const BATTERY_PORT: u64 = 0x3ef;
/// Clocks of the firmware in kHz, and what the driver writes to the port for each.
const LEVELS: [(u64, u8); 5] = [(59_000, 2), (103_000, 4), (133_000, 6), (162_000, 8), (206_000, 10)];
/// Bound of every wait, so that a test fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(60);
const CPUFREQ: &str = "/sys/devices/system/cpu/cpufreq/policy0";
/// Address of the battery on the bus, as the specification of smart batteries sets it.
const SMART_BATTERY: &str = "0x0b";

/// The lock of the live tests; `None` outside of the machine with this firmware.
fn machine() -> Option<fs::File> {
    let model = fs::read_to_string("/sys/class/power_supply/BAT0/model_name").unwrap_or_default();
    if model.trim() != "scratch" {
        skip("these tests set clocks and batteries of the test machine: make vm-test");
        return None;
    }
    Some(live_lock())
}

fn text(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).trim().to_owned()
}

fn set(path: impl AsRef<Path>, value: impl ToString) {
    let path = path.as_ref();
    fs::write(path, value.to_string()).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

fn port(at: u64) -> u8 {
    let mut byte = [0];
    fs::File::open("/dev/port").unwrap().read_exact_at(&mut byte, at).unwrap();
    byte[0]
}

fn set_port(at: u64, byte: u8) {
    fs::File::options().write(true).open("/dev/port").unwrap().write_all_at(&[byte], at).unwrap();
}

/// Waits for what the kernel does in a work queue.
fn eventually(what: &str, condition: impl Fn() -> bool) {
    let until = std::time::Instant::now() + PATIENCE;
    while !condition() {
        assert!(std::time::Instant::now() < until, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until the driver has written this to the port of the clocks.
fn has_level(level: u8) {
    eventually(&format!("level {level}"), || port(CLOCK_PORT) == level);
}

/// The battery's reading at this second.
fn look(meters: &mut Meters, name: &str, second: u64) -> Reading {
    let readings = meters.look(Instant::new(second * 1_000_000_000));
    readings.into_iter().find(|reading| reading.name == name).unwrap_or_else(|| panic!("there is no meter {name}"))
}

fn joules(amount: f64) -> Energy {
    Energy::new(amount, EnergySource::Battery)
}

/// The code of a reading's fault.
fn fault(reading: &Reading) -> Option<String> {
    reading.fault.as_ref().map(|fault| fault.problem().code)
}

#[test]
fn a_battery_of_the_firmware_counts_what_the_host_took_and_no_jump() {
    let Some(_live) = machine() else { return };
    let mut meters = Meters::find(Path::new(SYS));
    let mut at = |second, percent| {
        set_port(BATTERY_PORT, percent);
        look(&mut meters, "BAT0", second)
    };
    let first = at(0, 90);
    assert_eq!((first.step, first.power_w, first.left), (None, Some(1.32), Some(joules(32_400.0))));
    // 1 % of 10 Wh.
    assert_eq!(at(300, 89).step, Some(joules(360.0)));
    let jump = at(305, 10);
    assert_eq!((fault(&jump).as_deref(), jump.step), (Some("meter_jump"), None));
    assert_eq!(at(310, 10).step, Some(joules(0.0)), "it counts again from there");
    let last = at(610, 9);
    assert_eq!((last.step, last.energy), (Some(joules(360.0)), joules(720.0)));
}

/// A battery on the bus that `i2c-stub` emulates: registers are words of the specification.
struct SmartBattery {
    bus: PathBuf,
    number: String,
}

impl SmartBattery {
    fn find() -> SmartBattery {
        let devices = fs::read_dir("/sys/bus/i2c/devices").unwrap().flatten();
        let stub = devices.into_iter().find(|bus| text(bus.path().join("name")).contains("stub"));
        let bus = stub.expect("i2c-stub is loaded").path();
        let number = bus.file_name().unwrap().to_str().unwrap().trim_start_matches("i2c-").to_owned();
        SmartBattery { bus, number }
    }

    fn set(&self, register: u8, word: u16) {
        let words = ["-f", "-y", &self.number, SMART_BATTERY, &register.to_string(), &word.to_string(), "w"];
        assert!(Command::new("i2cset").args(words).status().unwrap().success(), "{words:?}");
    }

    /// Milliampere-hours that are left.
    fn set_left(&self, mah: u16) {
        self.set(0x0f, mah);
    }

    /// 2000 mAh, 10 V, discharging at 500 mA.
    fn plug_in(&self) {
        let registers = [(0x09, 10_000), (0x0a, 0xfe0c), (0x10, 2_000), (0x16, 0xc0), (0x18, 2_000), (0x19, 10_000)];
        registers.into_iter().for_each(|(register, word)| self.set(register, word));
        set(self.bus.join("new_device"), format!("sbs-battery {SMART_BATTERY}"));
    }

    fn unplug(&self) {
        set(self.bus.join("delete_device"), SMART_BATTERY);
    }
}

#[test]
fn a_battery_that_is_unplugged_counts_nothing_and_counts_again_when_it_is_back() {
    let Some(_live) = machine() else { return };
    let battery = SmartBattery::find();
    battery.set_left(1_500);
    let mut meters = Meters::find(Path::new(SYS));
    battery.plug_in();
    meters.rescan(Path::new(SYS));
    let name = format!("sbs-{}-000b", battery.number);
    let first = look(&mut meters, &name, 0);
    assert_eq!((first.fault, first.power_w, first.left), (None, Some(5.0), Some(joules(54_000.0))));
    battery.set_left(1_490);
    // 10 mAh at 10 V.
    assert_eq!(look(&mut meters, &name, 300).step, Some(joules(360.0)));
    battery.unplug();
    let gone = look(&mut meters, &name, 400);
    assert_eq!((fault(&gone).as_deref(), gone.energy), (Some("meter_unreadable"), joules(360.0)));
    battery.set_left(1_200);
    battery.plug_in();
    assert_eq!(look(&mut meters, &name, 500).step, None, "the fall while it was away belongs to another host");
    battery.set_left(1_190);
    assert_eq!(look(&mut meters, &name, 800).energy, joules(720.0));
    battery.unplug();
}

/// The clock of both CPUs. With the governor `performance` it is always the highest that the limit allows.
fn clock(journal: &mut Journal) -> Clock {
    let clock = power::clocks(Path::new(SYS)).remove(0);
    assert_eq!((clock.range, text(format!("{CPUFREQ}/scaling_driver")).as_str()), ((59_000, 206_000), "acpi-cpufreq"));
    journal.turn(&clock.knob(KnobName::Governor), "performance").unwrap();
    has_level(10);
    clock
}

fn run_folder() -> (tempfile::TempDir, Journal) {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join(power::FOLDER)).unwrap();
    let journal = Journal::open(&folder.path().join(power::FOLDER)).unwrap();
    (folder, journal)
}

#[test]
fn each_limit_reaches_the_hardware_as_the_lowest_clock_that_suffices() {
    let Some(_live) = machine() else { return };
    let (_run, mut journal) = run_folder();
    let clock = clock(&mut journal);
    for (khz, level) in LEVELS {
        // Slightly less than this clock needs this clock.
        let needed = clock.at_least((khz as f64 - 500.0) / 206_000.0);
        assert_eq!(needed, khz);
        journal.turn(&clock.knob(KnobName::MaxFrequency), &khz.to_string()).unwrap();
        has_level(level);
        eventually("the clock is told", || text(format!("{CPUFREQ}/scaling_cur_freq")) == khz.to_string());
    }
    assert_eq!(journal.turn_back(), Vec::<String>::new());
}

#[test]
fn the_governor_userspace_takes_each_frequency_and_other_governors_have_no_such_knob() {
    let Some(_live) = machine() else { return };
    let (_run, mut journal) = run_folder();
    let clock = clock(&mut journal);
    let speed = clock.knob(KnobName::SetFrequency);
    assert_eq!(speed.value(), None);
    journal.turn(&clock.knob(KnobName::Governor), "userspace").unwrap();
    for (khz, level) in LEVELS {
        journal.turn(&speed, &khz.to_string()).unwrap();
        has_level(level);
    }
    // The governor is back first; under the former one there is no frequency to put back.
    assert_eq!(journal.turn_back(), Vec::<String>::new());
    assert!(journal.has_energy_back() && speed.value().is_none());
}

#[test]
fn a_killed_service_leaves_a_journal_that_restores_limit_and_governor() {
    let Some(_live) = machine() else { return };
    let governor = text(format!("{CPUFREQ}/scaling_governor"));
    assert_ne!(governor, "performance");
    let (run, mut journal) = run_folder();
    let clock = clock(&mut journal);
    journal.turn(&clock.knob(KnobName::MaxFrequency), "59000").unwrap();
    has_level(2);
    drop(journal);
    let restored = power::restore(run.path()).unwrap();
    assert_eq!((restored.settings, restored.failed), (2, Vec::new()));
    assert_eq!(text(format!("{CPUFREQ}/scaling_max_freq")), "206000");
    assert_eq!(text(format!("{CPUFREQ}/scaling_governor")), governor);
}

#[test]
fn the_mean_clock_is_that_of_the_time_at_each_frequency() {
    let Some(_live) = machine() else { return };
    let (_run, mut journal) = run_folder();
    let clock = clock(&mut journal);
    let mut mean = MeanClock::default();
    journal.turn(&clock.knob(KnobName::MaxFrequency), "103000").unwrap();
    eventually("the clock falls", || text(format!("{CPUFREQ}/scaling_cur_freq")) == "103000");
    mean.take(Path::new(SYS));
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(mean.take(Path::new(SYS)), Some(0.5));
    journal.turn_back();
}

/// The mean clock of 5 s, as a part of the highest one, while a thread computes for 40 ms of every 100 ms under a
/// reservation with this budget.
fn mean_clock(budget: Nanos) -> f64 {
    let period = Nanos::from_millis(100);
    let (worker, mut mechanism) = (Worker::periodic(period, Nanos::from_millis(40)), Deadline::new());
    let reservation = Some(Reservation::new(budget, period).unwrap());
    let reserved =
        Setting { thread: worker.thread, reservation, reclaiming: Reclaiming::Hard, terms: Default::default() };
    mechanism.apply(&reserved).unwrap();
    let mut mean = MeanClock::default();
    mean.take(Path::new(SYS));
    std::thread::sleep(Duration::from_secs(5));
    let seen = mean.take(Path::new(SYS)).expect("this kernel counts the time at each frequency");
    mechanism.apply(&Setting { reservation: None, ..reserved }).unwrap();
    assert_eq!(mechanism.settle(), []);
    seen
}

/// GRUB-PA: while a reserved thread is active, schedutil asks for the bandwidth of its reservation. A budget that feedback
/// has tuned to the work therefore lets the clock fall without any knob; a static one for the worst case keeps it up.
#[test]
fn a_budget_tuned_to_the_work_gives_a_lower_mean_clock_than_a_static_one() {
    let Some(_live) = machine() else { return };
    let (_run, mut journal) = run_folder();
    let clock = power::clocks(Path::new(SYS)).remove(0);
    journal.turn(&clock.knob(KnobName::Governor), "schedutil").unwrap();
    let [tuned, fixed] = [48, 90].map(|budget| mean_clock(Nanos::from_millis(budget)));
    println!("mean clock: {tuned:.3} with a budget of 48 ms, {fixed:.3} with 90 ms");
    assert!(fixed > 1.15 * tuned, "{tuned} and {fixed} of the highest clock");
    assert_eq!(journal.turn_back(), Vec::<String>::new());
}

#[test]
fn a_limit_by_heat_is_gone_after_the_heat_although_a_turn_saw_it() {
    let Some(_live) = machine() else { return };
    let devices = fs::read_dir("/sys/class/thermal").unwrap().flatten().map(|entry| entry.path());
    let is_processor =
        |path: &PathBuf| fs::read_to_string(path.join("type")).is_ok_and(|kind| kind.trim() == "Processor");
    let cooling: Vec<PathBuf> = devices.filter(is_processor).collect();
    assert!(!cooling.is_empty(), "the kernel cools no processor");
    let (_run, mut journal) = run_folder();
    let clock = clock(&mut journal);
    let most = || text(format!("{CPUFREQ}/scaling_max_freq"));
    cooling.iter().for_each(|device| set(device.join("cur_state"), 1));
    eventually("the limit by heat", || most() != "206000");
    let hot = most();
    journal.turn(&clock.knob(KnobName::MaxFrequency), "59000").unwrap();
    assert_eq!(journal.turn_back(), Vec::<String>::new());
    eventually("it is still hot", || most() == hot);
    cooling.iter().for_each(|device| set(device.join("cur_state"), 0));
    eventually("the heat is over", || most() == "206000");
}

#[test]
fn the_scheduler_asks_for_the_clock_and_no_longer_after_its_end() {
    let Some(_live) = machine() else { return };
    if let Err(error) = Ext::supported() {
        return skip(error);
    }
    let (_run, mut journal) = run_folder();
    let clock = power::clocks(Path::new(SYS)).remove(0);
    journal.turn(&clock.knob(KnobName::Governor), "schedutil").unwrap();
    let ext = Ext::load(&ExtConfig::default()).unwrap();
    assert!(SchedulerClock::governs(Path::new(SYS), &clock));
    let asks = SchedulerClock::map(&ext.clock().try_clone_to_owned().unwrap()).unwrap();
    let busy = Worker::burning();
    for (part, khz) in [(0.1, "59000"), (1.0, "206000"), (0.1, "59000")] {
        asks.set(part);
        eventually("the clock follows", || text(format!("{CPUFREQ}/scaling_cur_freq")) == khz);
    }
    assert_eq!(ext.exit_reason(), None);
    drop(ext);
    assert!(!SchedulerClock::governs(Path::new(SYS), &clock));
    drop(busy);
    assert_eq!(journal.turn_back(), Vec::<String>::new());
}

/// The first of the two cards of `mac80211_hwsim`, with this power save.
fn radio(on: bool) -> Radio {
    let radio = power::radios(Path::new(SYS)).into_iter().find(|radio| radio.name == "wlan0");
    let (radio, (_run, mut journal)) = (radio.expect("mac80211_hwsim is loaded"), run_folder());
    journal.power_save(&radio, on).unwrap();
    assert_eq!(radio.power_save().unwrap(), on);
    radio
}

#[test]
fn power_save_of_a_card_is_switched_and_put_back() {
    let Some(_live) = machine() else { return };
    for was_on in [false, true] {
        let (radio, (_run, mut journal)) = (radio(was_on), run_folder());
        assert!(journal.power_save(&radio, !was_on).unwrap());
        assert!(!journal.power_save(&radio, !was_on).unwrap(), "it has the state already");
        assert_eq!(radio.power_save().unwrap(), !was_on);
        assert_eq!(journal.power_save_back(), Vec::<String>::new());
        assert_eq!(radio.power_save().unwrap(), was_on);
    }
}

#[test]
fn a_killed_service_leaves_a_journal_that_restores_power_save() {
    let Some(_live) = machine() else { return };
    let (radio, (run, mut journal)) = (radio(false), run_folder());
    journal.power_save(&radio, true).unwrap();
    drop(journal);
    let next = Journal::open(&run.path().join(power::FOLDER)).unwrap();
    assert!(radio.power_save().unwrap(), "a start without restore changes nothing");
    drop(next);
    let restored = power::restore(run.path()).unwrap();
    assert_eq!((restored.settings, restored.failed), (1, Vec::new()));
    assert!(!radio.power_save().unwrap());
}

#[test]
fn a_card_that_cannot_sleep_is_refused_with_its_name() {
    let Some(_live) = machine() else { return };
    let (radio, (_run, mut journal)) = (radio(false), run_folder());
    let kind =
        |kind| assert!(Command::new("iw").args(["dev", "wlan0", "set", "type", kind]).status().unwrap().success());
    kind("__ap");
    let refused = journal.power_save(&radio, true).unwrap_err().to_string();
    kind("managed");
    assert!(refused.starts_with("power save of wlan0: "), "{refused}");
    assert!(!radio.power_save().unwrap());
    assert_eq!(journal.power_save_back(), Vec::<String>::new());
}
