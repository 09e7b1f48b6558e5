//! Finds the period of a program in the spectrum of its activations. Times in [`Nanos`], frequencies in Hz.
//!
//! Approach: an activation is an event with the weight `w = √(CPU time)`, between counting wake-ups and counting
//! work. `A(f) = |Σ w·e^(−2πi·f·t)| / Σw` is 1 if all events fall on one phase of `f`, and about `1/√N` for events
//! without a rhythm. The period belongs to the lowest frequency whose peak is near the highest peak; harmonics have
//! higher frequencies. Source: period analysers of legacy feedback scheduling (Cucinotta, Abeni et al.: sparse
//! Fourier transforms of the times of events); the weights, the choice of the peak and the tests against chance are
//! this project's own.
//!
//! **Tolerated:** missing events do not lower A(f); jitter of standard deviation σ leaves `e^(−2π²σ²/T²)`; small
//! wake-ups between jobs have small weights; costs that repeat over several jobs (groups of pictures) add peaks
//! below 1/T that stay under [`NEAR`]. **Refused:** too few events, a peak that chance explains, and two rhythms of
//! similar strength, because a job would mix both.

use qfabric_types::{Instant, Nanos};

/// Number of remembered events: ten seconds of a 25 Hz program, one second at the highest rate.
const EVENTS: usize = 256;
/// Number of events of the second search, for programs whose phase drifts because each period begins when the last
/// job ended.
const FEW_EVENTS: usize = 64;
/// Least number of events for a search.
const LEAST_EVENTS: usize = 24;
/// Activations closer than this count as one event.
const MERGED: Nanos = Nanos::from_millis(1);
/// Least number of periods in the observed time.
const LEAST_PERIODS: f64 = 8.0;
/// Periods from 4 ms (enforcement at the tick makes shorter ones meaningless) to 1 s.
const FREQUENCIES_HZ: (f64, f64) = (1.0, 250.0);
/// Candidates per `1/W`, with W the observed time: a peak between two candidates loses at most a tenth.
const CANDIDATES: f64 = 4.0;
/// Frequencies up to this multiple of the mean rate of events are searched: half of the events may be missing.
const ABOVE_RATE: f64 = 2.0;
/// A peak of at least this fraction of the highest peak is near it.
const NEAR: f64 = 0.5;
/// A peak that is no harmonic of the chosen one, with at least this fraction of its height, is another rhythm.
const RIVAL: f64 = 0.75;
/// A(f) below this is not a rhythm: the jitter exceeds a fifth of the period.
const LEAST_CONFIDENCE: f64 = 0.5;
/// Chance explains a peak with the probability `M·e^(−N·A²)` for M candidates; e^−7, a thousandth, is tolerated.
const CHANCE: f64 = 7.0;
/// A(f) between two candidates exceeds the higher of them by at most this: `(π/8)²/2`, by Bernstein's inequality.
const BETWEEN: f64 = 0.0772;
/// The highest peaks are refined; bounds the time of a search.
const MOST_PEAKS: usize = 32;
/// Common rates of films, screens and control loops, in Hz, in rising order.
const RATES_HZ: [f64; 17] =
    [10.0, 12.5, 15.0, 20.0, 23.976, 24.0, 25.0, 29.97, 30.0, 48.0, 50.0, 59.94, 60.0, 75.0, 100.0, 120.0, 144.0];
/// Largest relative distance between a frequency that was found and the common rate that it is set to.
const SNAP: f64 = 4e-4;

/// The period of a program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rhythm {
    /// T, a multiple of 16 ns, so that T/4 is whole.
    pub period: Nanos,
    /// A(1/T): 1 for events without jitter.
    pub confidence: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Event {
    at: Instant,
    used: Nanos,
}

/// The latest activations of one thread.
#[derive(Clone, Debug)]
pub struct RhythmAnalyser {
    /// A ring; `next` is the index of the oldest event once it is full.
    events: [Event; EVENTS],
    next: usize,
    seen: usize,
    /// The last stretch ended without a sleep, so the next one continues the activation.
    awake: bool,
    /// Number of events since the last call of [`RhythmAnalyser::find`].
    fresh: usize,
}

impl Default for RhythmAnalyser {
    fn default() -> Self {
        RhythmAnalyser { events: [Event::default(); EVENTS], next: 0, seen: 0, awake: false, fresh: 0 }
    }
}

