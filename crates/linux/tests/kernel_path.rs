//! Tests of the kernel path between two hosts: network namespaces with a link. Nothing listens on the receiving host, so
//! whatever changes there, the kernel changed.

#[path = "../examples/kernel_path/flood.rs"]
mod flood;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use qfabric_linux::kernel_path::{
    AppliedParameter, KernelPath, KernelPathError, ParameterSender, PathCounts, PeerRights,
};
use qfabric_linux::namespace::{Namespace, may_make};
use qfabric_linux::net::testing::{Frames, Interface, frame, own_network, segment};
use qfabric_linux::testing::skip;
use qfabric_types::kernel_path::{BATCH, CHANGE_BYTES, ChangeError, ParameterChange, PathKey};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const HERE: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const PORT: u16 = 4790;
const PEER: u32 = 7;
const CHANNEL: u16 = 3;
/// Datagrams that are sent without a look at the counts: a link's queue has room for more.
const UNREAD: u64 = 200;

/// The receiving host, which is this thread's network, and a sending host.
struct Hosts {
    path: KernelPath,
    there: Namespace,
    _link: Interface,
}

fn key(seed: u8) -> PathKey {
    PathKey::new([seed; 16])
}

fn rights(channels: &[u16]) -> PeerRights {
    PeerRights { channels: channels.to_vec(), per_second: 1_000_000, burst: 1_000_000 }
}

fn address() -> SocketAddr {
    (HERE, PORT).into()
}

/// Two hosts, of which the sender is admitted with `key(1)` in epoch 1. `None` if this process may not make networks.
fn hosts() -> Option<Hosts> {
    if !may_make() {
        skip("this test needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN)");
        return None;
    }
    own_network().unwrap();
    let there = Namespace::new().unwrap();
    let link = Interface::veth_to("qpath", "ppath", &there, [HERE, THERE]).unwrap();
    let mut path = KernelPath::attach("qpath", address()).unwrap();
    path.admit(PEER, 1, &key(1), &rights(&[CHANNEL])).unwrap();
    Some(Hosts { path, there, _link: link })
}

/// The change number `sequence` of the admitted sender, which sets parameter 2 to `value`.
fn change(sequence: u64, value: i64) -> ParameterChange {
    ParameterChange { peer: PEER, epoch: 1, channel: CHANNEL, parameter: 2, value, sequence }
}

impl Hosts {
    fn sender(&self) -> ParameterSender {
        self.there.inside(|| ParameterSender::new(address(), PEER, 1, key(1))).unwrap().unwrap()
    }

    /// A socket of the other host, connected to the kernel path.
    fn socket(&self) -> UdpSocket {
        let socket = self.there.inside(|| UdpSocket::bind((THERE, 0))).unwrap().unwrap();
        socket.connect(address()).unwrap();
        socket
    }

