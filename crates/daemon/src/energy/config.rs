//! The section `[energy]` of the daemon's configuration.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use qfabric_energy::{MAX_BYTES, Model, SHIPPED};
use qfabric_types::Nanos;
use serde::Deserialize;

use crate::config::{InvalidConfig, out_of_range, time};

/// The account of energy.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EnergyConfig {
    /// The power model for amounts that no meter gives: a shipped name, or the path of a TOML file.
    pub model: String,
    /// Time between two readings of the meters.
    #[serde(deserialize_with = "time")]
    pub period: Nanos,
    /// Whether applications that save energy may limit the clocks of the CPUs. Everything on the host then runs slower.
    pub clocks: bool,
    /// Whether applications that save energy may switch on the power save of wireless cards. Packets for this host then wait
    /// for up to one beacon, about 100 ms.
    pub radios: bool,
    /// The root of sysfs. No key: tests use a tree of files.
    #[serde(skip)]
    pub sys: PathBuf,
    /// The root under which other managers of power are looked for. No key, as above.
    #[serde(skip)]
    pub root: PathBuf,
}

impl Default for EnergyConfig {
    fn default() -> Self {
        let sys = PathBuf::from(qfabric_linux::power::SYS);
        let (period, root) = (Nanos::from_millis(5_000), PathBuf::from("/"));
        EnergyConfig { model: "x86-server".to_owned(), period, clocks: false, radios: false, sys, root }
    }
}

impl EnergyConfig {
    /// A reading costs 2 to 5 ms of CPU time (1 to 20 applications, unoptimised), so the shortest period costs up to half
    /// a per cent of a CPU; the longest one is shorter than the wrap of any energy counter of 32 bits below 400 W.
    pub(crate) const PERIODS: (Nanos, Nanos) = (Nanos::from_millis(1_000), Nanos::from_millis(600_000));

    pub(crate) fn check(&self) -> Result<(), InvalidConfig> {
        let (shortest, longest) = EnergyConfig::PERIODS;
        if !(shortest..=longest).contains(&self.period) {
            return Err(out_of_range("energy.period", self.period, "1s to 600s"));
        }
        self.read_model().map(drop)
    }

    pub(crate) fn read_model(&self) -> Result<Model, InvalidConfig> {
        read_model(&self.model).map_err(|why| InvalidConfig::Model { why })
    }
}

/// The shipped model of this name, or the model in this file.
///
/// # Errors
/// A text for the user: there is neither, or the file is no model.
pub fn read_model(name: &str) -> Result<Model, String> {
    if let Some(model) = Model::shipped(name) {
        return Ok(model);
    }
    let path = Path::new(name);
    if !path.exists() {
        let names = SHIPPED.map(|(name, _)| name).join(", ");
        return Err(format!("model {name} is neither a file nor a shipped model; shipped: {names}"));
    }
    let mut text = String::new();
    // The file may be endless.
    let read = File::open(path).and_then(|file| file.take(MAX_BYTES as u64 + 1).read_to_string(&mut text));
    match read {
        Err(error) => Err(format!("cannot read model {name}: {error}")),
        Ok(bytes) if bytes > MAX_BYTES => Err(format!("model {name} is longer than {MAX_BYTES} bytes; shorten it")),
        Ok(_) => Model::parse(name, &text).map_err(|invalid| invalid.to_string()),
    }
}
