//! Bursts of the room `energy` on a wireless card whose power save is on: the card wakes up as often, and is awake as
//! long, as in the simulator. `mac80211_hwsim` is both cards and the air, `hostapd` the access point. Only in the test
//! machine: the test sets its cards and addresses.
//!
//! A station says in each frame whether it dozes afterwards (the bit «power management»); the access point knows no
//! more of it, and neither does this test. Frames take no time on this air, so the simulated ones take nearly none.

mod net_bursts;

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use net_bursts::{BYTES, MS, TIME, send, sources};
use qfabric_energy::Model;
use qfabric_linux::clock;
use qfabric_linux::journal::Journal;
use qfabric_linux::net::TimedSocket;
use qfabric_linux::net::testing::Frames;
use qfabric_linux::power::{self, SYS};
use qfabric_linux::testing::{live_lock, skip};
use qfabric_sim::energy::{CardRule, Techniques, run};
use qfabric_types::{Instant, Nanos};

/// The kernel's own timeout: a card dozes this long after the last packet.
const TIMEOUT: u64 = 100 * MS;
/// Bound of every wait, so that the test fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(60);
const STATION: &str = "wlan0";
const ACCESS_POINT: &str = "wlan1";
/// The network that the access point opens: no key, a beacon every 102.4 ms.
const NETWORK: &str =
    "interface=wlan1\ndriver=nl80211\nssid=qfabric\nhw_mode=g\nchannel=1\nbeacon_int=100\ndtim_period=1\n";

/// The lock of the live tests; `None` outside of the machine with two emulated cards.
fn machine() -> Option<fs::File> {
    if std::env::var_os("QFABRIC_VM").is_none() || !Path::new("/sys/module/mac80211_hwsim").exists() {
        skip("this test sets wireless cards of the test machine: make vm-test");
        return None;
    }
    Some(live_lock())
}

