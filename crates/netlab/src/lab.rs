//! Two network namespaces, a device in each, and the emulated link between them.
//!
//! ```text
//!   namespace «local»                                      namespace «peer»
//!   198.18.0.1 on lab0 ──> emulator: up,   one direction ──> lab0 with 198.18.0.2, .3, …
//!                      <── emulator: down, the other     <──
//! ```
//! Both namespaces have no name and no other interface than loopback. They, the devices and every process in them end
//! with the [`Lab`], also when this process is killed. 198.18.0.0/15 is reserved for measurements of network devices
//! (RFC 2544).

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use qfabric_linux::namespace::{Namespace, Sweeper};
use qfabric_linux::tun::{DEVICE, Tun};
use rustix::event::{EventfdFlags, eventfd};

use crate::emulator::{Emulator, Order, Side, Snapshot};
use crate::error::LabError;
use crate::report::{DirectionReport, LabReport};
use crate::settings::{LabSettings, LinkChange, LinkDirection};

/// Name of the device in both namespaces.
const INTERFACE: &str = "lab0";
const NETWORK: [u8; 3] = [198, 18, 0];
const LOCAL: u8 = 1;
const FIRST_PEER: u8 = 2;
/// The emulator answers between two packets; a longer silence means that it cannot run.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// An end of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabEnd {
    Local,
    Peer,
}

/// An emulated link that carries packets. Dropping it ends every process in both namespaces.
#[derive(Debug)]
pub struct Lab {
    /// Dropped first: the processes end before their link does.
    sweeper: Option<Sweeper>,
    namespaces: [Namespace; 2],
    orders: Sender<Order>,
    bell: OwnedFd,
    emulator: Option<JoinHandle<io::Result<()>>>,
    seed: u64,
    paths: u8,
}

impl Lab {
    /// Makes the namespaces and starts the emulator. Needs CAP_SYS_ADMIN and CAP_NET_ADMIN, which
    /// [`enter_user_namespace`] gives to other users.
    pub fn new(settings: &LabSettings) -> Result<Lab, LabError> {
        settings.check()?;
        if !qfabric_linux::namespace::may_make() {
            return Err(LabError::Rights);
        }
        check_device()?;
        let made = |what| move |source| LabError::System { what, source };
        let namespaces = [namespace()?, namespace()?];
        let sweeper = Sweeper::new([&namespaces[0], &namespaces[1]]).map_err(made("starting the sweeper"))?;
        let paths = settings.paths.len() as u8;
        let devices = [
            device(&namespaces[0], &[address(LOCAL)], settings.mtu)?,
            device(&namespaces[1], &(FIRST_PEER..FIRST_PEER + paths).map(address).collect::<Vec<_>>(), settings.mtu)?,
        ];
        let bell = eventfd(0, EventfdFlags::CLOEXEC).map_err(io::Error::from).map_err(made("eventfd"))?;
        let heard = bell.try_clone().map_err(made("a descriptor"))?;
        let (orders, receiver) = channel();
        let emulator = Emulator::new(settings, devices, receiver, heard, FIRST_PEER);
        let thread = std::thread::Builder::new().name("qf-netlab".into()).spawn(move || emulator.run());
        let emulator = Some(thread.map_err(made("starting a thread"))?);
        Ok(Lab { sweeper: Some(sweeper), namespaces, orders, bell, emulator, seed: settings.seed, paths })
    }

    /// The address of an end; the peer's end may have more ([`Lab::peers`]).
    pub fn address(&self, end: LabEnd) -> Ipv4Addr {
        match end {
            LabEnd::Local => address(LOCAL),
            LabEnd::Peer => address(FIRST_PEER),
        }
    }

