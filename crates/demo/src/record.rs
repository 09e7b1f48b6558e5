//! The record of one round: the jobs of each player, the design of the round, and its surroundings.

use anyhow::{Context, Result};
use qfabric_types::{Instant, JobRecord, Nanos};
use serde::{Deserialize, Serialize};

use crate::cpu_use::CpuUse;
use crate::disturbance::Surroundings;

/// One line of a player's log.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobLine {
    /// k, release, finish and cost.
    #[serde(flatten)]
    pub job: JobRecord,
    /// Bytes of the packet.
    pub bytes: u64,
    /// Picture type.
    pub kind: char,
    /// Budget in force at the start of the job, as Q-Fabric reported it to the player; 0 without Q-Fabric.
    pub budget_ns: Nanos,
    /// Server period of that budget.
    pub server_period_ns: Nanos,
    /// The player did not decode the frame. `finish` is then the time of this decision.
    #[serde(default)]
    pub skipped: bool,
}

impl JobLine {
    /// Q/P in force; `None` without a reservation.
    pub fn bandwidth(&self) -> Option<f64> {
        let period = self.server_period_ns.as_f64();
        (period > 0.0 && self.budget_ns > Nanos::ZERO).then(|| self.budget_ns.as_f64() / period)
    }
}

/// Parses a player's log. Fails if a line is invalid.
pub fn parse_log(text: &str) -> Result<Vec<JobLine>> {
    let line = |(i, line): (usize, &str)| serde_json::from_str(line).with_context(|| format!("line {}", i + 1));
    text.lines().enumerate().map(line).collect()
}

/// The result of one player in a round.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PlayerRecord {
    /// Its finished jobs.
    pub lines: Vec<JobLine>,
    /// Release of its job 0 after [`RunRecord::start`].
    #[serde(default)]
    pub phase: Nanos,
    /// Q/P of its static reservation; `None` without one.
    pub static_bandwidth: Option<f64>,
    /// Mean of Q/P over the time of the counted jobs; `None` without a reservation.
    #[serde(default)]
    pub reserved: Option<f64>,
}

/// The result of one round of one policy in one scenario.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunRecord {
    /// Short name of the scenario.
    pub scenario: String,
    /// Label of the policy.
    pub policy: String,
    /// Rounds with the same cycle number are compared with each other.
    pub cycle: usize,
    /// Readings of other activity on the machine.
    pub around: Surroundings,
    /// CPU time of players, control thread and hogs.
    #[serde(default)]
    pub cpu: CpuUse,
    /// Whether the players held reservations.
    pub reserves: bool,
    pub players: Vec<PlayerRecord>,
    /// T.
    pub period: Nanos,
    /// P.
    pub server_period: Nanos,
    /// Release of job 0 of a player without a phase.
    pub start: Instant,
    /// Jobs that each player had to decode.
    pub jobs: usize,
    /// Number of jobs at the start of each player that count in no statistic.
    pub warm_up: usize,
    /// Time at which the players stopped; late frames were decoded until then.
    pub stopped: Instant,
    /// The target interval is `[−early·T, late·T]`.
    pub early: f64,
    /// See `early`.
    pub late: f64,
    /// Number of hogs beside the players.
    pub hogs: usize,
    /// The first job after the load shift; `None` without a shift.
    pub shift_at: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"k":3,"release_ns":10,"finish_ns":30,"c_ns":7,"bytes":99,"kind":"B","budget_ns":2500000,"server_period_ns":10000000}"#;

    #[test]
    fn the_lines_of_a_players_log_are_parsed() {
        let lines = parse_log(&format!("{LINE}\n{LINE}\n")).unwrap();
        assert_eq!((lines.len(), lines[0].job.k, lines[0].job.cost, lines[0].kind), (2, 3, Nanos::new(7), 'B'));
        assert_eq!(lines[0].bandwidth(), Some(0.25));
    }

    #[test]
    fn an_incomplete_line_is_refused_with_its_number() {
        let refusal = parse_log(&format!("{LINE}\n{}", &LINE[..40])).unwrap_err();
        assert!(refusal.to_string().contains("line 2"), "{refusal}");
    }
}
