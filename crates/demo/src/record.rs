//! The record of one round: the jobs of each player, the design of the round, and its surroundings.

use anyhow::{Context, Result};
use qfabric_types::{Instant, JobRecord, Nanos};
use serde::{Deserialize, Serialize};

use crate::disturbance::Surroundings;

/// One line of the player's log.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobLine {
    /// k, release, finish, cost.
    #[serde(flatten)]
    pub job: JobRecord,
    /// Bytes of the packet.
    pub bytes: u64,
    /// Picture type.
    pub kind: char,
    /// Budget in force when the job began, as Q-Fabric told the player; 0 without.
    pub budget_ns: Nanos,
    /// Its period.
    pub server_period_ns: Nanos,
    /// Whether the player did not decode the frame; `finish` is then the moment of that decision.
    #[serde(default)]
    pub skipped: bool,
}

impl JobLine {
    /// Q/P in force, where there was one.
    pub fn bandwidth(&self) -> Option<f64> {
        let period = self.server_period_ns.as_f64();
        (period > 0.0 && self.budget_ns > Nanos::ZERO).then(|| self.budget_ns.as_f64() / period)
    }
}

/// Reads a player's log. Refused where a line is none.
pub fn parse_log(text: &str) -> Result<Vec<JobLine>> {
    let line = |(i, line): (usize, &str)| serde_json::from_str(line).with_context(|| format!("line {}", i + 1));
    text.lines().enumerate().map(line).collect()
}

/// One player's part of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PlayerRecord {
    /// Its finished jobs.
    pub lines: Vec<JobLine>,
    /// Q/P of its static reservation, where it had one.
    pub static_bandwidth: Option<f64>,
    /// Mean of Q/P over the time of the counted jobs; none without a reservation.
    #[serde(default)]
    pub reserved: Option<f64>,
}

/// One round of one policy in one scenario.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunRecord {
    /// The scenario's short name.
    pub scenario: String,
    /// The policy's label.
    pub policy: String,
    /// Rounds of one cycle are compared with each other.
    pub cycle: usize,
    /// What else happened on the machine.
    pub around: Surroundings,
    /// Whether its players held reservations.
    pub reserves: bool,
    /// Its players.
    pub players: Vec<PlayerRecord>,
    /// T.
    pub period: Nanos,
    /// P.
    pub server_period: Nanos,
    /// Release of job 0.
    pub start: Instant,
    /// Jobs each player was to decode.
    pub jobs: usize,
    /// First jobs of each player that count in no statistic.
    pub warm_up: usize,
    /// When the players gave up: late frames were decoded until then.
    pub stopped: Instant,
    /// The target interval `[−early·T, late·T]`.
    pub early: f64,
    /// See `early`.
    pub late: f64,
    /// Processes that burned CPU time beside them.
    pub hogs: usize,
    /// The first job after the load shift, where there is one.
    pub shift_at: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"k":3,"release_ns":10,"finish_ns":30,"c_ns":7,"bytes":99,"kind":"B","budget_ns":2500000,"server_period_ns":10000000}"#;

    #[test]
    fn the_players_lines_are_understood() {
        let lines = parse_log(&format!("{LINE}\n{LINE}\n")).unwrap();
        assert_eq!((lines.len(), lines[0].job.k, lines[0].job.cost, lines[0].kind), (2, 3, Nanos::new(7), 'B'));
        assert_eq!(lines[0].bandwidth(), Some(0.25));
    }

    #[test]
    fn half_a_line_is_refused_with_its_number() {
        let refusal = parse_log(&format!("{LINE}\n{}", &LINE[..40])).unwrap_err();
        assert!(refusal.to_string().contains("line 2"), "{refusal}");
    }
}
