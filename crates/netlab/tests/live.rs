//! Packets of real sockets over the link. Needs root and /dev/net/tun. Counts and order decide, never time limits.

use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use qfabric_linux::testing::{live_lock, skip};
use qfabric_netlab::{
    DirectionCounters, EmulatedPath, Lab, LabEnd, LabError, LabSettings, LinkChange, LinkDirection, LinkRate,
    LinkSettings, LossModel, QueueLimit,
};
use qfabric_types::{BitRate, Bytes, Nanos, Share};

/// Longer than any packet is late on a disturbed machine. Only a test that fails waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A lab that no other live test disturbs. `None`, with a reason, where labs cannot be made.
fn lab(settings: &LabSettings) -> Option<(fs::File, Lab)> {
    let lock = live_lock();
    match Lab::new(settings) {
        Ok(lab) => Some((lock, lab)),
        Err(LabError::Rights | LabError::DeviceRights) => {
            skip("this test needs root");
            None
        }
        Err(LabError::NoDevice { source }) => {
            skip(format!("no /dev/net/tun: {source}"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A socket at an end of the lab, on port 7000.
fn socket(lab: &Lab, end: LabEnd, address: Ipv4Addr) -> UdpSocket {
    let socket = lab.inside(end, || UdpSocket::bind((address, 7000)).unwrap()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    // Takes all packets of a test while its reader waits for a CPU.
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 8 << 20).unwrap();
    socket
}

fn pair(lab: &Lab) -> (UdpSocket, UdpSocket) {
    let [local, peer] = [LabEnd::Local, LabEnd::Peer].map(|end| socket(lab, end, lab.address(end)));
    local.connect(peer.local_addr().unwrap()).unwrap();
    peer.connect(local.local_addr().unwrap()).unwrap();
    (local, peer)
}

/// The counters up, as soon as they fulfil a condition.
fn wait_for(lab: &Lab, condition: impl Fn(&DirectionCounters) -> bool) -> DirectionCounters {
    loop {
        let counters = lab.report().unwrap().up.counters;
        if condition(&counters) {
            return counters;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn symmetric(link: LinkSettings) -> LabSettings {
    LabSettings::symmetric(link, 42)
}

/// Numbers of the packets that arrive, up to the packet that says the end.
fn numbers_until(socket: &UdpSocket, end: u32) -> Vec<u32> {
    let mut buffer = [0; 2_048];
    let numbers = std::iter::repeat_with(|| {
        let length = socket.recv(&mut buffer).expect("the last packet arrives");
        u32::from_be_bytes(buffer[..length.min(4)].try_into().unwrap())
    });
    numbers.take_while(|number| *number != end).collect()
}

#[test]
fn a_round_trip_takes_both_delays_and_the_report_counts_its_packets() {
    let delay = Nanos::from_millis(20);
    let Some((_lock, lab)) = lab(&symmetric(LinkSettings { delay, ..LinkSettings::default() })) else { return };
    let (local, peer) = pair(&lab);
    let mut buffer = [0; 64];
    for round in 0..20u8 {
        let begin = Instant::now();
        local.send(&[round; 10]).unwrap();
        assert_eq!((peer.recv(&mut buffer).unwrap(), buffer[0]), (10, round));
        peer.send(&buffer[..10]).unwrap();
        local.recv(&mut buffer).unwrap();
        assert!(begin.elapsed() >= Duration::from_millis(40), "{:?}", begin.elapsed());
    }
    let report = lab.report().unwrap();
    for direction in [&report.up, &report.down] {
        assert_eq!((direction.counters.packets, direction.counters.delivered), (20, 20));
        assert_eq!(direction.counters.bytes, 20 * (20 + 8 + 10));
    }
    assert_eq!(report.lateness.deliveries, 40);
    assert_eq!(report.lateness.histogram.iter().map(|(_, count)| count).sum::<u64>(), 40);
    assert_eq!(report.valid, report.reasons.is_empty());
}

/// What the model delivers of `packets` packets.
fn model(settings: &LabSettings, packets: u32) -> Vec<u32> {
    let mut path = EmulatedPath::new(settings, qfabric_types::Instant::ZERO);
    (0..packets).for_each(|number| path.arrive(qfabric_types::Instant::ZERO, LinkDirection::Up, number, 33, 0));
    let later = qfabric_types::Instant::ZERO + Nanos::from_millis(600_000);
    std::iter::from_fn(|| path.deliver(later, LinkDirection::Up)).map(|delivery| delivery.packet).collect()
}

#[test]
fn losses_on_the_wire_are_those_of_the_model_for_the_seed() {
    const PACKETS: u32 = 3_000;
    let loss = LossModel::GilbertElliott { p: Share::from_ppm(20_000), r: Share::from_ppm(300_000) };
    let settings = symmetric(LinkSettings { loss, delay: Nanos::from_millis(1), ..LinkSettings::default() });
    let Some((_lock, lab)) = lab(&settings) else { return };
    let (local, peer) = pair(&lab);
    let arrived = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| numbers_until(&peer, u32::MAX));
        (0..PACKETS).for_each(|number| assert_eq!(local.send(&number.to_be_bytes()).unwrap(), 4));
        wait_for(&lab, |up| up.packets == u64::from(PACKETS));
        // Without loss the end arrives.
        lab.change(LinkDirection::Up, LinkChange { loss: Some(LossModel::None), ..LinkChange::default() }).unwrap();
        local.send(&u32::MAX.to_be_bytes()).unwrap();
        receiver.join().unwrap()
    });
    assert_eq!(arrived, model(&settings, PACKETS));
    let counters = lab.report().unwrap().up.counters;
    assert_eq!(counters.lost, u64::from(PACKETS) - arrived.len() as u64);
}

#[test]
fn a_burst_into_a_short_queue_loses_its_tail_and_the_rest_takes_the_time_of_the_rate() {
    // 1,250 bytes with headers take 10 s, so the whole burst finds the queue full.
    let (rate, queue) = (LinkRate::Constant(BitRate::new(1_000)), QueueLimit::Bytes(Bytes::new(12_500)));
    let Some((_lock, lab)) = lab(&symmetric(LinkSettings { rate, queue, ..LinkSettings::default() })) else { return };
    let (local, peer) = pair(&lab);
    for number in 0..100u32 {
        local.send(&[&number.to_be_bytes()[..], &[0; 1_218]].concat()).unwrap();
    }
    let counters = wait_for(&lab, |up| up.packets == 100);
    assert_eq!((counters.queue_drops, counters.queue_peak_bytes), (90, 12_500), "{counters:?}");
    let (begin, fast) = (Instant::now(), Some(LinkRate::Constant(BitRate::new(1_000_000))));
    lab.change(LinkDirection::Up, LinkChange { rate: fast, ..LinkChange::default() }).unwrap();
    let mut buffer = [0; 2_048];
    for number in 0..10u8 {
        assert_eq!((peer.recv(&mut buffer).unwrap(), buffer[3]), (1_222, number));
    }
    // The first packet was sent in part before.
    assert!(begin.elapsed() >= Duration::from_millis(90), "{:?}", begin.elapsed());
}

#[test]
fn a_program_runs_at_an_end_and_its_exit_code_and_environment_are_its_own() {
    let Some((_lock, lab)) = lab(&LabSettings::default()) else { return };
    let mut shell = Command::new("sh");
    shell.args(["-c", "echo $QFABRIC_LAB_LOCAL $QFABRIC_LAB_PEER $QFABRIC_LAB_PEERS; exit 7"]);
    let output = lab.command_peer(shell).unwrap().output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "198.18.0.1 198.18.0.2 198.18.0.2\n");
}

#[test]
fn paths_are_addresses_of_the_peer_with_delays_of_their_own() {
    let paths = vec![Nanos::ZERO, Nanos::from_millis(60)];
    let Some((_lock, lab)) = lab(&LabSettings { paths, ..LabSettings::default() }) else { return };
    let far = socket(&lab, LabEnd::Peer, lab.peers().nth(1).unwrap());
    let local = socket(&lab, LabEnd::Local, lab.address(LabEnd::Local));
    let begin = Instant::now();
    local.send_to(b"x", far.local_addr().unwrap()).unwrap();
    let mut buffer = [0; 8];
    let (_, from) = far.recv_from(&mut buffer).unwrap();
    far.send_to(b"y", from).unwrap();
    local.recv(&mut buffer).unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(120), "{:?}", begin.elapsed());
}

#[test]
fn processes_end_with_the_lab() {
    let Some((_lock, lab)) = lab(&LabSettings::default()) else { return };
    let mut command = Command::new("sh");
    command.args(["-c", "sleep 600 & sleep 600"]).stdout(Stdio::null());
    let mut child = lab.command_local(command).unwrap().spawn().unwrap();
    drop(lab);
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(child.wait().unwrap().signal(), Some(9));
}

#[test]
fn settings_outside_the_bounds_make_no_lab() {
    let slow = LinkSettings { rate: LinkRate::Constant(BitRate::new(10)), ..LinkSettings::default() };
    let refusal = Lab::new(&symmetric(slow)).unwrap_err().problem();
    assert_eq!(
        (&refusal.code[..], &refusal.next_step[..]),
        ("out_of_range", "choose a rate from 1 kbit/s to 100 Gbit/s")
    );
}
