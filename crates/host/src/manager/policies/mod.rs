//! The policies of the papers as controllers: they apply the arithmetic of `qfabric_control::adapt` to events. Each
//! is small enough to be copied.

mod adapt;
mod balance;
mod code;
mod cpu;
mod energy;
mod facts;
mod hold;
mod integrated;
mod media;
mod relay;
mod roles;
mod sink_rates;
mod spread;
mod sync;
mod tokens;
mod tree;
mod viewers;

use qfabric_types::channel::Name;
use qfabric_types::monitor::{AttributeId, HOST, QualityEvent, QualityKind, QualityText};
use qfabric_types::{AppId, Instant};

pub use qfabric_control::adapt::capacity::Terms as CapacityTerms;
pub use qfabric_control::adapt::implosion::Rule as SpreadRule;
pub use qfabric_control::adapt::inter_media::Terms as MediaTerms;
pub use qfabric_control::adapt::inter_sink::Terms as SyncTerms;
pub use qfabric_control::adapt::rate::Terms as RateTerms;
pub use qfabric_control::adapt::tokens::Terms as TokenTerms;
pub use qfabric_control::integrated::{ShareTerms, Terms as IntegratedTerms};
pub use qfabric_control::ladder::{Dimension, InvalidLadder, Ladder, Terms as LadderTerms};

pub use qfabric_energy::{Directive, Gains, Rules};

pub use adapt::{Adapt, DECODED, GENERATED, LEVEL, SHOWN};
pub use balance::{BEGUN, Balance, COPY, DROP, FORWARD, REQUEST};
pub use code::{Code, InvalidCode, OnFault, compile_policy, filter_id, paces};
pub use cpu::Cpu;
pub use energy::{
    BATTERY, BATTERY_POWER, BatteryState, BatteryTerms, EnergyTerms, InvalidBattery, PLACE, PLACE_LEVEL, RECEIVER_COST,
    TEQ_RECEIVER, TEQ_SENDER, TranscoderPlace,
};
pub use hold::HoldRate;
pub use integrated::Integrated;
pub use media::{MediaSync, POSITION, SKIP, SPEED};
pub use relay::Relay;
pub use roles::Roles;
pub use spread::Spread;
pub use sync::{NEED, SHOW, SinkSync};
pub use tokens::Tokens;
pub use tree::{Stream, StreamLink, TreeShare, connection_of};

/// Name of the attribute for a rate of events, arriving or to be sent, in thousandths of an event per second.
pub const RATE: &str = "app.rate_milli";

/// Name of the attribute for the least delay of a data channel's events since the last report, from submission to delivery, in
/// ns. It contains the error of the clocks' comparison, so only differences count.
pub const LEAST_DELAY: &str = "app.least_delay";

/// Name of the attribute that tells an application that sends its own reports to send the next one later, by this
/// time in ns.
pub const DELAY: &str = "app.report_delay";

/// Name of the attribute for the guaranteed share of an application's contract, in millionths of a CPU.
pub const CPU_GUARANTEED: &str = "app.cpu_guaranteed";

/// Name of the attribute for the largest bandwidth of an application, in millionths of a CPU: the contract's
/// `max_bandwidth`.
pub const CPU_MOST: &str = "app.cpu_most";

/// Name of the attribute for the weight of an application among others of its level, 1 to 10,000: the contract's
/// `weight`.
pub const CPU_WEIGHT: &str = "app.cpu_weight";

/// Names of the attributes by which a host tells its policies what the contract of an application guarantees, in millionths
/// of a CPU: without any decision, and after the last one.
pub const CPU_OWN: &str = "app.cpu_own";
pub const CPU_GRANTED: &str = "app.cpu_granted";

/// Name of the attribute for the CPU time that an application uses, in millionths of a CPU.
pub const CPU_USED: &str = "app.cpu";

/// Names of the attributes for rates of an application that neither [`GENERATED`] nor [`SHOWN`] covers: events sent at
/// the source, and events that arrived at a sink, in thousandths of an event per second.
pub const SENT: &str = "app.sent_milli";
pub const ARRIVED: &str = "app.arrived_milli";

/// Name of the attribute for packets that missed their deadline at the source, in thousandths per second (DWCS).
pub const MISSES: &str = "app.misses_milli";

/// Name of the attribute by which a sink's host reports to the sources whether it has no larger contract for its
/// application (1) or has one (0).
pub const SATURATED: &str = "app.cpu_saturated";

/// The number of an application in its group: the same on every host, and below the numbers of groups.
pub fn member_of(group: &Name, application: &Name) -> AppId {
    AppId(u64::from(AttributeId::of(&format!("{group}/{application}")).0 & 0x7fff_ffff))
}

/// The number of a stream, from the host of its sink: the same at both ends without an agreement.
pub fn stream_of(host: &Name) -> AppId {
    AppId(AttributeId::of(host.as_str()).0.into())
}

/// A control event about one attribute, with its name.
pub fn told(controller: &str, kind: QualityKind, attribute: &str, value: i64, now: Instant) -> QualityEvent {
    QualityEvent {
        controller: AttributeId::of(controller),
        kind,
        value,
        other: 0,
        request: 0,
        at: now,
        application: HOST,
        attribute: AttributeId::of(attribute),
        subject: QualityText::new(attribute),
    }
}
