//! Energy as a resource (000 chapters 6 and 7): power models, bursts of packets, the clock that suits both, and the
//! choice of transcoders between two hosts.
//!
//! ```text
//!   tasks (C, T, x/y) ──▶ clock: k' ──────────┐
//!                                             ▼
//!   packets (r, d, size) ─▶ shaper: t_w ─▶ clock of the moment ─▶ joules, by the model of the device
//!                                             ▲
//!   sizes, batteries ──▶ transcoders, directive
//! ```
//!
//! Units: times of packets and tasks in whole nanoseconds (`u64`), durations in formulas of power in seconds, power in
//! watts, energy in joules, frequencies in megahertz. The room has no clock and does no I/O. Every amount of energy that
//! leaves it is an [`Energy`], which cannot be printed without its source.
//!
//! `docs/design/0045-energy-models.md` and `0046-traffic-shaping.md` give the derivations and the departures from the
//! thesis.
#![forbid(unsafe_code)]

mod checkpoint;
mod clock;
mod coordination;
mod departures;
mod directive;
mod integrated;
mod model;
mod offset;
mod shaper;
mod transcoder;

pub use checkpoint::{MAX_ARGUMENT, checkpoint_level};
pub use clock::{DwcsClock, USABLE, cheapest_level, governor_level, slowest_level, stretch_limit, work_cost};
pub use coordination::{ClockRule, Coordination, Demand, printed_stretch_limit};
pub use departures::Departures;
pub use directive::{Battery, Directive, Gains, Place, Rules, UnknownDirective, place};

pub use integrated::{HostLoad, Terms, levels, sender_terms};
pub use model::{Cpu, InvalidModel, Level, MAX_BYTES, Mistake, Model, NumberKind, Radio, SHIPPED, Tally};
pub use offset::AdaptiveOffset;
pub use qfabric_types::{Energy, EnergySource, MixedSources};
pub use shaper::{Burst, Packet, QueueFull, Shaper};
pub use transcoder::{
    Approximation, Costs, InvalidMeasurement, Measurement, Selection, Transcoder, TranscoderTable, evaluate, select,
};
