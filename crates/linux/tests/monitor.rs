//! Tests of attribute monitors on this machine, on recorded files of other kernels, and on malformed files.

use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, thread};

use qfabric_linux::clock;
use qfabric_linux::ecalls::Kernel;
use qfabric_linux::monitor::handler::{Handler, HandlerError};
use qfabric_linux::monitor::trigger::Trigger;
use qfabric_linux::monitor::{Meters, Roots};
use qfabric_linux::testing::skip;
use qfabric_types::monitor::{AttributeId, HOST, METRICS, Readers, Shape, Threshold, Unit};
use qfabric_types::{AppId, Instant, Nanos};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;

const APP: AppId = AppId(1);

/// A folder with recorded files of another kernel.
struct Recorded {
    folder: TempDir,
}

impl Recorded {
    fn new(files: &[(&str, &str)]) -> Recorded {
        let recorded = Recorded { folder: tempfile::tempdir().unwrap() };
        files.iter().for_each(|(path, text)| recorded.write(path, text));
        recorded
    }

    fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn open(&self) -> Meters {
        let root = |name: &str| self.folder.path().join(name);
        Meters::open_at(Roots { proc: root("proc"), sys: root("sys"), data: "/".into(), queues: false })
    }
}

fn at(ms: u64) -> Instant {
    Instant::new(ms * 1_000_000)
}

fn read(meters: &mut Meters, name: &str, now: Instant) -> Option<i64> {
    meters.read(AttributeId::of(name), HOST, now)
}

/// Files of a host with Linux 4.19 and three CPUs.
const OLD: &[(&str, &str)] = &[
    (
        "proc/stat",
        "cpu  1000 200 300 90000 50 10 40 5 7 0\ncpu0 400 100 100 30000 20 5 20 5 7 0\ncpu2 300 50 100 30000 20 5 10 0 0 0\n\
         cpu3 300 50 100 30000 10 0 10 0 0 0\nintr 5000 1 2 3 0 0\nctxt 777\nbtime 1700000000\nprocesses 88\n\
         procs_running 5\nprocs_blocked 2\nsoftirq 1 2 3\n",
    ),
    (
        "proc/meminfo",
        "MemTotal:       16000 kB\nMemFree:         4000 kB\nBuffers:  1 kB\nDirty:             12 kB\nHugePages_Total: 0\n",
    ),
    ("proc/vmstat", "nr_free_pages 1\npgfault 1000\npgmajfault 10\npswpin 3\npswpout 4\n"),
    (
        "proc/net/dev",
        "Inter-|   Receive                                                |  Transmit\n face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n\
         enp3s0: 1000 10 1 2 0 0 0 0 2000 20 3 4 0 0 0 0\n    lo:18446744073709551615 6 0 0 0 0 0 0 5 6 0 0 0 0 0 0\n",
    ),
    ("sys/class/net/enp3s0/ifindex", "2\n"),
    ("sys/class/net/lo/ifindex", "1\n"),
    (
        "proc/net/sockstat",
        "sockets: used 300\nTCP: inuse 12 orphan 0 tw 3 alloc 20 mem 4\nUDP: inuse 7 mem 2\nRAW: inuse 0\n",
    ),
    (
        "proc/net/snmp",
        "Ip: Forwarding DefaultTTL\nIp: 1 64\nTcp: RtoAlgorithm ActiveOpens PassiveOpens CurrEstab RetransSegs\nTcp: 1 30 40 6 9\n\
         Udp: InDatagrams NoPorts InErrors\nUdp: 100 2 3\n",
    ),
    ("proc/net/netstat", "TcpExt: SyncookiesSent ListenOverflows\nTcpExt: 0 17\nIpExt: InNoRoutes\nIpExt: 0\n"),
    (
        "proc/diskstats",
        "   7       0 loop0 1 0 1 1 0 0 0 0 0 1 1\n   8       0 sda 100 1 2000 30 50 2 4000 60 3 700 90\n   8       1 sda1 1 1 1 1 1 1 1 1 1 1 1\n",
    ),
    ("sys/block/sda/size", "1\n"),
    ("sys/block/loop0/size", "1\n"),
    ("sys/class/powercap/intel-rapl:0/name", "package-0\n"),
    ("sys/class/powercap/intel-rapl:0/energy_uj", "900\n"),
    ("sys/class/powercap/intel-rapl:0/max_energy_range_uj", "1000\n"),
    ("sys/class/powercap/intel-rapl/enabled", "1\n"),
    ("sys/class/power_supply/BAT0/type", "Battery\n"),
    ("sys/class/power_supply/BAT0/capacity", "81\n"),
    ("sys/class/power_supply/BAT0/current_now", "1500000\n"),
    ("sys/class/power_supply/BAT0/voltage_now", "12000000\n"),
    ("sys/class/power_supply/AC/type", "Mains\n"),
    ("sys/class/thermal/thermal_zone0/temp", "-2500\n"),
    ("sys/class/thermal/thermal_zone0/type", "acpitz\n"),
];

