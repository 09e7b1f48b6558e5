//! When to log a line whose cause may repeat many times in a second.

use std::time::{Duration, Instant};

/// The log lines of one cause: the first is due at once, and each further one a minute after the last at the earliest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogLimit {
    logged: Option<Instant>,
}

impl LogLimit {
    /// Shortest time between two lines.
    pub const INTERVAL: Duration = Duration::from_secs(60);

    /// Whether to log at `now`. If so, the caller logs.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.logged.is_none_or(|logged| now.saturating_duration_since(logged) >= Self::INTERVAL);
        if is_due {
            self.logged = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_lasts_is_logged_once_a_minute() {
        let (mut log_limit, begin) = (LogLimit::default(), Instant::now());
        let at = [0, 1, 599, 600, 601, 1_200].map(|tenths| begin + Duration::from_millis(100 * tenths));
        assert_eq!(at.map(|now| log_limit.is_due(now)), [true, false, false, true, false, true]);
    }
}
