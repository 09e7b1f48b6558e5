//! The messages of `ecalls.sock` (SOCK_SEQPACKET): one message per packet; little endian, no padding.
//!
//! ```text
//! client                                daemon
//!   Hello ────────────────────────────────>        a connection is a lease: everything requested
//!        <──────────────────────────── Welcome     through it ends with it
//!   Raise ────────────────────────────────>        no answer: one system call per event
//!   Take(subscription), TakeDown, TakeSockets, Bind + descriptor ──>
//!        <─────────────── Descriptors (attached), or Refused
//!        <──────── Call, TakenOut, Ended           at any time
//!   Reply ────────────────────────────────>        to a Call
//! ```
//! Every message is checked: one with an unknown kind, a wrong length or a text that is not UTF-8 is refused.

use crate::api::ecalls::{LeaseId, ServiceId, SubscriptionId};
use crate::format::Format;

/// Version of the messages below and of the shared memory ([`crate::memory`]); a daemon with another version refuses
/// `Hello`. In version 1 a deferred value had no moment of its own ([`crate::memory::Moment`]): a daemon of that version
/// would pass it to the handlers of all moments. It also gave no program for fast calls ([`DescriptorSet::CALL`]).
pub const VERSION: u8 = 2;
/// Largest number of bytes of an event's data.
pub const MAX_DATA: usize = Format::MAX_SIZE as usize;
/// Largest number of bytes of a message: the data and the fields before it.
pub const MAX_MESSAGE: usize = MAX_DATA + 64;
/// Largest number of bytes of a refusal's or a reason's text; a longer text is cut.
pub const MAX_TEXT: usize = 1_000;

/// A message from a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromClient<'a> {
    /// The first message.
    Hello {
        /// [`VERSION`].
        version: u8,
    },
    /// Raises an event.
    Raise(RaiseRequest<'a>),
    /// Asks for the descriptors of a subscription.
    Take(SubscriptionId),
    /// Asks for the descriptor of `memory_down`.
    TakeDown,
    /// Asks for the I/O module of this lease: its page, its wake descriptor, and the descriptor for binding
    /// sockets.
    TakeSockets,
    /// Asks the daemon to bind the attached socket to this number, for clients without permission to do so.
    Bind(u32),
    /// Answers a call.
    Reply {
        /// The number of the call.
        call: u64,
        data: &'a [u8],
    },
}

/// An event on its way to the daemon: the paper's `raise_event(service, pid, data, deadline, cpu)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaiseRequest<'a> {
    pub service: ServiceId,
    /// The process of the subscriber that receives the event; −1 for all subscribers.
    pub pid: i32,
    /// The event is late after this number of microseconds; 0: it is never late.
    pub deadline_us: u64,
    /// Asks the CPU scheduler to cooperate.
    pub cpu: bool,
    pub data: &'a [u8],
}

