//! Helpers of the network tests: links with two ends, senders of marked packets, and records of what arrives.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use qfabric_linux::net::testing::{Frames, HEADERS, Interface, frame, own_network};
use qfabric_linux::net::{self, Book};
use qfabric_linux::testing::live_lock;
use qfabric_types::Nanos;
use qfabric_types::api::net::{Flow, Selector, StreamSpec};

/// Takes the lock of the live tests, with a network of its own. `None`, with the reason on standard error, if the
/// kernel has no BPF queues, which must not happen in the test machine.
pub(crate) fn dwcs() -> Option<fs::File> {
    match net::supported() {
        Ok(()) => root(),
        Err(why) => skip(&why.to_string()),
    }
}

/// Like [`dwcs`], but on any kernel: takes the lock and a network of its own if this process is root.
pub(crate) fn root() -> Option<fs::File> {
    match rustix::process::geteuid().is_root() {
        true => {
            own_network().expect("root may have a network of its own");
            Some(live_lock())
        }
        false => skip("this test needs root"),
    }
}

fn skip(why: &str) -> Option<fs::File> {
    qfabric_linux::testing::skip(why);
    None
}

/// Waits until packets in flight have arrived.
pub(crate) fn wait_for_packets() {
    std::thread::sleep(Duration::from_millis(60));
}

/// A stream of `packets` packets of the largest size per period.
pub(crate) fn spec(mark: u32, period_ms: u64, packets: u32) -> StreamSpec {
    let mut spec = StreamSpec::new(Selector::Mark(mark), Nanos::from_millis(period_ms));
    spec.size = packets * StreamSpec::LARGEST_PACKET;
    spec
}

/// A run folder, deleted when dropped.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// A record of attachments in a folder that is not deleted.
    pub(crate) fn book() -> Book {
        Book::open(&tempfile::tempdir().unwrap().keep())
    }
}

/// A veth link: frames sent at the near end arrive at the far end.
pub(crate) struct Pair {
    near: Interface,
    far: Frames,
}

/// Mark and number of a test packet that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub mark: u32,
    pub number: u32,
}

impl Pair {
    pub(crate) fn new(name: &str) -> Pair {
        let (near, far) = (format!("q{name}"), format!("p{name}"));
        let near = Interface::veth(&near, &far).unwrap_or_else(|error| panic!("veth {near}: {error}"));
        // The kernel takes a moment to bring both ends up.
        std::thread::sleep(Duration::from_millis(20));
        let far = Frames::at(net::index(&far).unwrap(), 0).unwrap();
        Pair { near, far }
    }

    pub(crate) fn near(&self) -> &str {
        &self.near.name
    }

    pub(crate) fn ifindex(&self) -> u32 {
        self.near.ifindex
    }

    pub(crate) fn root(&self) -> String {
        self.near.root().map_or_else(|_| "noqueue".to_owned(), |(kind, ..)| kind)
    }

    pub(crate) fn root_with_options(&self) -> (String, u32, Vec<u8>) {
        self.near.root().unwrap()
    }

    /// Sets a root discipline with options, as another program would: a queue of at most 77 packets.
    pub(crate) fn pfifo(&self) {
        self.near.set_root(0x70000, "pfifo", Some(&77u32.to_ne_bytes())).unwrap();
    }

    /// Like [`Pair::pfifo`], and gives the discipline the handle that ours had.
    pub(crate) fn pfifo_with_our_handle(&self) {
        self.pfifo();
        self.near.set_root(0x5146_0000, "pfifo", Some(&77u32.to_ne_bytes())).unwrap();
    }

    /// Sets a root discipline without options, as another program would.
    pub(crate) fn set_root(&self, kind: &str) -> io::Result<()> {
        self.near.set_root(0x70000, kind, None)
    }

    /// Test packets that arrive within `time`, at most `most`.
    pub(crate) fn received_within(&self, time: Duration, most: usize) -> Vec<Arrival> {
        let (end, mut arrived, mut buffer) = (Instant::now() + time, Vec::new(), [0; 4096]);
        while arrived.len() < most && Instant::now() < end {
            match self.far.receive(&mut buffer) {
                Ok(bytes) => arrived.extend(read(&buffer[..bytes])),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => panic!("{error}"),
            }
        }
        arrived
    }
}

fn flow(mark: u32) -> Flow {
    format!("udp,10.77.0.1:{},10.77.0.2:6000", 5000 + mark % 1000).parse().unwrap()
}

/// Parses a frame of a test. The port distinguishes it from frames that the interface sends itself.
fn read(bytes: &[u8]) -> Option<Arrival> {
    let word = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    (bytes.get(36..38)? == 6000u16.to_be_bytes()).then_some(())?;
    Some(Arrival { mark: word(HEADERS)?, number: word(HEADERS + 4)? })
}

/// A sender of packets with one mark.
pub(crate) struct Sender {
    frames: Frames,
    mark: u32,
    number: std::cell::Cell<u32>,
}

impl Sender {
    pub(crate) fn to(pair: &Pair, mark: u32) -> Sender {
        Sender { frames: Frames::at(pair.ifindex(), mark).unwrap(), mark, number: Default::default() }
    }

    pub(crate) fn flow(&self) -> Flow {
        flow(self.mark)
    }

    /// Sends a packet with `bytes` of payload. A full queue may drop it.
    pub(crate) fn send(&self, bytes: usize) {
        let number = self.number.replace(self.number.get() + 1);
        let mut payload = [self.mark.to_be_bytes(), number.to_be_bytes()].concat();
        payload.resize(bytes.max(8), 0);
        match self.frames.send(&frame(&self.flow(), &payload)) {
            Err(error) if error.raw_os_error() != Some(libc::ENOBUFS) => panic!("{error}"),
            _ => {}
        }
    }
}

/// A cgroup that this process is in until the value is dropped.
pub(crate) struct Cgroup {
    folder: PathBuf,
    mount: PathBuf,
}

impl Cgroup {
    pub(crate) fn enter(name: &str) -> Cgroup {
        let mount = qfabric_linux::cgroup::Mounts::here().v2.expect("the test machine has cgroup v2");
        let folder = mount.join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("cgroup.procs"), std::process::id().to_string()).unwrap();
        Cgroup { folder, mount }
    }

    pub(crate) fn path(&self) -> String {
        format!("/{}", self.folder.file_name().unwrap().to_str().unwrap())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::write(self.mount.join("cgroup.procs"), std::process::id().to_string());
        let _ = fs::remove_dir(&self.folder);
    }
}
