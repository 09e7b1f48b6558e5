//! The numbers of §7: intra-frame times, average jitter, frames beyond one period.

use serde::Serialize;

/// Frames at the start of a run that count in no number: caches and the decoder are cold.
pub(crate) const WARM_UP: usize = 10;

/// The times at which the frames of one stream were ready in one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct StreamTimes {
    /// In ms.
    pub period_ms: f64,
    /// Frames that were due, the warm-up included.
    pub due: usize,
    /// Number and time in ms of every frame that came, in order.
    pub ready_ms: Vec<(usize, f64)>,
}

impl StreamTimes {
    /// Times between successive frames after the warm-up, in ms.
    pub(crate) fn intra_frame(&self) -> Vec<f64> {
        let counted: Vec<f64> = self.ready_ms.iter().filter(|(number, _)| *number >= WARM_UP).map(|f| f.1).collect();
        counted.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    pub(crate) fn jitter(&self) -> Jitter {
        let intra = self.intra_frame();
        let deviations: Vec<f64> = intra.iter().map(|time| (time - self.period_ms).abs()).collect();
        let came = self.ready_ms.iter().filter(|(number, _)| *number >= WARM_UP).count();
        let mean = deviations.iter().sum::<f64>() / deviations.len().max(1) as f64;
        Jitter {
            frames: self.due.saturating_sub(WARM_UP),
            missing: self.due.saturating_sub(WARM_UP + came),
            mean_ms: (!deviations.is_empty()).then_some(mean),
            beyond: deviations.iter().filter(|jitter| **jitter > self.period_ms).count(),
            largest_ms: intra.iter().copied().reduce(f64::max),
        }
    }
}

/// The numbers of one stream in one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Jitter {
    /// Frames that were due after the warm-up.
    pub frames: usize,
    /// Frames that did not come before the end of the run.
    pub missing: usize,
    /// The paper's average jitter: mean of |intra-frame time − period|; `None` without two frames.
    pub mean_ms: Option<f64>,
    /// Frames with a jitter above one period.
    pub beyond: usize,
    /// The largest intra-frame time.
    pub largest_ms: Option<f64>,
}

/// Skew of lip synchronization in one run (§7.4).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Skew {
    /// Pictures that were compared with a block of sound.
    pub samples: usize,
    /// Pictures whose sound did not come, or that did not come.
    pub missing: usize,
    /// `None` without samples.
    pub mean_ms: Option<f64>,
    /// Largest distance from zero.
    pub largest_ms: Option<f64>,
    /// Fraction of the due pictures within ±10 ms of their sound.
    pub within_10_ms: f64,
    /// Every skew; positive: the sound is ahead of the picture.
    pub all_ms: Vec<f64>,
}

impl Skew {
    /// The difference of the delays of each picture and of the block of sound that is due with it.
    pub(crate) fn of(picture: &StreamTimes, sound: &StreamTimes) -> Skew {
        let delay = |stream: &StreamTimes, number: usize, at: f64| at - number as f64 * stream.period_ms;
        let heard: std::collections::HashMap<usize, f64> = sound.ready_ms.iter().copied().collect();
        let skew = |&(number, at): &(usize, f64)| {
            let block = (number as f64 * picture.period_ms / sound.period_ms).round() as usize;
            let block = block.min(sound.due.saturating_sub(1));
            Some(delay(picture, number, at) - delay(sound, block, *heard.get(&block)?))
        };
        let counted = picture.ready_ms.iter().filter(|(number, _)| *number >= WARM_UP);
        let all_ms: Vec<f64> = counted.filter_map(skew).collect();
        let due = picture.due.saturating_sub(WARM_UP);
        let within = all_ms.iter().filter(|skew| skew.abs() <= 10.0).count();
        Skew {
            samples: all_ms.len(),
            missing: due.saturating_sub(all_ms.len()),
            mean_ms: (!all_ms.is_empty()).then(|| all_ms.iter().sum::<f64>() / all_ms.len() as f64),
            largest_ms: all_ms.iter().map(|skew| skew.abs()).reduce(f64::max),
            within_10_ms: within as f64 / due.max(1) as f64,
            all_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(gaps: &[f64], due: usize) -> StreamTimes {
        let mut at = 0.0;
        let warm = (0..WARM_UP).map(|number| (number, number as f64));
        let counted = gaps.iter().enumerate().map(|(k, gap)| {
            at += gap;
            (WARM_UP + k, at)
        });
        StreamTimes { period_ms: 100.0, due, ready_ms: warm.chain(counted).collect() }
    }

    #[test]
    fn jitter_is_the_mean_deviation_from_the_period() {
        let jitter = times(&[0.0, 100.0, 104.0, 98.0], WARM_UP + 4).jitter();
        assert_eq!(jitter.mean_ms, Some(2.0));
        assert_eq!((jitter.frames, jitter.missing, jitter.beyond), (4, 0, 0));
        assert_eq!(jitter.largest_ms, Some(104.0));
    }

    #[test]
    fn a_frame_is_beyond_one_period_only_above_twice_the_period() {
        assert_eq!(times(&[0.0, 200.0, 201.0, 0.0], WARM_UP + 4).jitter().beyond, 1);
    }

    #[test]
    fn frames_that_never_came_are_missing() {
        let jitter = times(&[0.0, 100.0], WARM_UP + 5).jitter();
        assert_eq!((jitter.frames, jitter.missing), (5, 3));
        assert_eq!(StreamTimes::default().jitter(), Jitter::default());
    }

    #[test]
    fn skew_is_the_difference_of_delays_and_missing_pictures_are_not_within() {
        let stream = |period_ms: f64, due: usize, delay: f64, lost: usize| StreamTimes {
            period_ms,
            due,
            ready_ms: (0..due).filter(|n| *n != lost).map(|n| (n, n as f64 * period_ms + delay)).collect(),
        };
        let sound = stream(50.0, 40, 200.0, 99);
        let skew = Skew::of(&stream(100.0, 20, 203.0, 19), &sound);
        assert_eq!((skew.samples, skew.missing, skew.within_10_ms), (9, 1, 0.9));
        assert!([skew.mean_ms, skew.largest_ms].iter().all(|ms| (ms.unwrap() - 3.0).abs() < 1e-6));
        assert_eq!(Skew::of(&stream(100.0, 20, 220.0, 99), &sound).within_10_ms, 0.0);
        assert_eq!(Skew::of(&stream(100.0, 20, 200.0, 99), &StreamTimes::default()).missing, 10);
    }
}
