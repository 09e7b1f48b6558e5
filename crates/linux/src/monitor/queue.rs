//! `net.*.queue…`: packets that wait in the queueing discipline of each interface, read from the kernel (rtnetlink) for
//! all interfaces at once.

use std::path::PathBuf;

use qfabric_types::monitor::Attribute;
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

use super::text::{Scratch, raw};
use super::{Finder, Meter, Total, assign_slot, attribute, entries};
use crate::files;

const METRICS: [&str; 3] = ["net.*.queue", "net.*.queue_packets", "net.*.queue_drops"];

const HEADER: usize = 16;
const TC_HEADER: usize = 20;
const RTM_NEWQDISC: u16 = 36;
const RTM_GETQDISC: u16 = 38;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const TCA_STATS2: u16 = 7;
const TCA_STATS_QUEUE: u16 = 3;
/// Parent of the root discipline of an interface, whose counters include all disciplines below it.
const TC_H_ROOT: u32 = 0xffff_ffff;
/// Largest number of datagrams in one answer; each has at most 64 KiB.
const MOST_DATAGRAMS: usize = 64;

pub(super) fn find(finder: &mut Finder) {
    if !finder.roots.queues {
        return finder.missing("net.*.queue", "reading the queues of interfaces is switched off");
    }
    match Queues::open(finder.roots.sys.join("class/net")) {
        Ok(queues) => finder.found(queues),
        Err(error) => finder.missing("net.*.queue", format!("cannot open a netlink socket: {error}")),
    }
}

struct Queues {
    socket: OwnedFd,
    folder: PathBuf,
    /// Each interface has [`METRICS`] slots; `None`: the interface is gone and its slots are free.
    interfaces: Vec<Option<Interface>>,
    sequence: u32,
}

struct Interface {
    name: String,
    number: u32,
    drops: Total,
}

/// The used fields of `struct gnet_stats_queue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Queue {
    interface: u32,
    packets: u32,
    bytes: u32,
    drops: u32,
}

impl Queues {
    fn open(folder: PathBuf) -> rustix::io::Result<Queues> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        let mut queues = Queues { socket, folder, interfaces: Vec::new(), sequence: 0 };
        queues.rescan();
        Ok(queues)
    }

    /// Sends the request. The kernel answers within `send`, so the following `recv` never waits.
    fn ask(&mut self) -> rustix::io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        send(&self.socket, &request(self.sequence), SendFlags::empty()).map(drop)
    }
}

