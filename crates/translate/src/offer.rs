//! From granted amounts to the best quality that they carry.

use qfabric_types::{Amount, Resource, Resources};

use crate::rate::{Fraction, FrameRate};
use crate::stream::{Host, Level, Quality, Stream};
use crate::translate::{Profiles, Translation, Untranslatable, translate};

/// The answer to granted amounts, in the application's terms.
#[derive(Clone, Debug, PartialEq)]
pub enum Offer {
    /// The best quality of the acceptable region that fits, with the amounts that it needs.
    Within(Box<Translation>),
    /// Not even the worst accepted quality fits; the first resource that is too small.
    Outside { host: Host, resource: Resource, needed: Amount, granted: Amount },
}

/// Finds the best quality inside the region of `stream` that `granted` carries.
///
/// Rates first: the highest rates at which the worst accepted degradation fits; then the least degradation at these
/// rates. Amounts grow with the rates and shrink with D, so halving finds the exact limit.
///
/// # Errors
/// As [`translate`] at the worst accepted quality.
pub fn offer(stream: &Stream, granted: &[(Host, Resources)], profiles: &Profiles) -> Result<Offer, Untranslatable> {
    let least = translate(stream, stream.quality(Level::Minimum), profiles)?;
    if let Some(outside) = first_outside(&least.resources, granted) {
        return Ok(outside);
    }
    let fits = |quality: Quality| {
        translate(stream, quality, profiles).is_ok_and(|asked| first_outside(&asked.resources, granted).is_none())
    };
    let best = best_quality(stream, fits);
    translate(stream, best, profiles).map(|translation| Offer::Within(Box::new(translation)))
}

fn best_quality(stream: &Stream, fits: impl Fn(Quality) -> bool) -> Quality {
    let mut quality = stream.quality(Level::Minimum);
    let wanted = stream.quality(Level::Wanted);
    if let (Some(low), Some(high)) = (quality.frame_rate, wanted.frame_rate) {
        let at = |micro| Quality { frame_rate: FrameRate::from_micro(micro), ..quality };
        quality.frame_rate = FrameRate::from_micro(highest(low.micro(), high.micro(), |micro| fits(at(micro))));
    }
    if let (Some(low), Some(high)) = (quality.sample_rate, wanted.sample_rate) {
        let at = |rate| Quality { sample_rate: Some(rate), ..quality };
        quality.sample_rate = Some(highest(low, high, |rate| fits(at(rate))));
    }
    let worst = quality.degradation.millionths() as u64;
    let kept = |kept: u64| Fraction::of(worst - kept, 1_000_000);
    let kept_most = highest(0, worst, |part| fits(Quality { degradation: kept(part), ..quality }));
    quality.degradation = kept(kept_most);
    quality
}

/// The highest number from `low` to `high` that fits; `low` is known to fit.
fn highest(low: u64, high: u64, fits: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (low, high);
    while low < high {
        let middle = high - (high - low) / 2;
        if fits(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

/// The first amount that is larger than the granted one.
pub(crate) fn first_outside(asked: &[(Host, Resources)], granted: &[(Host, Resources)]) -> Option<Offer> {
    let none = Resources::default();
    asked.iter().find_map(|(host, asked)| {
        let granted = granted.iter().find(|(found, _)| found == host).map_or(&none, |(_, granted)| granted);
        asked.iter().find_map(|(resource, needed)| {
            let granted = amount_of(granted, &resource);
            let is_short = needed.value() > granted.value();
            is_short.then(|| Offer::Outside { host: host.clone(), resource, needed, granted })
        })
    })
}

fn amount_of(resources: &Resources, resource: &Resource) -> Amount {
    match resource {
        Resource::Cpu => Amount::Cpu(resources.cpu),
        Resource::Memory => Amount::Memory(resources.memory),
        Resource::Network(end) => Amount::Network(resources.network(end)),
    }
}
