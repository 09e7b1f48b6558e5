//! Presets of the H.264 encoder. A slower one codes the same quality into fewer bytes: it costs energy in the processor
//! and saves energy on the air. The ladder runs the one that needs the least energy (TEQ, 000 §6.2).
//!
//! ```text
//!            each preset once                every TRIAL_EVERY runs: one preset again
//!   first ────────────────────▶ best ─────────────────────────────────────────────────▶ trial
//!                                ▲                                                        │
//!                                └────────────────────────────────────────────────────────┘
//! ```
//! A run is as long as the distance of two key pictures, because each change of the preset needs a key picture, which
//! is larger than others. CPU times are measured on this host; joules are those of a model.

use std::fmt;
use std::str::FromStr;

use qfabric_energy::{Approximation, Costs, Measurement, Model, Transcoder, TranscoderTable, evaluate, work_cost};
use qfabric_types::Nanos;

use super::codec::KEY_DISTANCE;

/// Runs with the best preset before another one is tried again.
const TRIAL_EVERY: u32 = 30;

/// A preset of x264, from the fastest one.
#[allow(missing_docs, reason = "the names are the encoder's")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Preset {
    #[default]
    Ultrafast,
    Superfast,
    Veryfast,
    Faster,
    Fast,
    Medium,
}

/// A name that no preset has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no preset; use ultrafast, superfast, veryfast, faster, fast or medium")]
pub struct UnknownPreset(String);

impl Preset {
    const ALL: [Preset; 6] =
        [Preset::Ultrafast, Preset::Superfast, Preset::Veryfast, Preset::Faster, Preset::Fast, Preset::Medium];

    /// The encoder's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Preset::Ultrafast => "ultrafast",
            Preset::Superfast => "superfast",
            Preset::Veryfast => "veryfast",
            Preset::Faster => "faster",
            Preset::Fast => "fast",
            Preset::Medium => "medium",
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Preset {
    type Err = UnknownPreset;

    fn from_str(text: &str) -> Result<Preset, UnknownPreset> {
        Preset::ALL.into_iter().find(|preset| preset.name() == text).ok_or_else(|| UnknownPreset(text.to_owned()))
    }
}

/// Chooses a preset by the energy of its pictures.
#[derive(Clone, Debug)]
pub struct PresetLadder {
    presets: Vec<Preset>,
    /// What was measured, in the order of `presets`.
    measured: Vec<Transcoder>,
    costs: Costs,
    /// The preset that runs now.
    present: usize,
    /// The preset that needs the least energy, of those that were measured.
    best: usize,
    /// The preset of the last trial.
    tried: usize,
    /// Runs since the last trial.
    runs: u32,
    /// The present run: pictures, kilobytes before and after, seconds.
    pictures: u32,
    sum: Measurement,
}

const NOTHING: Measurement = Measurement { input_kb: 0.0, output_kb: 0.0, run_s: 0.0 };

impl PresetLadder {
    /// A ladder of `presets`, which are tried in this order; none: only the fastest one. `model` has the energy of a
    /// second of computation and of a kilobyte on the air.
    pub fn new(presets: &[Preset], model: &Model) -> PresetLadder {
        let presets = if presets.is_empty() { vec![Preset::default()] } else { presets.to_vec() };
        let unknown = |preset: &Preset| Transcoder {
            name: preset.to_string(),
            is_mandatory: true,
            table: TranscoderTable::new(&[], Approximation::Linear).expect("an empty table is valid"),
        };
        let costs = Costs {
            run_w: work_cost(&model.cpu, model.cpu.highest(), 0.0),
            data_j_per_kb: model.radio.send_j_per_kb(&model.cpu),
            sleep_j_per_kb: 0.0,
            selection_j: 0.0,
        };
        let measured = presets.iter().map(unknown).collect();
        PresetLadder { presets, measured, costs, present: 0, best: 0, tried: 0, runs: 0, pictures: 0, sum: NOTHING }
    }

    /// The preset of the next picture.
    pub fn preset(&self) -> Preset {
        self.presets[self.present]
    }

    /// The level has changed: what was measured says nothing any more.
    pub fn begin_anew(&mut self) {
        for one in &mut self.measured {
            one.table = TranscoderTable::new(&[], Approximation::Linear).expect("an empty table is valid");
        }
        (self.present, self.best, self.tried, self.runs) = (0, 0, 0, 0);
        (self.pictures, self.sum) = (0, NOTHING);
    }

