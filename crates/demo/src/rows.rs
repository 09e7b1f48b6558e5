//! Computes a row of the table from jobs (the columns of AQuoSA's Table II).
//!
//! The scheduling error of every policy is the finish time rounded up to the same server period P
//! ([`quantized_error`]), also for policies without P; only then are the columns comparable. A job that was not
//! decoded when the players stopped counts as missed and as ending at that time. A skipped job counts as missed
//! and has neither error nor cost. A row combines the undisturbed rounds of its policy. If all rounds were
//! disturbed, it combines all of them and says so. Only the state of the machine decides which rounds count, never
//! their outcome.

use qfabric_types::{Instant, Nanos, quantized_error};
use serde::{Deserialize, Serialize};

use crate::cpu_use::CpuUse;
use crate::record::{PlayerRecord, RunRecord};
use crate::stats;
pub use crate::stats::Count;

/// One policy in one scenario. Errors are fractions of T; bandwidths and demands are fractions of one CPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub policy: String,
    /// Number of counted jobs of all players.
    pub jobs: u64,
    /// Jobs that ended after their deadline or never ended.
    pub misses: u64,
    /// Fraction of jobs with an error inside the target interval.
    pub in_target: f64,
    /// Mean of ε/T.
    pub mean_error: f64,
    /// Population standard deviation of ε/T.
    pub sd_error: f64,
    /// Mean of Q/P per player over the time of the counted jobs; `None` without a reservation.
    pub mean_bandwidth: Option<f64>,
    /// Population standard deviation of Q/P in force at the start of frames.
    pub sd_bandwidth: Option<f64>,
    /// 99th percentile of |interval between frames − T|.
    pub jitter_p99_ns: u64,
    /// Short name of the scenario.
    pub scenario: String,
    /// Number of players that run at the same time.
    pub players: u64,
    /// Number of hogs beside the players.
    pub hogs: u64,
    /// Fraction of jobs missed.
    pub miss_ratio: f64,
    /// Jobs that were not decoded when the players stopped. Included in `misses`.
    pub unfinished: u64,
    /// Mean cost per T and player: the needed bandwidth.
    pub mean_demand: f64,
    /// Cost per T of the most expensive job.
    pub peak_demand: f64,
    /// Autocorrelation of the costs at a distance of 12 jobs, mean of the players.
    pub autocorrelation_12: f64,
    /// `mean_bandwidth` divided by `mean_demand`: reserved divided by needed bandwidth.
    pub bandwidth_per_demand: Option<f64>,
    /// Q/P of all players together, mean over time.
    pub total_bandwidth: Option<f64>,
    /// T in ns.
    pub period_ns: u64,
    /// P in ns.
    pub server_period_ns: u64,
    /// Number of omitted jobs at the start of each player and round (the warm-up).
    pub warm_up: u64,
    /// Lower end of the 95 % interval of `miss_ratio`.
    pub misses_low: f64,
    /// Upper end of the 95 % interval of `miss_ratio`.
    pub misses_high: f64,
    /// Median over the rounds of the fraction of jobs missed.
    pub miss_ratio_median: f64,
    /// Frames that the players deliberately did not decode. Included in `misses`.
    pub skipped: u64,
    /// Number of rounds behind this row.
    pub rounds: u64,
    /// Number of disturbed rounds that the row omits. 0 if all rounds were disturbed.
    pub disturbed_rounds: u64,
    /// Whether every round was disturbed. The row then counts them, but no verdict does.
    pub disturbed: bool,
    /// Mean steal of the rounds behind this row, as a fraction of all CPU time.
    pub steal: f64,
    /// Mean of Q/P per player in force at the start of a frame. Greater than `mean_bandwidth` if players return
    /// bandwidth between frames.
    pub bandwidth_at_begin: Option<f64>,
    /// Lower end of the 95 % interval of `miss_ratio_median`; `None` for one round, whose spread is unknown.
    #[serde(default)]
    pub miss_ratio_median_low: Option<f64>,
    /// Upper end of the 95 % interval of `miss_ratio_median`.
    #[serde(default)]
    pub miss_ratio_median_high: Option<f64>,
    /// CPU time of players, control thread and hogs, mean of the rounds behind this row.
    #[serde(flatten)]
    pub cpu: CpuUse,
}

