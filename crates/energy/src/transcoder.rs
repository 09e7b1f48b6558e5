//! The choice of transcoders at the sender (000 §6.2): predicts run time and size, and computes what a chain saves.
//!
//! TEQ = (E_d − E_d') − E_t − E_a, in joules per image. The part of the clock and of the card's sleep (§7.4.1) is added
//! by [`Costs`]: the thesis prints it over the rate of images, which has the unit J·s; here every term is an energy.

/// Most entries of a table; a new one then replaces the nearest.
const MAX_ENTRIES: usize = 64;
/// An input within this part of an entry's input updates the entry.
const NEAR: f64 = 0.1;
/// Weight of the newest measurement in an entry.
const NEWEST: f64 = 0.25;

/// How a table fills the gap between two entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Approximation {
    /// The mean of the entries below and above, as printed (§6.2.1).
    Mean,
    /// On the line between them.
    #[default]
    Linear,
}

/// Measured run time and output size of one input size. Sizes in kilobytes (1000 bytes), times in seconds at the
/// highest clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement {
    pub input_kb: f64,
    pub output_kb: f64,
    pub run_s: f64,
}

/// The measurements of one transcoder with one setting of its parameters, by input size.
#[derive(Clone, Debug, PartialEq)]
pub struct TranscoderTable {
    entries: Vec<Measurement>,
    approximation: Approximation,
}

/// A measurement is not a positive, finite size and time.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{field} is {value}; a measurement has a size above 0 and a time of at least 0")]
pub struct InvalidMeasurement {
    pub field: &'static str,
    pub value: f64,
}

impl TranscoderTable {
    /// A table of off-line measurements.
    ///
    /// # Errors
    /// [`InvalidMeasurement`].
    pub fn new(measured: &[Measurement], approximation: Approximation) -> Result<Self, InvalidMeasurement> {
        let mut table = TranscoderTable { entries: Vec::new(), approximation };
        for &measurement in measured {
            table.learn(measurement)?;
        }
        Ok(table)
    }

    /// A run was measured: updates the nearest entry, or adds one.
    ///
    /// # Errors
    /// [`InvalidMeasurement`]; the table stays as it is.
    pub fn learn(&mut self, new: Measurement) -> Result<(), InvalidMeasurement> {
        let fields = [
            ("input_kb", new.input_kb, f64::MIN_POSITIVE),
            ("output_kb", new.output_kb, 0.0),
            ("run_s", new.run_s, 0.0),
        ];
        if let Some((field, value, _)) = fields.into_iter().find(|(_, value, least)| !(*least..1e12).contains(value)) {
            return Err(InvalidMeasurement { field, value });
        }
        let nearest = (0..self.entries.len()).min_by(|&a, &b| {
            let distance = |at: usize| (self.entries[at].input_kb - new.input_kb).abs();
            distance(a).total_cmp(&distance(b))
        });
        match nearest {
            Some(at) if (self.entries[at].input_kb - new.input_kb).abs() <= NEAR * self.entries[at].input_kb => {
                self.entries[at] = moved(self.entries[at], new);
            }
            Some(at) if self.entries.len() >= MAX_ENTRIES => self.entries[at] = new,
            _ => self.entries.push(new),
        }
        self.entries.sort_by(|a, b| a.input_kb.total_cmp(&b.input_kb));
        Ok(())
    }

    /// The predicted run for `input_kb`. Beyond the table, size and time are in proportion to the nearest entry; without
    /// an entry, the input stays as it is and costs nothing.
    pub fn predict(&self, input_kb: f64) -> Measurement {
        let above = self.entries.partition_point(|entry| entry.input_kb < input_kb);
        let scaled = |entry: &Measurement| {
            let part = input_kb / entry.input_kb;
            Measurement { input_kb, output_kb: entry.output_kb * part, run_s: entry.run_s * part }
        };
        match (above.checked_sub(1).and_then(|at| self.entries.get(at)), self.entries.get(above)) {
            (Some(low), Some(high)) => self.between(*low, *high, input_kb),
            (Some(nearest), None) | (None, Some(nearest)) => scaled(nearest),
            (None, None) => Measurement { input_kb, output_kb: input_kb, run_s: 0.0 },
        }
    }

