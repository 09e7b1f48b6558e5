//! Power save of wireless network cards, by nl80211: between two beacons the card sleeps, and packets for it wait at the
//! access point.

use std::fmt;
use std::io;
use std::path::Path;

use neli::consts::genl::{Cmd, CtrlAttr, CtrlCmd, NlAttrType};
use neli::consts::nl::NlmF;
use neli::consts::nl80211::Nl80211Command;
use neli::consts::socket::NlFamily;
use neli::err::SocketError;
use neli::genl::{AttrTypeBuilder, Genlmsghdr, GenlmsghdrBuilder, NlattrBuilder, NoUserHeader};
use neli::nl::{NlPayload, NlmsghdrBuilder};
use neli::socket::synchronous::NlSocketHandle;
use neli::types::{Buffer, GenlBuffer};
use neli::utils::Groups;
use neli::{Size, ToBytes, TypeSize};
use qfabric_sync::assert_may_block;
use serde::{Deserialize, Serialize};

use super::{entries, number};

/// The kernel's number of generic netlink's own family (`GENL_ID_CTRL`).
const CONTROL: u16 = 16;
/// Longest name of an interface, without its zero byte (`IFNAMSIZ`).
const LONGEST_NAME: usize = 15;

/// Attributes of nl80211 that neli does not name.
#[neli::neli_enum(serialized_type = "u16")]
pub(crate) enum Attribute {
    Ifindex = 3,
    PsState = 93,
}

impl NlAttrType for Attribute {}

/// A wireless interface of the process's network namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Radio {
    pub name: String,
    /// The kernel's number. Another interface that gets the same name later has another one.
    pub(crate) index: u32,
}

impl fmt::Display for Radio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "power save of {}", self.name)
    }
}

/// The wireless interfaces below `sys`; empty if there is no card.
pub fn radios(sys: &Path) -> Vec<Radio> {
    let folder = sys.join("class/net");
    let radio = |name: String| {
        let index = number(&folder.join(&name).join("ifindex")).ok()?.try_into().ok()?;
        folder.join(&name).join("phy80211").exists().then_some(Radio { name, index })
    };
    entries(&folder).into_iter().filter_map(radio).collect()
}

impl Radio {
    /// Whether power save is on.
    ///
    /// # Errors
    /// `ENODEV`: the interface is gone. `EOPNOTSUPP`: its driver has no power save. Any error if the kernel has no nl80211.
    pub fn power_save(&self) -> io::Result<bool> {
        let answers = ask(Nl80211Command::GetPowerSave, self.index, None)?;
        let state = |answer: &Genlmsghdr<Nl80211Command, Attribute>| {
            answer.attrs().get_attr_handle().get_attr_payload_as::<u32>(Attribute::PsState).ok()
        };
        let state = answers.iter().find_map(state);
        state.map(|state| state != 0).ok_or_else(|| io::Error::other("the kernel's answer has no state"))
    }

    /// Switches power save without recording its former state; [`crate::journal::Journal::power_save`] records it.
    ///
    /// # Errors
    /// As [`Radio::power_save`]. `EOPNOTSUPP`: also for an access point, which must not sleep. `EPERM`: this process has no
    /// CAP_NET_ADMIN.
    pub(crate) fn set_power_save(&self, on: bool) -> io::Result<()> {
        ask(Nl80211Command::SetPowerSave, self.index, Some(u32::from(on))).map(drop)
    }

    /// True if the error says that the interface, or the driver of every wireless card, is not there any more.
    pub(crate) fn is_gone(error: &io::Error) -> bool {
        error.raw_os_error() == Some(libc::ENODEV) || error.kind() == io::ErrorKind::NotFound
    }

    /// True if this program could have written this record of an interface.
    pub(crate) fn is_believable(&self) -> bool {
        let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'/';
        self.index > 0 && (1..=LONGEST_NAME).contains(&self.name.len()) && self.name.bytes().all(plain)
    }
}

