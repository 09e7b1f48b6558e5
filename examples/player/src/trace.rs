//! Decodes a clip at full speed to measure the cost of each frame, and reads such traces.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use qfabric_types::{Nanos, Profile};

use crate::clip::Clip;
use crate::decoder::Stream;
use crate::options::Options;
use crate::pace::cpu_time;
use crate::play;

/// Decodes the clip once from `--start-at` on, and writes one line `c_ns bytes` per job. Opening the stream
/// decodes the frames before the start, which warms caches and memory. The path `-` is standard output.
pub(crate) fn write(options: &Options, path: &Path) -> Result<()> {
    play::apply(options.policy)?;
    let clip = Clip::load(options.clip.as_deref().context("no clip is given; name a video file")?)?;
    let mut stream = Stream::open(&clip, options.start_at)?;
    let mut text = String::new();
    for _ in 0..clip.len() {
        let (bytes, before) = (stream.next_bytes(), cpu_time());
        stream.decode()?;
        writeln!(text, "{} {bytes}", (cpu_time() - before).get())?;
    }
    if path == Path::new("-") {
        print!("{text}");
        return Ok(());
    }
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Reads a trace as the profile of a trial execution, which has at most [`Profile::MAX_JOBS`] jobs.
pub(crate) fn read(path: &Path) -> Result<Profile> {
    read_first(path, Profile::MAX_JOBS)
}

/// Reads at most this number of lines of a trace.
pub(crate) fn read_first(path: &Path, jobs: usize) -> Result<Profile> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let named = || format!("{} is no trace; expected one line `c_ns bytes` per job", path.display());
    parse(&text, jobs).with_context(named)
}

fn parse(text: &str, jobs: usize) -> Result<Profile> {
    let mut profile = Profile::default();
    for (number, line) in text.lines().enumerate().take(jobs) {
        let mut words = line.split_whitespace();
        let cost = words.next().and_then(|w| w.parse().ok());
        profile.costs.push(Nanos::new(cost.with_context(|| format!("line {}: {line:?}", number + 1))?));
        profile.hints.extend(words.next().and_then(|w| w.parse::<f64>().ok()));
    }
    anyhow::ensure!(
        profile.hints.is_empty() || profile.hints.len() == profile.costs.len(),
        "some lines have a size and some do not"
    );
    Ok(profile)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_reads_back_as_a_profile() {
        let profile = parse("7000 30\n9000 40\n7 7\n", 2).unwrap();
        assert_eq!(profile.mean(), Nanos::from_micros(8));
        assert_eq!(profile.hints, [30.0, 40.0]);
    }

    #[test]
    fn a_malformed_trace_is_refused() {
        assert!(parse("7000 30\n9000\n", 9).is_err());
        assert!(parse("seven\n", 9).unwrap_err().to_string().contains("seven"));
    }
}