/// A request for the disciplines of all interfaces.
fn request(sequence: u32) -> [u8; HEADER + TC_HEADER] {
    let mut bytes = [0; HEADER + TC_HEADER];
    bytes[..4].copy_from_slice(&((HEADER + TC_HEADER) as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&RTM_GETQDISC.to_ne_bytes());
    bytes[6..8].copy_from_slice(&NLM_F_REQUEST_DUMP.to_ne_bytes());
    bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
    bytes
}

impl Meter for Queues {
    fn attributes(&self) -> Vec<Option<Attribute>> {
        let of = |interface: &Option<Interface>| METRICS.map(|metric| attribute(metric, &interface.as_ref()?.name));
        self.interfaces.iter().flat_map(of).collect()
    }

    fn look(&mut self, scratch: &mut Scratch, values: &mut [Option<i64>]) {
        if self.ask().is_err() {
            return;
        }
        for _ in 0..MOST_DATAGRAMS {
            let Ok((_, length)) = recv(&self.socket, &mut *scratch.bytes(), RecvFlags::empty()) else { return };
            let (sequence, interfaces) = (self.sequence, &mut self.interfaces);
            let over = parse(&scratch.bytes()[..length], sequence, |queue| take(interfaces, queue, values));
            if over {
                return;
            }
        }
    }

    fn rescan(&mut self) {
        let here: Vec<_> =
            entries(&self.folder).into_iter().filter_map(|name| Some((self.number(&name)?, name))).collect();
        for place in &mut self.interfaces {
            place.take_if(|known| !here.iter().any(|(number, name)| known.number == *number && known.name == *name));
        }
        for (number, name) in here {
            if !self.interfaces.iter().flatten().any(|known| known.number == number) {
                assign_slot(&mut self.interfaces, Interface { name, number, drops: Total::default() });
            }
        }
    }
}

impl Queues {
    fn number(&self, name: &str) -> Option<u32> {
        files::number(self.folder.join(name).join("ifindex"))
    }
}

fn take(interfaces: &mut [Option<Interface>], queue: Queue, values: &mut [Option<i64>]) {
    let matches_number =
        |place: &Option<Interface>| place.as_ref().is_some_and(|known| known.number == queue.interface);
    let Some(at) = interfaces.iter().position(matches_number) else { return };
    let Some(interface) = &mut interfaces[at] else { return };
    let drops = interface.drops.take_u32(queue.drops);
    let numbers = [raw(queue.bytes.into()), raw(queue.packets.into()), Some(drops)];
    values[at * METRICS.len()..][..METRICS.len()].copy_from_slice(&numbers);
}

/// Parses a datagram; returns `true` if the answer ends in it. Skips answers to earlier requests.
fn parse(mut bytes: &[u8], sequence: u32, mut found: impl FnMut(Queue)) -> bool {
    while let (Some(length), Some(kind), Some(of)) = (u32_at(bytes, 0), u16_at(bytes, 4), u32_at(bytes, 8)) {
        let length = length as usize;
        let Some(body) = bytes.get(HEADER..length) else { return false };
        match kind {
            _ if of != sequence => (),
            NLMSG_DONE | NLMSG_ERROR => return true,
            RTM_NEWQDISC => {
                if let Some(queue) = queue_of(body) {
                    found(queue);
                }
            }
            _ => (),
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    false
}

/// `None` for a discipline that is not the root of its interface.
fn queue_of(body: &[u8]) -> Option<Queue> {
    let (interface, parent) = (u32_at(body, 4)?, u32_at(body, 12)?);
    let all = inside(body.get(TC_HEADER..)?, TCA_STATS2)?;
    let queue = inside(all, TCA_STATS_QUEUE)?;
    let word = |at: usize| u32_at(queue, 4 * at);
    (parent == TC_H_ROOT).then_some(Queue { interface, packets: word(0)?, bytes: word(1)?, drops: word(2)? })
}

/// Value of the attribute of type `kind` in `bytes`.
fn inside(mut bytes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16_at(bytes, 0)?);
        let value = bytes.get(4..length)?;
        if u16_at(bytes, 2)? & 0x3fff == kind {
            return Some(value);
        }
        bytes = bytes.get(length.next_multiple_of(4)..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute_bytes(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    /// The message of a discipline, with other attributes before the relevant one.
    fn message(sequence: u32, interface: u32, parent: u32, words: [u32; 5]) -> Vec<u8> {
        let queue: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let stats = [attribute_bytes(1, &[0; 16]), attribute_bytes(TCA_STATS_QUEUE, &queue)].concat();
        let mut body = vec![0; TC_HEADER];
        body[4..8].copy_from_slice(&interface.to_ne_bytes());
        body[12..16].copy_from_slice(&parent.to_ne_bytes());
        body.extend(attribute_bytes(1, b"fq_codel\0"));
        body.extend(attribute_bytes(TCA_STATS2, &stats));
        header(RTM_NEWQDISC, sequence, body)
    }

    fn header(kind: u16, sequence: u32, body: Vec<u8>) -> Vec<u8> {
        let mut bytes = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0, 0]);
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(body);
        bytes
    }

    fn parsed(bytes: &[u8]) -> (Vec<Queue>, bool) {
        let mut found = Vec::new();
        let over = parse(bytes, 7, |queue| found.push(queue));
        (found, over)
    }

    #[test]
    fn only_root_disciplines_of_the_current_answer_are_reported() {
        let answer = [
            message(6, 9, TC_H_ROOT, [9; 5]),
            message(7, 2, TC_H_ROOT, [3, 4_500, 17, 0, 0]),
            message(7, 2, 0x1_0001, [1, 1, 1, 1, 1]),
            header(NLMSG_DONE, 7, vec![0; 4]),
        ]
        .concat();
        let expected = Queue { interface: 2, packets: 3, bytes: 4_500, drops: 17 };
        assert_eq!(parsed(&answer), (vec![expected], true));
    }

    #[test]
    fn a_truncated_or_broken_answer_ends_the_parsing() {
        let whole = message(7, 2, TC_H_ROOT, [1; 5]);
        for end in 0..whole.len() {
            assert_eq!(parsed(&whole[..end]).0, []);
        }
        for at in 0..whole.len() {
            for byte in [0, 1, 3, 0x7f, 0xff] {
                let mut broken = whole.clone();
                broken[at] = byte;
                parsed(&broken);
            }
        }
    }
}