/// Values that these files give.
const OLD_VALUES: [(&str, i64); 32] = [
    ("cpu.run_queue", 4),
    ("cpu.blocked", 2),
    ("cpu.switches", 777),
    ("cpu.forks", 88),
    ("memory.free", 4_000 * 1_024),
    ("memory.dirty", 12 * 1_024),
    ("memory.faults", 1_000),
    ("memory.major_faults", 10),
    ("memory.swapped", 7),
    ("net.enp3s0.rx_bytes", 1_000),
    ("net.enp3s0.tx_bandwidth", 2_000),
    ("net.enp3s0.tx_packets", 20),
    ("net.enp3s0.rx_drops", 3),
    ("net.enp3s0.tx_drops", 7),
    ("net.lo.rx_bytes", i64::MAX),
    ("socket.used", 300),
    ("socket.tcp", 12),
    ("socket.udp", 7),
    ("socket.opened", 30),
    ("socket.accepted", 40),
    ("socket.connected", 6),
    ("socket.retransmitted", 9),
    ("socket.udp_received", 100),
    ("socket.udp_dropped", 3),
    ("socket.refused", 17),
    ("disk.sda.read", 2_000 * 512),
    ("disk.sda.written", 4_000 * 512),
    ("disk.sda.busy", 700_000_000),
    ("disk.sda.queue", 3),
    ("battery.BAT0.charge", 810_000),
    ("battery.BAT0.power", 18_000_000),
    ("thermal.acpitz-0.temperature", -2_500),
];

#[test]
fn the_files_of_an_old_kernel_are_read() {
    let mut meters = Recorded::new(OLD).open();
    for (name, value) in OLD_VALUES {
        assert_eq!(read(&mut meters, name, at(0)), Some(value), "{name}");
    }
    for absent in ["memory.available", "memory.killed", "disk.loop0.read", "disk.sda1.read", "battery.AC.charge"] {
        assert_eq!(read(&mut meters, absent, at(0)), None, "{absent}");
    }
    let missing: Vec<_> = meters.missing().iter().map(|missing| missing.name).collect();
    let files = ["cpu.pressure", "memory.pressure", "disk.pressure", "net.*.queue"];
    assert_eq!(missing, [&files[..], &["memory.available", "memory.killed"]].concat());
    assert!(!meters.attributes().iter().any(|attribute| attribute.name.as_str() == "memory.killed"));
    assert!(meters.missing()[0].why.contains("pressure/cpu") && meters.missing()[0].why.contains("psi=1"));
}

#[test]
fn a_battery_delivers_power_only_while_it_discharges_and_whatever_the_sign() {
    let at_battery = |file: &str| format!("sys/class/power_supply/BAT0/{file}");
    let host = Recorded::new(OLD);
    for (file, text) in [("current_now", "-1500000\n"), ("charge_now", "2000000\n"), ("status", "Discharging\n")] {
        host.write(&at_battery(file), text);
    }
    host.write(&at_battery("voltage_min_design"), "11000000\n");
    let mut meters = host.open();
    let mut found =
        |millis| ["power", "energy"].map(|what| read(&mut meters, &format!("battery.BAT0.{what}"), at(millis)));
    // 1.5 A × 12 V, and 2 Ah × 11 V.
    assert_eq!(found(0), [Some(18_000_000), Some(79_200_000_000)]);
    for (millis, status) in [(100, "Charging\n"), (200, "Full\n"), (300, "Not charging\n")] {
        host.write(&at_battery("status"), status);
        assert_eq!(found(millis)[0], Some(0), "{status}");
    }
    host.write(&at_battery("status"), "Discharging\n");
    assert_eq!(found(400)[0], Some(18_000_000));
}

