//! The signals that this process ignores since its start.

use rustix::process::Signal;

/// Whether this process ignores SIGHUP, as `nohup` asks for. A program that then installs a handler of its own would
/// end with its terminal, and its children would no longer inherit that they ignore the signal.
pub fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignores(&status, Signal::HUP.as_raw())
}

/// Whether a process with this `/proc/PID/status` ignores the signal.
fn ignores(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hangup_that_nohup_ignores_is_known_from_the_status_of_the_process() {
        let nohup = "Name:\tqfabric\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n";
        assert!(ignores(nohup, 1) && !ignores(nohup, 15));
        assert!(!ignores("SigIgn:\t0000000000001000\n", 1) && !ignores("", 1));
    }
}
