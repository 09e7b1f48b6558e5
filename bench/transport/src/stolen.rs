//! CPU time that the hypervisor gave to other machines, from `/proc/stat`.

use std::fs;

/// Ticks of all CPUs at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ticks {
    all: u64,
    stolen: u64,
}

impl Ticks {
    /// Zero if the kernel does not say.
    pub(crate) fn read() -> Ticks {
        fs::read_to_string("/proc/stat").ok().and_then(|text| Ticks::parse(&text)).unwrap_or_default()
    }

    /// The line `cpu USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL …`; guests are in USER.
    fn parse(text: &str) -> Option<Ticks> {
        let numbers: Vec<u64> =
            text.lines().next()?.strip_prefix("cpu ")?.split_whitespace().map_while(|word| word.parse().ok()).collect();
        Some(Ticks { all: numbers.iter().take(8).sum(), stolen: *numbers.get(7)? })
    }

    /// Percent of all CPU time from `self` until `later` that was stolen.
    pub(crate) fn stolen_percent(self, later: Ticks) -> f64 {
        let all = later.all.saturating_sub(self.all);
        100.0 * later.stolen.saturating_sub(self.stolen) as f64 / all.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_the_eighth_number() {
        let read = |line: &str| Ticks::parse(line).unwrap();
        let (before, after) = (read("cpu  1 2 3 4 5 6 7 8 9 9\n"), read("cpu  1 2 3 13 5 6 7 9 99 99\n"));
        assert_eq!(before, Ticks { all: 36, stolen: 8 });
        assert_eq!(before.stolen_percent(after), 10.0);
        assert_eq!(Ticks::parse("cpu 1 2"), None);
    }
}
