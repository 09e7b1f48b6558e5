//! Power models of devices. A model is a TOML file in which every number has a source and a kind.
//!
//! ```toml
//! name = "board"
//! about = "one line"
//! radio_of = "wifi-generic-11n"        # or a [radio] section; cpu_of likewise
//!
//! [cpu]
//! idle_w = { value = 0.29, kind = "printed", source = "000 §6.4" }
//! rest_w = { value = 0.13, kind = "derived", source = "…" }
//! [[cpu.levels]]                       # by increasing frequency
//! mhz = { value = 59.0, kind = "printed", source = "…" }
//! active_w = { value = 0.41, kind = "printed", source = "…" }
//!
//! [radio]
//! doze_w, idle_w, receive_w, transmit_w, wake_mj, air_us_per_kb, cpu_us_per_kb
//! ```

mod parse;

use serde::{Deserialize, Serialize};

pub use parse::{InvalidModel, MAX_BYTES, Mistake};

/// Name and text of the models that the program contains.
pub const SHIPPED: [(&str, &str); 5] = [
    ("ipaq-h3870-orinoco", include_str!("../../models/ipaq-h3870-orinoco.toml")),
    ("pixel6-tensor", include_str!("../../models/pixel6-tensor.toml")),
    ("rk3399", include_str!("../../models/rk3399.toml")),
    ("wifi-generic-11n", include_str!("../../models/wifi-generic-11n.toml")),
    ("x86-server", include_str!("../../models/x86-server.toml")),
];

/// The origin of a number in a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NumberKind {
    /// The source prints the number.
    Printed,
    /// The number is computed from printed numbers.
    Derived,
    /// No source has the number.
    Assumed,
}

/// The power of a device in each of its states.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    pub name: String,
    pub about: String,
    pub cpu: Cpu,
    pub radio: Radio,
    pub tally: Tally,
}

/// Counts of the numbers of a model, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    pub printed: usize,
    pub derived: usize,
    pub assumed: usize,
}

/// The processor. There is at least one level.
#[derive(Clone, Debug, PartialEq)]
pub struct Cpu {
    /// Power of an idle processor, W.
    pub idle_w: f64,
    /// Power of the rest of the device, which never changes, W.
    pub rest_w: f64,
    /// Clock levels by increasing frequency.
    pub levels: Vec<Level>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    pub mhz: f64,
    /// Power of a busy processor, W.
    pub active_w: f64,
}

/// The network card. Powers in W.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Radio {
    pub doze_w: f64,
    /// Awake without a packet.
    pub idle_w: f64,
    pub receive_w: f64,
    pub transmit_w: f64,
    /// Energy of a change from doze to awake and back, J.
    pub wake_j: f64,
    /// Time of 1000 bytes on the air, s.
    pub air_s_per_kb: f64,
    /// CPU time of 1000 bytes at the highest clock (fragments, protocol), s.
    pub cpu_s_per_kb: f64,
}

impl Model {
    /// Reads a model. `file` is its name in errors.
    ///
    /// # Errors
    /// [`InvalidModel`] names the file, the number and its limit.
    pub fn parse(file: &str, text: &str) -> Result<Model, InvalidModel> {
        parse::model(file, text)
    }

    /// The shipped model with this name.
    pub fn shipped(name: &str) -> Option<Model> {
        let (_, text) = SHIPPED.into_iter().find(|(known, _)| *known == name)?;
        Some(Model::parse(name, text).expect("a test reads all shipped models"))
    }

    /// Power of the whole device, idle and with the card awake, W.
    pub fn idle_w(&self) -> f64 {
        self.cpu.idle_w + self.cpu.rest_w + self.radio.idle_w
    }
}

impl Cpu {
    /// The index of the highest level.
    pub fn highest(&self) -> usize {
        self.levels.len() - 1
    }

    /// k of `level`: time at this level over time at the highest (000 §6.4.1).
    pub fn stretch(&self, level: usize) -> f64 {
        self.levels[self.highest()].mhz / self.levels[level].mhz
    }

    /// K_r of `level`: power above idle while busy, W (000 §6.2.2).
    pub fn busy_w(&self, level: usize) -> f64 {
        self.levels[level].active_w - self.idle_w
    }
}

impl Radio {
    /// Energy of a second awake and idle instead of dozing: ΔP, W.
    pub fn awake_w(&self) -> f64 {
        self.idle_w - self.doze_w
    }

    /// K_d at the highest clock of `cpu`: energy of sending 1000 bytes, above idle, J (000 §6.2.2).
    pub fn send_j_per_kb(&self, cpu: &Cpu) -> f64 {
        (self.transmit_w - self.idle_w) * self.air_s_per_kb + cpu.busy_w(cpu.highest()) * self.cpu_s_per_kb
    }

    /// Time on the air of `bytes`, ns.
    pub fn air_ns(&self, bytes: u64) -> u64 {
        nanoseconds(self.air_s_per_kb * bytes as f64 / 1e3)
    }

    /// CPU time of `bytes` at the highest clock, ns.
    pub fn cpu_ns(&self, bytes: u64) -> u64 {
        nanoseconds(self.cpu_s_per_kb * bytes as f64 / 1e3)
    }
}

fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9).ceil() as u64
}