#[test]
fn utilization_counts_the_online_cpus_and_survives_hotplug() {
    let stat = |total: u64, each: &[(u32, u64)]| {
        let cpus: String = each.iter().map(|(cpu, busy)| format!("cpu{cpu} {busy} 0 0 5000 0 0 0 0 0 0\n")).collect();
        format!("cpu  {total} 0 0 90000 0 0 0 0 0 0\n{cpus}")
    };
    let host = Recorded::new(&[("proc/stat", &stat(100, &[(0, 50), (1, 50)]))]);
    let mut meters = host.open();
    assert_eq!(read(&mut meters, "cpu.utilization", at(0)), Some(0));
    host.write("proc/stat", stat(130, &[(0, 70), (1, 60)]));
    assert_eq!(read(&mut meters, "cpu.utilization", at(100)), Some(150_000_000), "30 ticks of 10 ms on two CPUs");
    assert_eq!(read(&mut meters, "cpu.busiest", at(100)), Some(200_000_000));
    host.write("proc/stat", stat(140, &[(0, 80)]));
    assert_eq!(read(&mut meters, "cpu.utilization", at(200)), Some(250_000_000), "10 more ticks, on one CPU");
    host.write("proc/stat", stat(141, &[(0, 80), (1, 3)]));
    assert_eq!(read(&mut meters, "cpu.busiest", at(300)), Some(300_000_000), "a CPU that comes back starts again");
}

#[test]
fn pressure_is_read_on_a_new_kernel() {
    let cpu = "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
    let memory = "some avg10=1.53 avg60=0.35 avg300=0.07 total=20\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
    let host = Recorded::new(&[("proc/pressure/cpu", cpu), ("proc/pressure/memory", memory)]);
    let mut meters = host.open();
    let names = ["cpu.pressure", "memory.pressure", "memory.stalled", "disk.pressure"];
    let values = names.map(|name| read(&mut meters, name, at(0)));
    assert_eq!(values, [Some(1_500_000), Some(20_000), Some(7_000), None]);
}

#[test]
fn an_energy_counter_continues_after_it_wraps() {
    let host = Recorded::new(OLD);
    let mut meters = host.open();
    assert_eq!(read(&mut meters, "energy.package-0-0.used", at(0)), Some(0));
    host.write("sys/class/powercap/intel-rapl:0/energy_uj", "40\n");
    assert_eq!(read(&mut meters, "energy.package-0-0.used", at(100)), Some(140));
    assert_eq!(read(&mut meters, "energy.package-0-0.power", at(100)), Some(140));
}

#[test]
fn new_interfaces_are_found_and_removed_ones_are_forgotten() {
    let host = Recorded::new(OLD);
    let mut meters = host.open();
    read(&mut meters, "net.lo.rx_bytes", at(0));
    assert!(!meters.is_stale());
    let dev = fs::read_to_string(host.folder.path().join("proc/net/dev")).unwrap();
    host.write("proc/net/dev", dev.replace("enp3s0:", "wlan0:") + "veth1: 1 1 1 1 1 1 1 1 5 1 1 1 1 1 1 1\n");
    assert_eq!(read(&mut meters, "net.enp3s0.rx_bytes", at(100)), None);
    assert!(meters.is_stale());
    fs::remove_dir_all(host.folder.path().join("sys/class/net/enp3s0")).unwrap();
    for name in ["veth1", "wlan0"] {
        host.write(&format!("sys/class/net/{name}/ifindex"), "3");
    }
    meters.rescan();
    assert_eq!(read(&mut meters, "net.wlan0.rx_bytes", at(200)), Some(1_000));
    assert_eq!(read(&mut meters, "net.veth1.tx_bytes", at(200)), Some(5));
    assert_eq!(read(&mut meters, "net.lo.tx_bytes", at(200)), Some(5));
    assert!(!meters.is_stale() && !meters.attributes().iter().any(|a| a.name.as_str().contains("enp3s0")));
}