    /// Name of the device of the link, the same at both ends.
    pub fn interface(&self) -> &'static str {
        INTERFACE
    }

    /// All addresses of the peer's end, one for each path.
    pub fn peers(&self) -> impl Iterator<Item = Ipv4Addr> {
        (FIRST_PEER..FIRST_PEER + self.paths).map(address)
    }

    /// Makes `command` run at the local end. Its environment has the addresses of both ends in `QFABRIC_LAB_LOCAL` and
    /// `QFABRIC_LAB_PEER`, and all addresses of the peer's end in `QFABRIC_LAB_PEERS`, separated by spaces.
    pub fn command_local(&self, command: Command) -> io::Result<Command> {
        self.command(LabEnd::Local, command)
    }

    /// As [`Lab::command_local`], at the peer's end. The environment is the same.
    pub fn command_peer(&self, command: Command) -> io::Result<Command> {
        self.command(LabEnd::Peer, command)
    }

    fn command(&self, end: LabEnd, mut command: Command) -> io::Result<Command> {
        let peers: Vec<_> = self.peers().map(|peer| peer.to_string()).collect();
        command.env("QFABRIC_LAB_LOCAL", self.address(LabEnd::Local).to_string());
        command.env("QFABRIC_LAB_PEER", self.address(LabEnd::Peer).to_string());
        command.env("QFABRIC_LAB_PEERS", peers.join(" "));
        self.namespace(end).enter_at_exec(&mut command)?;
        Ok(command)
    }

    /// Runs `body` in a thread at an end of the link, and waits for its end. Sockets that it opens stay at that end.
    pub fn inside<T: Send>(&self, end: LabEnd, body: impl FnOnce() -> T + Send) -> io::Result<T> {
        self.namespace(end).inside(body)
    }

    fn namespace(&self, end: LabEnd) -> &Namespace {
        match end {
            LabEnd::Local => &self.namespaces[0],
            LabEnd::Peer => &self.namespaces[1],
        }
    }

    /// Begins the schedule: its times count from now. Before, and without this call, the first properties hold.
    pub fn begin_schedule(&self) -> Result<(), LabError> {
        self.order(Order::BeginSchedule)
    }

    /// Changes a direction now.
    pub fn change(&self, direction: LinkDirection, change: LinkChange) -> Result<(), LabError> {
        let mut settings = Default::default();
        change.apply(&mut settings);
        settings.check()?;
        self.order(Order::Change(direction, change))
    }

    /// The counters and the lateness so far.
    pub fn report(&self) -> Result<LabReport, LabError> {
        let (answer, answered) = channel();
        self.order(Order::Report(answer))?;
        let Snapshot { path: [up, down], lateness, is_real_time, seconds } =
            answered.recv_timeout(ANSWER_LIMIT).map_err(|_| LabError::Silent { seconds: ANSWER_LIMIT.as_secs() })?;
        let mut report = LabReport {
            seed: self.seed,
            seconds,
            up: self.direction(LabEnd::Local, up)?,
            down: self.direction(LabEnd::Peer, down)?,
            lateness: lateness.summary(),
            real_time: is_real_time,
            valid: false,
            reasons: Vec::new(),
        };
        report.judge();
        Ok(report)
    }

    /// Adds the counters of the device at the begin of a direction.
    fn direction(&self, begin: LabEnd, side: Side) -> Result<DirectionReport, LabError> {
        let drops = self.inside(begin, || qfabric_linux::tun::drops(INTERFACE)).flatten();
        let device_drops =
            drops.map_err(|source| LabError::System { what: "reading the device's counters", source })?;
        let Side { link, counters, ignored, write_errors } = side;
        Ok(DirectionReport { link, counters, ignored, device_drops, write_errors })
    }

    fn order(&self, order: Order) -> Result<(), LabError> {
        self.orders.send(order).map_err(|_| LabError::Ended)?;
        let rung = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        rung.map(drop).map_err(|source| LabError::System { what: "waking the emulator", source: source.into() })
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.sweeper = None;
        let _ = self.order(Order::Stop); // it may have ended with an error
        if let Some(emulator) = self.emulator.take() {
            // An error of the emulator was reported by `report`, which then fails.
            let _ = emulator.join();
        }
    }
}

fn address(last: u8) -> Ipv4Addr {
    let [a, b, c] = NETWORK;
    Ipv4Addr::new(a, b, c, last)
}

fn namespace() -> Result<Namespace, LabError> {
    Namespace::new().map_err(|source| match source.raw_os_error() {
        Some(rustix_perm) if rustix_perm == rustix::io::Errno::PERM.raw_os_error() => LabError::Rights,
        _ => LabError::System { what: "making a network namespace", source },
    })
}

fn device(namespace: &Namespace, addresses: &[Ipv4Addr], mtu: u16) -> Result<Tun, LabError> {
    let made = namespace.inside(|| Tun::new(INTERFACE, addresses, mtu)).flatten();
    made.map_err(|source| LabError::System { what: "making a TUN device", source })
}

/// Fails with the missing part if devices cannot be made.
fn check_device() -> Result<(), LabError> {
    match fs::OpenOptions::new().read(true).write(true).open(DEVICE) {
        Ok(_) => Ok(()),
        Err(source) if source.kind() == io::ErrorKind::PermissionDenied => Err(LabError::DeviceRights),
        Err(source) => Err(LabError::NoDevice { source }),
    }
}

/// Gives an unprivileged process the rights that [`Lab::new`] needs, inside a new user namespace. To be called before the
/// process starts threads. Does nothing if the process has the rights.
pub fn enter_user_namespace() -> Result<(), LabError> {
    let entered = qfabric_linux::namespace::enter_user_namespace();
    entered.map(drop).map_err(|source| LabError::UserNamespace { source })
}
