//! Parameters of filters that another host changes by the kernel path: its datagrams are captured and sent again, and
//! the receiving daemon is stopped meanwhile.

use std::fs::File;
use std::os::fd::AsFd;

use qfabric_client::channel::{
    Channel, Channels, Direction, Filter, FilterScope, Source, SourceOptions, Spec, Submission,
};
use qfabric_linux::net::testing::Frames;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::host::{OPEN, Site, eventually};
use crate::talk::{FORMAT, Reader, enter};

/// Bytes before the change in a frame: Ethernet, IPv4, UDP.
const HEADERS: usize = 42;

/// `h0` has a filter with the parameter `least`, which `h1` changes.
struct Stage {
    site: Site,
    /// `h1`'s.
    there: Channel,
    source: Source,
    _reader: Reader,
    _open: (Channels, Channel, Channels),
}

/// The table of a host.
fn table(site: &Site, host: usize, interface: &str) -> String {
    let address = site.lan.address(host);
    format!("[channels.kernel_path]\ninterface = '{interface}'\naddress = '{address}:7790'\nrenew = '1s'")
}

/// `interface`: that of `h0` at which changes arrive.
fn stage(interface: &str) -> Option<Stage> {
    let mut site = Site::new(&[0, 0])?;
    site.access(&format!("hosts = ['h0', 'h1']\n{OPEN}"));
    let tables = [table(&site, 0, interface), table(&site, 1, "eth0")];
    (0..2).for_each(|host| site.start(host, &tables[host]));
    site.all_meet();
    Some(enter_all(site))
}

fn enter_all(site: Site) -> Stage {
    let (own, other) = (site[0].channels(), site[1].channels());
    let video = enter(&own, "video", &Spec::of(FORMAT));
    let code = "return input.number >= get_attribute(least);".to_owned();
    let filter = Filter { code, to: FilterScope::Here, ..Filter::default() };
    video.install(Direction::Out, "mine", &filter).unwrap();
    let source = video.source_subscribe(&SourceOptions::default()).unwrap();
    let _reader = Reader::start(&site[0], "video");
    eventually("h1 knows the channel", || site[1].show("video").is_some());
    let there = enter(&other, "video", &Spec::of(FORMAT));
    Stage { site, there, source, _reader, _open: (own, video, other) }
}

impl Stage {
    /// Sets `least` from `h1`; whether by the kernel path.
    fn set(&self, least: i64) -> bool {
        let to = FilterScope::Hosts(vec!["h0".parse().unwrap()]);
        let mut by_path = false;
        // A starving host may answer too late.
        eventually("h0 answers", || {
            let done = self.there.set_parameter(Direction::Out, "mine", "least", least, to.clone()).unwrap();
            assert_eq!(done.hosts.len(), 1, "{done:?}");
            by_path = done.hosts[0].kernel_path;
            done.hosts[0].refused.is_none()
        });
        by_path
    }

    /// Until changes take the kernel path; `least` is 10 then.
    fn bind(&self) {
        eventually("it takes the kernel path", || self.set(10));
        eventually("it is applied", || self.least_is(10));
    }

    /// Submits two events: one below the number, which the filter blocks, and one with it, which passes.
    fn least_is(&self, least: i32) -> bool {
        let filter = || self.site[0].show("video").unwrap().filters.remove(0);
        let before = filter();
        let blocked = [least - 1, least].map(|number| {
            let (payload, before) = ([number.to_le_bytes(), [0; 4]].concat(), filter());
            self.source.submit(&Submission { payload: &payload, ..Submission::default() }).unwrap();
            eventually("the filter is called", || filter().calls > before.calls);
            filter().blocked - before.blocked
        });
        assert_eq!(filter().faults, before.faults);
        blocked == [1, 0]
    }

    fn count(&self, what: &str) -> f64 {
        self.site[0].metric(&format!("qfabric_channels_kernel_path_{what}"))
    }

