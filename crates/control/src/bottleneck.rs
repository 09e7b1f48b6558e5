//! The bottleneck finder: which part of a stream's way keeps it from its wanted rate.
//!
//! ```text
//!   application ─generated─> processor of the source ─sent─> link ─arrived─> processor of the sink ─decoded─> shown
//! ```
//! The first stage that loses more than the tolerance is guilty. If no stage does, but all together lose more, the stage
//! that loses most is guilty. A stage that the application and a processor share is
//! the processor's fault if the processor is under pressure (its PSI), else the application's. A rate that no host
//! reports is unknown; its stage is judged together with the next known one. Rates are events per second. Source:
//! thesis §5.3–5.5 (generated and achieved frame rates), §2.1 («detect possible bottlenecks»).

use std::fmt;

/// What is known about a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observation {
    /// The rate that the application wants.
    pub wanted: f64,
    pub generated: Option<f64>,
    pub sent: Option<f64>,
    pub arrived: Option<f64>,
    pub decoded: Option<f64>,
    pub shown: Option<f64>,
    /// Packets that missed their deadline at the source, per second (DWCS).
    pub misses: Option<f64>,
    /// Pressure on the CPU: the fraction of time in which a thread waited for a CPU, 0 to 1.
    pub source_pressure: Option<f64>,
    pub sink_pressure: Option<f64>,
}

/// Limits of the judgement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// The part of a rate that may be missing, 0 to 1; smaller losses are noise.
    pub tolerance: f64,
    /// A pressure above this makes the processor guilty, 0 to 1.
    pub pressure: f64,
    /// Missed deadlines per wanted event, above which the link is guilty.
    pub misses: f64,
}

impl Default for Terms {
    /// A tenth of a rate, a fifth of the time, a miss per twenty events.
    fn default() -> Self {
        Terms { tolerance: 0.1, pressure: 0.2, misses: 0.05 }
    }
}

/// The part that limits a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Guilty {
    /// The processor of the source.
    SourceProcessor,
    /// The application at the source; its processor has time left.
    SourceApplication,
    /// The link between the hosts.
    Link,
    /// The processor of the sink.
    SinkProcessor,
    /// The application at the sink; its processor has time left.
    SinkApplication,
}

impl Guilty {
    /// Short name: one word for tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Guilty::SourceProcessor => "source-processor",
            Guilty::SourceApplication => "source-application",
            Guilty::Link => "link",
            Guilty::SinkProcessor => "sink-processor",
            Guilty::SinkApplication => "sink-application",
        }
    }
}

impl fmt::Display for Guilty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The measurement that makes a part guilty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Evidence {
    /// Of the events of one stage, only some came to the next.
    Loss { from: Stage, before: f64, to: Stage, after: f64 },
    /// Deadlines of packets were missed, per second.
    Misses { per_second: f64 },
}

/// A place at which events are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Wanted,
    Generated,
    Sent,
    Arrived,
    Decoded,
    Shown,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Wanted => "wanted",
            Stage::Generated => "generated",
            Stage::Sent => "sent",
            Stage::Arrived => "arrived",
            Stage::Decoded => "decoded",
            Stage::Shown => "shown",
        })
    }
}

/// The guilty part, with the measurement and the pressure on the processor of that host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bottleneck {
    pub guilty: Guilty,
    pub evidence: Evidence,
    pub pressure: Option<f64>,
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.evidence {
            Evidence::Loss { from, before, to, after } => {
                write!(f, "{}: {after:.1}/s {to} of {before:.1}/s {from}", self.guilty)?;
            }
            Evidence::Misses { per_second } => {
                write!(f, "{}: {per_second:.1} deadlines missed per second", self.guilty)?
            }
        }
        self.pressure.map_or(Ok(()), |pressure| write!(f, "; CPU pressure {:.0} %", pressure * 100.0))
    }
}

/// The part of the way that loses events; `None` if the stream reaches its rate as far as it is known.
pub fn find(seen: &Observation, terms: &Terms) -> Option<Bottleneck> {
    let counted = [
        (Stage::Generated, seen.generated),
        (Stage::Sent, seen.sent),
        (Stage::Arrived, seen.arrived),
        (Stage::Decoded, seen.decoded),
        (Stage::Shown, seen.shown),
    ];
    let (mut from, mut before) = (Stage::Wanted, seen.wanted);
    let mut largest: Option<(f64, Stage, Evidence)> = None;
    for (to, rate) in counted {
        let Some(after) = rate.filter(|rate| rate.is_finite()) else { continue };
        // An earlier stage may send more than was wanted; only the wanted rate can be missing.
        let expected = before.min(seen.wanted);
        let (lost, evidence) = (expected - after, Evidence::Loss { from, before, to, after });
        if after < expected * (1.0 - terms.tolerance) {
            return Some(judge(seen, terms, evidence, to));
        }
        if largest.is_none_or(|(most, ..)| lost > most) {
            largest = Some((lost, to, evidence));
        }
        (from, before) = (to, after);
    }
    if let Some(per_second) = seen.misses.filter(|misses| *misses > seen.wanted * terms.misses) {
        return Some(Bottleneck { guilty: Guilty::Link, evidence: Evidence::Misses { per_second }, pressure: None });
    }
    let (_, to, evidence) = largest.filter(|_| before < seen.wanted * (1.0 - terms.tolerance))?;
    Some(judge(seen, terms, evidence, to))
}

