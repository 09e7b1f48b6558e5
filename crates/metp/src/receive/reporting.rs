//! When a report is sent, and what it says (§5.2.2, items 2 and 3).
//!
//! A report goes out at once for a loss, a duplicate and the last TPDU of a message that is incomplete; within 1 ms for
//! a complete message; and otherwise for every eighth TPDU, or 10 ms after the first one that is not yet reported. A
//! report contains all that the sender needs, so a lost one does no harm.

use qfabric_types::{Instant, Nanos};

use super::Receiver;
use crate::Statistics;
use crate::send::INITIAL_TPDU;
use crate::wire::{Echo, MAX_TPDU, MIN_TPDU, Report, Run};

const EVERY: u32 = 8;
const DELAY: Nanos = Nanos::from_millis(10);
/// Small complete messages share reports within this time.
const SHARED: Nanos = Nanos::from_millis(1);

#[derive(Clone, Debug)]
pub(super) struct Reporting {
    due_at: Option<Instant>,
    last_at: Option<Instant>,
    /// TPDUs since the last report.
    tpdus: u32,
    /// Time of sending and of arrival of the last TPDU.
    echo: Option<(u32, Instant)>,
    /// Bit i: message `floor_number` − 1 − i was not delivered completely.
    incomplete: u32,
    /// Messages that were settled since the last report.
    unreported: u64,
    window_end: u64,
}

impl Reporting {
    pub(super) fn new(now: Instant) -> Reporting {
        let (last_at, echo) = (None, None);
        Reporting { due_at: Some(now), last_at, tpdus: 0, echo, incomplete: 0, unreported: 0, window_end: 0 }
    }

    pub(super) fn at_once(&mut self) {
        self.due_at = Some(Instant::ZERO);
    }

    /// Within `SHARED` of the last report.
    pub(super) fn soon(&mut self, now: Instant) {
        self.due_by(self.last_at.map_or(now, |last| last + SHARED));
    }

    pub(super) fn on_tpdu(&mut self, now: Instant) {
        self.tpdus += 1;
        self.due_by(if self.tpdus >= EVERY { now } else { now + DELAY });
    }

    fn due_by(&mut self, at: Instant) {
        self.due_at = Some(self.due_at.map_or(at, |due| due.min(at)));
    }

    pub(super) fn echo(&mut self, now: Instant, sent_us: u32) {
        self.echo = Some((sent_us, now));
    }

    /// The next `count` messages are settled.
    pub(super) fn settled(&mut self, count: u64, is_complete: bool) {
        let shifted = u32::try_from(count).ok().and_then(|count| self.incomplete.checked_shl(count)).unwrap_or(0);
        let new = if is_complete {
            0
        } else if count >= 32 {
            u32::MAX
        } else {
            (1 << count) - 1
        };
        self.incomplete = shifted | new;
        self.unreported = self.unreported.saturating_add(count);
        if self.is_full() {
            self.at_once();
        }
    }

    /// A further settled message would push the fate of one out that no report has told.
    fn is_full(&self) -> bool {
        self.unreported >= u64::from(u32::BITS)
    }

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.due_at
    }
}

impl Receiver {
    pub(crate) fn is_report_due(&self, now: Instant) -> bool {
        self.reporting.due_at.is_some_and(|at| at <= now)
    }

    /// Whether a report has to go out before another message is settled.
    pub(crate) fn is_report_full(&self) -> bool {
        self.reporting.is_full()
    }

    /// More memory is free than the peer knows: a quarter of it makes a report worthwhile.
    pub(crate) fn check_window(&mut self) {
        let more = self.window_end().saturating_sub(self.reporting.window_end);
        if more > 0 && more >= self.map.capacity() / 4 {
            self.reporting.at_once();
        }
    }

    fn window_end(&self) -> u64 {
        self.floor_block + self.map.capacity()
    }

    /// The report of this time.
    pub(crate) fn report(&self, now: Instant) -> Report {
        let base = self.map_find(self.floor_block, false);
        let mut report = Report {
            echo: self.reporting.echo.map(|(sent_us, at)| Echo {
                sent_us,
                held: (now.since(at).get() / 4_000).min(u64::from(u16::MAX)) as u16,
                lost_up_to: (self.transmissions.lost_up_to() & 0xff_ffff) as u32,
            }),
            status: self.status.map_or(0, |status| status.version),
            settled: self.floor_number as u32,
            incomplete: self.reporting.incomplete,
            base: base as u32,
            window_end: self.window_end() as u32,
            tpdu_size: self.agreed_tpdu(),
            largest_message: self.largest_message,
            duplicates: self.statistics.duplicates as u16,
            runs: Default::default(),
        };
        self.add_runs(base, &mut report);
        report
    }

    fn add_runs(&self, base: u64, report: &mut Report) {
        let mut at = base;
        while at < self.seen_end {
            let received = self.map_find(at, true);
            let end = self.map_find(received, false);
            let [missing, run] = [received - at, end - received];
            if missing.max(run) > Report::MOST_RUN
                || !report.push(Run { missing: missing as u32, received: run as u32 })
            {
                return;
            }
            at = end;
        }
    }

    fn map_find(&self, from: u64, is_set: bool) -> u64 {
        self.map.find(from..self.seen_end.max(from), is_set)
    }

    /// The peer's proposal, if this side accepts it.
    fn agreed_tpdu(&self) -> u16 {
        let proposed = self.status.map_or(INITIAL_TPDU, |status| status.tpdu_size);
        proposed.clamp(MIN_TPDU, MAX_TPDU).min(self.accepted_tpdu)
    }

    /// A report went out.
    pub(crate) fn report_sent(&mut self, now: Instant) {
        self.reporting.window_end = self.window_end();
        let reporting = &mut self.reporting;
        (reporting.due_at, reporting.last_at) = (None, Some(now));
        (reporting.tpdus, reporting.unreported) = (0, 0);
        self.statistics.reports += 1;
    }

    pub(crate) fn count_unreadable(&mut self) {
        self.statistics.unreadable += 1;
    }

    pub(crate) fn count_refused(&mut self) {
        self.statistics.refused += 1;
    }

    /// The counters of both halves.
    pub(crate) fn counts(&self, sent: Statistics) -> Statistics {
        let own = self.statistics;
        Statistics {
            received: own.received,
            in_time: own.in_time,
            with_holes: own.with_holes,
            skipped: own.skipped,
            not_taken: own.not_taken,
            received_bytes: own.received_bytes,
            duplicates: own.duplicates,
            late_tpdus: own.late_tpdus,
            unreadable: own.unreadable,
            refused: own.refused,
            reports: own.reports,
            delay: self.delays.summary(),
            ..sent
        }
    }
}