/// A message from the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromDaemon<'a> {
    /// The number of this connection's lease.
    Welcome(LeaseId),
    /// The requested descriptors are attached, in the order of [`DescriptorSet`]'s bits.
    Descriptors(DescriptorSet),
    /// The reason why a request was refused.
    Refused(&'a str),
    /// Another process calls the owner of a service.
    Call {
        /// The number to put into the reply.
        call: u64,
        service: ServiceId,
        /// The process of the caller.
        pid: i32,
        data: &'a [u8],
    },
    /// A handler faulted too often and was taken out.
    TakenOut {
        subscription: SubscriptionId,
        /// The reason, with the numbers and the last fault.
        why: &'a str,
    },
    /// A subscription ended because its process or its service ended.
    Ended { subscription: SubscriptionId, why: &'a str },
}

/// The attached descriptors as bits, lowest bit first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DescriptorSet(pub u8);

impl DescriptorSet {
    /// The memory into which events are written.
    pub const UP: u8 = 1;
    /// An eventfd that is written when the reader sleeps.
    pub const WAKE: u8 = 2;
    /// The page of the I/O module.
    pub const SOCKETS: u8 = 4;
    /// The descriptor for binding sockets.
    pub const BIND: u8 = 8;
    /// The memory into which the application writes.
    pub const DOWN: u8 = 16;
    /// The program that runs for the fast calls of the application.
    pub const CALL: u8 = 32;

    /// The index of this bit's descriptor among the attached ones; `None` if it is not attached.
    pub fn index(self, bit: u8) -> Option<usize> {
        (self.0 & bit != 0).then(|| (self.0 & (bit - 1)).count_ones() as usize)
    }

    /// Number of attached descriptors.
    pub fn count(self) -> usize {
        self.0.count_ones() as usize
    }
}

impl<'a> FromClient<'a> {
    /// Writes the message into `out`, after clearing it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        match self {
            FromClient::Hello { version } => out.extend([1, *version]),
            FromClient::Raise(raise) => raise.encode(out),
            FromClient::Take(id) => tagged(out, 3, *id),
            FromClient::TakeDown => out.push(4),
            FromClient::TakeSockets => out.push(6),
            FromClient::Bind(slot) => {
                out.push(7);
                out.extend(slot.to_le_bytes());
            }
            FromClient::Reply { call, data } => {
                tagged(out, 5, *call);
                out.extend(*data);
            }
        }
    }

    /// Reads a message; `None` if it is invalid.
    pub fn decode(bytes: &'a [u8]) -> Option<FromClient<'a>> {
        let (kind, rest) = bytes.split_first()?;
        match (kind, rest.len()) {
            (1, 1) => Some(FromClient::Hello { version: rest[0] }),
            (2, _) => RaiseRequest::decode(rest).map(FromClient::Raise),
            (3, 8) => Some(FromClient::Take(word(rest)?.0)),
            (4, 0) => Some(FromClient::TakeDown),
            (6, 0) => Some(FromClient::TakeSockets),
            (7, 4) => Some(FromClient::Bind(u32::from_le_bytes(*rest.first_chunk()?))),
            (5, 8..) => word(rest).filter(|(_, data)| data.len() <= MAX_DATA).map(reply),
            _ => None,
        }
    }
}

fn reply((call, data): (u64, &[u8])) -> FromClient<'_> {
    FromClient::Reply { call, data }
}

impl<'a> RaiseRequest<'a> {
    /// The bytes before the data. Header and data are sent in one call without being copied together.
    pub fn head(&self) -> [u8; 18] {
        let mut head = [0; 18];
        (head[0], head[1]) = (2, u8::from(self.cpu));
        head[2..6].copy_from_slice(&self.service.to_le_bytes());
        head[6..10].copy_from_slice(&self.pid.to_le_bytes());
        head[10..].copy_from_slice(&self.deadline_us.to_le_bytes());
        head
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.head());
        out.extend(self.data);
    }

    fn decode(bytes: &'a [u8]) -> Option<RaiseRequest<'a>> {
        let (cpu, rest) = bytes.split_first()?;
        let (service, rest) = rest.split_first_chunk()?;
        let (pid, rest) = rest.split_first_chunk()?;
        let (deadline_us, data) = word(rest)?;
        let (service, pid) = (u32::from_le_bytes(*service), i32::from_le_bytes(*pid));
        let whole = *cpu <= 1 && data.len() <= MAX_DATA && pid >= -1;
        whole.then_some(RaiseRequest { service, pid, deadline_us, cpu: *cpu == 1, data })
    }
}

impl<'a> FromDaemon<'a> {
    /// Writes the message into `out`, after clearing it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        match self {
            FromDaemon::Welcome(lease) => tagged(out, 129, *lease),
            FromDaemon::Descriptors(given) => out.extend([130, given.0]),
            FromDaemon::Refused(text) => {
                out.push(131);
                out.extend(cut(text).as_bytes());
            }
            FromDaemon::Call { call, service, pid, data } => {
                tagged(out, 132, *call);
                out.extend(service.to_le_bytes());
                out.extend(pid.to_le_bytes());
                out.extend(*data);
            }
            FromDaemon::TakenOut { subscription, why } => {
                tagged(out, 133, *subscription);
                out.extend(cut(why).as_bytes());
            }
            FromDaemon::Ended { subscription, why } => {
                tagged(out, 134, *subscription);
                out.extend(cut(why).as_bytes());
            }
        }
    }

    /// Reads a message; `None` if it is invalid.
    pub fn decode(bytes: &'a [u8]) -> Option<FromDaemon<'a>> {
        let (kind, rest) = bytes.split_first()?;
        match kind {
            129 if rest.len() == 8 => Some(FromDaemon::Welcome(word(rest)?.0)),
            130 if rest.len() == 1 && rest[0] < 64 => Some(FromDaemon::Descriptors(DescriptorSet(rest[0]))),
            131 => text(rest).map(FromDaemon::Refused),
            132 => call(rest),
            133 => number_and_text(rest).map(|(subscription, why)| FromDaemon::TakenOut { subscription, why }),
            134 => number_and_text(rest).map(|(subscription, why)| FromDaemon::Ended { subscription, why }),
            _ => None,
        }
    }
}