fn judge(seen: &Observation, terms: &Terms, evidence: Evidence, to: Stage) -> Bottleneck {
    let is_high = |pressure: Option<f64>| pressure.is_some_and(|pressure| pressure > terms.pressure);
    let unknown_source = seen.generated.is_none() && seen.sent.is_none();
    let (guilty, pressure) = match to {
        Stage::Wanted | Stage::Generated | Stage::Sent if is_high(seen.source_pressure) => {
            (Guilty::SourceProcessor, seen.source_pressure)
        }
        Stage::Wanted | Stage::Generated | Stage::Sent => (Guilty::SourceApplication, seen.source_pressure),
        // Only the arrivals are known: a busy source explains them as well as the link does, and is nearer.
        Stage::Arrived if unknown_source && is_high(seen.source_pressure) => {
            (Guilty::SourceProcessor, seen.source_pressure)
        }
        Stage::Arrived => (Guilty::Link, None),
        Stage::Decoded | Stage::Shown if is_high(seen.sink_pressure) => (Guilty::SinkProcessor, seen.sink_pressure),
        Stage::Decoded | Stage::Shown => (Guilty::SinkApplication, seen.sink_pressure),
    };
    Bottleneck { guilty, evidence, pressure }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// generated, sent, arrived, decoded, shown of 20 wanted; −1: unknown.
    fn seen(rates: [f64; 5], source: f64, sink: f64) -> Observation {
        let known = |value: f64| (value >= 0.0).then_some(value);
        let [generated, sent, arrived, decoded, shown] = rates.map(known);
        let (source_pressure, sink_pressure) = (known(source), known(sink));
        Observation {
            wanted: 20.0,
            generated,
            sent,
            arrived,
            decoded,
            shown,
            misses: None,
            source_pressure,
            sink_pressure,
        }
    }

    #[test]
    fn the_first_stage_that_loses_is_guilty_and_of_small_losses_the_largest() {
        use Guilty::*;
        let table = [
            ([20.0, 20.0, 20.0, 20.0, 20.0], 0.9, 0.9, None),
            ([19.0, 18.6, 18.3, 18.2, 18.1], 0.0, 0.0, None),
            ([11.0, 11.0, 11.0, 11.0, 11.0], 0.8, 0.0, Some(SourceProcessor)),
            ([11.0, 11.0, 11.0, 11.0, 11.0], 0.0, 0.8, Some(SourceApplication)),
            ([20.0, 12.0, 12.0, 12.0, 12.0], 0.5, 0.0, Some(SourceProcessor)),
            ([20.0, 20.0, 15.0, 15.0, 15.0], 0.9, 0.9, Some(Link)),
            ([20.0, 20.0, 20.0, 9.0, 9.0], 0.0, 0.6, Some(SinkProcessor)),
            ([20.0, 20.0, 20.0, 9.0, 9.0], 0.6, 0.1, Some(SinkApplication)),
            ([20.0, 20.0, 20.0, 20.0, 5.0], 0.0, 0.6, Some(SinkProcessor)),
            ([-1.0, -1.0, 12.0, -1.0, -1.0], 0.0, -1.0, Some(Link)),
            ([-1.0, -1.0, 12.0, -1.0, -1.0], 0.7, -1.0, Some(SourceProcessor)),
            ([20.0, -1.0, 12.0, -1.0, 12.0], 0.7, 0.7, Some(Link)),
            ([-1.0, -1.0, -1.0, -1.0, 4.0], 0.0, -1.0, Some(SinkApplication)),
            ([-1.0, -1.0, -1.0, -1.0, -1.0], 0.9, 0.9, None),
            ([60.0, 60.0, 19.0, 19.0, 19.0], 0.0, 0.0, None),
            // Each stage loses less than a tenth, and all together more.
            ([18.4, 18.4, 16.9, 15.6, 15.6], 0.0, 0.0, Some(SourceApplication)),
            ([19.0, 19.0, 17.2, 16.5, 16.5], 0.9, 0.9, Some(Link)),
            ([19.0, 19.0, 18.6, 17.0, 17.0], 0.0, 0.6, Some(SinkProcessor)),
        ];
        for (rates, source, sink, guilty) in table {
            let found = find(&seen(rates, source, sink), &Terms::default());
            assert_eq!(found.map(|found| found.guilty), guilty, "{rates:?} {source} {sink}: {found:?}");
        }
    }

    #[test]
    fn missed_deadlines_blame_the_link_although_all_events_arrive() {
        let missed = |misses: f64| Observation { misses: Some(misses), ..seen([20.0; 5], 0.0, 0.0) };
        let found = find(&missed(4.0), &Terms::default()).unwrap();
        assert_eq!(found.to_string(), "link: 4.0 deadlines missed per second");
        assert_eq!(find(&missed(0.5), &Terms::default()), None);
    }

    #[test]
    fn the_reason_names_both_rates_and_the_pressure() {
        let found = find(&seen([11.0, 11.0, 11.0, 11.0, 11.0], 0.8, 0.0), &Terms::default()).unwrap();
        assert_eq!(found.to_string(), "source-processor: 11.0/s generated of 20.0/s wanted; CPU pressure 80 %");
    }

    #[test]
    fn a_rate_that_is_no_number_is_unknown() {
        assert_eq!(find(&seen([f64::NAN, f64::INFINITY, 20.0, 20.0, 20.0], 0.9, 0.9), &Terms::default()), None);
    }
}