/// One counted job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Number of the job.
    pub k: u64,
    /// ε/T. For a skipped job the error at the time of the decision, which counts in no mean.
    pub error: f64,
    /// Cost per T; `None` for a job that was not decoded.
    pub cost: Option<f64>,
    /// Q/P under which the job ran.
    pub bandwidth: Option<f64>,
    /// The job ended after its deadline or never ended.
    pub missed: bool,
    /// The job was deliberately not decoded.
    #[serde(default)]
    pub skipped: bool,
    #[serde(skip)]
    pub finish: Instant,
}

/// The counted jobs of one player, in order.
pub fn points(run: &RunRecord, player: &PlayerRecord) -> Vec<Point> {
    let at = |k: usize| {
        let line = player.lines.get(k);
        let deadline = run.start + player.phase + run.period.saturating_mul(k as u64 + 1);
        let finish = line.map_or(run.stopped.max(deadline + Nanos::new(1)), |l| l.job.finish);
        let skipped = line.is_some_and(|l| l.skipped);
        Point {
            k: k as u64,
            error: quantized_error(finish, deadline, run.server_period) as f64 / run.period.as_f64(),
            cost: line.filter(|_| !skipped).map(|l| l.job.cost.as_f64() / run.period.as_f64()),
            bandwidth: player.static_bandwidth.or_else(|| line.and_then(|l| l.bandwidth())),
            missed: skipped || finish > deadline,
            skipped,
            finish,
        }
    };
    (run.warm_up..run.jobs).map(at).collect()
}

/// The rounds that count: the undisturbed rounds, or all rounds if every round was disturbed.
pub fn counted<'a>(rounds: &[&'a RunRecord]) -> Vec<&'a RunRecord> {
    let calm: Vec<_> = rounds.iter().copied().filter(|round| round.around.disturbance().is_none()).collect();
    if calm.is_empty() { rounds.to_vec() } else { calm }
}

/// Misses and jobs of one round.
pub fn count(run: &RunRecord) -> Count {
    let points: Vec<Point> = run.players.iter().flat_map(|player| points(run, player)).collect();
    Count { misses: points.iter().filter(|p| p.missed).count() as u64, jobs: points.len() as u64 }
}

/// Q/P divided by the demand of one round; `None` without reservations or decoded frames.
pub fn bandwidth_per_demand(run: &RunRecord) -> Option<f64> {
    let points: Vec<Point> = run.players.iter().flat_map(|player| points(run, player)).collect();
    let costs = costs_of(&points);
    reserved(&[run]).filter(|_| !costs.is_empty()).map(|reserved| reserved / mean(&costs).max(1e-9))
}

/// Mean of Q/P per player over the time of the counted jobs; `None` without reservations.
fn reserved(rounds: &[&RunRecord]) -> Option<f64> {
    let reserving = rounds.iter().filter(|run| run.reserves);
    let held: Vec<f64> = reserving.flat_map(|run| &run.players).filter_map(|player| player.reserved).collect();
    (!held.is_empty()).then(|| mean(&held))
}

