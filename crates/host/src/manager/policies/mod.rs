//! The seeds' policies as controllers: how `qfabric_control::adapt` meets events. Each is small enough to be copied.

mod balance;
mod hold;
mod media;
mod relay;
mod roles;
mod spread;
mod sync;
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

pub use balance::{BEGUN, Balance, COPY, DROP, FORWARD, REQUEST};
pub use hold::HoldRate;
pub use media::{MediaSync, POSITION, SKIP, SPEED};
pub use relay::Relay;
pub use roles::Roles;
pub use spread::Spread;
pub use sync::{NEED, SHOW, SinkSync};
pub use tree::{Stream, StreamLink, TreeShare, connection_of};

/// Events that arrive, or are to be sent, in thousandths per second: the attribute's name.
pub const RATE: &str = "app.rate_milli";

/// How much later the next report is to be sent, in ns: what an application is told that reports by itself.
pub const DELAY: &str = "app.report_delay";

/// A stream by the host of its sink: the same number at both ends, without anybody handing out numbers.
pub fn stream_of(host: &Name) -> AppId {
    AppId(AttributeId::of(host.as_str()).0.into())
}

/// A control event about one attribute, which it names.
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
