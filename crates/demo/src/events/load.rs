//! Requests that arrive at random times: each is a TCP connection with one byte in each direction.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::Result;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::TIMEOUT;
use super::hosts::{Hosts, MANAGER};
use crate::children::Stop;

/// A request to come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// Time since the begin of the run.
    pub at: Duration,
    pub class: usize,
}

/// What became of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub class: usize,
    /// `None`: given up after [`TIMEOUT`].
    pub response: Option<Duration>,
}

/// An exponentially distributed time.
pub(super) fn random_time(random: &mut ChaCha8Rng, mean: Duration) -> Duration {
    let part: f64 = random.random_range(0.0..1.0);
    mean.mul_f64(-(1.0 - part).ln())
}

/// Arrivals of a class, at random times; `rate` is in requests per second at a time of the run.
pub(super) fn arrivals(
    random: &mut ChaCha8Rng,
    class: usize,
    seconds: f64,
    rate: impl Fn(Duration) -> f64,
) -> Vec<Arrival> {
    let (mut all, mut at) = (Vec::new(), Duration::ZERO);
    loop {
        at += random_time(random, Duration::from_secs_f64(1.0 / rate(at)));
        if at.as_secs_f64() >= seconds {
            return all;
        }
        all.push(Arrival { at, class });
    }
}

/// Sends the requests from the manager's host, each at its time, to the server that `choose` names for its class. The
/// arrivals are in order of time.
pub(super) fn offer(
    hosts: &Hosts,
    arrivals: &[Arrival],
    choose: &(dyn Fn(usize) -> SocketAddr + Sync),
    stop: &Stop,
) -> Result<Vec<Answer>> {
    hosts.inside(MANAGER, || {
        let begin = Instant::now();
        std::thread::scope(|scope| {
            let mut requests = Vec::new();
            for arrival in arrivals {
                std::thread::sleep(arrival.at.saturating_sub(begin.elapsed()));
                if stop.check().is_err() {
                    break;
                }
                let class = arrival.class;
                requests.push(scope.spawn(move || Answer { class, response: ask(choose(class)) }));
            }
            requests.into_iter().map(|request| request.join().expect("a request does not panic")).collect()
        })
    })
}

/// The time until the answer.
fn ask(server: SocketAddr) -> Option<Duration> {
    let begin = Instant::now();
    let mut stream = TcpStream::connect_timeout(&server, TIMEOUT).ok()?;
    let left = TIMEOUT.checked_sub(begin.elapsed()).filter(|left| !left.is_zero())?;
    stream.set_read_timeout(Some(left)).ok()?;
    stream.write_all(b"?").ok()?;
    stream.read_exact(&mut [0]).ok()?;
    Some(begin.elapsed())
}

#[cfg(test)]
mod tests {
    use rand_chacha::rand_core::SeedableRng;

    use super::*;

    #[test]
    fn arrivals_follow_their_rate_and_their_seed() {
        let all = |seed| arrivals(&mut ChaCha8Rng::seed_from_u64(seed), 2, 100.0, |_| 50.0);
        let (first, second) = (all(1), all(2));
        assert!((4_600..5_400).contains(&first.len()), "{}", first.len());
        assert!(first.windows(2).all(|pair| pair[0].at <= pair[1].at) && first.iter().all(|one| one.class == 2));
        assert_eq!(first.len(), all(1).len());
        assert_ne!(first[0].at, second[0].at);
    }
}