/// Sends a command about power save and returns the answers before its acknowledgement.
fn ask(
    command: Nl80211Command,
    index: u32,
    state: Option<u32>,
) -> io::Result<Vec<Genlmsghdr<Nl80211Command, Attribute>>> {
    assert_may_block("asking the kernel about wireless cards");
    let socket = NlSocketHandle::connect(NlFamily::Generic, None, Groups::empty()).map_err(other)?;
    let family = family(&socket)?;
    let mut attributes = GenlBuffer::new();
    attributes.push(attribute(Attribute::Ifindex, index)?);
    if let Some(state) = state {
        attributes.push(attribute(Attribute::PsState, state)?);
    }
    exchange(&socket, family, message(command, attributes)?)
}

/// The number of nl80211, which the kernel chooses when the module is loaded.
fn family(socket: &NlSocketHandle) -> io::Result<u16> {
    let mut attributes = GenlBuffer::new();
    attributes.push(attribute(CtrlAttr::FamilyName, "nl80211")?);
    let answers = exchange(socket, CONTROL, message(CtrlCmd::Getfamily, attributes)?);
    let answers = answers.map_err(|error| match error.raw_os_error() {
        Some(libc::ENOENT) => io::Error::new(io::ErrorKind::NotFound, "the kernel has no nl80211, so no wireless card"),
        _ => error,
    })?;
    let id = |answer: &Genlmsghdr<CtrlCmd, CtrlAttr>| {
        answer.attrs().get_attr_handle().get_attr_payload_as::<u16>(CtrlAttr::FamilyId).ok()
    };
    answers.iter().find_map(id).ok_or_else(|| io::Error::other("the kernel's answer has no number of nl80211"))
}

fn attribute<A: NlAttrType, P: Size + ToBytes>(kind: A, value: P) -> io::Result<neli::genl::Nlattr<A, Buffer>> {
    let kind = AttrTypeBuilder::default().nla_type(kind).build().map_err(other)?;
    NlattrBuilder::default().nla_type(kind).nla_payload(value).build().map_err(other)
}

fn message<C: Cmd, A: NlAttrType>(command: C, attributes: GenlBuffer<A, Buffer>) -> io::Result<Genlmsghdr<C, A>> {
    let message = GenlmsghdrBuilder::<C, A, NoUserHeader>::default();
    message.cmd(command).version(1).attrs(attributes).build().map_err(other)
}

/// Sends a request and reads until its acknowledgement. The kernel answers within the call that sends, so no read waits.
fn exchange<C: Cmd + TypeSize, A: NlAttrType>(
    socket: &NlSocketHandle,
    family: u16,
    message: Genlmsghdr<C, A>,
) -> io::Result<Vec<Genlmsghdr<C, A>>> {
    let request = NlmsghdrBuilder::default()
        .nl_type(family)
        .nl_flags(NlmF::REQUEST | NlmF::ACK)
        .nl_pid(socket.pid())
        .nl_payload(NlPayload::Payload(message))
        .build();
    socket.send(&request.map_err(other)?).map_err(other)?;
    let mut answers = Vec::new();
    loop {
        let (messages, _) = socket.recv::<u16, Genlmsghdr<C, A>>().map_err(other)?;
        for message in messages {
            match message.map_err(other)?.nl_payload() {
                NlPayload::Payload(answer) => answers.push(answer.clone()),
                NlPayload::Err(error) => return Err(io::Error::from_raw_os_error(-error.error())),
                NlPayload::Ack(_) => return Ok(answers),
                NlPayload::Empty | NlPayload::DumpExtAck(_) => {}
            }
        }
    }
}

/// An error of the library; one of the socket keeps its number.
fn other(error: impl Into<SocketError>) -> io::Error {
    match error.into() {
        SocketError::Io(error) if error.raw_os_error().is_some() => {
            io::Error::from_raw_os_error(error.raw_os_error().unwrap_or_default())
        }
        error => io::Error::other(error.to_string()),
    }
}