    /// Waits until so many changes were counted, whatever their outcome.
    fn counted(&self, changes: u64) -> PathCounts {
        let begun = Instant::now();
        loop {
            let counts = self.path.counts();
            let sum = sum(&counts);
            if sum >= changes {
                assert_eq!(sum, changes, "{counts:?}");
                return counts;
            }
            assert!(begun.elapsed() < Duration::from_secs(120), "{counts:?} of {changes}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn word(&self) -> Option<AppliedParameter> {
        self.path.word(CHANNEL, 2)
    }
}

fn sum(counts: &PathCounts) -> u64 {
    let PathCounts { accepted, malformed, unknown, forged, denied, replayed, too_many } = *counts;
    accepted + malformed + unknown + forged + denied + replayed + too_many
}

#[test]
fn a_value_sent_by_one_host_is_in_the_memory_of_the_other() {
    let Some(hosts) = hosts() else { return };
    assert_eq!(hosts.word(), None);
    let mut sender = hosts.sender();
    sender.set(CHANNEL, 2, -40).unwrap();
    assert_eq!(hosts.counted(1), PathCounts { accepted: 1, ..PathCounts::default() });
    let first = hosts.word().unwrap();
    assert_eq!((first.value, first.changes, first.sequence, first.peer, first.epoch), (-40, 1, 1, PEER, 1));
    sender.set(CHANNEL, 2, i64::MAX).unwrap();
    hosts.counted(2);
    sender.set(CHANNEL, 15, 5).unwrap();
    hosts.counted(3);
    let second = hosts.word().unwrap();
    assert_eq!((second.value, second.changes, second.sequence), (i64::MAX, 2, 2));
    assert!(second.at_ns > first.at_ns && first.at_ns > 0);
    assert_eq!(hosts.path.word(CHANNEL, 15).unwrap().value, 5);
    assert_eq!(hosts.path.word(CHANNEL, 1), None);
}

/// Payloads that must not have an effect, after the change with the sequence number 5.
fn wrong_payloads() -> Vec<(&'static str, Vec<u8>)> {
    let right = change(6, 99).encode(&key(1)).to_vec();
    let (mut magic, mut value, mut tag) = (right.clone(), right.clone(), right.clone());
    magic[3] = b'2';
    value[16] ^= 1;
    tag[47] ^= 0x80;
    let other = |change: ParameterChange| change.encode(&key(1)).to_vec();
    vec![
        ("malformed", Vec::new()),
        ("malformed", right[..CHANGE_BYTES - 1].to_vec()),
        ("malformed", [&right[..], &[0]].concat()),
        ("malformed", magic),
        ("forged", value),
        ("forged", tag),
        ("forged", change(6, 99).encode(&key(2)).to_vec()),
        ("unknown", other(ParameterChange { epoch: 2, ..change(6, 99) })),
        ("unknown", other(ParameterChange { epoch: 3, ..change(6, 99) })),
        ("unknown", other(ParameterChange { epoch: 0, ..change(6, 99) })),
        ("unknown", other(ParameterChange { peer: PEER + 1, ..change(6, 99) })),
        ("unknown", other(ParameterChange { peer: u32::MAX, ..change(6, 99) })),
        ("denied", other(ParameterChange { channel: CHANNEL + 1, ..change(6, 99) })),
        ("denied", other(ParameterChange { channel: u16::MAX, ..change(6, 99) })),
        ("denied", other(ParameterChange { parameter: 16, ..change(6, 99) })),
        ("replayed", other(change(5, 50))),
        ("replayed", other(change(4, 99))),
        ("replayed", other(change(0, 99))),
    ]
}

#[test]
fn wrong_changes_are_counted_and_change_nothing() {
    let Some(hosts) = hosts() else { return };
    let socket = hosts.socket();
    socket.send(&change(5, 50).encode(&key(1))).unwrap();
    let mut expected = hosts.counted(1);
    let before = hosts.word();
    for (sent, (outcome, payload)) in (2..).zip(wrong_payloads()) {
        socket.send(&payload).unwrap();
        match outcome {
            "malformed" => expected.malformed += 1,
            "forged" => expected.forged += 1,
            "unknown" => expected.unknown += 1,
            "denied" => expected.denied += 1,
            _ => expected.replayed += 1,
        }
        assert_eq!(hosts.counted(sent), expected, "{outcome}: {payload:?}");
        assert_eq!(hosts.word(), before, "{outcome}: {payload:?}");
    }
    socket.send(&change(6, 99).encode(&key(1))).unwrap();
    hosts.counted(1 + sum(&expected));
    assert_eq!(hosts.word().unwrap().value, 99);
}

#[test]
fn changes_above_the_rate_are_refused_and_take_no_sequence_number() {
    let Some(mut hosts) = hosts() else { return };
    let slow = PeerRights { channels: vec![0], per_second: 1, burst: 3 };
    hosts.path.admit(8, 1, &key(8), &slow).unwrap();
    let socket = hosts.socket();
    let send = |sequence: u64| {
        let change = ParameterChange { peer: 8, channel: 0, ..change(sequence, sequence as i64) };
        socket.send(&change.encode(&key(8))).unwrap();
    };
    let begun = Instant::now();
    for sequence in 1..=20 {
        send(sequence);
        hosts.counted(sequence);
    }
    let counts = hosts.counted(20);
    let earned = 3 + begun.elapsed().as_secs();
    assert!(counts.accepted >= 3 && counts.accepted <= earned, "{counts:?} of at most {earned}");
    assert_eq!(counts.too_many, 20 - counts.accepted);
    assert_eq!(hosts.path.word(0, 2).unwrap().changes, counts.accepted);
    std::thread::sleep(Duration::from_millis(1_100));
    send(hosts.path.word(0, 2).unwrap().sequence + 1);
    assert_eq!(hosts.counted(21).accepted, counts.accepted + 1);
}

/// Random bytes of all lengths; half of them begin like a change of the admitted peer.
fn random_payload(random: &mut impl Rng) -> Vec<u8> {
    let length = if random.random_bool(0.7) { CHANGE_BYTES } else { random.random_range(0..1_400) };
    let mut payload = vec![0; length];
    random.fill_bytes(&mut payload);
    if random.random_bool(0.5) && length >= 32 {
        payload[..16].copy_from_slice(&change(0, 0).encode(&key(0))[..16]);
    }
    payload
}

#[test]
fn a_flood_of_random_datagrams_is_not_accepted() {
    let Some(hosts) = hosts() else { return };
    let seed = qfabric_linux::clock::now().get();
    println!("seed {seed}");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (socket, mut sender) = (hosts.socket(), hosts.sender());
    sender.set(CHANNEL, 2, 1).unwrap();
    hosts.counted(1);
    let before = hosts.word();
    let mut changes = 1;
    for sent in 0..50_000 {
        let payload = random_payload(&mut random);
        let whole = payload.len() % CHANGE_BYTES == 0 && !payload.is_empty();
        changes += if whole { payload.len() / CHANGE_BYTES } else { 1 } as u64;
        socket.send(&payload).unwrap();
        if sent % UNREAD == 0 {
            hosts.counted(changes);
        }
    }
    let counts = hosts.counted(changes);
    assert_eq!((counts.accepted, counts.replayed, counts.denied, counts.too_many), (1, 0, 0, 0), "{counts:?}");
    assert!(counts.malformed > 10_000 && counts.forged > 10_000, "{counts:?}");
    assert_eq!(hosts.word(), before);
    sender.set(CHANNEL, 2, 2).unwrap();
    assert_eq!(hosts.counted(changes + 1).accepted, 2, "right changes are accepted after the flood");
}

/// The short form of what `cargo run --example kernel_path` does ten million times.
#[test]
fn of_forged_altered_replayed_and_foreign_changes_none_is_accepted_and_the_next_right_one_is() {
    const TRIED: u64 = 100_000;
    let Some(hosts) = hosts() else { return };
    let seed = qfabric_linux::clock::now().get();
    println!("seed {seed}");
    let (socket, last) = (hosts.socket(), change(1_000, 50));
    socket.send(&last.encode(&key(1))).unwrap();
    hosts.counted(1);
    let counts = flood::flood(&hosts.path, &socket, &key(1), last, TRIED, seed).unwrap();
    let PathCounts { accepted, malformed, unknown, forged, denied, replayed, too_many } = counts;
    assert_eq!([accepted, malformed, denied, too_many], [0; 4], "{counts:?}");
    assert!(forged > TRIED / 3 && replayed > TRIED / 6 && unknown > TRIED / 6, "{counts:?}");
    assert_eq!(hosts.word().map(|word| (word.value, word.sequence)), Some((51, 1_001)));
}

/// Changes of which each is right, or wrong in one way.
fn mutated(random: &mut impl Rng, sequence: u64) -> [u8; CHANGE_BYTES] {
    let mut change = change(sequence, random.random());
    match random.random_range(0..6) {
        0 => change.sequence = random.random_range(0..=sequence),
        1 => change.epoch = random.random_range(0..4),
        2 => change.channel = random.random_range(0..6),
        3 => change.parameter = random.random_range(0..20),
        _ => {}
    }
    let mut bytes = change.encode(&key(1));
    if random.random_bool(0.2) {
        bytes[random.random_range(0..CHANGE_BYTES)] ^= 1 << random.random_range(0..8);
    }
    bytes
}

/// What the documentation says about a change, with the last accepted sequence number.
fn expect(bytes: &[u8], last: &mut Option<u64>, counts: &mut PathCounts, value: &mut Option<i64>) {
    let known = |peer, epoch| ((peer, epoch) == (PEER, 1)).then(|| key(1));
    let change = match ParameterChange::decode(bytes, known) {
        Err(ChangeError::Malformed) => return counts.malformed += 1,
        Err(ChangeError::Unknown) => return counts.unknown += 1,
        Err(ChangeError::Forged) => return counts.forged += 1,
        Ok(change) => change,
    };
    if change.channel != CHANNEL || change.parameter >= 16 {
        counts.denied += 1;
    } else if Some(change.sequence) <= *last {
        counts.replayed += 1;
    } else {
        counts.accepted += 1;
        *last = Some(change.sequence);
        *value = if change.parameter == 2 { Some(change.value) } else { *value };
    }
}

#[test]
fn the_kernel_decides_as_the_library_that_reads_the_same_bytes() {
    let Some(hosts) = hosts() else { return };
    let seed = qfabric_linux::clock::now().get();
    println!("seed {seed}");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let socket = hosts.socket();
    let (mut last, mut counts, mut value) = (None, PathCounts::default(), None);
    for sent in 1..=5_000 {
        let bytes = mutated(&mut random, last.unwrap_or(0) + 1);
        expect(&bytes, &mut last, &mut counts, &mut value);
        socket.send(&bytes).unwrap();
        // One at a time: two datagrams that are sent on different CPUs may overtake each other.
        assert_eq!(hosts.counted(sent), counts);
        assert_eq!(hosts.word().map(|word| word.value), value);
    }
    assert!(counts.accepted > 1_000 && counts.replayed > 100 && counts.denied > 100, "{counts:?}");
}

#[test]
fn aggregates_and_batches_are_applied_and_fragments_pass_unapplied() {
    let Some(hosts) = hosts() else { return };
    let socket = hosts.socket();
    let changes = |from: u64, number: u64| -> Vec<u8> {
        (from..from + number).flat_map(|sequence| change(sequence, sequence as i64).encode(&key(1))).collect()
    };
    socket.send(&changes(1, 30)).unwrap();
    assert_eq!(hosts.counted(30).accepted, 30);
    hosts.socket().send(&changes(31, BATCH as u64)).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(hosts.counted(30).accepted, 30, "3,072 bytes in fragments");
    segment(&socket, CHANGE_BYTES as i32).unwrap();
    socket.send(&changes(31, BATCH as u64)).unwrap();
    assert_eq!(hosts.counted(94).accepted, 94);
    assert_eq!(hosts.word().unwrap().value, 94);
}

#[test]
fn other_packets_pass_and_after_the_end_all_do() {
    let Some(hosts) = hosts() else { return };
    let (listening, other) = (UdpSocket::bind((HERE, PORT)).unwrap(), UdpSocket::bind((HERE, PORT + 1)).unwrap());
    listening.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    other.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let (socket, bytes) = (hosts.socket(), change(1, 1).encode(&key(1)));
    let mut buffer = [0; 100];
    socket.send(&bytes).unwrap();
    let free = hosts.there.inside(|| UdpSocket::bind((THERE, 0))).unwrap().unwrap();
    free.send_to(&bytes, (HERE, PORT + 1)).unwrap();
    assert_eq!(other.recv(&mut buffer).unwrap(), CHANGE_BYTES);
    hosts.counted(1);
    let Hosts { path, there: _there, _link } = hosts;
    drop(path);
    socket.send(&bytes[..9]).unwrap();
    assert_eq!(listening.recv(&mut buffer).unwrap(), 9, "only this datagram reached the socket");
}

#[test]
fn datagrams_over_ipv6_are_applied() {
    let Some(Hosts { path, there, _link }) = hosts() else { return };
    drop(path);
    let here: SocketAddr = format!("[fd00::1]:{PORT}").parse().unwrap();
    let mut path = KernelPath::attach("qpath", here).unwrap();
    path.admit(PEER, 1, &key(1), &rights(&[CHANNEL])).unwrap();
    let frames = there.inside(|| Frames::at(qfabric_linux::net::index("ppath").unwrap(), 0).unwrap()).unwrap();
    let bytes = change(1, 66).encode(&key(1));
    for wrong in [format!("udp,[fd00::2]:9,[fd00::3]:{PORT}"), format!("udp,10.9.0.2:9,10.9.0.1:{PORT}")] {
        frames.send(&frame(&wrong.parse().unwrap(), &bytes)).unwrap();
    }
    frames.send(&frame(&format!("udp,[fd00::2]:9,[fd00::1]:{PORT}").parse().unwrap(), &bytes)).unwrap();
    let hosts = Hosts { path, there, _link };
    assert_eq!(hosts.counted(1).accepted, 1);
    assert_eq!(hosts.word().unwrap().value, 66);
}

#[test]
fn the_key_before_counts_until_the_new_one_was_used() {
    let Some(mut hosts) = hosts() else { return };
    let (mut old, mut new) = (hosts.sender(), hosts.sender());
    assert_eq!(hosts.path.renew(PEER, &key(2)).unwrap(), 2);
    old.set(CHANNEL, 2, 10).unwrap();
    assert_eq!(hosts.counted(1).accepted, 1);
    new.renew(2, key(2));
    new.set(CHANNEL, 2, 20).unwrap();
    hosts.counted(2);
    old.set(CHANNEL, 2, 11).unwrap();
    assert_eq!((hosts.counted(3).replayed, hosts.word().unwrap().value), (1, 20));
    hosts.path.retire(PEER).unwrap();
    old.set(CHANNEL, 2, 12).unwrap();
    assert_eq!(hosts.counted(4).unknown, 1);
    hosts.path.remove(PEER).unwrap();
    new.set(CHANNEL, 2, 21).unwrap();
    assert_eq!((hosts.counted(5).unknown, hosts.word().unwrap().value), (2, 20));
    let reused = hosts.path.admit(PEER, 2, &key(2), &rights(&[CHANNEL])).unwrap_err();
    assert!(reused.to_string().contains("epoch is 2; choose one above 2"), "{reused}");
    hosts.path.admit(PEER, 3, &key(3), &rights(&[CHANNEL])).unwrap();
    new.renew(3, key(3));
    new.set(CHANNEL, 2, 30).unwrap();
    assert_eq!((hosts.counted(6).accepted, hosts.word().unwrap().value), (3, 30));
}

#[test]
fn a_reader_never_sees_parts_of_two_changes() {
    let Some(hosts) = hosts() else { return };
    let mut sender = hosts.sender();
    sender.set(CHANNEL, 2, 1).unwrap();
    hosts.counted(1);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0u64;
            while !done.load(Ordering::Relaxed) {
                let word = hosts.word().unwrap();
                assert_eq!(word.value as u64, word.sequence);
                reads += 1;
            }
            reads
        });
        for value in 2..=100_000 {
            sender.set(CHANNEL, 2, value as i64).unwrap();
            if value % UNREAD == 0 {
                hosts.counted(value);
            }
        }
        done.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap() > 0);
    });
}

