//! The terms of a stream beside its packets: partial grants, the lease, and the delay; and what became of them.

use serde::{Deserialize, Serialize};

use super::{HeldRateId, StreamId, StreamSpec, is_default};
use crate::{BitRate, Direction, InterfaceName, Nanos, Owner, TrafficSpec};

/// The terms on which a stream is requested.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct StreamTerms {
    /// The smallest C that is accepted if the link has no room for all of it; absent: only all of C.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub least: Option<u32>,
    /// Whether a partly granted stream is raised to C as soon as the link has room.
    #[serde(skip_serializing_if = "is_default")]
    pub upgrade: bool,
    /// The process with which the stream ends: a process of the caller. The stream belongs to the user of the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<i32>,
    /// The stream ends after this time, unless a change renews the lease.
    #[serde(rename = "lease_ns", skip_serializing_if = "Option::is_none")]
    pub lease: Option<Nanos>,
    /// The traffic of the stream, from which the longest delay is calculated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic: Option<TrafficSpec>,
    /// The longest delay that is accepted from the arrival of a packet in the queue to its transmission; needs
    /// `traffic`.
    #[serde(rename = "delay_ns", skip_serializing_if = "Option::is_none")]
    pub delay: Option<Nanos>,
}

/// The promise behind a stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct StreamPromise {
    /// The user and group that the stream counts against.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// The promised rate: (1 − x/y)·C/T, rounded up.
    pub rate_bps: BitRate,
    /// The held rate from which the stream draws; the stream is counted within it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_rate: Option<HeldRateId>,
    /// The wanted C, if the link granted less.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wanted: Option<u32>,
    /// For a partly granted stream: the C that the link offers now. `PATCH` with the wanted size accepts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offer: Option<u32>,
    /// Rest of the lease.
    #[serde(rename = "ends_in_ns", skip_serializing_if = "Option::is_none")]
    pub ends_in: Option<Nanos>,
    /// The longest delay of a packet in the queue, if the stream's traffic is known and the mechanism bounds delays.
    #[serde(rename = "delay_bound_ns", skip_serializing_if = "Option::is_none")]
    pub delay_bound: Option<Nanos>,
}

/// The rate that one direction of a link promises to a stream of an application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Bandwidth {
    pub interface: InterfaceName,
    pub direction: Direction,
    pub stream: StreamId,
    /// The promised rate, with all headers.
    pub rate_bps: BitRate,
}

impl StreamSpec {
    /// (1 − x/y)·C/T in bits per second, rounded up: the rate that the link promises.
    pub fn rate(&self) -> BitRate {
        let (kept, length) = self.kept_periods();
        let bits = u128::from(self.size) * 8_000_000_000 * kept;
        BitRate::new(bits.div_ceil(u128::from(self.period.get().max(1)) * length).min(u128::from(u64::MAX)) as u64)
    }

    /// The largest C whose [rate](StreamSpec::rate) is at most `rate`, in periods of this stream.
    pub fn size_at(&self, rate: BitRate) -> u32 {
        let (kept, length) = self.kept_periods();
        let bytes = u128::from(rate.get()) * u128::from(self.period.get()) * length / (8_000_000_000 * kept);
        bytes.min(u128::from(u32::MAX)) as u32
    }

    /// The smallest C that is accepted.
    pub fn least(&self) -> u32 {
        self.terms.least.unwrap_or(self.size).min(self.size)
    }

    /// y − x and y.
    fn kept_periods(&self) -> (u128, u128) {
        let (x, y) = (u128::from(self.window.x()), u128::from(self.window.y()));
        (y - x, y)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Window;
    use crate::api::net::Selector;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_size_at_a_rate_is_the_largest_that_the_rate_carries(
            period in 100_000u64..60_000_000_000, x in 0u64..4, rate in 1_000u64..10_000_000_000,
        ) {
            let mut spec = StreamSpec::new(Selector::Mark(7), Nanos::new(period));
            spec.window = Window::new(x, 5).unwrap();
            spec.size = spec.size_at(BitRate::new(rate));
            prop_assert!(spec.rate() <= BitRate::new(rate));
            if let Some(more) = spec.size.checked_add(1) {
                let larger = StreamSpec { size: more, ..spec };
                prop_assert!(larger.rate() > BitRate::new(rate));
            }
        }
    }

    #[test]
    fn terms_travel_as_json_and_a_misspelt_term_is_refused() {
        let text = r#"{"selector":{"mark":7},"period":40000000,"terms":{"least":500,"lease_ns":1000000000}}"#;
        let spec: StreamSpec = serde_json::from_str(text).unwrap();
        assert_eq!((spec.least(), spec.terms.lease), (500, Some(Nanos::from_millis(1_000))));
        assert_eq!(serde_json::from_str::<StreamSpec>(&serde_json::to_string(&spec).unwrap()).unwrap(), spec);
        let error = serde_json::from_str::<StreamSpec>(&text.replace("lease_ns", "leese")).unwrap_err().to_string();
        assert!(error.contains("leese") && error.contains("lease_ns"), "{error}");
        assert_eq!(spec.rate(), BitRate::new(302_800));
    }
}
