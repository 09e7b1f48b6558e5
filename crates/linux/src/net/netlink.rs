//! Sends requests to the kernel's network configuration (rtnetlink): messages with nested attributes, answers and
//! errors.
//!
//! This code replaces a library: traffic control needs only five kinds of message here, and for HTB and BPF classifiers
//! the libraries also offer no more than the numbers.

use std::io;
use std::os::fd::OwnedFd;

use qfabric_sync::assert_may_block;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

const HEADER: usize = 16;
const TC_HEADER: usize = 20;
const LINK_HEADER: usize = 16;
/// Larger than every datagram of an answer.
const RECEIVE_BYTES: usize = 64 << 10;

const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
pub(super) const NLM_F_REPLACE: u16 = 0x100;
pub(super) const NLM_F_EXCL: u16 = 0x200;
pub(super) const NLM_F_CREATE: u16 = 0x400;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;

pub(super) const RTM_NEWLINK: u16 = 16;
pub(super) const RTM_DELLINK: u16 = 17;
pub(super) const RTM_NEWQDISC: u16 = 36;
pub(super) const RTM_DELQDISC: u16 = 37;
pub(super) const RTM_GETQDISC: u16 = 38;
pub(super) const RTM_NEWTCLASS: u16 = 40;
pub(super) const RTM_DELTCLASS: u16 = 41;
pub(super) const RTM_GETTCLASS: u16 = 42;
pub(super) const RTM_NEWTFILTER: u16 = 44;

/// The fields at the beginning of every traffic control message (`struct tcmsg`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Object {
    pub ifindex: u32,
    pub handle: u32,
    pub parent: u32,
    pub info: u32,
}

/// A message under construction.
#[derive(Debug)]
pub(super) struct Message {
    bytes: Vec<u8>,
}

/// A message from the kernel: its object and its attributes.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub object: Object,
    attributes: Vec<u8>,
}

impl Message {
    pub(super) fn new(kind: u16, flags: u16, object: Object) -> Message {
        let mut bytes = vec![0; HEADER + TC_HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | NLM_F_REQUEST).to_ne_bytes());
        for (at, word) in [object.ifindex, object.handle, object.parent, object.info].into_iter().enumerate() {
            let at = HEADER + 4 + 4 * at;
            bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        Message { bytes }
    }

    /// A message about an interface (`struct ifinfomsg`); index 0 for a new interface.
    pub(super) fn interface(kind: u16, flags: u16, ifindex: u32, is_up: bool) -> Message {
        let mut message = Message::new(kind, flags, Object::default());
        message.bytes.truncate(HEADER + LINK_HEADER);
        message.bytes[HEADER..].copy_from_slice(&link_header(ifindex, is_up));
        message
    }

    /// A message for a new IPv4 address of an interface (`struct ifaddrmsg`); `bits` is the length of the network
    /// prefix.
    pub(super) fn address(ifindex: u32, bits: u8) -> Message {
        const RTM_NEWADDR: u16 = 20;
        let mut message = Message::new(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, Object::default());
        message.bytes.truncate(HEADER);
        message.bytes.extend([libc::AF_INET as u8, bits, 0, 0]);
        message.bytes.extend(ifindex.to_ne_bytes());
        message
    }

    pub(super) fn attribute(mut self, kind: u16, value: &[u8]) -> Message {
        push(&mut self.bytes, kind, value);
        self
    }

    /// Adds a name with a terminating zero.
    pub(super) fn name(self, kind: u16, name: &str) -> Message {
        let mut value = name.as_bytes().to_vec();
        value.push(0);
        self.attribute(kind, &value)
    }

    fn finish(mut self) -> Vec<u8> {
        let length = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes
    }
}

/// `struct ifinfomsg`.
pub(super) fn link_header(ifindex: u32, is_up: bool) -> [u8; LINK_HEADER] {
    const IFF_UP: u32 = 1;
    let flags = if is_up { IFF_UP } else { 0 };
    let mut header = [0; LINK_HEADER];
    header[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..16].copy_from_slice(&flags.to_ne_bytes());
    header
}