fn call(words: &[&str]) {
    let (program, rest) = words.split_first().unwrap();
    let status = Command::new(program).args(rest).status().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(status.success(), "{words:?}: {status}");
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let until = std::time::Instant::now() + PATIENCE;
    while !condition() {
        assert!(std::time::Instant::now() < until, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Address of an interface as text, such as `02:00:00:00:00:00`.
fn address(interface: &str) -> String {
    fs::read_to_string(format!("/sys/class/net/{interface}/address")).unwrap().trim().to_owned()
}

/// The access point on the second card. Ends when dropped.
struct AccessPoint {
    process: Child,
    _folder: tempfile::TempDir,
}

impl AccessPoint {
    fn start() -> AccessPoint {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hostapd.conf");
        fs::write(&file, NETWORK).unwrap();
        let process = Command::new("hostapd").arg(&file).spawn().unwrap_or_else(|error| panic!("hostapd: {error}"));
        AccessPoint { process, _folder: folder }
    }
}

impl Drop for AccessPoint {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Lets the first card join the access point, with an address, and with `fq` as its queueing discipline. The address
/// 10.77.0.1 stands for the access point, which discards what it gets.
fn join() {
    // Router solicitations of IPv6 would wake the card up.
    for interfaces in ["all", "default"] {
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{interfaces}/disable_ipv6"), "1");
    }
    call(&["ip", "link", "set", STATION, "up"]);
    let iw = |words: &[&str]| Command::new("iw").args(["dev", STATION]).args(words).output().unwrap();
    eventually("the card joins the access point", || {
        let is_joined = String::from_utf8_lossy(&iw(&["link"]).stdout).contains("Connected to");
        if !is_joined {
            // Is refused while the last attempt runs. An attempt before the first beacon fails.
            iw(&["connect", "qfabric", "2412"]);
        }
        is_joined
    });
    call(&["ip", "address", "replace", "10.77.0.2/24", "dev", STATION]);
    call(&["ip", "neighbour", "replace", "10.77.0.1", "lladdr", &address(ACCESS_POINT), "dev", STATION]);
    call(&["tc", "qdisc", "replace", "dev", STATION, "root", "fq"]);
}

/// What a frame of the air, behind its radiotap header, says of this station: true if it dozes afterwards. `None` for
/// other frames than data of the station.
fn dozes(frame: &[u8], station: &[u8]) -> Option<bool> {
    let length = u16::from_le_bytes(*frame.get(2..)?.first_chunk()?);
    let header = frame.get(usize::from(length)..)?;
    let [kind, flags] = *header.first_chunk::<2>()?;
    let is_data = kind & 0x0c == 0x08;
    (is_data && header.get(10..16)? == station).then_some(flags & 0x10 != 0)
}

#[test]
fn the_bit_power_management_is_read_from_data_of_the_station_only() {
    let frame = |kind: u8, flags: u8, sender: u8| {
        let mut frame = vec![0, 0, 9, 0, 0, 0, 0, 0, 0, kind, flags, 0, 0];
        frame.extend([[7; 6], [sender; 6], [7; 6]].concat());
        frame
    };
    let (null, data, beacon, acknowledgment) = (0x48, 0x08, 0x80, 0xd4);
    assert_eq!(dozes(&frame(null, 0x11, 2), &[2; 6]), Some(true));
    assert_eq!(dozes(&frame(data, 0x01, 2), &[2; 6]), Some(false));
    assert_eq!(dozes(&frame(data, 0x01, 3), &[2; 6]), None);
    assert_eq!((dozes(&frame(beacon, 0x10, 2), &[2; 6]), dozes(&frame(acknowledgment, 0, 2), &[2; 6])), (None, None));
    assert_eq!((dozes(&[], &[2; 6]), dozes(&[0, 0, 9, 0], &[2; 6])), (None, None));
}

/// The card as its frames show it.
struct Air {
    frames: Frames,
    station: Vec<u8>,
    awake_since: Option<Instant>,
    wakeups: u32,
    awake: Nanos,
}

impl Air {
    fn open() -> Air {
        call(&["ip", "link", "set", "hwsim0", "up"]);
        let frames = Frames::at(qfabric_linux::net::index("hwsim0").unwrap(), 0).unwrap();
        let bytes = address(STATION).split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
        Air { frames, station: bytes, awake_since: Some(clock::now()), wakeups: 0, awake: Nanos::ZERO }
    }

    /// Counts the frames that have arrived.
    fn look(&mut self) {
        let mut buffer = [0; 4_096];
        while let Ok(length) = self.frames.receive(&mut buffer) {
            let now = clock::now();
            match (dozes(&buffer[..length], &self.station), self.awake_since) {
                (Some(false), None) => (self.awake_since, self.wakeups) = (Some(now), self.wakeups + 1),
                (Some(true), Some(since)) => {
                    self.awake += now.since(since);
                    self.awake_since = None;
                }
                _ => {}
            }
        }
    }

    fn until_it_dozes(&mut self) {
        eventually("the card dozes", || {
            self.look();
            self.awake_since.is_none()
        });
    }

    /// Wake-ups and time awake from now, when the card dozes, until `until`.
    fn watch(&mut self, until: Instant) -> (f64, f64) {
        (self.wakeups, self.awake) = (0, Nanos::ZERO);
        while clock::now() < until {
            self.look();
            std::thread::sleep(Duration::from_millis(1));
        }
        let last = self.awake_since.map_or(Nanos::ZERO, |since| until.since(since));
        (f64::from(self.wakeups), (self.awake + last).as_f64())
    }
}

/// The device of the thesis on an air that takes no time.
fn model() -> Model {
    let mut model = Model::shipped("ipaq-h3870-orinoco").unwrap();
    (model.radio.air_s_per_kb, model.radio.cpu_s_per_kb) = (1e-6, 1e-6);
    model
}

/// Wake-ups and time awake, in ns, in the simulator.
fn simulated(shapes: bool) -> (f64, f64) {
    let techniques = Techniques { card: CardRule::Doze(TIMEOUT), shapes, ..Techniques::NONE };
    let usage = run(&model(), &sources(), techniques, TIME).unwrap();
    (usage.wakeups, usage.awake)
}

/// The same on the card.
fn on_card(air: &mut Air, shapes: bool) -> (f64, f64) {
    air.until_it_dozes();
    let socket = UdpSocket::bind("10.77.0.2:0").unwrap();
    socket.connect("10.77.0.1:6000").unwrap();
    let socket = TimedSocket::new(socket).unwrap();
    let radio = model().radio;
    let (begin, transmission) = (clock::now() + Nanos::from_millis(100), radio.air_ns(BYTES) + radio.cpu_ns(BYTES));
    let (planned, seen) = std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(&socket, transmission, shapes, begin));
        let seen = air.watch(begin + Nanos::new(TIME));
        (sender.join().unwrap(), seen)
    });
    assert!(planned.iter().all(|packet| packet.departure <= packet.deadline), "a packet is planned too late");
    seen
}

#[test]
fn bursts_let_a_card_doze_as_often_and_as_long_as_in_the_simulator() {
    let Some(_live) = machine() else { return };
    let _access_point = AccessPoint::start();
    let (folder, mut air) = (tempfile::tempdir().unwrap(), Air::open());
    join();
    let mut journal = Journal::open(folder.path()).unwrap();
    let radio = power::radios(Path::new(SYS)).into_iter().find(|radio| radio.name == STATION).unwrap();
    // The kernel may have switched it on at the start.
    journal.power_save(&radio, false).unwrap();
    assert!(journal.power_save(&radio, true).unwrap());
    let [spread, bursts] = [false, true].map(|shapes| {
        let (expected, seen) = (simulated(shapes), on_card(&mut air, shapes));
        let name = if shapes { "bursts" } else { "spread" };
        println!("{name}: {seen:?} wake-ups and ns awake, simulator {expected:?}");
        assert!((seen.0 - expected.0).abs() <= (0.1 * expected.0).max(1.0), "{name}: {seen:?}, simulator {expected:?}");
        assert!((seen.1 / expected.1 - 1.0).abs() <= 0.2, "{name}: {seen:?} ns awake, simulator {expected:?}");
        seen
    });
    // With the kernel's timeout, packets every 67 ms leave no time to doze.
    assert!(spread.0 <= 2.0 && 1.5 * bursts.1 <= spread.1, "{spread:?}, {bursts:?}");
    assert_eq!(journal.power_save_back(), Vec::<String>::new());
}