/// Computes the row of the rounds of one policy. Panics if `rounds` is empty.
pub fn row(rounds: &[&RunRecord]) -> Row {
    let counted = counted(rounds);
    let run = counted[0];
    let players: Vec<(Nanos, Vec<Point>)> =
        counted.iter().flat_map(|run| run.players.iter().map(|p| (run.period, points(run, p)))).collect();
    let all: Vec<Point> = players.iter().flat_map(|(_, points)| points).copied().collect();
    let errors: Vec<f64> = all.iter().filter(|p| !p.skipped).map(|p| p.error).collect();
    let costs = costs_of(&all);
    let bandwidths = bandwidths_of(run, &all);
    let at_begin = (!bandwidths.is_empty()).then(|| mean(&bandwidths));
    let reserved = reserved(&counted);
    let counts: Vec<Count> = counted.iter().map(|run| count(run)).collect();
    let Count { misses, jobs } = Count::sum(&counts);
    let interval = stats::proportion(&counts);
    let ratios: Vec<f64> = counts.iter().map(|c| c.misses as f64 / c.jobs.max(1) as f64).collect();
    let of_median = stats::median(&ratios);
    let skipped = all.iter().filter(|p| p.skipped).count() as u64;
    Row {
        policy: run.policy.clone(),
        jobs,
        misses,
        in_target: fraction(&errors, |e| e >= -run.early - 1e-6 && e <= run.late + 1e-6),
        mean_error: mean(&errors),
        sd_error: sd(&errors),
        mean_bandwidth: reserved,
        sd_bandwidth: at_begin.map(|_| sd(&bandwidths)),
        jitter_p99_ns: jitter_p99_ns(&players),
        scenario: run.scenario.clone(),
        players: run.players.len() as u64,
        hogs: run.hogs as u64,
        miss_ratio: misses as f64 / jobs.max(1) as f64,
        unfinished: jobs - costs.len() as u64 - skipped,
        mean_demand: mean(&costs),
        peak_demand: costs.iter().copied().fold(0.0, f64::max),
        autocorrelation_12: mean(&players.iter().map(|(_, p)| autocorrelation(&costs_of(p), 12)).collect::<Vec<_>>()),
        bandwidth_per_demand: reserved.map(|b| b / mean(&costs).max(1e-9)),
        total_bandwidth: reserved.map(|b| b * run.players.len() as f64),
        period_ns: run.period.get(),
        server_period_ns: run.server_period.get(),
        warm_up: run.warm_up as u64,
        misses_low: interval.low,
        misses_high: interval.high,
        miss_ratio_median: median(ratios),
        skipped,
        rounds: counted.len() as u64,
        disturbed_rounds: (rounds.len() - counted.len()) as u64,
        disturbed: counted.iter().all(|round| round.around.disturbance().is_some()),
        steal: mean(&counted.iter().map(|run| run.around.mean_steal()).collect::<Vec<_>>()),
        bandwidth_at_begin: at_begin,
        miss_ratio_median_low: of_median.map(|interval| interval.low),
        miss_ratio_median_high: of_median.map(|interval| interval.high),
        cpu: CpuUse::mean(counted.iter().map(|run| &run.cpu)),
    }
}

fn bandwidths_of(run: &RunRecord, points: &[Point]) -> Vec<f64> {
    points.iter().filter(|_| run.reserves).filter_map(|p| p.bandwidth).collect()
}

/// The median; for an even number of values the mean of the middle two; 0 for an empty list.
pub fn median(mut xs: Vec<f64>) -> f64 {
    xs.sort_by(f64::total_cmp);
    let half = xs.len() / 2;
    match xs.len() {
        0 => 0.0,
        n if n % 2 == 1 => xs[half],
        _ => (xs[half - 1] + xs[half]) / 2.0,
    }
}

fn costs_of(points: &[Point]) -> Vec<f64> {
    points.iter().filter_map(|p| p.cost).collect()
}

/// The mean; 0 for an empty list.
pub fn mean(xs: &[f64]) -> f64 {
    // `sum` would return −0 for an empty list.
    xs.iter().fold(0.0, |sum, x| sum + x) / xs.len().max(1) as f64
}

/// Population standard deviation; 0 for an empty list.
pub fn sd(xs: &[f64]) -> f64 {
    let m = mean(xs);
    (xs.iter().map(|x| (x - m).powi(2)).sum::<f64>() / xs.len().max(1) as f64).sqrt()
}

fn fraction(xs: &[f64], holds: impl Fn(f64) -> bool) -> f64 {
    xs.iter().filter(|&&x| holds(x)).count() as f64 / xs.len().max(1) as f64
}

/// Autocorrelation of the sequence at distance `lag`; 0 for a constant sequence or a sequence that is too short.
pub fn autocorrelation(costs: &[f64], lag: usize) -> f64 {
    let (m, n) = (mean(costs), costs.len());
    let variance: f64 = costs.iter().map(|c| (c - m).powi(2)).sum();
    if n <= lag || variance == 0.0 {
        return 0.0;
    }
    (lag..n).map(|i| (costs[i] - m) * (costs[i - lag] - m)).sum::<f64>() / variance
}

