//! The results of an application: the columns of AQuoSA's Table II, accumulated job by job.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::{Instant, Nanos, RunningStatistics};

/// One row of a report. Errors are fractions of T, bandwidths fractions of one CPU. If no job was counted, the
/// columns about jobs are null in JSON and are read as 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Row", into = "Row")]
pub struct Quality {
    /// The policy or application of the row.
    pub policy: String,
    pub jobs: u64,
    /// Jobs that ended after their deadline.
    pub misses: u64,
    /// p: fraction of jobs whose scheduling error lay in [−e, E].
    pub in_target: f64,
    /// Mean of ε/T.
    pub mean_error: f64,
    /// Population standard deviation of ε/T.
    pub sd_error: f64,
    /// Mean of Q/P.
    pub mean_bandwidth: f64,
    /// Population standard deviation of Q/P.
    pub sd_bandwidth: f64,
    /// 99th percentile of |interval between job ends − T|, in ns; 0 if the ends were not observed.
    pub jitter_p99_ns: u64,
}

/// The JSON form of [`Quality`].
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Quality))]
struct Row {
    /// The policy or application of the row.
    policy: String,
    /// Number of jobs; 0 also if the contract has no period, and so no jobs to count.
    jobs: u64,
    /// Jobs that ended after their deadline; without jobs this column and the other columns about jobs are null.
    misses: Option<u64>,
    /// p: fraction of jobs whose scheduling error lay in [−e, E].
    in_target: Option<f64>,
    /// Mean of ε/T.
    mean_error: Option<f64>,
    /// Population standard deviation of ε/T.
    sd_error: Option<f64>,
    /// Mean of Q/P: per job; for an application, over time and for all its threads together.
    mean_bandwidth: f64,
    /// Population standard deviation of Q/P.
    sd_bandwidth: f64,
    /// 99th percentile of |interval between job ends − T| in ns; 0 if the ends were not observed.
    jitter_p99_ns: Option<u64>,
}

impl From<Quality> for Row {
    fn from(quality: Quality) -> Row {
        let Quality { policy, jobs, misses, in_target, mean_error, sd_error, .. } = quality;
        let Quality { mean_bandwidth, sd_bandwidth, jitter_p99_ns, .. } = quality;
        let of_jobs = |value: f64| (jobs > 0).then_some(value);
        Row {
            policy,
            jobs,
            misses: (jobs > 0).then_some(misses),
            in_target: of_jobs(in_target),
            mean_error: of_jobs(mean_error),
            sd_error: of_jobs(sd_error),
            mean_bandwidth,
            sd_bandwidth,
            jitter_p99_ns: (jobs > 0).then_some(jitter_p99_ns),
        }
    }
}

impl From<Row> for Quality {
    fn from(row: Row) -> Quality {
        Quality {
            policy: row.policy,
            jobs: row.jobs,
            misses: row.misses.unwrap_or_default(),
            in_target: row.in_target.unwrap_or_default(),
            mean_error: row.mean_error.unwrap_or_default(),
            sd_error: row.sd_error.unwrap_or_default(),
            mean_bandwidth: row.mean_bandwidth,
            sd_bandwidth: row.sd_bandwidth,
            jitter_p99_ns: row.jitter_p99_ns.unwrap_or_default(),
        }
    }
}

#[cfg(feature = "openapi")]
impl utoipa::PartialSchema for Quality {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        Row::schema()
    }
}

#[cfg(feature = "openapi")]
impl utoipa::ToSchema for Quality {}

/// The virtual scheduling error computed from a finish time: the first server deadline not before the finish, minus
/// the job's deadline (AQuoSA §3, Corollary 1). A multiple of P.
pub fn quantized_error(finish: Instant, deadline: Instant, server_period: Nanos) -> i64 {
    let period = server_period.get().max(1) as i64;
    -((deadline.signed_since(finish)).div_euclid(period) * period)
}

/// `ε = s_k − d_k`, in ns: the virtual scheduling error from the virtual finishing time `served` if it is known,
/// else from the finish by [`quantized_error`].
///
/// By Corollary 1, a job ends in the server period that ends at s_k. A deadline that contradicts this belongs to
/// another job and counts as unknown. The kernel begins a server period when the thread wakes, which is later than
/// the release by a wake-up latency: a deadline that exceeds a multiple of P by at most an eighth of P counts as
/// that multiple.
pub fn virtual_error(finish: Instant, deadline: Instant, server_period: Nanos, served: Option<Instant>) -> i64 {
    let Some(served) = served.filter(|&served| finish <= served && served <= finish + server_period) else {
        return quantized_error(finish, deadline, server_period);
    };
    let error = served.signed_since(deadline);
    let above = error.rem_euclid(server_period.get().max(1) as i64);
    if above <= server_period.get() as i64 / 8 { error - above } else { error }
}

/// Accumulates jobs into a [`Quality`] in constant memory.
#[derive(Clone, Debug)]
pub struct QualityMeter {
    period_ns: f64,
    early: f64,
    late: f64,
    jobs: u64,
    misses: u64,
    in_target: u64,
    error: RunningStatistics,
    bandwidth: RunningStatistics,
    jitter: Histogram<u64>,
    last_finish: Option<Instant>,
}

impl QualityMeter {
    /// For jobs every `period`, with the target interval `[−early·T, late·T]`.
    pub fn new(period: Nanos, early: f64, late: f64) -> Self {
        // 1 µs to 100 s with two significant digits: 27 KiB, allocated once.
        let jitter = Histogram::new_with_bounds(1_000, 100_000_000_000, 2).expect("constant bounds are valid");
        QualityMeter {
            period_ns: period.as_f64(),
            early,
            late,
            jobs: 0,
            misses: 0,
            in_target: 0,
            error: RunningStatistics::default(),
            bandwidth: RunningStatistics::default(),
            jitter,
            last_finish: None,
        }
    }