#[test]
fn of_two_senders_with_one_key_each_number_is_accepted_once() {
    const CHANGES: u64 = 50_000;
    let Some(hosts) = hosts() else { return };
    let sent = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for mut sender in [hosts.sender(), hosts.sender()] {
            let (hosts, sent) = (&hosts, &sent);
            scope.spawn(move || {
                for value in 1..=CHANGES {
                    sender.set(CHANNEL, 2, value as i64).unwrap();
                    let sent = sent.fetch_add(1, Ordering::Relaxed);
                    while sent > sum(&hosts.path.counts()) + UNREAD {
                        std::thread::yield_now();
                    }
                }
            });
        }
    });
    let counts = hosts.counted(2 * CHANGES);
    assert!(counts.accepted <= CHANGES && counts.accepted + counts.replayed == 2 * CHANGES, "{counts:?}");
    let word = hosts.word().unwrap();
    assert_eq!((word.value as u64, word.sequence, word.changes), (CHANGES, CHANGES, counts.accepted));
}

#[test]
fn impossible_requests_are_refused_with_the_next_step() {
    let Some(mut hosts) = hosts() else { return };
    let attach = |interface, address: &str| KernelPath::attach(interface, address.parse().unwrap()).unwrap_err();
    assert!(matches!(attach("qnone", "10.9.0.1:1"), KernelPathError::Interface(_)));
    assert!(attach("qpath", "0.0.0.0:1").to_string().contains("one address of this host"));
    assert!(attach("qpath", "10.9.0.1:0").to_string().contains("and a port"));
    let mut refused = |peer, epoch, rights: PeerRights| hosts.path.admit(peer, epoch, &key(5), &rights).unwrap_err();
    assert!(refused(256, 1, rights(&[0])).to_string().contains("below 256"));
    assert!(refused(PEER, 9, rights(&[0])).to_string().contains("that no peer has"));
    assert!(refused(9, 0, rights(&[0])).to_string().contains("above 0"));
    assert!(refused(9, 1, rights(&[])).to_string().contains("at least one channel"));
    assert!(refused(9, 1, rights(&[64])).to_string().contains("from 0 to 63"));
    assert!(refused(9, 1, rights(&[0, CHANNEL])).to_string().contains("channel is 3; remove the peer"));
    for (per_second, burst) in [(0, 1), (1, 0), (1_000_001, 1), (1, 1_000_001)] {
        let text = refused(9, 1, PeerRights { per_second, burst, ..rights(&[0]) }).to_string();
        assert!(text.contains("from 1 to 1000000"), "{text}");
    }
    assert!(hosts.path.renew(9, &key(5)).unwrap_err().to_string().contains("admit the peer first"));
    assert!(hosts.path.remove(9).is_err() && hosts.path.retire(9).is_err());
}
