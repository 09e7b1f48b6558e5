//! Connections over an emulated link: the watchdog of a granted rate, and carriers that are replaced while frames flow.
//! Needs root and `/dev/net/tun`; elsewhere it says so and passes.

mod common;

use std::fs::File;
use std::time::{Duration, Instant};

use common::{PATIENCE, Realm, name, patient, target};
use qfabric_carrier::{
    ClientConnection, Connection, Error, Event, FrameKind, Mode, Options, RateGrant, Revocation, ServerConnection,
};
use qfabric_linux::testing::{live_lock, skip};
use qfabric_netlab::{Lab, LabEnd, LabError, LabSettings, LinkRate, LinkSettings, LossModel, QueueLimit};
use qfabric_types::{BitRate, Nanos, Share};

const PERIOD: Duration = Duration::from_millis(40);

/// Both ends of a connection over a link with a round trip of 40 ms.
struct Site {
    /// Ends before the link.
    ends: (ServerConnection, ClientConnection, Connection),
    _lab: Lab,
    /// No other live test disturbs the link.
    _lock: File,
    /// A further carrier reads its certificates.
    _realm: Realm,
}

impl Site {
    /// None: links cannot be made here, which is said.
    fn new(rate: u64, loss: f64, options: &Options) -> Option<Site> {
        let loss = if loss > 0.0 { LossModel::Random(Share::from_f64(loss)) } else { LossModel::None };
        let link = LinkSettings {
            rate: LinkRate::Constant(BitRate::new(rate)),
            queue: QueueLimit::Time(Nanos::from_millis(2_000)),
            delay: Nanos::from_millis(20),
            loss,
            ..LinkSettings::default()
        };
        let lock = live_lock();
        let lab = match Lab::new(&LabSettings::symmetric(link, 7)) {
            Ok(lab) => lab,
            Err(LabError::Rights | LabError::DeviceRights) => {
                skip("this test needs root");
                return None;
            }
            Err(LabError::NoDevice { source }) => {
                skip(format!("no /dev/net/tun: {source}"));
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let realm = Realm::new();
        let local = (lab.address(LabEnd::Peer), 0).into();
        // The threads of a connection stay at the end of the link at which it was made.
        let server = lab.inside(LabEnd::Peer, || {
            ServerConnection::register(name("film"), local, realm.tls("wall"), options.clone()).unwrap()
        });
        let server = server.unwrap();
        let peer = target(server.address());
        let client =
            lab.inside(LabEnd::Local, || ClientConnection::open(peer, realm.tls("cam"), options.clone()).unwrap());
        let accepted = server.accept(PATIENCE).unwrap();
        Some(Site { ends: (server, client.unwrap(), accepted), _lab: lab, _lock: lock, _realm: realm })
    }

    /// Sends at more than `rate` until the grant is revoked, or `most` frames were sent.
    fn revoked(&self, rate: u64, most: u64) -> Option<Revocation> {
        let (_, client, accepted) = &self.ends;
        client.grant(Some(RateGrant::laboratory(BitRate::new(rate)))).unwrap();
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| while !matches!(accepted.receive(PATIENCE), Err(Error::Ended(_))) {});
            let why = (0..most).find_map(|_| {
                client.send(FrameKind::P, vec![7; 20_000], None, PATIENCE).unwrap();
                revocation(client)
            });
            client.close();
            reading.join().unwrap();
            why
        })
    }
}

fn options() -> Options {
    Options { rate: BitRate::new(20_000_000), ..patient() }
}

/// A starving machine delays packets, too.
fn is_delay(why: Revocation) -> bool {
    matches!(why, Revocation::DelayGrows { by_ms: 40.. } | Revocation::DelayStays { by_ms: 40.. })
}

/// Why the grant of a connection was revoked, if it was.
fn revocation(client: &ClientConnection) -> Option<Revocation> {
    std::iter::from_fn(|| client.event(Duration::ZERO).ok()).find_map(|event| match event {
        Event::Revoked(why) => Some(why),
        _ => None,
    })
}

#[test]
fn a_path_that_carries_less_than_the_granted_rate_ends_the_grant() {
    let Some(site) = Site::new(5_000_000, 0.0, &options()) else { return };
    let why = site.revoked(20_000_000, 1_000);
    assert!(why.is_some_and(is_delay), "{why:?}");
}

#[test]
fn loss_that_persists_ends_the_grant_and_the_loss_of_a_wireless_link_does_not() {
    let Some(site) = Site::new(40_000_000, 0.25, &options()) else { return };
    let why = site.revoked(10_000_000, 2_000);
    let is_loss = |why| matches!(why, Revocation::LossPersists { percent: 10.. });
    assert!(why.is_some_and(|why| is_loss(why) || is_delay(why)), "{why:?}");
    drop(site);
    let site = Site::new(40_000_000, 0.03, &options()).unwrap();
    let why = site.revoked(10_000_000, 300);
    assert!(why.is_none_or(is_delay), "{why:?}");
}

/// Replaces the carrier in the middle of 75 frames of 10 kB. Returns the longest time between two frames that arrive.
fn replaced_while_frames_flow(mode: Mode, deadline: Option<Duration>) -> Option<Duration> {
    let site = Site::new(30_000_000, 0.0, &Options { mode, ..options() })?;
    let (server, client, accepted) = &site.ends;
    client.grant(Some(RateGrant::laboratory(BitRate::new(20_000_000)))).unwrap();
    let arrivals = std::thread::scope(|scope| {
        let receiving = scope.spawn(|| (0..75).map(|number| arrival(accepted, number)).collect::<Vec<_>>());
        let begin = Instant::now();
        for number in 0..75 {
            std::thread::sleep((PERIOD * number as u32).saturating_sub(begin.elapsed()));
            client.send(FrameKind::P, vec![number as u8; 10_000], deadline, PATIENCE).unwrap();
            if number == 37 {
                scope.spawn(|| client.replace(None, server.address(), PATIENCE).unwrap());
            }
        }
        receiving.join().unwrap()
    });
    let statistics = client.statistics();
    assert_eq!(statistics.carriers.iter().map(|carrier| carrier.carrier).collect::<Vec<_>>(), [1]);
    let has_moved = statistics.granted == Some(BitRate::new(20_000_000));
    assert!(has_moved || revocation(client).is_some_and(is_delay), "the grant moves with the carrier");
    arrivals.windows(2).map(|pair| pair[1] - pair[0]).max()
}

/// When the next frame arrives, whole.
fn arrival(connection: &Connection, number: u64) -> Instant {
    let message = connection.receive(PATIENCE).unwrap();
    assert!(message.number == number && message.data == [number as u8; 10_000], "{} for {number}", message.number);
    Instant::now()
}

/// The pauses are printed, not asserted: they contain those of the machine.
#[test]
fn a_carrier_is_replaced_over_a_link_and_no_frame_is_lost_in_either_mode() {
    let Some(pause) = replaced_while_frames_flow(Mode::TotallyReliable, None) else { return };
    println!("totally reliable: at most {} ms between two frames", pause.as_millis());
    let deadline = Some(Duration::from_secs(5));
    let pause = replaced_while_frames_flow(Mode::PartiallyReliable, deadline).unwrap();
    println!("partially reliable: at most {} ms between two frames", pause.as_millis());
}
