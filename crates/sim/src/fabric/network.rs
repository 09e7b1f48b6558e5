//! The paths between hosts.

use std::collections::{BTreeMap, BTreeSet};

use qfabric_channel::Lane;
use qfabric_types::{Instant, Nanos};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::world::HostId;

/// Headers of a frame on the wire, in bytes: Ethernet, IP, TCP and the engine's own header.
const OVERHEAD: usize = 78;

/// The properties of the network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Seed of all random values.
    pub seed: u64,
    /// Delay from host to host.
    pub delay: Nanos,
    /// Largest additional delay, drawn for each frame.
    pub jitter: Nanos,
    /// Fraction of the data frames that are lost.
    pub loss: f64,
    /// Bandwidth of each host's uplink, in bits per second.
    pub bandwidth: f64,
    /// Largest number of bytes of data that wait at an uplink; more data is dropped.
    pub queue: usize,
    /// Largest drift of a clock, in millionths.
    pub drift_ppm: i64,
    /// Largest offset of a clock.
    pub offset: Nanos,
    /// A silent host counts as gone after this time.
    pub lease: Nanos,
    /// A killed host counts as gone after this time, because its kernel closes its connections.
    pub closed: Nanos,
}

impl Default for Settings {
    /// A quiet local network: 0.2 to 0.4 ms, 100 Mbit/s, hosts that started up to an hour apart, so their clocks differ
    /// by that, and 50 ppm.
    fn default() -> Self {
        let ms = Nanos::from_millis;
        Settings {
            seed: 1,
            delay: Nanos::from_micros(200),
            jitter: Nanos::from_micros(200),
            loss: 0.0,
            bandwidth: 100e6,
            queue: 256 << 10,
            drift_ppm: 50,
            offset: ms(3_600_000),
            lease: ms(1_000),
            closed: ms(10),
        }
    }
}

/// Bytes of bulk frames that wait at an uplink: sixteen batches of 64 KiB, as `link` sets for Zenoh.
const BULK_QUEUE: usize = 1 << 20;

#[derive(Clone, Copy, Debug)]
struct Uplink {
    bandwidth: f64,
    control_free: Instant,
    data_free: Instant,
    bulk_free: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Downlink {
    /// Bits per second.
    bandwidth: f64,
    /// Largest number of bytes that wait; more data is dropped.
    queue: usize,
    /// When the last bit of waiting data will have arrived.
    free: Instant,
}

/// The reason for which a frame does not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// The queue of the uplink is full.
    Full,
    /// The frame was lost on the path.
    Way,
    /// The path is cut.
    Cut,
}

#[derive(Debug)]
pub(super) struct Network {
    settings: Settings,
    uplinks: Vec<Uplink>,
    /// Ways into hosts, for those that are limited.
    downlinks: BTreeMap<HostId, Downlink>,
    cuts: BTreeSet<(HostId, HostId)>,
    /// Arrival time of the last frame of each connection. The next frame arrives later.
    last: BTreeMap<(HostId, HostId, Lane), Instant>,
}

impl Network {
    pub(super) fn new(settings: Settings) -> Network {
        let (uplinks, downlinks) = (Vec::new(), BTreeMap::new());
        Network { settings, uplinks, downlinks, cuts: BTreeSet::new(), last: BTreeMap::new() }
    }

    pub(super) fn add_host(&mut self) {
        let (bandwidth, zero) = (self.settings.bandwidth, Instant::ZERO);
        self.uplinks.push(Uplink { bandwidth, control_free: zero, data_free: zero, bulk_free: zero });
    }

    /// Sets the bandwidth of a host's uplink that remains for the simulated frames, in bits per second.
    pub(super) fn set_bandwidth(&mut self, host: HostId, bandwidth: f64) {
        self.uplinks[host].bandwidth = bandwidth.max(1.0);
    }

    /// Sets the bandwidth of the way into a host, in bits per second, and the bytes that may wait there; infinite: no
    /// limit. Only data is limited.
    pub(super) fn set_downlink(&mut self, host: HostId, bandwidth: f64, queue: usize) {
        if bandwidth.is_finite() {
            let free = self.downlinks.get(&host).map_or(Instant::ZERO, |before| before.free);
            self.downlinks.insert(host, Downlink { bandwidth: bandwidth.max(1.0), queue, free });
        } else {
            self.downlinks.remove(&host);
        }
    }

    /// The time at which a frame that left at `sent` has arrived over the way into a host.
    fn come_down(&mut self, to: HostId, lane: Lane, bytes: usize, sent: Instant) -> Result<Instant, Lost> {
        let Some(way) = self.downlinks.get_mut(&to).filter(|_| lane != Lane::Control) else {
            return Ok(sent);
        };
        let needs = |bytes: usize| Nanos::from_f64(bytes as f64 * 8e9 / way.bandwidth);
        if way.free.since(sent) > needs(way.queue) {
            return Err(Lost::Full);
        }
        way.free = sent.max(way.free) + needs(bytes + OVERHEAD);
        Ok(way.free)
    }

    pub(super) fn set_cut(&mut self, a: HostId, b: HostId, cut: bool) {
        let way = (a.min(b), a.max(b));
        if cut {
            self.cuts.insert(way)
        } else {
            self.cuts.remove(&way)
        };
    }

    pub(super) fn is_cut(&self, a: HostId, b: HostId) -> bool {
        self.cuts.contains(&(a.min(b), a.max(b)))
    }

