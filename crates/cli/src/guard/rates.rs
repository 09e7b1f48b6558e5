//! Turns the counts of the handlers into rates per second, as text or JSON.

use std::time::Instant;

use serde_json::{Value, json};

/// The attributes of the handlers at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reading {
    pub connections: i64,
    /// Connections that have ended so far.
    pub completed: i64,
    /// Connections that waited to be accepted when the last request arrived.
    pub queue: i64,
    pub connections_limit: i64,
    pub queue_limit: i64,
    /// Connections that the server completes per second at full load; 0: not known.
    pub capacity: i64,
    /// Requests for connections so far.
    pub requests: i64,
    /// Requests dropped so far.
    pub dropped: i64,
}

/// The last reading and the rates since the one before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rates {
    last: Reading,
    at: Instant,
    requests: f64,
    dropped: f64,
    completed: f64,
}

impl Rates {
    pub(super) fn new(first: Reading, now: Instant) -> Rates {
        Rates { last: first, at: now, requests: 0.0, dropped: 0.0, completed: 0.0 }
    }

    /// Computes the rates between the last reading and `next`.
    pub(super) fn step(&mut self, next: Reading, now: Instant) {
        let seconds = (now - self.at).as_secs_f64().max(1e-3);
        let rate = |new: i64, old: i64| new.saturating_sub(old) as f64 / seconds;
        *self = Rates {
            last: next,
            at: now,
            requests: rate(next.requests, self.last.requests),
            dropped: rate(next.dropped, self.last.dropped),
            completed: rate(next.completed, self.last.completed),
        };
    }

    pub(super) fn line(&self) -> String {
        let Reading { connections, connections_limit, queue, queue_limit, capacity, .. } = self.last;
        let known = if capacity > 0 { format!("{capacity}/s at full load") } else { "full load not seen yet".into() };
        format!(
            "requests {:.0}/s, dropped {:.0}/s, completed {:.0}/s ({known}); open {connections} (threshold \
             {connections_limit}), waiting {queue} (threshold {queue_limit})",
            self.requests, self.dropped, self.completed
        )
    }

    /// Rates per second, and the last reading.
    pub(super) fn json(&self) -> Value {
        json!({
            "requests_per_s": self.requests,
            "dropped_per_s": self.dropped,
            "completed_per_s": self.completed,
            "capacity_per_s": self.last.capacity,
            "connections": self.last.connections,
            "connections_threshold": self.last.connections_limit,
            "queue": self.last.queue,
            "queue_threshold": self.last.queue_limit,
            "requests": self.last.requests,
            "dropped": self.last.dropped,
            "completed": self.last.completed,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_rate_is_the_difference_of_two_readings_over_the_time_between_them() {
        let begin = Instant::now();
        let mut rates = Rates::new(Reading { requests: 1_000, ..Reading::default() }, begin);
        assert!(rates.line().contains("full load not seen yet"));
        let next = Reading { requests: 1_600, dropped: 400, completed: 200, capacity: 100, ..Reading::default() };
        rates.step(next, begin + Duration::from_secs(2));
        let line = rates.line();
        assert!(line.starts_with("requests 300/s, dropped 200/s, completed 100/s (100/s at full load)"), "{line}");
        assert_eq!(
            (rates.json()["dropped_per_s"].as_f64(), rates.json()["dropped"].as_i64()),
            (Some(200.0), Some(400))
        );
    }
}