    /// A picture of `input` bytes was coded into `output` bytes in `run` of CPU time. Returns the preset that needs the
    /// least energy, if it is another one now.
    pub fn on_picture(&mut self, input: usize, output: usize, run: Nanos) -> Option<Preset> {
        self.pictures += 1;
        self.sum.input_kb += input as f64 / 1e3;
        self.sum.output_kb += output as f64 / 1e3;
        self.sum.run_s += run.as_f64() / 1e9;
        if self.pictures < KEY_DISTANCE {
            return None;
        }
        let pictures = f64::from(std::mem::take(&mut self.pictures));
        let Measurement { input_kb, output_kb, run_s } = std::mem::replace(&mut self.sum, NOTHING);
        let mean =
            Measurement { input_kb: input_kb / pictures, output_kb: output_kb / pictures, run_s: run_s / pictures };
        // An empty picture is not measured.
        let _ = self.measured[self.present].table.learn(mean);
        let best = self.cheapest(mean.input_kb);
        let before = std::mem::replace(&mut self.best, best);
        self.next_run(mean.input_kb);
        (self.best != before).then(|| self.presets[self.best])
    }

    /// Whether the preset was measured: without an entry, a table predicts no change.
    fn is_known(&self, at: usize, input_kb: f64) -> bool {
        self.measured[at].table.predict(input_kb).run_s > 0.0
    }

    fn cheapest(&self, input_kb: f64) -> usize {
        let teq = |at: usize| evaluate(&self.measured, &[at], input_kb, &self.costs).teq_j;
        let known = (0..self.presets.len()).filter(|at| self.is_known(*at, input_kb));
        known.max_by(|a, b| teq(*a).total_cmp(&teq(*b))).unwrap_or(self.present)
    }

    fn next_run(&mut self, input_kb: f64) {
        self.runs += 1;
        let unknown = (self.present + 1..self.presets.len()).find(|at| !self.is_known(*at, input_kb));
        self.present = match unknown {
            Some(next) => next,
            None if self.runs >= TRIAL_EVERY => {
                self.runs = 0;
                self.tried = (self.tried + 1) % self.presets.len();
                self.tried
            }
            None => self.best,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CPU time in ms and kilobytes of a picture with each of three presets.
    type Kind = [(u64, usize); 3];

    const THREE: [Preset; 3] = [Preset::Ultrafast, Preset::Veryfast, Preset::Medium];

    fn ladder() -> PresetLadder {
        PresetLadder::new(&THREE, &Model::shipped("ipaq-h3870-orinoco").unwrap())
    }

    /// The presets of so many runs.
    fn runs(ladder: &mut PresetLadder, kind: Kind, count: u32) -> Vec<Preset> {
        let mut seen = Vec::new();
        for _ in 0..count {
            seen.push(ladder.preset());
            let at = THREE.iter().position(|preset| *preset == ladder.preset()).unwrap();
            for _ in 0..KEY_DISTANCE {
                ladder.on_picture(150_000, kind[at].1 * 1_000, Nanos::from_millis(kind[at].0));
            }
        }
        seen
    }

    #[test]
    fn each_preset_is_tried_once_and_the_one_with_the_least_energy_runs() {
        // Bytes that are saved at no cost; computation that saves no bytes.
        for (kind, best) in [([(2, 90), (2, 60), (2, 30)], THREE[2]), ([(2, 30), (90, 30), (900, 30)], THREE[0])] {
            let mut ladder = ladder();
            assert_eq!(runs(&mut ladder, kind, 5), [THREE[0], THREE[1], THREE[2], best, best]);
        }
    }

    #[test]
    fn a_change_of_the_pictures_is_followed_and_trials_are_rare() {
        let mut ladder = ladder();
        runs(&mut ladder, [(2, 30), (9, 30), (900, 30)], 4);
        assert_eq!(ladder.preset(), THREE[0]);
        let seen = runs(&mut ladder, [(2, 90), (9, 30), (900, 30)], 3 * TRIAL_EVERY);
        assert!(seen.iter().filter(|preset| **preset == THREE[2]).count() <= 2, "{seen:?}");
        assert_eq!(ladder.preset(), THREE[1]);
        ladder.begin_anew();
        assert_eq!(ladder.preset(), THREE[0]);
    }

    #[test]
    fn presets_have_the_encoders_names_and_one_alone_always_runs() {
        for preset in Preset::ALL {
            assert_eq!(preset.to_string().parse::<Preset>(), Ok(preset));
        }
        assert!("slow".parse::<Preset>().unwrap_err().to_string().contains("ultrafast"));
        let mut ladder = PresetLadder::new(&[], &Model::shipped("ipaq-h3870-orinoco").unwrap());
        assert!((0..100).all(|_| ladder.on_picture(1_000, 0, Nanos::ZERO).is_none()));
        assert_eq!(ladder.preset(), Preset::Ultrafast);
    }
}