    /// Returns the arrival time of a frame that is sent now.
    pub(super) fn send(
        &mut self,
        (from, to): (HostId, HostId),
        lane: Lane,
        bytes: usize,
        now: Instant,
        rng: &mut ChaCha8Rng,
    ) -> Result<Instant, Lost> {
        let sent = self.uplinks[from].send(lane, bytes, self.settings.queue, now)?;
        if self.is_cut(from, to) {
            return Err(Lost::Cut);
        }
        if lane != Lane::Control && self.settings.loss > 0.0 && rng.random::<f64>() < self.settings.loss {
            return Err(Lost::Way);
        }
        let sent = self.come_down(to, lane, bytes, sent)?;
        let jitter = Nanos::new(rng.random_range(0..=self.settings.jitter.get()));
        let last = self.last.entry((from, to, lane)).or_insert(Instant::ZERO);
        *last = (sent + self.settings.delay + jitter).max(*last + Nanos::new(1));
        Ok(*last)
    }
}

impl Uplink {
    /// Returns the time at which the last bit has left. Control frames precede waiting data, and data precedes waiting
    /// bulk frames.
    fn send(&mut self, lane: Lane, bytes: usize, queue: usize, now: Instant) -> Result<Instant, Lost> {
        let needs = |bytes: usize| Nanos::from_f64(bytes as f64 * 8e9 / self.bandwidth);
        let takes = needs(bytes + OVERHEAD);
        let queued = |free: Instant, most: usize| free.since(now) > needs(most);
        match lane {
            Lane::Control => self.control_free = self.control_free.max(now) + takes,
            Lane::Data if queued(self.data_free, queue) => return Err(Lost::Full),
            Lane::Bulk if queued(self.bulk_free, BULK_QUEUE) => return Err(Lost::Full),
            Lane::Data | Lane::Bulk => {}
        }
        if lane != Lane::Bulk {
            self.data_free = self.data_free.max(now) + takes;
        }
        self.bulk_free = self.bulk_free.max(now) + takes;
        Ok(match lane {
            Lane::Control => self.control_free,
            Lane::Data => self.data_free,
            Lane::Bulk => self.bulk_free,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn network(settings: Settings) -> (Network, ChaCha8Rng) {
        let mut network = Network::new(settings);
        (0..3).for_each(|_| network.add_host());
        (network, ChaCha8Rng::seed_from_u64(1))
    }

    #[test]
    fn frames_of_a_connection_keep_their_order() {
        let (mut network, mut rng) = network(Settings { jitter: Nanos::from_millis(50), ..Settings::default() });
        let mut send = |at| network.send((0, 1), Lane::Data, 100, Instant::new(at), &mut rng).unwrap();
        let arrivals: Vec<_> = (0..100).map(|i| send(i * 1_000)).collect();
        assert!(arrivals.is_sorted());
    }

    #[test]
    fn bulk_frames_have_a_queue_of_their_own_behind_data() {
        let (mut network, mut rng) = network(Settings { bandwidth: 8e6, queue: 10_000, ..Settings::default() });
        let mut send = |lane| network.send((0, 1), lane, 10_000, Instant::ZERO, &mut rng);
        let bulk: Vec<_> = (0..50).map(|_| send(Lane::Bulk).unwrap()).collect();
        let data = send(Lane::Data).unwrap();
        assert!(data < bulk[1] && send(Lane::Bulk).unwrap() > bulk[49] + Nanos::from_millis(10));
        assert!((0..200).any(|_| send(Lane::Bulk) == Err(Lost::Full)));
    }

    #[test]
    fn a_full_uplink_drops_data_and_lets_control_pass() {
        let (mut network, mut rng) = network(Settings { bandwidth: 8e6, queue: 10_000, ..Settings::default() });
        let sent: Vec<_> = (0..30).map(|_| network.send((0, 1), Lane::Data, 922, Instant::ZERO, &mut rng)).collect();
        assert_eq!(sent.iter().filter(|sent| sent.is_ok()).count(), 11);
        let control = network.send((0, 1), Lane::Control, 922, Instant::ZERO, &mut rng).unwrap();
        assert!(control.since(Instant::ZERO) < Nanos::from_millis(2), "{control:?}");
    }

    #[test]
    fn a_narrow_way_into_one_host_delays_and_drops_only_its_data() {
        let (mut network, mut rng) = network(Settings::default());
        network.set_downlink(1, 8e6, 10_000);
        let mut send = |to, lane| network.send((0, to), lane, 922, Instant::ZERO, &mut rng);
        let narrow: Vec<_> = (0..30).map(|_| send(1, Lane::Data)).collect();
        // As at a full uplink, and two more: the last of the 30 leaves the uplink 2.4 ms after the first.
        assert_eq!(narrow.iter().filter(|sent| sent.is_ok()).count(), 13);
        assert!((0..30).all(|_| send(2, Lane::Data).is_ok()), "the other host has its own way");
        assert!(send(1, Lane::Control).unwrap() < narrow[10].unwrap());
    }

    #[test]
    fn a_cut_path_carries_no_frames_until_it_is_healed() {
        let (mut network, mut rng) = network(Settings::default());
        network.set_cut(1, 0, true);
        let mut send = |network: &mut Network, to| network.send((0, to), Lane::Control, 10, Instant::ZERO, &mut rng);
        assert_eq!(send(&mut network, 1), Err(Lost::Cut));
        assert!(send(&mut network, 2).is_ok());
        network.set_cut(0, 1, false);
        assert!(send(&mut network, 1).is_ok());
    }
}
