//! Processes without a contract: when to ask again, and what was reported already.

use std::collections::BTreeMap;

/// Largest number of looks between two requests: 32 s.
const LONGEST: u32 = 64;

#[derive(Debug, Default)]
pub struct Refused(BTreeMap<i32, Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    /// Looks until the next request, and after the next refusal.
    left: u32,
    pause: u32,
    refusals: u32,
    is_reported: bool,
}

impl Refused {
    /// A process that had a contract: the next look asks for one.
    pub fn expect(&mut self, pid: i32) {
        self.0.insert(pid, Waiting::default());
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn pids(&self) -> impl Iterator<Item = i32> {
        self.0.keys().copied()
    }

    /// Forgets all processes but these.
    pub fn keep(&mut self, wanted: &[i32]) {
        self.0.retain(|pid, _| wanted.contains(pid));
    }

    pub fn forget(&mut self, pid: i32) {
        self.0.remove(&pid);
    }

    /// Whether to ask for the process at this look. Call it once for each look.
    pub fn is_due(&mut self, pid: i32) -> bool {
        let Some(waiting) = self.0.get_mut(&pid) else { return true };
        let is_due = waiting.left == 0;
        waiting.left = waiting.left.saturating_sub(1);
        is_due
    }

    /// Notes a refusal; `true` if it must be reported. A process that another contract covers may be a new child of a
    /// covered process: the next look knows, so this is reported only if it is refused again.
    pub fn again(&mut self, pid: i32, code: &str) -> bool {
        let waiting = self.0.entry(pid).or_default();
        waiting.refusals += 1;
        waiting.pause = (2 * waiting.pause).clamp(1, LONGEST);
        waiting.left = waiting.pause - 1;
        let reports = !waiting.is_reported && (code != "already_covered" || waiting.refusals > 1);
        waiting.is_reported |= reports;
        reports
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_reported_once_and_asked_again_at_growing_intervals() {
        let mut refused = Refused::default();
        let (mut asked, mut reports) = (Vec::new(), 0);
        for look in 0..200 {
            if refused.is_due(7) {
                asked.push(look);
                reports += u32::from(refused.again(7, "over_committed"));
            }
        }
        assert_eq!(asked, [0, 1, 3, 7, 15, 31, 63, 127, 191]);
        assert_eq!(reports, 1);
    }

    #[test]
    fn a_covered_process_is_reported_only_if_it_is_still_covered_at_the_next_look() {
        let mut refused = Refused::default();
        assert_eq!([(); 3].map(|()| refused.again(7, "already_covered")), [false, true, false]);
        refused.keep(&[8]);
        assert!(refused.is_empty() && refused.is_due(7));
    }
}
