//! The sender's side: predicts every chain in the client's order, runs the one that saves most energy, and learns from it.

use std::time::Duration;

use qfabric_energy::{Costs, Gains, Measurement, Place, Selection, TranscoderTable};

use super::{Data, Header, MAX_NAME, MAX_NAMES, TranscodeError, Transcoder};

/// Most chains: combinations of one setting, or none, of each stage.
pub const MAX_CHAINS: usize = 4_096;

/// A transcoder with its parameters, and what is known about its run times and sizes.
pub struct Setting {
    pub transcoder: Box<dyn Transcoder>,
    pub table: TranscoderTable,
}

/// A step of the chain: one of its settings runs, or none if it is optional. An encoder with presets is one stage.
pub struct Stage {
    /// The receiver needs it: sender or receiver must run it.
    pub is_mandatory: bool,
    /// The first one is the receiver's choice, if the receiver runs the stage.
    pub settings: Vec<Setting>,
}

/// Stages that no pipeline can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPipeline {
    #[error("{0} stages; a header names at most {MAX_NAMES}")]
    Stages(usize),
    #[error("stage {0} has no setting; remove the stage")]
    Empty(usize),
    #[error("{0} chains are possible, {MAX_CHAINS} is the limit; remove settings")]
    Chains(usize),
    #[error("{0:?} is no name: 1 to {MAX_NAME} printable ASCII characters are allowed")]
    Name(String),
}

/// An image that is ready to be submitted.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepared {
    /// Header and data: the payload of the event.
    pub payload: Vec<u8>,
    pub header: Header,
    /// The prediction for the chain that ran.
    pub predicted: Selection,
    /// Run time of the chain, s.
    pub run_s: f64,
    /// What an energy directive compares, by the predictions for this image: report it to the policy `energy`.
    pub gains: Gains,
}

/// A source's transcoders, in the client's order.
pub struct Pipeline {
    stages: Vec<Stage>,
    /// The settings of all stages in one list: (stage, setting).
    index: Vec<(usize, usize)>,
    sender: Costs,
    receiver: Costs,
    place: Place,
    clock: Box<dyn FnMut() -> Duration + Send>,
}

impl Pipeline {
    /// A pipeline whose sender runs the mandatory stages. `sender` and `receiver` are the energies of the two hosts.
    ///
    /// # Errors
    /// [`InvalidPipeline`].
    pub fn new(stages: Vec<Stage>, sender: Costs, receiver: Costs) -> Result<Pipeline, InvalidPipeline> {
        check(&stages)?;
        let index: Vec<(usize, usize)> = stages
            .iter()
            .enumerate()
            .flat_map(|(at, stage)| (0..stage.settings.len()).map(move |setting| (at, setting)))
            .collect();
        let begin = std::time::Instant::now();
        let clock = Box::new(move || begin.elapsed());
        Ok(Pipeline { stages, index, sender, receiver, place: Place::Sender, clock })
    }

    /// Measures run times by another clock, such as the CPU time of the thread.
    pub fn with_clock(mut self, clock: impl FnMut() -> Duration + Send + 'static) -> Pipeline {
        self.clock = Box::new(clock);
        self
    }

    /// Sets which host runs the mandatory stages: the decision of the policy `energy`.
    pub fn set_place(&mut self, place: Place) {
        self.place = place;
    }

    /// Transcodes an image by the chain with the largest predicted TEQ, and corrects the predictions. A transcoder that
    /// fails is left out of this image if it is optional.
    ///
    /// # Errors
    /// [`TranscodeError`] of a mandatory transcoder.
    pub fn prepare(&mut self, data: Data) -> Result<Prepared, TranscodeError> {
        let input_kb = data.length() as f64 / 1e3;
        let [at_sender, at_receiver] = [Place::Sender, Place::Receiver].map(|place| self.best(place, input_kb));
        let gains = self.gains(input_kb, &at_sender, &at_receiver);
        let predicted = if self.place == Place::Sender { at_sender } else { at_receiver };
        let (data, applied, run_s) = self.run(data, &predicted.chain)?;
        let header = Header { applied, left: self.left() };
        let mut payload = Vec::with_capacity(data.length() + 64);
        header.encode(&mut payload);
        payload.extend_from_slice(&data.bytes());
        Ok(Prepared { payload, header, predicted, run_s, gains })
    }

    /// The chain that would run for an image of this size, and its prediction.
    pub fn predict(&self, input_kb: f64) -> Selection {
        self.best(Place::Sender, input_kb)
    }

    /// The chain that the sender runs if the mandatory stages run at `place`.
    fn best(&self, place: Place, input_kb: f64) -> Selection {
        Search::of(&self.stages, place, input_kb, &self.sender)
    }

    /// Names of mandatory transcoders that the receiver runs.
    fn left(&self) -> Vec<String> {
        let mandatory = self.stages.iter().filter(|stage| stage.is_mandatory && self.place == Place::Receiver);
        mandatory.map(|stage| stage.settings[0].transcoder.name().to_owned()).collect()
    }

