//! Progress of each kind of work, and its longest gap.
//!
//! A gap is counted in ticks of a thread that sleeps 10 ms repeatedly: while the machine stands still, there are no
//! ticks and no gap grows. The longest time between two ticks shows how long the machine stood still.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub(crate) const TICK: Duration = Duration::from_millis(10);

/// One kind of work.
#[derive(Debug, Default)]
struct Kind {
    done: AtomicU64,
    /// Tick of the last operation.
    last: AtomicU64,
    /// Longest gap, in ticks.
    longest: AtomicU64,
    errors: Mutex<BTreeMap<String, u64>>,
}

#[derive(Debug, Default)]
pub(crate) struct Progress {
    kinds: BTreeMap<&'static str, Kind>,
    ticks: AtomicU64,
    /// Longest time between two ticks, in microseconds.
    stillest: AtomicU64,
    /// True while gaps are counted.
    watched: AtomicBool,
}

/// Result of one kind of work.
pub(crate) struct Row {
    pub kind: &'static str,
    pub done: u64,
    pub longest: Duration,
    pub errors: Vec<(String, u64)>,
}

impl Progress {
    pub(crate) fn of(kinds: impl Iterator<Item = &'static str>) -> Arc<Progress> {
        let kinds = kinds.map(|kind| (kind, Kind::default())).collect();
        let progress = Arc::new(Progress { kinds, ..Progress::default() });
        let ticking = progress.clone();
        std::thread::spawn(move || ticking.tick());
        progress
    }

    /// Ticks until the process ends.
    fn tick(&self) {
        let mut before = Instant::now();
        loop {
            std::thread::sleep(TICK);
            let now = Instant::now();
            self.stillest.fetch_max(now.duration_since(before).as_micros() as u64, Relaxed);
            before = now;
            let tick = self.ticks.fetch_add(1, Relaxed) + 1;
            if self.watched.load(Relaxed) {
                self.kinds.values().for_each(|kind| kind.look(tick));
            }
        }
    }

    /// Starts or stops counting gaps.
    pub(crate) fn watch(&self, watched: bool) {
        let now = self.ticks.load(Relaxed);
        self.kinds.values().for_each(|kind| kind.last.store(now, Relaxed));
        self.watched.store(watched, Relaxed);
    }

    pub(crate) fn done(&self, kind: &str) {
        let (kind, now) = (&self.kinds[kind], self.ticks.load(Relaxed));
        kind.done.fetch_add(1, Relaxed);
        kind.last.store(now, Relaxed);
    }

    pub(crate) fn error(&self, kind: &str, class: &str) {
        let mut errors = self.kinds[kind].errors.lock().unwrap_or_else(PoisonError::into_inner);
        *errors.entry(class.to_owned()).or_default() += 1;
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = Row> {
        self.kinds.iter().map(|(name, kind)| Row {
            kind: name,
            done: kind.done.load(Relaxed),
            longest: TICK * kind.longest.load(Relaxed) as u32,
            errors: kind.errors.lock().unwrap_or_else(PoisonError::into_inner).clone().into_iter().collect(),
        })
    }

    /// Longest time for which the ticking thread did not run.
    pub(crate) fn stillest(&self) -> Duration {
        Duration::from_micros(self.stillest.load(Relaxed))
    }
}

impl Kind {
    fn look(&self, tick: u64) {
        self.longest.fetch_max(tick.saturating_sub(self.last.load(Relaxed)), Relaxed);
    }
}
