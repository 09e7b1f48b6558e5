//! Measured delays of messages from end to end, by message size and granted rate (QualMan §5.1.2, Table 5).

use serde::{Deserialize, Serialize};

use crate::{BitRate, Bytes, InterfaceName, Nanos};

/// The delays of messages to one host. They hold for the interface and kernel on which they were measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DelayProfile {
    /// The name or address of the host that received the messages.
    pub host: String,
    pub interface: InterfaceName,
    /// The release of the kernel that sent the messages.
    pub kernel: String,
    /// The shortest time of a small message and its acknowledgment: the network's part.
    #[serde(rename = "min_rtt_ns")]
    pub min_rtt: Nanos,
    pub points: Vec<DelayPoint>,
}

/// The delays of messages of one size under one granted rate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DelayPoint {
    /// The size of a message, without headers.
    pub message_bytes: Bytes,
    /// The promised rate of the stream, with headers.
    pub rate_bps: BitRate,
    #[serde(rename = "p50_ns")]
    pub p50: Nanos,
    /// The longest delay if there are fewer than 100 messages.
    #[serde(rename = "p99_ns")]
    pub p99: Nanos,
    /// Number of messages that arrived completely.
    pub arrived: u32,
    /// Number of messages of which a part was lost, or which took too long.
    pub lost: u32,
}

/// A profile cannot be used for a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoDelay {
    #[error("the profile has {given} measurements, of at most {}", DelayProfile::MOST_POINTS)]
    TooMany { given: usize },
    #[error("the profile of {host} has no message of {message} or more at a rate of {rate} or less")]
    NotMeasured { host: String, message: Bytes, rate: BitRate },
}

impl DelayProfile {
    /// Largest number of points; bounds requests.
    pub const MOST_POINTS: usize = 256;

    /// The delay that stands for a message under a granted rate: of the closest larger size, and then of the largest
    /// rate that is not above the granted one.
    ///
    /// # Errors
    /// No message of this size or more was measured at this rate or less.
    pub fn delay_of(&self, message: Bytes, granted: BitRate) -> Result<&DelayPoint, NoDelay> {
        if self.points.len() > Self::MOST_POINTS {
            return Err(NoDelay::TooMany { given: self.points.len() });
        }
        let usable = self.points.iter().filter(|point| point.message_bytes >= message && point.rate_bps <= granted);
        let closest = usable.min_by_key(|point| (point.message_bytes, std::cmp::Reverse(point.rate_bps)));
        closest.ok_or_else(|| NoDelay::NotMeasured { host: self.host.clone(), message, rate: granted })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(kb: u64, mbit: u64, ms: u64) -> DelayPoint {
        DelayPoint {
            message_bytes: Bytes::new(kb * 1_000),
            rate_bps: BitRate::new(mbit * 1_000_000),
            p50: Nanos::from_millis(ms / 2),
            p99: Nanos::from_millis(ms),
            arrived: 100,
            lost: 0,
        }
    }

    fn profile(points: Vec<DelayPoint>) -> DelayProfile {
        let (host, kernel) = ("beta".to_owned(), "6.16.0".to_owned());
        DelayProfile { host, interface: "eth0".parse().unwrap(), kernel, min_rtt: Nanos::from_micros(200), points }
    }

    #[test]
    fn the_closest_larger_size_and_the_largest_rate_that_is_granted_decide() {
        let profile = profile(vec![point(20, 1, 160), point(50, 1, 400), point(50, 5, 80), point(110, 5, 176)]);
        let p99 = |bytes, mbit: u64| {
            profile.delay_of(Bytes::new(bytes), BitRate::new(mbit * 1_000_000)).map(|point| point.p99.get() / 1_000_000)
        };
        assert_eq!((p99(20_000, 1), p99(20_001, 1), p99(20_001, 9)), (Ok(160), Ok(400), Ok(80)));
        assert_eq!(p99(10, 9), Ok(160), "the smallest size was measured at 1 Mbit/s only");
        assert!(p99(50_001, 4).unwrap_err().to_string().contains("beta has no message of"));
        assert!(p99(110_001, 5).is_err());
    }

    #[test]
    fn a_profile_is_bounded_and_travels_as_json() {
        let full = profile(vec![point(20, 1, 160); DelayProfile::MOST_POINTS + 1]);
        let refused = full.delay_of(Bytes::new(1), BitRate::new(1)).unwrap_err();
        assert_eq!(refused.to_string(), "the profile has 257 measurements, of at most 256");
        let text = serde_json::to_string(&profile(vec![point(20, 1, 160)])).unwrap();
        assert!(text.contains(r#""p99_ns":160000000"#), "{text}");
        assert_eq!(serde_json::from_str::<DelayProfile>(&text).unwrap(), profile(vec![point(20, 1, 160)]));
    }
}