    /// Gains of both hosts (000 §7.3), by the predictions for an image of this size with the mandatory stages at the sender
    /// and at the receiver.
    fn gains(&self, input_kb: f64, sender: &Selection, other: &Selection) -> Gains {
        let saved_kb = other.output_kb - sender.output_kb;
        let teq_r = saved_kb * (self.receiver.data_j_per_kb + self.receiver.sleep_j_per_kb);
        let mandatory = self.stages.iter().filter(|stage| stage.is_mandatory);
        let (_, run_s) = mandatory.fold((input_kb, 0.0), |(size, time), stage| {
            let run = stage.settings[0].table.predict(size);
            (run.output_kb, time + run.run_s)
        });
        Gains { teq_s: sender.teq_j - other.teq_j, teq_r, e_rcvr: self.receiver.run_w * run_s }
    }

    fn run(&mut self, mut data: Data, chain: &[usize]) -> Result<(Data, Vec<String>, f64), TranscodeError> {
        let (mut applied, mut whole_s) = (Vec::new(), 0.0);
        for &number in chain {
            let (stage, setting) = self.index[number];
            let stage = &mut self.stages[stage];
            let Setting { transcoder, table } = &mut stage.settings[setting];
            let input = data.length();
            let begin = (self.clock)();
            let result = transcoder.apply(&data);
            let run_s = (self.clock)().saturating_sub(begin).as_secs_f64();
            whole_s += run_s;
            let output = match result {
                Ok(output) => output,
                Err(error) if stage.is_mandatory => return Err(error),
                Err(_) => continue,
            };
            let (input_kb, output_kb) = (input as f64 / 1e3, output.length() as f64 / 1e3);
            // Sizes and times of a run are never out of range.
            let _ = table.learn(Measurement { input_kb, output_kb, run_s });
            applied.push(transcoder.name().to_owned());
            data = output;
        }
        Ok((data, applied, whole_s))
    }
}

fn check(stages: &[Stage]) -> Result<(), InvalidPipeline> {
    if stages.len() > MAX_NAMES {
        return Err(InvalidPipeline::Stages(stages.len()));
    }
    if let Some(empty) = stages.iter().position(|stage| stage.settings.is_empty()) {
        return Err(InvalidPipeline::Empty(empty));
    }
    let count = stages.iter().try_fold(1usize, |count, stage| count.checked_mul(stage.settings.len() + 1));
    let count = count.unwrap_or(usize::MAX);
    if count > MAX_CHAINS {
        return Err(InvalidPipeline::Chains(count));
    }
    let names = stages.iter().flat_map(|stage| &stage.settings).map(|setting| setting.transcoder.name());
    let is_name = |name: &str| (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
    let mut bad = names.filter(|name| !is_name(name));
    bad.next().map_or(Ok(()), |name| Err(InvalidPipeline::Name(name.chars().take(80).collect())))
}

/// The search for the chain with the largest TEQ; of equal ones the first, in the order in which a stage is left out before
/// its settings run. Chains with a common begin share its predictions, and only a better chain is copied: one prediction
/// for each chain, where a list of chains would need one for each of their steps.
struct Search<'a> {
    stages: &'a [Stage],
    place: Place,
    input_kb: f64,
    costs: &'a Costs,
    chain: Vec<usize>,
    best: Option<Selection>,
}

impl Search<'_> {
    /// With the mandatory stages at the sender, each chain has one setting of each; else it has none.
    fn of(stages: &[Stage], place: Place, input_kb: f64, costs: &Costs) -> Selection {
        let mut search = Search { stages, place, input_kb, costs, chain: Vec::new(), best: None };
        search.extend(0, 0, input_kb, 0.0);
        search.best.expect("there is a chain: that of all mandatory stages, or the empty one")
    }

    /// `stage` is the next one, and `number` that of its first setting. The chain so far leaves `size` after `run_s`.
    fn extend(&mut self, stage: usize, number: usize, size: f64, run_s: f64) {
        let stages = self.stages;
        let Some(next) = stages.get(stage) else { return self.compare(size, run_s) };
        let after = number + next.settings.len();
        if !next.is_mandatory || self.place == Place::Receiver {
            self.extend(stage + 1, after, size, run_s);
        }
        if next.is_mandatory && self.place == Place::Receiver {
            return;
        }
        for (at, setting) in next.settings.iter().enumerate() {
            let run = setting.table.predict(size);
            self.chain.push(number + at);
            self.extend(stage + 1, after, run.output_kb, run_s + run.run_s);
            self.chain.pop();
        }
    }

    /// An empty chain costs nothing and saves nothing.
    fn compare(&mut self, output_kb: f64, run_s: f64) {
        let Costs { run_w, data_j_per_kb, sleep_j_per_kb, selection_j } = *self.costs;
        let saved_j = (self.input_kb - output_kb) * (data_j_per_kb + sleep_j_per_kb);
        let teq_j = if self.chain.is_empty() { 0.0 } else { saved_j - run_w * run_s - selection_j };
        if self.best.as_ref().is_none_or(|best| teq_j > best.teq_j) {
            self.best = Some(Selection { chain: self.chain.clone(), output_kb, run_s, teq_j });
        }
    }
}

#[cfg(test)]
mod tests;
