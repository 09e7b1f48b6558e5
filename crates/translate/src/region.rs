//! Acceptable and unacceptable regions of quality (QualMan §2.1, Figure 2).
//!
//! ```text
//!   frame rate
//!       |  unacc.  |                    ,-- beyond the hardware
//!       |          |    acceptable     /
//!       |          +-------------------
//!       |  unacceptable
//!       +------------------------------- resolution
//! ```

use qfabric_types::{Amount, Nanos, Resource, Resources};

use crate::offer::{Offer, first_outside};
use crate::stream::{Host, Level, Quality, Stream};
use crate::translate::{Profiles, Untranslatable, translate};

/// A parameter of the application's quality.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Parameter {
    FrameRate,
    SampleRate,
    Degradation,
    Delay,
    Jitter,
    Skew,
}

/// The worst accepted value of a parameter, in its unit: frames per second, samples per second, a fraction, or
/// nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Bound {
    fn accepts(self, value: f64) -> bool {
        match self {
            Bound::AtLeast(limit) => value >= limit,
            Bound::AtMost(limit) => value <= limit,
        }
    }
}

/// The acceptable region of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Region {
    bounds: Vec<(Parameter, Bound)>,
}

/// The place of a quality relative to the region.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Acceptable,
    /// Each parameter outside the region, its value, and its bound.
    Unacceptable(Vec<(Parameter, f64, Bound)>),
    /// The upper right corner of Figure 2: the hardware has less than the quality needs.
    BeyondHardware {
        host: Host,
        resource: Resource,
        needed: Amount,
        available: Amount,
    },
}

impl Region {
    pub fn of(stream: &Stream) -> Region {
        let worst = stream.quality(Level::Minimum);
        let least = |parameter, value: Option<f64>| value.map(|value| (parameter, Bound::AtLeast(value)));
        let most = |parameter, value: Option<f64>| value.map(|value| (parameter, Bound::AtMost(value)));
        let time = |time: Option<Nanos>| time.map(Nanos::as_f64);
        let bounds = [
            least(Parameter::FrameRate, worst.frame_rate.map(|rate| rate.as_f64())),
            least(Parameter::SampleRate, worst.sample_rate.map(|rate| rate as f64)),
            most(Parameter::Degradation, stream.video.as_ref().map(|video| video.degradation.as_f64())),
            most(Parameter::Delay, time(stream.delay)),
            most(Parameter::Jitter, time(stream.jitter)),
            most(Parameter::Skew, time(stream.skew)),
        ];
        Region { bounds: bounds.into_iter().flatten().collect() }
    }

    pub fn bound(&self, parameter: Parameter) -> Option<Bound> {
        self.bounds.iter().find(|(found, _)| *found == parameter).map(|(_, bound)| *bound)
    }

    /// Tests measured values. A parameter without a value and a NaN are outside: nothing is known about them.
    pub fn test(&self, values: &[(Parameter, f64)]) -> Verdict {
        let value =
            |parameter| values.iter().find(|(found, _)| *found == parameter).map_or(f64::NAN, |(_, value)| *value);
        let outside: Vec<_> = self
            .bounds
            .iter()
            .map(|(parameter, bound)| (*parameter, value(*parameter), *bound))
            .filter(|(_, value, bound)| !bound.accepts(*value))
            .collect();
        if outside.is_empty() { Verdict::Acceptable } else { Verdict::Unacceptable(outside) }
    }

    /// Tests `quality` against the region, and against the amounts that the hardware has at most.
    ///
    /// # Errors
    /// As [`translate`].
    pub fn test_quality(
        &self,
        stream: &Stream,
        quality: Quality,
        hardware: &[(Host, Resources)],
        profiles: &Profiles,
    ) -> Result<Verdict, Untranslatable> {
        let values: Vec<_> = [
            (Parameter::FrameRate, quality.frame_rate.map(|rate| rate.as_f64())),
            (Parameter::SampleRate, quality.sample_rate.map(|rate| rate as f64)),
            (Parameter::Degradation, Some(quality.degradation.as_f64())),
        ]
        .into_iter()
        .filter_map(|(parameter, value)| value.map(|value| (parameter, value)))
        .collect();
        let is_varied = |parameter: &Parameter| *parameter <= Parameter::Degradation;
        let varied = self.bounds.iter().filter(|(parameter, _)| is_varied(parameter)).copied().collect();
        match (Region { bounds: varied }).test(&values) {
            Verdict::Acceptable => Ok(within(&translate(stream, quality, profiles)?.resources, hardware)),
            outside => Ok(outside),
        }
    }
}

fn within(asked: &[(Host, Resources)], hardware: &[(Host, Resources)]) -> Verdict {
    match first_outside(asked, hardware) {
        Some(Offer::Outside { host, resource, needed, granted: available }) => {
            Verdict::BeyondHardware { host, resource, needed, available }
        }
        _ => Verdict::Acceptable,
    }
}