/// Adds an attribute to `bytes`, padded to a multiple of four bytes.
pub(super) fn push(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    bytes.extend(((4 + value.len()) as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// The complete attributes in `bytes`.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?) & 0x3fff;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

impl Answer {
    pub(super) fn attribute(&self, kind: u16) -> Option<&[u8]> {
        attributes(&self.attributes).find(|(found, _)| *found == kind).map(|(_, value)| value)
    }

    /// The value of an attribute that is a name.
    pub(super) fn name(&self, kind: u16) -> Option<String> {
        let value = self.attribute(kind)?;
        let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
        Some(String::from_utf8_lossy(&value[..end]).into_owned())
    }

    fn parse(body: &[u8]) -> Option<Answer> {
        let word = |at: usize| Some(u32::from_ne_bytes(body.get(at..at + 4)?.try_into().ok()?));
        let object = Object { ifindex: word(4)?, handle: word(8)?, parent: word(12)?, info: word(16)? };
        Some(Answer { object, attributes: body.get(TC_HEADER..)?.to_vec() })
    }
}

/// Sends a command and waits for its acknowledgement.
pub(super) fn act(message: Message) -> io::Result<()> {
    let mut bytes = message.finish();
    bytes[6] |= NLM_F_ACK as u8;
    exchange(&bytes, |_| ()).map(drop)
}

/// Requests a list of all objects of the message's kind.
pub(super) fn list(message: Message) -> io::Result<Vec<Answer>> {
    let mut bytes = message.finish();
    let flags = u16::from_ne_bytes([bytes[6], bytes[7]]) | NLM_F_DUMP;
    bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
    let mut answers = Vec::new();
    exchange(&bytes, |body| answers.extend(Answer::parse(body)))?;
    Ok(answers)
}

fn exchange(request: &[u8], mut answer: impl FnMut(&[u8])) -> io::Result<()> {
    assert_may_block("asking the kernel about interfaces");
    let socket = open()?;
    send(&socket, request, SendFlags::empty())?;
    let mut buffer = vec![0; RECEIVE_BYTES];
    loop {
        let (received, _) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        if let Some(outcome) = read(&buffer[..received], &mut answer) {
            return outcome;
        }
    }
}

/// Opens a socket of protocol 0, which is rtnetlink, with a timeout of 10 s.
fn open() -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let timeout = Some(std::time::Duration::from_secs(10));
    rustix::net::sockopt::set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Recv, timeout)?;
    Ok(socket)
}

/// Reads the messages of a datagram. Returns the outcome if the datagram contains it.
fn read(mut datagram: &[u8], answer: &mut impl FnMut(&[u8])) -> Option<io::Result<()>> {
    while let Some(header) = datagram.get(..HEADER) {
        let length = u32::from_ne_bytes(header[..4].try_into().ok()?) as usize;
        let kind = u16::from_ne_bytes(header[4..6].try_into().ok()?);
        let Some(body) = datagram.get(HEADER..length) else { break };
        match kind {
            // The end of a list has an error number too: not 0 if the list is incomplete.
            NLMSG_DONE | NLMSG_ERROR => return Some(outcome(body)),
            _ => answer(body),
        }
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    None
}

fn outcome(body: &[u8]) -> io::Result<()> {
    match body.get(..4).and_then(|code| code.try_into().ok()).map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(-code)),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_attributes_are_read_back_and_an_incomplete_one_ends_the_list() {
        let mut bytes = Vec::new();
        push(&mut bytes, 1, b"fq\0");
        push(&mut bytes, 2, &[1, 2, 3, 4]);
        let read: Vec<_> = attributes(&bytes).collect();
        assert_eq!(read, [(1, &b"fq\0"[..]), (2, &[1, 2, 3, 4])]);
        assert_eq!(attributes(&bytes[..10]).count(), 1);
        assert_eq!(attributes(&[0; 8]).count(), 0, "an attribute shorter than its header");
    }

    #[test]
    fn a_message_contains_its_length_kind_and_object() {
        let object = Object { ifindex: 3, parent: u32::MAX, ..Object::default() };
        let bytes = Message::new(RTM_NEWQDISC, NLM_F_CREATE, object).name(1, "fq").finish();
        assert_eq!(bytes.len(), HEADER + TC_HEADER + 8);
        assert_eq!(u32::from_ne_bytes(bytes[..4].try_into().unwrap()) as usize, bytes.len());
        let answer = Answer::parse(&bytes[HEADER..]).unwrap();
        assert_eq!((answer.object, answer.name(1).as_deref()), (object, Some("fq")));
    }

    #[test]
    fn a_list_that_the_kernel_could_not_complete_is_an_error() {
        let end = |code: i32| {
            let mut datagram = 20u32.to_ne_bytes().to_vec();
            datagram.extend(NLMSG_DONE.to_ne_bytes());
            datagram.resize(HEADER, 0);
            datagram.extend(code.to_ne_bytes());
            read(&datagram, &mut |_: &[u8]| ()).unwrap()
        };
        assert!(end(0).is_ok());
        assert_eq!(end(-libc::EMSGSIZE).unwrap_err().raw_os_error(), Some(libc::EMSGSIZE));
    }

    #[test]
    fn the_kernel_lists_queueing_disciplines() {
        let found = list(Message::new(RTM_GETQDISC, 0, Object::default())).unwrap();
        assert!(found.iter().all(|answer| answer.name(1).is_some() && answer.object.ifindex > 0));
    }

    #[test]
    fn requests_with_a_lock_of_the_event_path_panic() {
        let lock = qfabric_sync::Lock::<(), { qfabric_sync::rank::ECALLS_REGISTRY }>::default();
        let asks = || lock.with(|()| list(Message::new(RTM_GETQDISC, 0, Object::default())).map(drop));
        assert_eq!(qfabric_sync::contain(asks).is_err(), cfg!(debug_assertions));
    }

    #[test]
    fn a_refusal_has_the_kernels_error_number() {
        let nobody = Object { ifindex: u32::MAX >> 1, parent: u32::MAX, ..Object::default() };
        let error = act(Message::new(RTM_DELQDISC, 0, nobody)).unwrap_err();
        assert!(matches!(error.raw_os_error(), Some(libc::ENODEV | libc::EPERM)), "{error}");
    }
}
