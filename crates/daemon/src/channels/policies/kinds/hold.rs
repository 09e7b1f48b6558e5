use qfabric_host::manager::Controller;
use qfabric_host::manager::policies::{HoldRate, RateTerms};
use qfabric_types::Instant;
use qfabric_types::api::Problem;
use qfabric_types::api::channel::HoldPolicy;

use super::{Fabric, Pacing, Runs, Shared, TOLERANCE, quality, refused};

/// Accepted rates, in events per second.
const RATES: std::ops::RangeInclusive<f64> = 0.001..=1e6;

impl Runs for HoldPolicy {
    fn controller(&self, _fabric: &Fabric, _record: &Shared, _now: Instant) -> Result<Box<dyn Controller>, Problem> {
        let HoldPolicy { channel, rate, .. } = self;
        if !RATES.contains(rate) {
            return Err(refused::out_of_range("rate", rate, "0.001 to 1000000 events per second"));
        }
        let terms = RateTerms { tolerance: (rate * (1.0 - TOLERANCE)).max(f64::MIN_POSITIVE), ..RateTerms::new(*rate) };
        Ok(Box::new(HoldRate::new(&quality(channel), *rate, terms)))
    }

    fn pacing(&self) -> Pacing {
        Pacing { first_milli: Some((self.rate * 1e3).round() as i64), ..Pacing::default() }
    }
}