    /// Counts a job that ended `error_ns` after its deadline (virtual finishing time) under a grant of `bandwidth`,
    /// in CPUs. `finish` is the time of its end for the jitter, if it was observed.
    pub fn count(&mut self, error_ns: f64, bandwidth: f64, missed: bool, finish: Option<Instant>) {
        let error = error_ns / self.period_ns;
        // A tolerance of a millionth of a period: decimals do not represent −e exactly, but it counts as inside.
        let inside = error >= -self.early - 1e-6 && error <= self.late + 1e-6;
        self.jobs += 1;
        self.misses += u64::from(missed);
        self.in_target += u64::from(inside);
        self.error.push(error);
        self.bandwidth.push(bandwidth);
        if let (Some(last), Some(now)) = (self.last_finish, finish) {
            let interval_ns = now.since(last).as_f64();
            self.jitter.saturating_record((interval_ns - self.period_ns).abs() as u64);
        }
        self.last_finish = finish.or(self.last_finish);
    }

    pub fn jobs(&self) -> u64 {
        self.jobs
    }

    pub fn misses(&self) -> u64 {
        self.misses
    }

    /// The present row, with the name `policy`.
    pub fn quality(&self, policy: &str) -> Quality {
        Quality {
            policy: policy.to_owned(),
            jobs: self.jobs,
            misses: self.misses,
            in_target: if self.jobs > 0 { self.in_target as f64 / self.jobs as f64 } else { 0.0 },
            mean_error: self.error.mean(),
            sd_error: self.error.sd(),
            mean_bandwidth: self.bandwidth.mean(),
            sd_bandwidth: self.bandwidth.sd(),
            jitter_p99_ns: if self.jitter.is_empty() { 0 } else { self.jitter.value_at_quantile(0.99) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Nanos = Nanos::from_millis(40);
    const P: Nanos = Nanos::from_millis(10);

    #[test]
    fn errors_are_rounded_up_to_the_server_deadline() {
        let deadline = Instant::new(100_000_000);
        let error = |finish_ms: u64| quantized_error(Instant::new(finish_ms * 1_000_000), deadline, P) / 1_000_000;
        assert_eq!([error(100), error(101), error(110), error(99), error(90), error(89)], [0, 10, 10, 0, -10, -10]);
    }

    #[test]
    fn the_error_uses_the_servers_deadline_if_it_is_known() {
        let deadline = Instant::new(100_000_000);
        let error_us = |finish_us: u64, served_us: u64| {
            let [finish, served] = [finish_us, served_us].map(|us| Instant::new(us * 1_000));
            virtual_error(finish, deadline, P, Some(served)) / 1_000
        };
        assert_eq!(error_us(93_000, 100_000), 0, "the server period ends with the job's period");
        assert_eq!(error_us(93_000, 100_300), 0, "the server period began with a wake-up 0.3 ms after the release");
        assert_eq!(error_us(93_000, 96_000), -4_000, "the server periods are shifted; the rounded finish would give 0");
        assert_eq!(error_us(101_000, 104_000), 4_000, "late by 4 ms, not by a whole server period");
        for other_job in [92_000, 104_000] {
            assert_eq!(error_us(93_000, other_job), 0, "s_k = {other_job} µs does not fit a finish at 93 ms");
        }
        assert_eq!(virtual_error(Instant::new(93_000_000), deadline, P, None), 0);
    }

    #[test]
    fn the_edges_of_the_target_interval_are_inside() {
        let mut meter = QualityMeter::new(T, 0.2, 0.0);
        for (error_ms, inside) in [(-8.0, 1), (0.0, 2), (-8.1, 2), (0.1, 2)] {
            meter.count(error_ms * 1e6, 0.5, error_ms > 0.0, None);
            assert_eq!(meter.in_target, inside, "at {error_ms} ms");
        }
        let row = meter.quality("test");
        assert_eq!((row.jobs, row.misses, row.mean_bandwidth), (4, 1, 0.5));
    }

    #[test]
    fn without_jobs_the_columns_about_jobs_are_null() {
        let none = Quality { mean_bandwidth: 0.9, ..QualityMeter::new(T, 0.2, 0.0).quality("x") };
        let row = serde_json::to_value(&none).unwrap();
        for key in ["misses", "in_target", "mean_error", "sd_error", "jitter_p99_ns"] {
            assert!(row[key].is_null(), "{key}: {row}");
        }
        assert_eq!((row["jobs"].as_u64(), row["mean_bandwidth"].as_f64()), (Some(0), Some(0.9)));
        assert_eq!(serde_json::from_value::<Quality>(row).unwrap(), none);
        let mut meter = QualityMeter::new(T, 0.2, 0.0);
        meter.count(0.0, 0.5, false, None);
        assert_eq!(serde_json::to_value(meter.quality("x")).unwrap()["misses"], 0);
    }

    #[test]
    fn jitter_is_the_deviation_of_intervals_from_the_period() {
        let mut meter = QualityMeter::new(T, 0.2, 0.0);
        for finish_ms in [40, 80, 130, 160] {
            meter.count(0.0, 0.5, false, Some(Instant::new(finish_ms * 1_000_000)));
        }
        let p99_ms = meter.quality("test").jitter_p99_ns as f64 / 1e6;
        assert!((9.9..10.2).contains(&p99_ms), "{p99_ms}");
    }
}
