//! Measures the mean bandwidth that the players of Q-Fabric hold over time, from the sums of the daemon.
//!
//! Players return most of their reservation between jobs, so Q/P at the start of a frame is more than their mean.
//! Approach: the sums of the daemon ([`ReservedTime`]) are read at the release of the first counted job and shortly
//! before the last deadline, while every player still runs. The difference of the two readings gives the mean. A
//! static reservation does not change and needs no reading.

use std::path::Path;

use anyhow::{Context, Result};
use qfabric_client::Client;
use qfabric_types::api::ReservedTime;
use qfabric_types::{Instant, Nanos};

/// The last reading is taken within this time before the end. It is tried ten times, so that at least one is in
/// time on a busy machine.
const LAST: Nanos = Nanos::from_millis(500);

/// The bandwidth that the players of one round hold.
pub(crate) struct Holding {
    client: Client,
    readings: Readings,
}

impl Holding {
    /// Measures these processes from the release of the first counted job to the last deadline.
    pub(crate) fn new(
        socket: &Path,
        players: impl Iterator<Item = u32>,
        from: Instant,
        until: Instant,
    ) -> Result<Holding> {
        let client =
            Client::connect_to(socket).context("cannot connect to the daemon to read the reserved bandwidth")?;
        Ok(Holding { client, readings: Readings::new(players, from, until) })
    }

    /// Reads the sums if a reading is due. Call it about every 50 ms.
    pub(crate) fn read_if_due(&mut self, now: Instant) -> Result<()> {
        if !self.readings.are_due(now) {
            return Ok(());
        }
        let applications = self.client.applications().context("cannot read the reserved bandwidth from the daemon")?;
        self.readings.note(|pid| applications.iter().find(|app| app.pid == pid as i32).map(|app| app.reserved));
        Ok(())
    }

    /// Mean of Q/P of each player.
    pub(crate) fn means(&self) -> Vec<Option<f64>> {
        self.readings.means()
    }
}

struct Readings {
    from: Instant,
    until: Instant,
    /// For each player: process id, first and last reading.
    players: Vec<(u32, Option<ReservedTime>, Option<ReservedTime>)>,
}

impl Readings {
    fn new(players: impl Iterator<Item = u32>, from: Instant, until: Instant) -> Readings {
        Readings { from, until, players: players.map(|pid| (pid, None, None)).collect() }
    }

    fn are_due(&self, now: Instant) -> bool {
        let begins = now >= self.from && self.players.iter().any(|player| player.1.is_none());
        (begins || now + LAST >= self.until) && now <= self.until
    }

    /// Records a reading. A player that has ended keeps its last reading.
    fn note(&mut self, reading: impl Fn(u32) -> Option<ReservedTime>) {
        for (pid, first, last) in &mut self.players {
            match (*first, reading(*pid)) {
                (None, now) => *first = now,
                (Some(_), now) => *last = now.or(*last),
            }
        }
    }

    fn means(&self) -> Vec<Option<f64>> {
        self.players.iter().map(|&(_, first, last)| last?.mean_since(first?)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::new(ms * 1_000_000)
    }

    fn reading(cpu_ms: u64, over_ms: u64) -> Option<ReservedTime> {
        Some(ReservedTime { cpu_time: Nanos::from_millis(cpu_ms), over: Nanos::from_millis(over_ms) })
    }

    fn readings() -> Readings {
        Readings::new([7, 8].into_iter(), at(1_000), at(5_000))
    }

    #[test]
    fn readings_are_due_at_the_first_counted_job_and_before_the_last_deadline() {
        let mut readings = readings();
        assert!(!readings.are_due(at(999)) && readings.are_due(at(1_000)));
        readings.note(|_| reading(1, 10));
        assert!(!readings.are_due(at(1_050)) && !readings.are_due(at(4_400)) && readings.are_due(at(4_500)));
        assert!(!readings.are_due(at(5_001)), "no reading is due after the end");
    }

    #[test]
    fn bandwidth_before_the_first_counted_job_does_not_count() {
        let mut readings = readings();
        readings.note(|_| reading(900, 1_000));
        readings.note(|_| reading(1_300, 3_000));
        readings.note(|pid| reading(1_400, 4_000).filter(|_| pid == 7));
        assert_eq!(
            readings.means(),
            [Some(500.0 / 3_000.0), Some(0.2)],
            "one player has ended before the last reading"
        );
    }

    #[test]
    fn one_reading_gives_no_mean() {
        let mut readings = readings();
        readings.note(|_| reading(900, 1_000));
        assert_eq!(readings.means(), [None, None]);
    }
}