#[test]
fn interfaces_beyond_the_limit_are_left_out() {
    let line = |number| format!("veth{number:03}: 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n");
    let dev: String = (0..200).map(line).collect();
    let host = Recorded::new(&[("proc/net/dev", &format!("head\nhead\n{dev}"))]);
    for number in 0..200 {
        host.write(&format!("sys/class/net/veth{number:03}/ifindex"), "1");
    }
    let meters = host.open();
    let count = meters.attributes().iter().filter(|a| a.name.as_str().ends_with(".rx_bytes")).count();
    assert_eq!(count, qfabric_linux::monitor::MAX_INSTANCES);
}

/// Truncated texts, insertions, random bytes, repeated lines: no reader may panic or hang.
#[test]
fn malformed_files_cause_no_panic() {
    let mut random = ChaCha8Rng::seed_from_u64(0x5eed);
    let host = Recorded::new(OLD);
    host.write("proc/pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500\n");
    let mut meters = host.open();
    let ids: Vec<_> = meters.attributes().iter().map(|attribute| attribute.id()).collect();
    for round in 0..100 {
        for (path, text) in OLD.iter().filter(|(path, _)| path.starts_with("proc") || path.ends_with("energy_uj")) {
            host.write(path, corrupted(text.as_bytes(), &mut random));
        }
        for id in &ids {
            meters.read(*id, HOST, at(round));
        }
        if round % 25 == 0 {
            meters.rescan();
        }
    }
}

fn corrupted(text: &[u8], random: &mut impl Rng) -> Vec<u8> {
    let mut bytes = text.to_vec();
    for _ in 0..random.random_range(0..6) {
        let place = random.random_range(0..=bytes.len());
        match random.random_range(0..5) {
            0 => bytes.truncate(place),
            1 => bytes.insert(place, random.random()),
            2 => bytes.extend(text.iter().rev()),
            3 => drop(bytes.splice(place..place, *b"99999999999999999999999")),
            _ => bytes.iter_mut().skip(place).take(3).for_each(|byte| *byte = random.random()),
        }
    }
    bytes
}

#[test]
fn every_listed_attribute_can_be_read_and_totals_do_not_decrease() {
    let mut meters = Meters::open();
    meters.add_process(APP, std::process::id() as i32).unwrap();
    let attributes = meters.attributes().to_vec();
    let names: Vec<_> = attributes.iter().map(|attribute| attribute.name.as_str()).collect();
    for expected in
        ["cpu.run_queue", "cpu.utilization", "memory.available", "net.lo.rx_bytes", "socket.used", "disk.free"]
    {
        assert!(names.contains(&expected), "{expected} is not among {names:?}");
    }
    let mut read_all = || -> BTreeMap<AttributeId, i64> {
        let now = clock::now();
        let values = attributes.iter().filter_map(|a| Some((a.id(), meters.read(a.id(), APP, now)?)));
        values.collect()
    };
    let before = read_all();
    std::hint::black_box((0..3_000_000u64).fold(0, |a, b| a ^ (b * b)));
    let after = read_all();
    for attribute in &attributes {
        let name = &attribute.name;
        let (before, after) = (before.get(&attribute.id()), after.get(&attribute.id()));
        assert!(after.is_some(), "{name} has no value");
        assert!(attribute.shape == Shape::Level || before <= after, "{name}: {before:?} then {after:?}");
    }
    assert!(after[&AttributeId::of("app.cpu_time")] > before[&AttributeId::of("app.cpu_time")]);
    assert!(after[&AttributeId::of("app.memory")] > 1 << 20);
}

