//! The foresight that the player states about its next job: the size of the frame as a hint, or an interval of its
//! cost. The interval comes from the oracle's trace or from the player's own predictor.

use std::path::Path;

use anyhow::{Result, ensure};
use qfabric_types::{Foresight, Nanos};

use crate::skip::Skipper;
use crate::trace;

/// Half-width of the oracle's interval, relative to the cost: two decodings of a frame differ by less than this
/// part.
const COST_VARIATION: f64 = 0.05;

/// The cost of each frame of a clip, measured beforehand.
pub(crate) struct Oracle(Vec<Nanos>);

impl Oracle {
    /// Reads a trace. Fails if it does not have `frames` lines.
    pub(crate) fn load(path: &Path, frames: usize) -> Result<Oracle> {
        let costs = trace::read_first(path, usize::MAX)?.costs;
        ensure!(costs.len() == frames, "{} has {} frames, the clip has {frames}", path.display(), costs.len());
        Ok(Oracle(costs))
    }

    fn interval(&self, position: usize) -> Foresight {
        let cost = self.0[position % self.0.len()].as_f64();
        Foresight::Interval {
            low: Nanos::from_f64(cost * (1.0 - COST_VARIATION)),
            high: Nanos::from_f64(cost * (1.0 + COST_VARIATION)),
        }
    }
}

/// The foresight of the frame at `position` with a size of `bytes`. If frames are skipped by prediction, the
/// player states its own interval: the cost of a skipped frame would mislead a predictor that has only sizes and
/// costs.
pub(crate) fn of_frame(oracle: Option<&Oracle>, skipper: &Skipper, position: usize, bytes: usize) -> Foresight {
    if let Some(oracle) = oracle {
        return oracle.interval(position);
    }
    match skipper.predict(bytes) {
        Some(interval) => {
            Foresight::Interval { low: Nanos::from_f64(interval.low), high: Nanos::from_f64(interval.high) }
        }
        None => Foresight::Hint(bytes as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Skip;
    use qfabric_types::{PredictorSpec, Profile};

    #[test]
    fn the_oracle_repeats_its_trace_like_the_clip() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.txt");
        std::fs::write(&path, "1000000 5\n3000000 9\n").unwrap();
        let oracle = Oracle::load(&path, 2).unwrap();
        let skipper = Skipper::new(Skip::None, PredictorSpec::Hint { n: 24 }, 1.0, None);
        let Foresight::Interval { low, high } = of_frame(Some(&oracle), &skipper, 3, 9) else { panic!("no interval") };
        assert!(low < Nanos::from_millis(3) && high > Nanos::from_millis(3) && high < Nanos::from_millis(4));
        assert!(Oracle::load(&path, 3).err().unwrap().to_string().contains("2 frames"));
    }

    #[test]
    fn the_oracle_of_a_clip_has_more_frames_than_a_profile_has_jobs() {
        let folder = tempfile::tempdir().unwrap();
        let (path, frames) = (folder.path().join("trace.txt"), Profile::MAX_JOBS + 1);
        std::fs::write(&path, "1000000 5\n".repeat(frames)).unwrap();
        assert!(Oracle::load(&path, frames).is_ok());
    }

    #[test]
    fn without_an_oracle_or_prediction_the_size_of_the_frame_is_the_hint() {
        let skipper = Skipper::new(Skip::Late, PredictorSpec::Hint { n: 24 }, 1.0, None);
        assert_eq!(of_frame(None, &skipper, 0, 77), Foresight::Hint(77.0));
    }
}
