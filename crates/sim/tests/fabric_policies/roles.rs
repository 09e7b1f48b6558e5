//! Roles over a simulated link: the source's uplink falls to 60 kbit/s and recovers, and all viewers must recover
//! too. Runs in virtual time. All differences between runs come from a seed, which a failure names.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use qfabric_control::adapt::capacity::Terms;
use qfabric_host::manager::policies::{Roles, stream_of};
use qfabric_sim::fabric::experiments::film::{Role, Seen, Sink, Source};
use qfabric_sim::fabric::{Fabric, Settings};
use qfabric_types::channel::{ChannelId, Plane};
use qfabric_types::{AppId, Instant, Nanos};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Bits per second of the source's uplink: 60 frames per second of [`FRAME`] bytes need 9/10 of it.
const LINK: f64 = 600e3;
/// Lowest bandwidth of the uplink, in bits per second.
const LEAST: f64 = 60e3;
/// Bytes of a frame, and its bits on the wire with all headers.
const FRAME: usize = 1_000;
const FRAME_BITS: f64 = 8.0 * 1_130.0;
/// Longest accepted time in seconds from the full recovery of the link until all viewers have their minimum again.
/// The longest time between two tries is 16 s, and then each try brings one stream back.
const BOUND: f64 = 30.0;
/// Number of seeds; `QFABRIC_SEEDS` sets another number.
const SEEDS: u64 = 60;
/// The least important role first.
const ROLES: [Role; 3] = [
    Role { min: 10, max: 15, importance: 0 },
    Role { min: 15, max: 20, importance: 1 },
    Role { min: 20, max: 25, importance: 2 },
];

/// The conditions of a run, drawn from its seed.
#[derive(Debug)]
struct Plan {
    seed: u64,
    /// Times in seconds at which the link begins to fall, is at its lowest, begins to rise, and has fully
    /// recovered.
    times: [f64; 4],
    jitter: Nanos,
    loss: f64,
    /// Largest number of bytes that wait at the uplink.
    queue: usize,
    period: Nanos,
    phases: [Nanos; 3],
}

impl Plan {
    fn of(seed: u64) -> Plan {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        // Either a sudden change, or a slope of up to a minute.
        let mut slope = || if random.random::<bool>() { 0.0 } else { random.random_range(0.0..60.0) };
        let (fall, rise) = (slope(), slope());
        let (begin, narrow) = (random.random_range(10.0..20.0), random.random_range(1.0..60.0));
        let period = Nanos::from_millis([250, 500, 1_000][random.random_range(0..3)]);
        let phases = [(); 3].map(|()| Nanos::new(random.random_range(1..=period.get())));
        Plan {
            seed,
            times: [begin, begin + fall, begin + fall + narrow, begin + fall + narrow + rise],
            jitter: Nanos::from_millis([0, 2, 20][random.random_range(0..3)]),
            loss: [0.0, 0.0, 0.002][random.random_range(0..3)],
            queue: [6_000, 16 << 10, 64 << 10][random.random_range(0..3)],
            period,
            phases,
        }
    }

    fn link(&self, at: f64) -> f64 {
        let [begins, least, rises, free] = self.times;
        let part = |from: f64, to: f64| if at >= to { 1.0 } else { ((at - from) / (to - from)).clamp(0.0, 1.0) };
        LINK - (part(begins, least) - part(rises, free)) * (LINK - LEAST)
    }
}

/// The rate that the controller decided for each viewer, at each tenth of a second.
fn run(plan: &Plan) -> Vec<(f64, [f64; 3])> {
    let (jitter, loss, queue, seed) = (plan.jitter, plan.loss, plan.queue, plan.seed);
    let mut fabric = Fabric::new(Settings { seed, bandwidth: LINK, jitter, loss, queue, ..Settings::default() });
    let film = ChannelId { plane: Plane::Data, name: "film".parse().unwrap() };
    let quality = ChannelId { plane: Plane::Quality, ..film.clone() };
    let roles = Roles::new(&quality, FRAME_BITS, Terms::default(), Instant::ZERO);
    let source = Source::new(&film, FRAME, 0.0, vec![Box::new(roles)]);
    let asked = source.asked();
    fabric.add("source", Box::new(source));
    let names = ["low", "medium", "high"];
    for (role, host) in names.iter().enumerate() {
        let seen = Rc::<RefCell<Seen>>::default();
        fabric.add(host, Box::new(Sink::new(&film, ROLES[role], plan.period, plan.phases[role], seen)));
    }
    let streams = names.map(|host| stream_of(&host.parse().unwrap()));
    let (mut rates, mut course, mut heard) = (BTreeMap::new(), Vec::new(), 0);
    for tenth in 0..((plan.times[3] + BOUND) * 10.0) as u64 + 1 {
        let at = tenth as f64 / 10.0;
        fabric.set_bandwidth(0, plan.link(at));
        fabric.run_until(Instant::new(tenth * 100_000_000));
        for (_, stream, rate) in &asked.borrow()[heard..] {
            rates.insert(AppId(*stream), *rate);
        }
        heard = asked.borrow().len();
        course.push((at, streams.map(|stream| rates.get(&stream).copied().unwrap_or(0.0))));
    }
    course
}

fn has_minimum(rates: &[f64; 3]) -> bool {
    (0..3).all(|role| rates[role] >= ROLES[role].min as f64 * 0.999)
}

#[test]
fn all_viewers_have_their_minimum_again_soon_after_the_link_recovers() {
    let seeds = std::env::var("QFABRIC_SEEDS").map_or(SEEDS, |text| text.parse().expect("a number of seeds"));
    let mut latest = (0.0, 0);
    for seed in 1..=seeds {
        let plan = Plan::of(seed);
        let course = run(&plan);
        let free = plan.times[3];
        let back = course.iter().find(|(at, rates)| *at >= free && has_minimum(rates)).map(|(at, _)| at - free);
        let back = back.unwrap_or_else(|| {
            panic!("some viewers are not back within {BOUND} s: {plan:?}\nat the end {:?}", course.last())
        });
        latest = if back > latest.0 { (back, seed) } else { latest };
    }
    println!(
        "{seeds} seeds: all viewers are back within {:.1} s of virtual time; seed {} took longest",
        latest.0, latest.1
    );
}
