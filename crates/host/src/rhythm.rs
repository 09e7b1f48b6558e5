//! The period of a program whose contract leaves it to the host: searched, applied, monitored.
//!
//! ```text
//!   Searching ──two looks in a row agree──> Held ──[`LOST_AFTER`] looks without it──> Searching
//!                                            `──two looks agree on another one──> Held
//! ```
//! The lead thread is analysed, once it has run often enough since the last look: so a paused film does not lose
//! its period. A look costs about a millisecond of CPU time, so looks are rare.

use qfabric_control::{Rhythm, RhythmAnalyser};
use qfabric_types::api::FoundRhythm;
use qfabric_types::{Instant, JobSource, Nanos, Sample};

/// Interval of looks without a period, and with one.
const SEARCH: Nanos = Nanos::from_millis(500);
const WATCH: Nanos = Nanos::from_millis(2_000);
/// Fewest activations since the last look that make another one worth its cost.
const LEAST_FRESH: usize = 8;
/// Relative difference below which two periods count as equal.
const SAME: f64 = 0.01;
/// Number of looks in a row without the held period after which it is lost: 12 s.
const LOST_AFTER: u32 = 6;

/// What a look changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum News {
    Found(FoundRhythm),
    Lost(FoundRhythm),
}

/// The search and its result.
#[derive(Default)]
pub(crate) struct Rhythms {
    analyser: RhythmAnalyser,
    /// When the search began: with the first activation, or with the loss of a period.
    since: Option<Instant>,
    /// The next look; `None` while the thread does not run.
    due: Option<Instant>,
    /// The result of the last look.
    candidate: Option<Rhythm>,
    held: Option<FoundRhythm>,
    /// Number of looks in a row that did not show the held period.
    absent: u32,
}

/// For a contract that leaves the period to the host; otherwise `None`.
pub(crate) fn rhythms_for(jobs: JobSource) -> Option<Box<Rhythms>> {
    (jobs == JobSource::Auto).then(Box::default)
}

impl Rhythms {
    /// The period in force.
    pub(crate) fn held(&self) -> Option<FoundRhythm> {
        self.held
    }

    pub(crate) fn due(&self) -> Instant {
        self.due.unwrap_or(Instant::NEVER)
    }

    /// Adds a stretch of the lead thread.
    pub(crate) fn ran(&mut self, &Sample { from, used, slept, .. }: &Sample) {
        self.analyser.ran(from, used, slept);
        self.since.get_or_insert(from);
        self.due.get_or_insert(from + SEARCH);
    }

    /// Starts again with the activations of another lead thread.
    pub(crate) fn restart(&mut self) {
        (self.analyser, self.candidate) = (RhythmAnalyser::default(), None);
    }

    /// Searches again, because the found period could not be applied.
    pub(crate) fn forget(&mut self) {
        (self.held, self.candidate, self.absent) = (None, None, 0);
    }

    /// Looks, if that is due.
    pub(crate) fn on_time(&mut self, now: Instant) -> Option<News> {
        if now < self.due() {
            return None;
        }
        if self.analyser.fresh() < LEAST_FRESH {
            self.due = None;
            return None;
        }
        let found = self.analyser.find();
        let news = self.decide(found, now);
        self.due = Some(now + if self.held.is_some() { WATCH } else { SEARCH });
        news
    }

    fn decide(&mut self, found: Option<Rhythm>, now: Instant) -> Option<News> {
        let before = std::mem::replace(&mut self.candidate, found);
        match (found, self.held) {
            (Some(found), Some(held)) if same(found.period, held.period) => {
                self.absent = 0;
                None
            }
            (Some(found), _) if before.is_some_and(|before| same(before.period, found.period)) => {
                Some(News::Found(self.hold(found, now)))
            }
            (_, Some(held)) => self.miss(held, now),
            _ => None,
        }
    }

    fn hold(&mut self, found: Rhythm, now: Instant) -> FoundRhythm {
        let after = now.since(self.since.replace(now).unwrap_or(now));
        let held = FoundRhythm { period: found.period, confidence: found.confidence, after };
        (self.held, self.absent) = (Some(held), 0);
        held
    }

    fn miss(&mut self, held: FoundRhythm, now: Instant) -> Option<News> {
        self.absent += 1;
        if self.absent < LOST_AFTER {
            return None;
        }
        self.forget();
        self.since = Some(now);
        Some(News::Lost(held))
    }
}

fn same(a: Nanos, b: Nanos) -> bool {
    (a.as_f64() / b.as_f64().max(1.0) - 1.0).abs() < SAME
}