/// The smallest value that is not exceeded by 99 % of the differences between frame interval and T.
fn jitter_p99_ns(players: &[(Nanos, Vec<Point>)]) -> u64 {
    let of_player = |(period, points): &(Nanos, Vec<Point>)| {
        let decoded = points.windows(2).filter(|pair| pair[1].cost.is_some());
        decoded.map(|pair| pair[1].finish.since(pair[0].finish).get().abs_diff(period.get())).collect::<Vec<u64>>()
    };
    let mut distances: Vec<u64> = players.iter().flat_map(of_player).collect();
    distances.sort_unstable();
    let rank = (distances.len() as f64 * 0.99).ceil() as usize;
    distances.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::record::JobLine;
    use qfabric_types::JobRecord;

    const T_MS: u64 = 40;

    /// A player whose jobs end the given numbers of ms after their releases and cost a quarter of that time.
    pub(crate) fn run(response_ms: &[u64], jobs: usize, budget_ms: f64) -> RunRecord {
        let line = |(k, &ms): (usize, &u64)| {
            let release = Instant::new(k as u64 * T_MS * 1_000_000);
            JobLine {
                job: JobRecord {
                    k: k as u64,
                    release,
                    finish: release + Nanos::from_millis(ms),
                    cost: Nanos::from_micros(ms * 250),
                    next: Default::default(),
                },
                bytes: 1,
                kind: 'I',
                budget_ns: Nanos::from_f64(budget_ms * 1e6),
                server_period_ns: Nanos::from_millis(10),
                skipped: false,
            }
        };
        let held = Some(budget_ms / 10.0).filter(|&held| held > 0.0);
        let lines = response_ms.iter().enumerate().map(line).collect();
        RunRecord {
            scenario: "hogs".into(),
            policy: "test".into(),
            cycle: 0,
            around: Default::default(),
            cpu: Default::default(),
            reserves: budget_ms > 0.0,
            players: vec![PlayerRecord { lines, phase: Nanos::ZERO, static_bandwidth: None, reserved: held }],
            period: Nanos::from_millis(T_MS),
            server_period: Nanos::from_millis(10),
            start: Instant::ZERO,
            jobs,
            warm_up: 0,
            stopped: Instant::new((jobs as u64 * T_MS + 1_000) * 1_000_000),
            early: 0.25,
            late: 0.0,
            hogs: 12,
            shift_at: None,
        }
    }

    #[test]
    fn a_row_contains_the_statistics_of_its_jobs() {
        let row = row(&[&run(&[40, 35, 41, 20], 4, 2.5)]);
        assert_eq!((row.jobs, row.misses, row.unfinished), (4, 1, 0));
        // Errors in T: 0, 0 (35 ms rounds up to 40), +1/4, −1/2.
        assert_eq!(row.in_target, 0.5);
        assert!((row.mean_error - -0.0625).abs() < 1e-9, "{}", row.mean_error);
        assert_eq!((row.mean_bandwidth, row.sd_bandwidth), (Some(0.25), Some(0.0)));
        let demand = (40.0 + 35.0 + 41.0 + 20.0) / 4.0 * 0.25 / 40.0;
        assert!((row.mean_demand - demand).abs() < 1e-9);
        assert!((row.bandwidth_per_demand.unwrap() - 0.25 / demand).abs() < 1e-9);
        assert!((row.peak_demand - 41.0 * 0.25 / 40.0).abs() < 1e-9);
        assert_eq!(row.jitter_p99_ns, 21_000_000);
    }

    #[test]
    fn the_jitter_of_each_round_refers_to_the_period_of_that_round() {
        let mut slower = run(&[40, 40, 40], 3, 2.5);
        slower.period = Nanos::from_millis(44);
        for line in &mut slower.players[0].lines {
            line.job.finish = Instant::ZERO + Nanos::from_millis(44).saturating_mul(line.job.k + 1);
        }
        assert_eq!(row(&[&run(&[40, 40, 40], 3, 2.5), &slower]).jitter_p99_ns, 0);
    }

    #[test]
    fn a_job_that_was_never_decoded_is_a_miss_at_the_end() {
        let row = row(&[&run(&[10, 10], 3, 2.5)]);
        assert_eq!((row.jobs, row.misses, row.unfinished), (3, 1, 1));
        // The deadline was at 120 ms; the players stopped at 1120 ms, 25 periods of 40 ms later.
        assert!((row.mean_error - (-0.75 * 2.0 + 25.0) / 3.0).abs() < 1e-9);
    }

    #[test]
    fn without_a_reservation_there_is_no_bandwidth() {
        let row = row(&[&run(&[10, 10], 2, 0.0)]);
        assert_eq!((row.mean_bandwidth, row.bandwidth_per_demand, row.total_bandwidth), (None, None, None));
    }

    #[test]
    fn the_mean_bandwidth_includes_the_time_between_frames() {
        let mut run = run(&[40, 40], 2, 2.5);
        run.players[0].reserved = Some(0.15);
        let row = row(&[&run]);
        assert_eq!((row.mean_bandwidth, row.bandwidth_at_begin), (Some(0.15), Some(0.25)));
        assert!((bandwidth_per_demand(&run).unwrap() - 0.15 / 0.25).abs() < 1e-9);
    }

    #[test]
    fn a_skipped_frame_is_a_miss_without_cost_or_error() {
        let mut run = run(&[10, 10, 10], 3, 2.5);
        run.players[0].lines[1].skipped = true;
        let row = row(&[&run]);
        assert_eq!((row.jobs, row.misses, row.skipped, row.unfinished), (3, 1, 1, 0));
        assert!((row.mean_error - -0.75).abs() < 1e-9 && (row.mean_demand - 0.0625).abs() < 1e-9);
    }

    #[test]
    fn a_disturbed_round_counts_only_if_all_rounds_were_disturbed() {
        let (calm, mut stolen) = (run(&[10, 10], 2, 2.5), run(&[90, 90], 2, 2.5));
        stolen.around.steal = vec![0.5];
        let both = row(&[&stolen, &calm]);
        assert_eq!((both.jobs, both.misses, both.rounds, both.disturbed_rounds), (2, 0, 1, 1));
        assert!(!both.disturbed && both.steal == 0.0);
        let alone = row(&[&stolen]);
        assert_eq!((alone.jobs, alone.misses, alone.disturbed, alone.disturbed_rounds), (2, 2, true, 0));
    }

    #[test]
    fn a_row_and_its_json_have_the_cpu_time_of_its_rounds() {
        let mut rounds = [run(&[10, 10], 2, 2.5), run(&[10, 10], 2, 2.5)];
        for (round, control) in rounds.iter_mut().zip([0.1, 0.3]) {
            round.cpu = CpuUse { control_cpu_seconds: Some(control), hogs_cpu_seconds: 1.5, ..CpuUse::default() };
        }
        let row = row(&rounds.iter().collect::<Vec<_>>());
        let json = serde_json::to_value(&row).unwrap();
        let seconds = ["control_cpu_seconds", "hogs_cpu_seconds"].map(|key| json[key].as_f64());
        assert_eq!(seconds, [Some(0.2), Some(1.5)]);
        assert_eq!(serde_json::from_value::<Row>(json).unwrap(), row);
    }

    #[test]
    fn the_interval_of_a_row_contains_its_ratio() {
        let rounds = [run(&[10, 50, 10, 10], 4, 2.5), run(&[10, 10, 10, 10], 4, 2.5)];
        let row = row(&rounds.iter().collect::<Vec<_>>());
        assert!(row.misses_low < row.miss_ratio && row.miss_ratio < row.misses_high, "{row:?}");
        assert_eq!((row.miss_ratio, row.miss_ratio_median), (0.125, 0.125));
        assert_eq!((row.miss_ratio_median_low, row.miss_ratio_median_high), (Some(0.0), Some(0.25)));
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
    }

    #[test]
    fn warm_up_jobs_count_nowhere() {
        let mut run = run(&[99, 10, 10], 3, 2.5);
        run.warm_up = 1;
        let row = row(&[&run]);
        assert_eq!((row.jobs, row.misses, row.warm_up), (2, 0, 1));
    }

    #[test]
    fn a_periodic_cost_is_correlated_with_itself_one_period_later() {
        let ms: Vec<u64> = (0..240).map(|k| if k % 12 == 0 { 36 } else { 12 }).collect();
        let row = row(&[&run(&ms, 240, 2.5)]);
        assert!(row.autocorrelation_12 > 0.9, "{}", row.autocorrelation_12);
    }

    #[test]
    fn a_row_in_json_starts_with_exactly_the_promised_keys() {
        let json = serde_json::to_string(&Row::default()).unwrap();
        let promised = [
            "policy",
            "jobs",
            "misses",
            "in_target",
            "mean_error",
            "sd_error",
            "mean_bandwidth",
            "sd_bandwidth",
            "jitter_p99_ns",
        ];
        let keys: Vec<_> = json.split('"').skip(1).step_by(2).filter(|k| !k.is_empty()).collect();
        assert_eq!(keys[..promised.len()], promised);
    }
}
