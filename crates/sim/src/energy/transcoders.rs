//! Figures 46 to 52: active energy of transcoding and sending one image, and the choice by TEQ; at the highest clock unless
//! a row names another one.
//!
//! Sizes are those of the real transcoders of the room `transcode`. Run times of gray, crop and reduce are derived from
//! Table 4; the thesis prints none of the compressions, so theirs are assumed.

use qfabric_energy::{Approximation, Costs, Energy, Measurement, Model, TranscoderTable, select, work_cost};
use qfabric_transcode::corpus::Content;
use qfabric_transcode::{Crop, Data, Gray, Huffman, Image, Lz77, Reduce, Transcoder};

use super::device::Usage;
use super::report::Report;

/// Run times at the iPAQ's highest clock, ms for each kilobyte of the input (Table 4: 70, 141 and 123 ms for 450 kB).
pub(super) const GRAY: f64 = 0.16;
const CROP: f64 = 0.31;
pub(super) const REDUCE: f64 = 0.27;
/// Assumed: a table of frequencies, and a search for repeated strings.
const HUFFMAN: f64 = 0.10;
const LZ77: f64 = 0.25;

/// The part of the area for which Table 4 has the run time of crop. It grows with the part that is copied.
const CROP_PART: f64 = 0.25;

/// The largest of the three sizes of Figures 46, 47 and 52, and the middle one, kB.
const LARGE: f64 = 518.0;
const MIDDLE: f64 = 230.0;

/// Adds rows of one device.
struct Rows<'a> {
    report: Report,
    model: &'a Model,
}

impl Rows<'_> {
    /// Sends `image` after `steps`: transcoders with their run times in ms for each kilobyte of their input.
    fn add(&mut self, policy: &str, image: &Image, steps: &mut [(&mut dyn Transcoder, f64)]) {
        let (mut data, mut run_s) = (Data::Image(image.clone()), 0.0);
        for (transcoder, ms_per_kb) in steps {
            run_s += *ms_per_kb * data.length() as f64 / 1e6;
            data = transcoder.apply(&data).expect("the transcoders are in an order that works");
        }
        let (cpu, radio) = (&self.model.cpu, &self.model.radio);
        let output_kb = data.length() as f64 / 1e3;
        let joules = output_kb * radio.send_j_per_kb(cpu) + run_s * work_cost(cpu, cpu.highest(), 0.0);
        let usage = Usage { mean_mhz: cpu.levels[cpu.highest()].mhz, ..Usage::of(Energy::modelled(joules)) };
        self.report.add(&format!("{policy}: {output_kb:.0} kB"), 0.0, &usage);
    }

    /// The rows of another image follow.
    fn begin(&mut self, policy: &str, image: &Image) {
        self.report.begin_group();
        self.add(policy, image, &mut []);
    }
}

/// The run time of crop to a part of the area.
fn crop_ms(percent: u8) -> f64 {
    CROP * f64::from(percent) / 100.0 / CROP_PART
}

pub(super) fn figure_46(report: Report, model: &Model, seed: u32) -> Report {
    let mut rows = Rows { report, model };
    for kilobytes in [58.0, MIDDLE, LARGE] {
        let image = Content::Photo.image(kilobytes, seed);
        rows.begin(&format!("{kilobytes} kB unmodified"), &image);
        rows.add("  gray", &image, &mut [(&mut Gray, GRAY)]);
        for percent in [20, 40, 60, 80] {
            rows.add(&format!("  crop to {percent} %"), &image, &mut [(&mut Crop::new(percent), crop_ms(percent))]);
        }
    }
    rows.report
}

pub(super) fn figure_47(report: Report, model: &Model, seed: u32) -> Report {
    let mut rows = Rows { report, model };
    let image = Content::Photo.image(LARGE, seed);
    rows.begin("518 kB unmodified", &image);
    rows.add("  gray", &image, &mut [(&mut Gray, GRAY)]);
    for percent in [10, 25, 50, 75] {
        rows.add(&format!("  reduce to {percent} %"), &image, &mut [(&mut Reduce::new(percent), REDUCE)]);
    }
    for content in [Content::Photo, Content::Text] {
        for kilobytes in [58.0, 140.0, MIDDLE, 400.0] {
            let image = content.image(kilobytes, seed);
            rows.begin(&format!("{kilobytes} kB, {}, unmodified", content.name()), &image);
            rows.add("  huffman", &image, &mut [(&mut Huffman, HUFFMAN)]);
            rows.add("  lz77", &image, &mut [(&mut Lz77, LZ77)]);
        }
    }
    rows.report
}

pub(super) fn figure_48(report: Report, model: &Model, seed: u32) -> Report {
    let mut rows = Rows { report, model };
    for kilobytes in [58.0, MIDDLE, LARGE] {
        let image = Content::Photo.image(kilobytes, seed);
        rows.begin(&format!("{kilobytes} kB unmodified"), &image);
        // Crop works on pixels, whatever their bytes: behind gray its run time for each kilobyte is three times as long.
        rows.add("  gray, crop", &image, &mut [(&mut Gray, GRAY), (&mut Crop::new(25), 3.0 * CROP)]);
        rows.add("  crop, gray", &image, &mut [(&mut Crop::new(25), CROP), (&mut Gray, GRAY)]);
        rows.add("  gray, huffman", &image, &mut [(&mut Gray, GRAY), (&mut Huffman, HUFFMAN)]);
        rows.add("  gray, lz77", &image, &mut [(&mut Gray, GRAY), (&mut Lz77, LZ77)]);
    }
    rows.report
}

