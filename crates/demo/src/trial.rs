//! Trial execution: measures the cost of decoding on this machine before anything is reserved.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::children::{self, ChildGuard, Stop};
use crate::stage::Folder;

/// 25 frames a second.
pub const PERIOD_NS: f64 = 40e6;
const PATIENCE: Duration = Duration::from_secs(60);
/// Players per CPU near capacity.
pub const PLAYERS_PER_CPU: usize = 3;
/// Number of tries, of which the cheapest counts, because other activity on the machine only increases the cost.
const TRIES: usize = 3;

/// The trace of one decoded clip: cost in ns and size in bytes of each frame.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Trace {
    /// CPU time of each frame in ns.
    pub costs_ns: Vec<f64>,
    pub bytes: Vec<f64>,
}

impl Trace {
    /// Mean cost as a share of one CPU at 25 frames a second.
    pub fn mean_share(&self) -> f64 {
        self.costs_ns.iter().sum::<f64>() / self.costs_ns.len().max(1) as f64 / PERIOD_NS
    }

    /// Cost of the frame at `position` in the endless repetition of the clip.
    pub fn cost_ns(&self, position: usize) -> f64 {
        self.costs_ns.get(position % self.costs_ns.len().max(1)).copied().unwrap_or(0.0)
    }

    /// The median cost of each frame over several passes. In a single pass, interrupts and cold caches would make
    /// some frames look too expensive.
    pub fn median(passes: &[Trace]) -> Trace {
        let cost = |i: usize| crate::rows::median(passes.iter().map(|pass| pass.cost_ns(i)).collect());
        let bytes = passes.first().map_or(Vec::new(), |pass| pass.bytes.clone());
        Trace { costs_ns: (0..bytes.len()).map(cost).collect(), bytes }
    }

    /// The same trace with all costs multiplied by `factor`.
    pub fn scaled(&self, factor: f64) -> Trace {
        Trace { costs_ns: self.costs_ns.iter().map(|cost| cost * factor).collect(), bytes: self.bytes.clone() }
    }

    /// The trace in the format of `qfabric-player --trace`.
    pub fn text(&self) -> String {
        let line = |(cost, bytes): (&f64, &f64)| format!("{cost:.0} {bytes:.0}\n");
        self.costs_ns.iter().zip(&self.bytes).map(line).collect()
    }

    /// Parses the output of `qfabric-player --trace`.
    pub fn parse(text: &str) -> Result<Trace> {
        let mut trace = Trace::default();
        for line in text.lines() {
            let mut words = line.split_whitespace().map(str::parse::<f64>);
            let (Some(Ok(cost)), Some(Ok(bytes))) = (words.next(), words.next()) else {
                anyhow::bail!("expected a cost and a size, found {line:?}")
            };
            trace.costs_ns.push(cost);
            trace.bytes.push(bytes);
        }
        ensure!(!trace.costs_ns.is_empty(), "the trace is empty");
        Ok(trace)
    }
}

/// Decodes each clip at full speed, all at the same time, with one player per clip and above best effort (nice −20
/// if the demo runs as root). Writes the traces to `outputs`.
pub fn run(player: &Path, clips: &[PathBuf], outputs: &[PathBuf], stop: &Stop) -> Result<Vec<Trace>> {
    let mut trials: Vec<ChildGuard> = Vec::new();
    for (clip, output) in clips.iter().zip(outputs) {
        let mut command = children::player_command(player);
        command.arg(clip).arg("--trace").arg(output);
        if rustix::process::geteuid().is_root() {
            command.args(["--policy", "nice"]);
        }
        trials.push(children::spawn(command)?);
    }
    wait_for_all(&mut trials, stop)?;
    outputs.iter().map(|path| Trace::parse(&read(path)?).with_context(|| path.display().to_string())).collect()
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn wait_for_all(trials: &mut [ChildGuard], stop: &Stop) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    for trial in trials {
        while !trial.ended("qfabric-player")? {
            stop.check()?;
            ensure!(Instant::now() < end, "decoding a clip took longer than {} s", PATIENCE.as_secs());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(())
}

/// Mean share of one CPU that decoding each clip takes at 25 frames a second, with as many decoders as near
/// capacity. Decoders share caches, memory and often cores, so a clip decoded alone would look too cheap.
pub fn shares_under_load(player: &Path, clips: &[PathBuf], stop: &Stop) -> Result<Vec<f64>> {
    let folder = Folder::make()?;
    let players = PLAYERS_PER_CPU * std::thread::available_parallelism().map_or(1, usize::from);
    let copies: Vec<PathBuf> = (0..players.max(clips.len())).map(|i| clips[i % clips.len()].clone()).collect();
    let outputs: Vec<PathBuf> = (0..copies.len()).map(|i| folder.0.join(format!("trial{i}.txt"))).collect();
    let tries: Result<Vec<Vec<Trace>>> = (0..TRIES).map(|_| run(player, &copies, &outputs, stop)).collect();
    let tries = tries?;
    let least = |i: usize| tries.iter().map(|traces| traces[i].mean_share()).fold(f64::INFINITY, f64::min);
    Ok((0..clips.len()).map(least).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_milliseconds_per_frame_are_a_quarter_of_a_cpu() {
        let trace = Trace::parse("8000000 1\n12000000 2\n").unwrap();
        assert!((trace.mean_share() - 0.25).abs() < 1e-12);
        assert_eq!(trace.bytes, [1.0, 2.0]);
    }

    #[test]
    fn a_cost_that_is_high_in_one_pass_does_not_count() {
        let pass = |costs: [f64; 3]| Trace { costs_ns: costs.into(), bytes: vec![1.0, 2.0, 3.0] };
        let median = Trace::median(&[pass([30.0, 8.0, 9.0]), pass([31.0, 170.0, 8.0]), pass([48.0, 9.0, 10.0])]);
        assert_eq!(median, pass([31.0, 9.0, 9.0]));
    }

    #[test]
    fn an_invalid_trace_is_refused() {
        assert!(Trace::parse("").is_err());
        assert!(Trace::parse("12000000\n").unwrap_err().to_string().contains("12000000"));
    }
}