impl RhythmAnalyser {
    /// Adds a stretch of the thread on a CPU: it began at `from`, used `used` CPU time, and ended with a sleep or
    /// not.
    pub fn ran(&mut self, from: Instant, used: Nanos, slept: bool) {
        let continues = self.last().is_some_and(|last| self.awake || from < last.at + MERGED);
        if continues {
            let last = (self.next + EVENTS - 1) % EVENTS;
            self.events[last].used += used;
        } else {
            self.events[self.next] = Event { at: from, used };
            self.next = (self.next + 1) % EVENTS;
            (self.seen, self.fresh) = ((self.seen + 1).min(EVENTS), self.fresh + 1);
        }
        self.awake = !slept;
    }

    /// Number of activations since the last call of [`RhythmAnalyser::find`].
    pub fn fresh(&self) -> usize {
        self.fresh
    }

    /// The rhythm of the recorded activations, if they have one. Costs at most about a millisecond of CPU time.
    pub fn find(&mut self) -> Option<Rhythm> {
        self.fresh = 0;
        let events = self.in_order();
        rhythm_of(&events).or_else(|| rhythm_of(&events[events.len().saturating_sub(FEW_EVENTS)..]))
    }

    fn last(&self) -> Option<Event> {
        (self.seen > 0).then(|| self.events[(self.next + EVENTS - 1) % EVENTS])
    }

    /// The events, oldest first.
    fn in_order(&self) -> Vec<Event> {
        (0..self.seen).map(|k| self.events[(self.next + EVENTS - self.seen + k) % EVENTS]).collect()
    }
}

fn rhythm_of(events: &[Event]) -> Option<Rhythm> {
    let spectrum = Spectrum::of(events)?;
    // Without a rhythm, hundreds of low peaks would be refined, which takes far longer than the spectrum itself.
    if !spectrum.may_have_rhythm() {
        return None;
    }
    let peaks = spectrum.peaks();
    let highest = peaks.iter().map(|peak| peak.height).fold(0.0, f64::max);
    let chosen = *peaks.iter().find(|peak| peak.height >= NEAR * highest)?;
    let rivals = peaks.iter().any(|peak| spectrum.rivals(peak, &chosen));
    let sure = chosen.height >= spectrum.least_height();
    (sure && !rivals).then(|| Rhythm { period: period_at(chosen.hz, SNAP), confidence: chosen.height.min(1.0) })
}

/// The period of the common rate nearest to `hz`, if their relative distance is at most `within`; otherwise the period
/// of `hz` itself. Rounded to a multiple of 16 ns.
pub(crate) fn period_at(hz: f64, within: f64) -> Nanos {
    let distance = |rate: &&f64| (*rate - hz).abs();
    let nearest = RATES_HZ.iter().min_by(|one, other| distance(one).total_cmp(&distance(other)));
    let rate = nearest.filter(|rate| distance(rate) <= within * *rate);
    Nanos::new((1e9 / rate.unwrap_or(&hz) / 16.0).round() as u64 * 16)
}

#[derive(Clone, Copy, Debug)]
struct Peak {
    hz: f64,
    height: f64,
}

/// A(f) at equidistant frequencies.
struct Spectrum {
    /// Seconds since the middle of the observed time, and weights whose sum is 1.
    weighted: Vec<(f64, f64)>,
    /// `(Σw)²/Σw²`: the equivalent number of events of equal weight.
    events: f64,
    lowest_hz: f64,
    step_hz: f64,
    heights: Vec<f64>,
}

impl Spectrum {
    fn of(events: &[Event]) -> Option<Spectrum> {
        let (first, last) = (events.first()?, events.last()?);
        let seconds = last.at.since(first.at).as_f64() / 1e9;
        if events.len() < LEAST_EVENTS || seconds <= 0.0 {
            return None;
        }
        let weight = |event: &Event| event.used.as_f64().max(1.0).sqrt();
        let (sum, squares) = events.iter().fold((0.0, 0.0), |(s, q), e| (s + weight(e), q + weight(e).powi(2)));
        let at = |event: &Event| event.at.since(first.at).as_f64() / 1e9 - seconds / 2.0;
        let step_hz = 1.0 / (CANDIDATES * seconds);
        let lowest_hz = FREQUENCIES_HZ.0.max(LEAST_PERIODS / seconds);
        let highest_hz = FREQUENCIES_HZ.1.min(ABOVE_RATE * events.len() as f64 / seconds);
        let candidates = ((highest_hz - lowest_hz) / step_hz).max(0.0) as usize;
        let mut spectrum = Spectrum {
            weighted: events.iter().map(|event| (at(event), weight(event) / sum)).collect(),
            events: sum * sum / squares,
            lowest_hz,
            step_hz,
            heights: vec![0.0; candidates],
        };
        spectrum.fill();
        Some(spectrum)
    }

