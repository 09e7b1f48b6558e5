//! The sender's side: predicts every chain in the client's order, runs the one that saves most energy, and learns from it.

use std::time::Duration;

use qfabric_energy::{Costs, Gains, Measurement, Place, Selection, TranscoderTable, evaluate};

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
    /// Chains with all mandatory stages, and those without any; as numbers of `index`.
    whole: Vec<Vec<usize>>,
    optional: Vec<Vec<usize>>,
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
        let chains = |wants: &dyn Fn(&Stage) -> Wanted| chains(&stages, wants);
        let whole = chains(&|stage| if stage.is_mandatory { Wanted::Always } else { Wanted::Maybe });
        let optional = chains(&|stage| if stage.is_mandatory { Wanted::Never } else { Wanted::Maybe });
        let begin = std::time::Instant::now();
        let clock = Box::new(move || begin.elapsed());
        Ok(Pipeline { stages, index, whole, optional, sender, receiver, place: Place::Sender, clock })
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
        let gains = self.gains(input_kb);
        let chains = match self.place {
            Place::Sender => &self.whole,
            Place::Receiver => &self.optional,
        };
        let predicted = best(&self.flat(), chains, input_kb, &self.sender);
        let (data, applied, run_s) = self.run(data, &predicted.chain)?;
        let header = Header { applied, left: self.left() };
        let mut payload = Vec::with_capacity(data.length() + 64);
        header.encode(&mut payload);
        payload.extend_from_slice(&data.bytes());
        Ok(Prepared { payload, header, predicted, run_s, gains })
    }

    /// The chain that would run for an image of this size, and its prediction.
    pub fn predict(&self, input_kb: f64) -> Selection {
        best(&self.flat(), &self.whole, input_kb, &self.sender)
    }

    /// Names of mandatory transcoders that the receiver runs.
    fn left(&self) -> Vec<String> {
        let mandatory = self.stages.iter().filter(|stage| stage.is_mandatory && self.place == Place::Receiver);
        mandatory.map(|stage| stage.settings[0].transcoder.name().to_owned()).collect()
    }

    /// Gains of both hosts (000 §7.3), by the predictions for an image of this size.
    fn gains(&self, input_kb: f64) -> Gains {
        let table = self.flat();
        let sender = best(&table, &self.whole, input_kb, &self.sender);
        let other = best(&table, &self.optional, input_kb, &self.sender);
        let saved_kb = other.output_kb - sender.output_kb;
        let teq_r = saved_kb * (self.receiver.data_j_per_kb + self.receiver.sleep_j_per_kb);
        let firsts = self.index.iter().enumerate();
        let mandatory = firsts.filter(|(_, (stage, setting))| self.stages[*stage].is_mandatory && *setting == 0);
        let chain: Vec<usize> = mandatory.map(|(number, _)| number).collect();
        let e_rcvr = self.receiver.run_w * evaluate(&table, &chain, input_kb, &self.receiver).run_s;
        Gains { teq_s: sender.teq_j - other.teq_j, teq_r, e_rcvr }
    }

    /// All settings as the room `energy` knows them.
    fn flat(&self) -> Vec<qfabric_energy::Transcoder> {
        let one = |&(stage, setting): &(usize, usize)| qfabric_energy::Transcoder {
            name: String::new(),
            is_mandatory: false,
            table: self.stages[stage].settings[setting].table.clone(),
        };
        self.index.iter().map(one).collect()
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

/// Whether a chain has a setting of a stage.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Always,
    Maybe,
    Never,
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

/// All chains: for each stage one of its settings, or none if that is allowed.
fn chains(stages: &[Stage], wants: &dyn Fn(&Stage) -> Wanted) -> Vec<Vec<usize>> {
    let (mut all, mut first) = (vec![Vec::new()], 0);
    for stage in stages {
        let wanted = wants(stage);
        let choices = match wanted {
            Wanted::Never => 0,
            _ => stage.settings.len(),
        };
        let longer = |chain: &Vec<usize>| {
            let with = (first..first + choices).map(|number| [chain.clone(), vec![number]].concat());
            let without = (wanted != Wanted::Always).then(|| chain.clone());
            without.into_iter().chain(with).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
        first += stage.settings.len();
    }
    all
}

/// The chain with the largest TEQ; the first of equal ones. An empty chain costs nothing and saves nothing.
fn best(table: &[qfabric_energy::Transcoder], chains: &[Vec<usize>], input_kb: f64, costs: &Costs) -> Selection {
    let value = |chain: &Vec<usize>| match chain.is_empty() {
        true => Selection { chain: Vec::new(), output_kb: input_kb, run_s: 0.0, teq_j: 0.0 },
        false => evaluate(table, chain, input_kb, costs),
    };
    let all = chains.iter().map(value);
    let chosen = all.reduce(|best, other| if other.teq_j > best.teq_j { other } else { best });
    chosen.unwrap_or(Selection { chain: Vec::new(), output_kb: input_kb, run_s: 0.0, teq_j: 0.0 })
}

#[cfg(test)]
mod tests;