#[test]
fn bytes_over_the_loopback_are_counted() {
    let mut meters = Meters::open();
    let before = read(&mut meters, "net.lo.rx_bytes", at(0)).unwrap();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(&[0; 1_000], socket.local_addr().unwrap()).unwrap();
    assert!(read(&mut meters, "net.lo.rx_bytes", at(1)).unwrap() >= before + 1_000);
}

#[test]
fn the_use_of_an_ended_process_stays_counted() {
    let mut meters = Meters::open();
    let text = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo; read x";
    let mut child = Command::new("sh").args(["-c", text]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    meters.add_process(APP, child.id() as i32).unwrap();
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    let mut get = |name, now| meters.read(AttributeId::of(name), APP, now).unwrap();
    let used = get("app.cpu_time", at(0));
    assert!(used > 1_000_000 && get("app.threads", at(0)) == 1, "{used}");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(get("app.cpu_time", at(1)) >= used);
    assert_eq!((get("app.threads", at(1)), get("app.memory", at(1))), (0, 0));
    meters.remove_application(APP);
    assert_eq!(meters.read(AttributeId::of("app.threads"), APP, at(2)), None);
    assert!(meters.add_process(APP, i32::MAX).unwrap_err().why.contains("process 2147483647"));
}

/// Two threads run on one CPU, so one of them waits all the time.
#[test]
fn the_kernel_reports_pressure_while_it_lasts() {
    if !Path::new("/proc/pressure/cpu").exists() {
        return skip("the kernel has no /proc/pressure (PSI)");
    }
    let threshold = Threshold::above(10_000);
    let trigger = match Trigger::new("cpu.pressure", threshold, Nanos::from_millis(500)).unwrap() {
        Ok(trigger) => trigger,
        Err(error) => return skip(format!("a PSI trigger: {error}")),
    };
    assert_eq!((trigger.attribute(), trigger.level()), (AttributeId::of("cpu.pressure"), 10_000));
    let reported = AtomicBool::new(false);
    thread::scope(|scope| {
        (0..2).for_each(|_| drop(scope.spawn(|| hog(&reported))));
        let crossed = trigger.crossed(Nanos::from_millis(120_000));
        reported.store(true, Ordering::Relaxed);
        assert!(crossed.unwrap(), "no pressure reported while two threads compete for one CPU");
    });
}

fn hog(stop: &AtomicBool) {
    let mut one = rustix::thread::CpuSet::new();
    one.set(0);
    rustix::thread::sched_setaffinity(None, &one).unwrap();
    while !stop.load(Ordering::Relaxed) {
        std::hint::black_box((0..10_000u64).fold(0, |a, b| a ^ (b * b)));
    }
}

#[test]
fn a_handler_in_the_kernel_counts_between_looks() {
    let kernel = match Kernel::open() {
        Ok(kernel) => kernel,
        Err(why) => return skip(why),
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let options = [("listen", format!("127.0.0.1:{port}")), ("interface", "lo".to_owned())];
    let options = BTreeMap::from(options.map(|(name, value)| (name.to_owned(), value)));
    let install = |text| Handler::install(&kernel, "tcp.accept", &options, None, text, "total");
    let handler = match install("attr.total++; return 1;") {
        Ok(handler) => handler,
        Err(HandlerError::Install(error)) => return skip(error),
        Err(error) => panic!("{error}"),
    };
    for _ in 0..3 {
        let _client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        listener.accept().unwrap();
    }
    assert_eq!(handler.total(), 3, "{:?}", handler.installed().counters());
    let refused = install("return 1;").unwrap_err();
    assert!(refused.to_string().contains("no attribute `total`"), "{refused}");
}

#[test]
fn the_guide_lists_every_standard_attribute_correctly() {
    let page = include_str!("../../../docs/guide/src/monitor.md");
    for metric in METRICS {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{}` |", metric.name)));
        let row = row.unwrap_or_else(|| panic!("{} is not in the guide", metric.name));
        assert!(row.ends_with(&format!("| {} |", metric.about)), "{row}");
        assert!(row.contains(&format!("| {} |", metric.unit.symbol().trim())) || metric.unit == Unit::Count, "{row}");
    }
}