    /// From one candidate to the next, every event turns by the same angle, so the loop needs no trigonometry.
    fn fill(&mut self) {
        let phasor = |hz: f64, t: f64| (-std::f64::consts::TAU * hz * t).sin_cos();
        let mut sums = vec![(0.0, 0.0); self.heights.len()];
        for &(t, weight) in &self.weighted {
            let ((mut im, mut re), (turn_im, turn_re)) = (phasor(self.lowest_hz, t), phasor(self.step_hz, t));
            (re, im) = (re * weight, im * weight);
            for sum in &mut sums {
                *sum = (sum.0 + re, sum.1 + im);
                (re, im) = (re * turn_re - im * turn_im, re * turn_im + im * turn_re);
            }
        }
        self.heights = sums.into_iter().map(|(re, im): (f64, f64)| re.hypot(im)).collect();
    }

    fn height_at(&self, hz: f64) -> f64 {
        let (mut re, mut im) = (0.0, 0.0);
        for &(t, weight) in &self.weighted {
            let (sin, cos) = (std::f64::consts::TAU * hz * t).sin_cos();
            (re, im) = (re + weight * cos, im + weight * sin);
        }
        f64::hypot(re, im)
    }

    /// The least A(f) of a rhythm that chance does not explain.
    fn least_height(&self) -> f64 {
        let candidates = self.heights.len().max(1) as f64;
        ((candidates.ln() + CHANCE) / self.events).sqrt().max(LEAST_CONFIDENCE)
    }

    fn highest(&self) -> f64 {
        self.heights.iter().copied().fold(0.0, f64::max)
    }

    /// Whether a peak can be high enough for a rhythm.
    fn may_have_rhythm(&self) -> bool {
        self.highest() + BETWEEN >= self.least_height()
    }

    /// Local maxima that may matter, at most [`MOST_PEAKS`], lowest frequency first.
    fn peaks(&self) -> Vec<Peak> {
        let highest = self.highest();
        let least = 0.8 * NEAR * RIVAL * highest;
        let is_peak = |at: &usize| {
            let [left, here, right] = [at.wrapping_sub(1), *at, at + 1].map(|k| *self.heights.get(k).unwrap_or(&0.0));
            here >= least.max(left).max(right)
        };
        let mut found: Vec<usize> = (0..self.heights.len()).filter(is_peak).collect();
        found.sort_by(|a, b| self.heights[*b].total_cmp(&self.heights[*a]));
        found.truncate(MOST_PEAKS);
        found.sort_unstable();
        found.into_iter().map(|at| self.refined(at)).collect()
    }

    /// The maximum around a candidate, by thirds: A(f) has one maximum within a step of a peak.
    fn refined(&self, at: usize) -> Peak {
        let middle = self.lowest_hz + at as f64 * self.step_hz;
        let (mut low, mut high) = (middle - self.step_hz, middle + self.step_hz);
        for _ in 0..24 {
            let third = (high - low) / 3.0;
            match self.height_at(low + third) < self.height_at(high - third) {
                true => low += third,
                false => high -= third,
            }
        }
        let hz = (low + high) / 2.0;
        Peak { hz, height: self.height_at(hz) }
    }

    /// Whether a peak is explained neither by the flank of `chosen` nor by one of its harmonics.
    fn rivals(&self, peak: &Peak, chosen: &Peak) -> bool {
        let off = (peak.hz / chosen.hz - (peak.hz / chosen.hz).round()).abs() * chosen.hz;
        peak.height >= RIVAL * chosen.height && off > 2.0 * CANDIDATES * self.step_hz
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qfabric_types::RandomNumbers;

    /// Events at random distances (1 ms and, on average, 10 ms more), or one every 40 ms. One in sixteen is long.
    fn events(is_random: bool) -> Vec<Event> {
        let (mut random, mut at) = (RandomNumbers::new(7), 0.0);
        let event = |k: u64| {
            at += if is_random { 1e6 - 1e7 * (1.0 - random.uniform()).ln() } else { 4e7 };
            let used = Nanos::from_micros(if k.is_multiple_of(16) { 5_000 } else { 100 });
            Event { at: Instant::new(at as u64), used }
        };
        (0..EVENTS as u64).map(event).collect()
    }

    #[test]
    fn peaks_are_refined_only_if_one_may_be_a_rhythm_and_never_many() {
        let (noise, regular) = (Spectrum::of(&events(true)).unwrap(), Spectrum::of(&events(false)).unwrap());
        assert!(!noise.may_have_rhythm(), "{} of {}", noise.highest(), noise.least_height());
        assert!(regular.may_have_rhythm());
        assert_eq!(noise.peaks().len(), MOST_PEAKS);
        assert!(noise.peaks().is_sorted_by(|a, b| a.hz <= b.hz), "the lowest frequency first");
    }
}