pub(super) fn figure_49(report: Report, model: &Model, seed: u32) -> Report {
    let mut rows = Rows { report, model };
    for content in Content::ALL {
        let image = content.image(MIDDLE, seed);
        rows.begin(&format!("{}, unmodified", content.name()), &image);
        rows.add("  huffman", &image, &mut [(&mut Huffman, HUFFMAN)]);
        rows.add("  lz77", &image, &mut [(&mut Lz77, LZ77)]);
    }
    rows.report
}

/// K_r(n): the run time of a transcoder, given at the highest clock, at the highest, the middle and the lowest clock.
/// K_d: the size of what is sent (§6.2.2).
pub(super) fn figure_50(mut report: Report, model: &Model) -> Report {
    let cpu = &model.cpu;
    let mut add = |policy: String, joules: f64, mhz: f64| {
        report.begin_group();
        report.add(&policy, 0.0, &Usage { mean_mhz: mhz, ..Usage::of(Energy::modelled(joules)) });
    };
    for level in [cpu.highest(), cpu.highest() / 2, 0] {
        let mhz = cpu.levels[level].mhz;
        for run_ms in [50, 100, 150, 200] {
            let joules = f64::from(run_ms) / 1e3 * cpu.stretch(level) * cpu.busy_w(level);
            add(format!("{run_ms} ms of work at {mhz:.1} MHz"), joules, mhz);
        }
    }
    for kilobytes in [100, 200, 300, 400, 500] {
        let joules = f64::from(kilobytes) * model.radio.send_j_per_kb(cpu);
        add(format!("{kilobytes} kB sent"), joules, cpu.levels[cpu.highest()].mhz);
    }
    report
}

/// The three transcoders of one image size, by their run times of Table 4, and what [`select`] chooses of them.
pub(super) fn figure_52(report: Report, model: &Model, seed: u32) -> Report {
    let mut rows = Rows { report, model };
    for kilobytes in [58.0, 140.0, MIDDLE, 400.0, LARGE] {
        rows.choice(kilobytes, &[25], seed);
    }
    for kilobytes in [58.0, MIDDLE, LARGE] {
        rows.choice(kilobytes, &[20, 40, 60], seed);
    }
    rows.report
}

impl Rows<'_> {
    /// Adds gray, reduce to a quarter, crop to each part, and the choice.
    fn choice(&mut self, kilobytes: f64, parts: &[u8], seed: u32) {
        let image = Content::Photo.image(kilobytes, seed);
        let mut candidates: Vec<(String, Box<dyn Transcoder>, f64)> = vec![
            ("gray".to_owned(), Box::new(Gray), GRAY),
            ("reduce to 25 %".to_owned(), Box::new(Reduce::new(25)), REDUCE),
        ];
        for &part in parts {
            candidates.push((format!("crop to {part} %"), Box::new(Crop::new(part)), crop_ms(part)));
        }
        let known: Vec<_> =
            candidates.iter_mut().map(|(name, run, ms)| measured(name, run.as_mut(), *ms, &image)).collect();
        self.begin(&format!("{kilobytes} kB unmodified"), &image);
        for (name, transcoder, ms) in &mut candidates {
            self.add(&format!("  {name}"), &image, &mut [(transcoder.as_mut(), *ms)]);
        }
        let chains: Vec<Vec<usize>> = (0..known.len()).map(|at| vec![at]).collect();
        let chosen = select(&known, &chains, Data::Image(image.clone()).length() as f64 / 1e3, &self.costs())
            .expect("none is mandatory");
        match chosen.chain.first() {
            Some(&at) => {
                let (name, transcoder, ms) = &mut candidates[at];
                self.add(&format!("  chosen: {name}"), &image, &mut [(transcoder.as_mut(), *ms)]);
            }
            None => self.add("  chosen: unmodified", &image, &mut []),
        }
    }

    /// What the selection computes with. The card sleeps in neither case (Figure 52 has no shaper).
    fn costs(&self) -> Costs {
        let (cpu, radio) = (&self.model.cpu, &self.model.radio);
        Costs {
            run_w: work_cost(cpu, cpu.highest(), 0.0),
            data_j_per_kb: radio.send_j_per_kb(cpu),
            sleep_j_per_kb: 0.0,
            selection_j: 0.0,
        }
    }
}

/// A transcoder as the selection knows it after one run with this image.
fn measured(name: &str, transcoder: &mut dyn Transcoder, ms_per_kb: f64, image: &Image) -> qfabric_energy::Transcoder {
    let data = Data::Image(image.clone());
    let input_kb = data.length() as f64 / 1e3;
    let output = transcoder.apply(&data).expect("every image can be transcoded");
    let run = Measurement { input_kb, output_kb: output.length() as f64 / 1e3, run_s: ms_per_kb * input_kb / 1e3 };
    let table = TranscoderTable::new(&[run], Approximation::Linear).expect("sizes are positive");
    qfabric_energy::Transcoder { name: name.to_owned(), is_mandatory: false, table }
}