    fn between(&self, low: Measurement, high: Measurement, input_kb: f64) -> Measurement {
        let part = match self.approximation {
            _ if high.input_kb == input_kb => 1.0,
            Approximation::Mean => 0.5,
            Approximation::Linear => (input_kb - low.input_kb) / (high.input_kb - low.input_kb),
        };
        let mix = |low: f64, high: f64| low + part * (high - low);
        Measurement { input_kb, output_kb: mix(low.output_kb, high.output_kb), run_s: mix(low.run_s, high.run_s) }
    }
}

/// `old` moved towards a measurement of nearly the same input, which is scaled to the input of the entry.
fn moved(old: Measurement, new: Measurement) -> Measurement {
    let scale = old.input_kb / new.input_kb;
    let mix = |old: f64, new: f64| old + NEWEST * (new * scale - old);
    Measurement { output_kb: mix(old.output_kb, new.output_kb), run_s: mix(old.run_s, new.run_s), ..old }
}

/// A function that makes images smaller.
#[derive(Clone, Debug, PartialEq)]
pub struct Transcoder {
    pub name: String,
    /// The receiver needs it: one of the two hosts must run it. An optional one runs only if it saves energy.
    pub is_mandatory: bool,
    pub table: TranscoderTable,
}

/// Energies of the host that decides, in joules.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// K_r(n): per second of computation at the highest clock.
    pub run_w: f64,
    /// K_d(n): per kilobyte sent or received, above idle.
    pub data_j_per_kb: f64,
    /// Per kilobyte that is not sent, because the card sleeps longer: transmission time × (P_idle − P_doze).
    pub sleep_j_per_kb: f64,
    /// E_a: the selection itself.
    pub selection_j: f64,
}

/// A chain of transcoders, in their order, with its prediction.
#[derive(Clone, Debug, PartialEq)]
pub struct Selection {
    /// Indices of the transcoders; empty for the unmodified image.
    pub chain: Vec<usize>,
    pub output_kb: f64,
    pub run_s: f64,
    /// TEQ, in joules per image; 0 for the unmodified image.
    pub teq_j: f64,
}

/// The chain with the largest TEQ among `chains`, each in an order that the client accepts. A chain without mandatory
/// transcoders is eligible only if its TEQ is positive. If some transcoder is mandatory, only chains with all mandatory
/// transcoders are eligible; `None` if there is no such chain. Unknown indices make a chain ineligible.
pub fn select(transcoders: &[Transcoder], chains: &[Vec<usize>], input_kb: f64, costs: &Costs) -> Option<Selection> {
    let mandatory: Vec<usize> = (0..transcoders.len()).filter(|&at| transcoders[at].is_mandatory).collect();
    let is_eligible = |chain: &&Vec<usize>| {
        mandatory.iter().all(|at| chain.contains(at)) && chain.iter().all(|&at| at < transcoders.len())
    };
    let untouched =
        mandatory.is_empty().then(|| Selection { chain: Vec::new(), output_kb: input_kb, run_s: 0.0, teq_j: 0.0 });
    let chosen = chains.iter().filter(is_eligible).map(|chain| evaluate(transcoders, chain, input_kb, costs));
    untouched.into_iter().chain(chosen).reduce(|best, other| if other.teq_j > best.teq_j { other } else { best })
}

/// The prediction and the TEQ of one chain.
///
/// # Panics
/// If the chain names no transcoder of the list.
pub fn evaluate(transcoders: &[Transcoder], chain: &[usize], input_kb: f64, costs: &Costs) -> Selection {
    let (output_kb, run_s) = chain.iter().fold((input_kb, 0.0), |(size, time), &at| {
        let run = transcoders[at].table.predict(size);
        (run.output_kb, time + run.run_s)
    });
    let saved_j = (input_kb - output_kb) * (costs.data_j_per_kb + costs.sleep_j_per_kb);
    let teq_j = saved_j - costs.run_w * run_s - costs.selection_j;
    Selection { chain: chain.to_vec(), output_kb, run_s, teq_j }
}

#[cfg(test)]
mod tests;
