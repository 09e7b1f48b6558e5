//! Figure 24: requests of three classes at one host, whose servers share a CPU. The threads of a class have a fixed
//! nice value; or a handler in the kernel raises a class whose open requests become more, and a program sets the nice
//! values that the handler decides.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use qfabric_client::ecalls::{Ecalls, MemoryUp, Subscription, SubscriptionBuilder};
use qfabric_linux::sched_attr::SchedAttr;
use qfabric_types::Nanos;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::hosts::{Hosts, SERVERS};
use super::load::{Answer, Arrival, arrivals, offer};
use super::server::{Server, Work};
use super::{EventsRow, Trial, check_handler};
use crate::Options;

/// Classes from the lowest to the highest, and their attributes of the handler.
const CLASSES: [&str; 3] = ["low", "middle", "high"];
/// Nice values without a handler.
const NICE: [i32; 3] = [10, 0, -10];
/// Nice values per step of the handler, which takes at most five.
const STEP: i64 = 2;
const WORKERS: usize = 3;
const PORT: u16 = 8_200;
/// CPU time of a request.
const WORK: Nanos = Nanos::from_millis(6);
/// Requests per second of a class: in its burst, and else. Together 90 % of a CPU.
const BURST: f64 = 100.0;
const QUIET: f64 = 25.0;
/// Bursts of the classes follow each other.
const BURST_LENGTH: Duration = Duration::from_secs(1);
const POLL_PERIOD: &str = "100ms";
const LOOK: Duration = Duration::from_millis(200);

/// A class whose open requests have become more gets a step up, or else one down. A higher class has never fewer steps
/// than a lower one.
const HANDLER: &str = "
struct output { long low; long middle; long high; };
static long low; static long middle; static long high;
static long low_before; static long middle_before; static long high_before;
if (attr.low > low_before) low += 1; else low -= 1;
if (attr.middle > middle_before) middle += 1; else middle -= 1;
if (attr.high > high_before) high += 1; else high -= 1;
if (low < 0) low = 0;
if (low > 5) low = 5;
if (middle < low) middle = low;
if (middle > 5) middle = 5;
if (high < middle) high = middle;
if (high > 5) high = 5;
low_before = attr.low; middle_before = attr.middle; high_before = attr.high;
output.low = low; output.middle = middle; output.high = high;
return 1;";

/// One run.
pub(super) fn play(hosts: &Hosts, is_dynamic: bool, seconds: f64, options: &Options) -> Result<Vec<EventsRow>> {
    let ecalls = Ecalls::connect(&hosts.client(SERVERS)?)?;
    let wanted = SubscriptionBuilder::to("timer").option("period", POLL_PERIOD).code(HANDLER);
    let wanted = CLASSES.iter().fold(wanted, |wanted, class| wanted.attribute(class, 0)).memory_up(MemoryUp::default());
    let mut steps = ecalls.subscribe(&wanted).context("cannot install the handler")?;
    let servers: Vec<Server> = (0..CLASSES.len()).map(|class| serve(hosts, &ecalls, class)).collect::<Result<_>>()?;
    for (server, nice) in servers.iter().zip(NICE) {
        set_nice(server, nice)?;
    }
    let mut random = ChaCha8Rng::seed_from_u64(options.seed);
    let requests = requests(&mut random, seconds);
    let addresses: Vec<SocketAddr> = servers.iter().map(|server| server.address).collect();
    let is_over = AtomicBool::new(false);
    let (answers, reports) = std::thread::scope(|scope| -> Result<(Vec<Answer>, u64)> {
        let manager = scope.spawn(|| manage(&mut steps, is_dynamic, &servers, &is_over));
        let answers = offer(hosts, &requests, &|class| addresses[class], &options.stop);
        is_over.store(true, Ordering::Relaxed);
        let reports = manager.join().expect("the manager does not panic")?;
        Ok((answers?, reports))
    })?;
    check_handler(&steps)?;
    let row = |class: usize| {
        let own: Vec<Answer> = answers.iter().filter(|answer| answer.class == class).copied().collect();
        EventsRow::of(Trial::Classes { is_dynamic }, CLASSES[class], &own, reports)
    };
    Ok((0..CLASSES.len()).map(row).collect())
}

fn serve(hosts: &Hosts, ecalls: &Ecalls, class: usize) -> Result<Server> {
    let work = Work::Computes(WORK, cpu());
    Server::start(hosts, PORT + class as u16, WORKERS, work, &ecalls.attribute(CLASSES[class])?)
}

/// The CPU of the servers: the last one.
fn cpu() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from) - 1
}

fn set_nice(server: &Server, nice: i32) -> Result<()> {
    let attributes = SchedAttr::fair(nice);
    server.workers.iter().try_for_each(|worker| attributes.give(*worker)).context("cannot set nice values; run as root")
}

/// The requests of all classes, whose bursts follow each other, in order of time.
fn requests(random: &mut ChaCha8Rng, seconds: f64) -> Vec<Arrival> {
    let rate = |class: usize| {
        move |at: Duration| {
            let turn = (at.as_secs_f64() / BURST_LENGTH.as_secs_f64()) as usize % CLASSES.len();
            if turn == class { BURST } else { QUIET }
        }
    };
    let mut all: Vec<Arrival> =
        (0..CLASSES.len()).flat_map(|class| arrivals(random, class, seconds, rate(class))).collect();
    all.sort_by_key(|arrival| arrival.at);
    all
}

/// Takes the handler's decisions until the run is over, and sets them if the priorities are dynamic. Returns their
/// number.
fn manage(steps: &mut Subscription, is_dynamic: bool, servers: &[Server], is_over: &AtomicBool) -> Result<u64> {
    let mut reports = 0;
    while !is_over.load(Ordering::Relaxed) {
        let Some(event) = steps.next(LOOK)? else { continue };
        reports += 1;
        let decided = nice_values(event.data);
        for (server, nice) in servers.iter().zip(decided.into_iter().flatten()).filter(|_| is_dynamic) {
            set_nice(server, nice)?;
        }
    }
    Ok(reports)
}

/// The nice values of the classes after the handler's steps. `None`: these are not its bytes.
fn nice_values(data: &[u8]) -> Option<[i32; 3]> {
    let mut values = NICE;
    for (value, steps) in values.iter_mut().zip(0..) {
        let at = 8 * steps;
        let steps = i64::from_le_bytes(data.get(at..at + 8)?.try_into().ok()?);
        *value = (i64::from(*value) - STEP * steps.clamp(0, 5)) as i32;
    }
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_higher_class_keeps_the_better_nice_value() {
        let after = |steps: [i64; 3]| nice_values(&steps.map(i64::to_le_bytes).concat());
        assert_eq!(after([0, 0, 0]), Some(NICE));
        assert_eq!(after([5, 5, 5]), Some([0, -10, -20]));
        assert_eq!(after([0, 1, 90]), Some([10, -2, -20]));
        assert_eq!(nice_values(&[0; 23]), None);
    }

    #[test]
    fn the_bursts_of_the_classes_follow_each_other() {
        let all = requests(&mut ChaCha8Rng::seed_from_u64(1), 30.0);
        assert!(all.windows(2).all(|pair| pair[0].at <= pair[1].at));
        let in_second = |second: u64, class: usize| {
            all.iter().filter(|one| one.at.as_secs() % 3 == second && one.class == class).count()
        };
        for class in 0..3 {
            assert!(in_second(class as u64, class) > 2 * in_second((class as u64 + 1) % 3, class), "class {class}");
        }
    }
}
