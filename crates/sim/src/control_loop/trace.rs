//! Parses traces of computation times: one job per line, `c_ns` or `c_ns hint`. Times are in nanoseconds. A trace
//! is external input, so every number is checked and the amount of input is bounded.

use serde::{Deserialize, Serialize};

use super::Refused;

/// Largest number of jobs in a trace: eleven hours of a 25 Hz application. A longer trace is refused.
pub const MAX_JOBS: usize = 1_000_000;
/// Longest quoted part of a line in an error message, in characters.
const MAX_LINE: usize = 256;
/// Largest accepted cost (eleven days). Computations with larger costs would not be exact.
const MAX_COST_NS: f64 = 1e15;

/// One job of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// c_k: the computation time, greater than 0.
    pub c_ns: f64,
    /// A number that is known before the job runs.
    pub hint: Option<f64>,
}

/// Parses a trace: one job per line, `c_ns` or `c_ns hint`. Skips empty lines and comments that start with `#`.
pub fn parse(text: &str) -> Result<Vec<Job>, Refused> {
    let mut jobs = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let content = line.split('#').next().unwrap_or_default().trim();
        if content.is_empty() {
            continue;
        }
        if jobs.len() == MAX_JOBS {
            return Err(Refused::TooLong);
        }
        jobs.push(parse_job(content).ok_or_else(|| refused_line(index + 1, content))?);
    }
    if jobs.is_empty() { Err(Refused::Empty) } else { Ok(jobs) }
}

fn parse_job(content: &str) -> Option<Job> {
    let mut words = content.split([' ', '\t', ',']).filter(|word| !word.is_empty());
    let c_ns = words.next()?.parse::<f64>().ok().filter(|c| *c > 0.0 && *c <= MAX_COST_NS)?;
    let hint = words.next().map(|word| word.parse::<f64>().ok().filter(|hint| hint.is_finite()).ok_or(()));
    match (hint.transpose(), words.next()) {
        (Ok(hint), None) => Some(Job { c_ns, hint }),
        _ => None,
    }
}

fn refused_line(line: usize, content: &str) -> Refused {
    let text = content.chars().take(MAX_LINE).collect();
    Refused::Line { line, text }
}

/// Applies the rules of [`parse`] to a trace from another source. An error names the job by its position, from 1.
pub(super) fn check(trace: &[Job]) -> Result<(), Refused> {
    let sound = |job: &Job| job.c_ns > 0.0 && job.c_ns <= MAX_COST_NS && job.hint.is_none_or(f64::is_finite);
    match trace.iter().position(|job| !sound(job)) {
        Some(at) => Err(Refused::Line { line: at + 1, text: format!("{} {:?}", trace[at].c_ns, trace[at].hint) }),
        None if trace.is_empty() => Err(Refused::Empty),
        None if trace.len() > MAX_JOBS => Err(Refused::TooLong),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_read_with_hints_comments_and_empty_lines() {
        let jobs = parse("# c_ns bytes\n7312000 48211\r\n\n 8e6\t # no hint\n9000000.5,-3\n").unwrap();
        let expected = [(7_312_000.0, Some(48_211.0)), (8e6, None), (9_000_000.5, Some(-3.0))];
        assert_eq!(jobs, expected.map(|(c_ns, hint)| Job { c_ns, hint }));
    }

    #[test]
    fn an_invalid_line_is_named_with_its_number() {
        for nonsense in ["frog", "-5", "0", "NaN", "inf", "1e16", "5 frog", "5 NaN", "5 6 7", "0x10"] {
            let refusal = parse(&format!("1000\n# fine\n{nonsense}\n")).unwrap_err().to_string();
            assert!(refusal.contains("line 3") && refusal.contains(nonsense), "{refusal}");
        }
        assert!(parse(&format!("{}\n", "x".repeat(100_000))).unwrap_err().to_string().len() < 600);
        assert_eq!(parse("# nothing\n\n"), Err(Refused::Empty));
        assert_eq!(parse(&"1\n".repeat(MAX_JOBS + 1)), Err(Refused::TooLong));
    }

    #[test]
    fn a_trace_from_another_source_must_follow_the_same_rules() {
        for (c_ns, hint) in [(0.0, None), (f64::NAN, None), (1.0, Some(f64::INFINITY))] {
            let trace = [Job { c_ns: 1.0, hint: None }, Job { c_ns, hint }];
            assert!(matches!(check(&trace), Err(Refused::Line { line: 2, .. })));
        }
    }
}