    /// A change of `h1` to 20, as it is on the wire, and the socket with which it is sent again.
    fn capture(&self) -> (Frames, Vec<u8>) {
        let namespace = File::open(format!("/run/netns/{}", self.site.lan.namespace(1))).unwrap();
        let entering = move || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            Frames::at(qfabric_linux::net::index("eth0").unwrap(), 0).unwrap()
        };
        let frames = std::thread::spawn(entering).join().unwrap();
        self.bind();
        eventually("it takes the kernel path", || self.set(20));
        let (mut frame, mut change) = (vec![0; 2_000], Vec::new());
        eventually("it is seen", || {
            while let Ok(length) = frames.receive(&mut frame) {
                let is_change = length == HEADERS + 48 && frame[HEADERS..].starts_with(b"QPV1");
                if is_change && frame[HEADERS + 16] == 20 {
                    change = frame[..length].to_vec();
                }
            }
            !change.is_empty()
        });
        eventually("it is applied", || self.least_is(20));
        (frames, change)
    }

    /// Sends a captured change that was changed by `spoil`; it is counted as `outcome`.
    fn refused(&self, (frames, change): &(Frames, Vec<u8>), outcomes: [&str; 2], spoil: impl Fn(&mut [u8])) {
        let sum = || outcomes.map(|outcome| self.count(outcome)).iter().sum::<f64>();
        let (mut change, before) = (change.clone(), (sum(), self.count("accepted")));
        spoil(&mut change[HEADERS..]);
        (0..50).for_each(|_| frames.send(&change).unwrap());
        eventually(outcomes[0], || sum() >= before.0 + 50.0);
        assert_eq!(self.count("accepted"), before.1, "{outcomes:?}");
    }
}

#[test]
fn a_change_takes_effect_while_the_daemon_is_stopped() {
    let Some(stage) = stage("eth0") else { return };
    assert!(!stage.set(3), "the first change goes through the daemon");
    eventually("it is applied", || stage.least_is(3));
    stage.bind();
    let followed = stage.site[0].show("video").unwrap().filters.remove(0).followed;
    assert_eq!(followed.get("least").map(ToString::to_string).as_deref(), Some("h1"));
    stage.site[0].signal("STOP");
    let by_path = stage.set(50);
    stage.site.lan.cable(1, false);
    stage.site[0].signal("CONT");
    // Nothing of h1 arrives any more.
    assert!(by_path && stage.least_is(50));
    eventually("h1 is gone", || stage.site[0].sees() == ["h0"]);
    assert!(stage.least_is(50), "the value stays");
    stage.site.lan.cable(1, true);
    stage.site.all_meet();
    stage.bind();
}

#[test]
fn forged_replayed_and_old_changes_are_counted_and_change_nothing() {
    let Some(mut stage) = stage("eth0") else { return };
    let captured = stage.capture();
    assert!(stage.count("accepted") >= 2.0 && stage.count("forged") == 0.0);
    eventually("its key is replaced", || stage.count("keys_renewed") >= 2.0);
    stage.refused(&captured, ["unknown", "replayed"], |_| {});
    let captured = stage.capture();
    stage.refused(&captured, ["replayed", "unknown"], |_| {});
    stage.refused(&captured, ["forged", "unknown"], |change| change[16] = 99);
    stage.refused(&captured, ["forged", "unknown"], |change| change[47] ^= 1);
    stage.refused(&captured, ["unknown", "unknown"], |change| change[4] ^= 7);
    stage.refused(&captured, ["malformed", "malformed"], |change| change[0] = 0);
    assert!(stage.least_is(20));
    stage.bind();
    stage.site.kill(0);
    let again = table(&stage.site, 0, "eth0");
    stage.site.start(0, &again);
    stage.site.all_meet();
    let stage = enter_all(stage.site);
    stage.refused(&captured, ["unknown", "forged"], |_| {});
    stage.bind();
    stage.refused(&captured, ["unknown", "forged"], |_| {});
    assert!(stage.least_is(10));
}

#[test]
fn without_a_kernel_path_at_the_other_host_changes_go_through_its_daemon() {
    let Some(stage) = stage("none0") else { return };
    assert!(stage.site[0].log().contains("no kernel path"), "{}", stage.site[0].log());
    for least in [3, 4, 5] {
        assert!(!stage.set(least.into()) && stage.least_is(least));
    }
    assert_eq!((stage.count("followed"), stage.site[1].metric("qfabric_channels_kernel_path_fallbacks")), (0.0, 3.0));
}
