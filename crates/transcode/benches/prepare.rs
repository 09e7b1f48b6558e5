//! The time of one selection as a source makes it: both places, among up to ten transcoders: two settings in each of
//! five optional stages (243 chains; a pipeline has at most eight stages). The transcoders themselves do nothing.

use divan::{Bencher, black_box};
use qfabric_energy::{Approximation, Costs, Measurement, TranscoderTable};
use qfabric_transcode::{Data, Pipeline, Setting, Stage, TranscodeError, Transcoder};

fn main() {
    divan::main();
}

struct Nothing(String);

impl Transcoder for Nothing {
    fn name(&self) -> &str {
        &self.0
    }

    fn apply(&mut self, data: &Data) -> Result<Data, TranscodeError> {
        Ok(data.clone())
    }
}

const COSTS: Costs = Costs { run_w: 0.63, data_j_per_kb: 7e-4, sleep_j_per_kb: 1e-3, selection_j: 1e-6 };

fn setting(number: usize) -> Setting {
    let entry = |at: usize| {
        let input_kb = 50.0 * (at + 1) as f64;
        Measurement { input_kb, output_kb: input_kb / (number + 2) as f64, run_s: 1e-4 * input_kb }
    };
    let entries: Vec<Measurement> = (0..18).map(entry).collect();
    let table = TranscoderTable::new(&entries, Approximation::Linear).expect("valid entries");
    Setting { transcoder: Box::new(Nothing(format!("t{number}"))), table }
}

fn stage(number: usize) -> Stage {
    Stage { is_mandatory: false, settings: vec![setting(2 * number), setting(2 * number + 1)] }
}

#[divan::bench(args = [2, 6, 10])]
fn prepare_among(bencher: Bencher, count: usize) {
    let mut pipeline = Pipeline::new((0..count / 2).map(stage).collect(), COSTS, COSTS).expect("few stages");
    bencher.bench_local(|| pipeline.prepare(black_box(Data::Bytes(vec![0; 1_000]))));
}