fn call(bytes: &[u8]) -> Option<FromDaemon<'_>> {
    let (call, rest) = word(bytes)?;
    let (service, rest) = rest.split_first_chunk()?;
    let (pid, data) = rest.split_first_chunk()?;
    let (service, pid) = (u32::from_le_bytes(*service), i32::from_le_bytes(*pid));
    (data.len() <= MAX_DATA).then_some(FromDaemon::Call { call, service, pid, data })
}

fn number_and_text(bytes: &[u8]) -> Option<(u64, &str)> {
    let (id, rest) = word(bytes)?;
    Some((id, text(rest)?))
}

fn tagged(out: &mut Vec<u8>, kind: u8, number: u64) {
    out.push(kind);
    out.extend(number.to_le_bytes());
}

fn word(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (word, rest) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*word), rest))
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().filter(|text| text.len() <= MAX_TEXT)
}

fn cut(text: &str) -> &str {
    let end = (0..=MAX_TEXT.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{self, Down, Moment};
    use proptest::prelude::*;

    fn round_trips(message: &FromClient<'_>) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        assert_eq!(FromClient::decode(&bytes).as_ref(), Some(message));
    }

    fn comes_back(message: &FromDaemon<'_>) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        assert_eq!(FromDaemon::decode(&bytes).as_ref(), Some(message));
    }

    #[test]
    fn descriptors_are_found_by_their_bit() {
        let given = DescriptorSet(DescriptorSet::UP | DescriptorSet::DOWN);
        assert_eq!(
            (given.index(DescriptorSet::UP), given.index(DescriptorSet::WAKE), given.index(DescriptorSet::DOWN)),
            (Some(0), None, Some(1))
        );
        assert_eq!(given.count(), 2);
    }

    #[test]
    fn the_longest_event_fits_a_message_and_one_more_byte_does_not() {
        let data = vec![7; MAX_DATA + 1];
        let raise = |length| RaiseRequest { service: 1, pid: -1, deadline_us: 0, cpu: false, data: &data[..length] };
        round_trips(&FromClient::Raise(raise(MAX_DATA)));
        let mut bytes = Vec::new();
        FromClient::Raise(raise(MAX_DATA)).encode(&mut bytes);
        assert!(bytes.len() <= MAX_MESSAGE);
        FromClient::Raise(raise(MAX_DATA + 1)).encode(&mut bytes);
        assert_eq!(FromClient::decode(&bytes), None);
    }

    #[test]
    fn a_text_too_long_is_cut_between_characters() {
        let long = "é".repeat(MAX_TEXT);
        let mut bytes = Vec::new();
        FromDaemon::Refused(&long).encode(&mut bytes);
        let Some(FromDaemon::Refused(text)) = FromDaemon::decode(&bytes) else { panic!("the refusal does not parse") };
        assert!(text.len() <= MAX_TEXT && long.starts_with(text));
    }

    /// A client library and a daemon of one version share these bytes and offsets. A change of one of them needs another
    /// [`VERSION`].
    #[test]
    fn messages_and_shared_memory_change_only_together_with_the_version() {
        let client = |message: FromClient<'_>, expected: &[u8]| {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            assert_eq!(bytes, expected, "{message:?}");
        };
        let raise = RaiseRequest { service: 0x0102, pid: -1, deadline_us: 5, cpu: true, data: &[9] };
        client(FromClient::Hello { version: VERSION }, &[1, 2]);
        client(FromClient::Raise(raise), &[2, 1, 2, 1, 0, 0, 255, 255, 255, 255, 5, 0, 0, 0, 0, 0, 0, 0, 9]);
        client(FromClient::Take(3), &[3, 3, 0, 0, 0, 0, 0, 0, 0]);
        client(FromClient::TakeDown, &[4]);
        client(FromClient::Reply { call: 1, data: &[7] }, &[5, 1, 0, 0, 0, 0, 0, 0, 0, 7]);
        client(FromClient::TakeSockets, &[6]);
        client(FromClient::Bind(1), &[7, 1, 0, 0, 0]);
        let daemon = |message: FromDaemon<'_>, expected: &[u8]| {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            assert_eq!(bytes, expected, "{message:?}");
        };
        let call = FromDaemon::Call { call: 1, service: 2, pid: 3, data: &[7] };
        daemon(FromDaemon::Welcome(1), &[129, 1, 0, 0, 0, 0, 0, 0, 0]);
        daemon(FromDaemon::Descriptors(DescriptorSet(63)), &[130, 63]);
        daemon(FromDaemon::Refused("x"), &[131, b'x']);
        daemon(call, &[132, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 7]);
        daemon(FromDaemon::TakenOut { subscription: 1, why: "x" }, &[133, 1, 0, 0, 0, 0, 0, 0, 0, b'x']);
        daemon(FromDaemon::Ended { subscription: 1, why: "x" }, &[134, 1, 0, 0, 0, 0, 0, 0, 0, b'x']);
        let bits = [
            DescriptorSet::UP,
            DescriptorSet::WAKE,
            DescriptorSet::SOCKETS,
            DescriptorSet::BIND,
            DescriptorSet::DOWN,
            DescriptorSet::CALL,
        ];
        assert_eq!(bits, [1, 2, 4, 8, 16, 32]);
        assert_eq!([Down::HEAD, Down::TAIL, Down::VALUES], [512, 520, 576]);
        assert_eq!(Moment::ALL.map(Moment::elsewhere), [528, 536, 544, 552]);
        assert_eq!((memory::HEADER_BYTES, memory::SLOT_HEADER_BYTES), (128, 24));
        assert_eq!(size_of::<Down>(), 1_088);
    }

    proptest! {
        #[test]
        fn the_daemon_decodes_every_client_message(
            service: u32, pid in -1..i32::MAX, deadline_us: u64, cpu: bool, data: Vec<u8>, number: u64,
        ) {
            round_trips(&FromClient::Raise(RaiseRequest { service, pid, deadline_us, cpu, data: &data }));
            round_trips(&FromClient::Take(number));
            round_trips(&FromClient::Reply { call: number, data: &data });
            round_trips(&FromClient::Hello { version: cpu.into() });
            round_trips(&FromClient::TakeDown);
            round_trips(&FromClient::TakeSockets);
            round_trips(&FromClient::Bind(service));
        }

        #[test]
        fn a_client_decodes_every_daemon_message(
            service: u32, pid: i32, data: Vec<u8>, number: u64, why in ".{0,200}",
        ) {
            comes_back(&FromDaemon::Welcome(number));
            comes_back(&FromDaemon::Descriptors(DescriptorSet(number as u8 & 63)));
            comes_back(&FromDaemon::Call { call: number, service, pid, data: &data });
            comes_back(&FromDaemon::TakenOut { subscription: number, why: &why });
            comes_back(&FromDaemon::Ended { subscription: number, why: &why });
            comes_back(&FromDaemon::Refused(&why));
        }

        /// No bytes cause a panic, and an accepted message encodes to the same bytes again.
        #[test]
        fn hostile_bytes_are_refused_or_decode_uniquely(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let mut again = Vec::new();
            if let Some(message) = FromClient::decode(&bytes) {
                message.encode(&mut again);
                prop_assert_eq!(&again, &bytes);
            }
            if let Some(message) = FromDaemon::decode(&bytes) {
                message.encode(&mut again);
                prop_assert_eq!(&again, &bytes);
            }
        }
    }
}
