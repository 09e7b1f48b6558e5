//! A small model of streams over hosts: the rates and the utility that contracts, levels and links would give.
//!
//! ```text
//!   share of the source's CPU / cost ─> generated ─> uplink ─> downlink of each sink ─> arrived ─> share of the sink's CPU / cost ─> shown
//! ```
//! Every stage passes at most what it has capacity for; streams that share a link lose the same part of their rate.
//! [`Processor::divide`] is the one rule for CPUs: the simulation runs its jobs by it, and decisions are predicted by it.
//! CPU amounts are in CPUs, costs in CPU seconds per event, links in bits per second, rates in events per second.
//! Source: thesis §5.3–5.5.

/// The share of a CPU that one thread can use.
const ONE: f64 = 1.0;

/// A processor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Processor {
    pub cpus: f64,
    /// The part of the CPUs that contracts may reserve together, in CPUs.
    pub reservable: f64,
    /// Other programs that always want a CPU, without a contract; a part of a program is a program that sometimes runs.
    pub others: f64,
}

impl Processor {
    /// One CPU, of which 19/20 may be reserved, and no other programs.
    pub const IDLE: Processor = Processor { cpus: 1.0, reservable: 0.95, others: 0.0 };

    /// Divides the CPUs among claims: first each gets what it reserved, as far as it wants it; the others and the
    /// claims that want more divide the rest equally. If reservations exceed the CPUs, all get the same part of theirs.
    pub fn divide(&self, claims: &[Claim]) -> Vec<f64> {
        let firm: Vec<f64> = claims.iter().map(|claim| claim.reserved.min(claim.wants).clamp(0.0, ONE)).collect();
        let sum: f64 = firm.iter().sum();
        let part = if sum > self.cpus { self.cpus / sum } else { 1.0 };
        let mut shares: Vec<f64> = firm.iter().map(|firm| firm * part).collect();
        let mut free = self.cpus - shares.iter().sum::<f64>();
        // The claims that want least first: the part of a claim that wants less than an equal part is for the rest.
        let want = |at: usize| claims[at].wants.min(ONE) - shares[at];
        let mut unmet: Vec<(usize, f64)> = (0..claims.len()).map(|at| (at, want(at))).collect();
        unmet.retain(|(_, want)| *want > 1e-12);
        unmet.sort_by(|a, b| a.1.total_cmp(&b.1));
        let mut sharers = unmet.len() as f64 + self.others;
        for (at, want) in unmet {
            let share = want.min(free.max(0.0) / sharers.max(1.0));
            shares[at] += share;
            free -= share;
            sharers -= 1.0;
        }
        shares
    }

    /// The number of other programs by which a thread with this reservation gets `share` while it always wants to run.
    pub fn others_for(&self, reserved: f64, share: f64) -> f64 {
        let extra = (share - reserved).max(self.cpus * 1e-3);
        ((self.cpus - reserved) / extra - 1.0).clamp(0.0, 1e3)
    }
}

/// A thread's claim on a processor.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Claim {
    /// The guaranteed share of its contract, in CPUs; 0: none.
    pub reserved: f64,
    /// What it would use, in CPUs, at most one.
    pub wants: f64,
}

/// A host with its links.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Host {
    pub processor: Processor,
    /// Bits per second that the streams can use; infinite if unknown.
    pub uplink: f64,
    pub downlink: f64,
}

impl Host {
    /// An idle host whose links never limit a stream.
    pub const IDLE: Host = Host { processor: Processor::IDLE, uplink: f64::INFINITY, downlink: f64::INFINITY };
}

/// One rung of a stream's ladder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rung {
    /// The worth of its levels, 0 to 1.
    pub worth: f64,
    /// CPU seconds per event at the source.
    pub encode: f64,
    /// CPU seconds per event at a sink.
    pub decode: f64,
    /// Bits per event on the wire.
    pub bits: f64,
}

/// A sink of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sink {
    /// Index of its host.
    pub host: usize,
    /// The guaranteed share of its contract, in CPUs.
    pub reserved: f64,
    /// Its cost of an event, as a multiple of [`Rung::decode`].
    pub factor: f64,
}

/// A stream from one source.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream {
    pub weight: f64,
    /// Wanted rate.
    pub wanted: f64,
    /// Index of the source's host.
    pub source: usize,
    /// The guaranteed share of the source's contract, in CPUs.
    pub reserved: f64,
    /// Index of the present rung.
    pub rung: usize,
    /// The best rung first; not empty.
    pub rungs: Vec<Rung>,
    pub sinks: Vec<Sink>,
}

impl Stream {
    fn now(&self) -> Rung {
        self.rungs[self.rung.min(self.rungs.len() - 1)]
    }
}

/// The state of streams and hosts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Situation {
    pub hosts: Vec<Host>,
    pub streams: Vec<Stream>,
}

/// Rates of a stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    pub generated: f64,
    /// To each sink.
    pub sent: f64,
    /// By sink.
    pub arrived: Vec<f64>,
    pub shown: Vec<f64>,
}

impl Rates {
    /// The rate at the sink in the middle; the lower one of two. A stream without sinks has its rate of generation.
    pub fn median(&self) -> f64 {
        let mut shown = self.shown.clone();
        shown.sort_by(f64::total_cmp);
        shown.get(shown.len().saturating_sub(1) / 2).copied().unwrap_or(self.generated)
    }
}

/// The result of [`predict`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prediction {
    /// By stream.
    pub rates: Vec<Rates>,
    /// Σ weight · worth · mean over the sinks of min(1, shown/wanted).
    pub utility: f64,
}

/// The rates that the contracts, rungs and links of a situation give in the long run.
pub fn predict(situation: &Situation) -> Prediction {
    let (encoders, decoders) = shares(situation);
    let generated = |(stream, share): (&Stream, &f64)| rate(stream.wanted, *share, stream.now().encode);
    let mut rates: Vec<Rates> = situation
        .streams
        .iter()
        .zip(&encoders)
        .map(|both| Rates { generated: generated(both), ..Rates::default() })
        .collect();
    send(situation, &mut rates);
    let mut utility = 0.0;
    for ((stream, rates), decoders) in situation.streams.iter().zip(&mut rates).zip(&decoders) {
        let shown =
            |((arrived, share), sink): ((&f64, &f64), &Sink)| rate(*arrived, *share, stream.now().decode * sink.factor);
        rates.shown = rates.arrived.iter().zip(decoders).zip(&stream.sinks).map(shown).collect();
        utility += worth(stream, rates);
    }
    Prediction { rates, utility }
}

fn rate(most: f64, share: f64, cost: f64) -> f64 {
    if cost > 0.0 { most.min(share / cost) } else { most }
}

fn worth(stream: &Stream, rates: &Rates) -> f64 {
    let part = |rate: f64| (rate / stream.wanted.max(1e-9)).min(1.0);
    let mean = match rates.shown.len() {
        0 => part(rates.generated),
        sinks => rates.shown.iter().map(|rate| part(*rate)).sum::<f64>() / sinks as f64,
    };
    stream.weight * stream.now().worth * mean
}

/// The shares of CPUs of each stream's source, and of its sinks. A sink claims what it needs for the wanted rate.
fn shares(situation: &Situation) -> (Vec<f64>, Vec<Vec<f64>>) {
    let mut claims: Vec<Vec<Claim>> = vec![Vec::new(); situation.hosts.len()];
    let mut claim = |host: usize, reserved: f64, wants: f64| {
        claims[host].push(Claim { reserved, wants });
        claims[host].len() - 1
    };
    let places: Vec<(usize, Vec<usize>)> = situation
        .streams
        .iter()
        .map(|stream| {
            let Rung { encode, decode, .. } = stream.now();
            let source = claim(stream.source, stream.reserved, stream.wanted * encode);
            let sink = |sink: &Sink| claim(sink.host, sink.reserved, stream.wanted * decode * sink.factor);
            (source, stream.sinks.iter().map(sink).collect())
        })
        .collect();
    let hosts = situation.hosts.iter().zip(&claims);
    let divided: Vec<Vec<f64>> = hosts.map(|(host, claims)| host.processor.divide(claims)).collect();
    let of = |(stream, (source, sinks)): (&Stream, &(usize, Vec<usize>))| {
        let sinks = stream.sinks.iter().zip(sinks).map(|(sink, at)| divided[sink.host][*at]).collect();
        (divided[stream.source][*source], sinks)
    };
    situation.streams.iter().zip(&places).map(of).unzip()
}

/// Passes the generated rates over uplinks and downlinks.
fn send(situation: &Situation, rates: &mut [Rates]) {
    let hosts = situation.hosts.len();
    let (mut up, mut down) = (vec![0.0; hosts], vec![0.0; hosts]);
    for (stream, rates) in situation.streams.iter().zip(&*rates) {
        up[stream.source] += rates.generated * stream.now().bits * stream.sinks.len() as f64;
    }
    let part = |load: f64, capacity: f64| if load > capacity { capacity / load } else { 1.0 };
    for (stream, rates) in situation.streams.iter().zip(&mut *rates) {
        rates.sent = rates.generated * part(up[stream.source], situation.hosts[stream.source].uplink);
        stream.sinks.iter().for_each(|sink| down[sink.host] += rates.sent * stream.now().bits);
    }
    for (stream, rates) in situation.streams.iter().zip(&mut *rates) {
        let arrived = |sink: &Sink| rates.sent * part(down[sink.host], situation.hosts[sink.host].downlink);
        rates.arrived = stream.sinks.iter().map(arrived).collect();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rung(worth: f64, encode: f64) -> Rung {
        Rung { worth, encode, decode: encode / 2.0, bits: 1e6 * encode }
    }

    fn one_stream(sinks: usize) -> Situation {
        let sinks = (1..=sinks).map(|host| Sink { host, reserved: 0.0, factor: 1.0 }).collect::<Vec<_>>();
        let rungs = vec![rung(1.0, 0.030), rung(0.5, 0.010)];
        let hosts = vec![Host::IDLE; sinks.len() + 1];
        Situation {
            hosts,
            streams: vec![Stream { weight: 1.0, wanted: 20.0, source: 0, reserved: 0.0, rung: 0, rungs, sinks }],
        }
    }

    #[test]
    fn each_stage_limits_the_rate_in_turn() {
        let mut now = one_stream(2);
        assert_eq!(predict(&now).rates[0].shown, [20.0, 20.0]);
        now.hosts[0].processor.others = 3.0;
        let rates = &predict(&now).rates[0];
        assert!((rates.generated - 0.25 / 0.03).abs() < 1e-9, "{rates:?}");
        now.streams[0].reserved = 0.6;
        assert_eq!(predict(&now).rates[0].generated, 20.0, "the contract covers the cost");
        now.hosts[0].uplink = 20.0 * 30e3;
        assert_eq!(predict(&now).rates[0].arrived, [10.0, 10.0], "two copies, one of which fits");
        now.hosts[2].downlink = 5.0 * 30e3;
        assert_eq!(predict(&now).rates[0].arrived, [10.0, 5.0]);
        now.hosts[1].processor.others = 19.0;
        assert!((predict(&now).rates[0].shown[0] - 0.05 / 0.015).abs() < 1e-9);
        assert_eq!(predict(&now).rates[0].median(), predict(&now).rates[0].shown[0]);
    }

    #[test]
    fn the_number_of_other_programs_is_found_from_the_share() {
        let processor = Processor { others: 4.0, ..Processor::IDLE };
        for reserved in [0.0, 0.3, 0.7] {
            let share = processor.divide(&[Claim { reserved, wants: 1.0 }])[0];
            assert!((processor.others_for(reserved, share) - 4.0).abs() < 1e-6, "{reserved}: {share}");
        }
    }

    proptest! {
        #[test]
        fn shares_fit_the_processor_and_keep_reservations(
            claims in proptest::collection::vec((0.0f64..1.0, 0.0f64..1.5), 0..12),
            others in 0.0f64..20.0, cpus in 0.5f64..8.0,
        ) {
            let claims: Vec<Claim> = claims.into_iter().map(|(reserved, wants)| Claim { reserved, wants }).collect();
            let shares = Processor { cpus, reservable: cpus, others }.divide(&claims);
            prop_assert!(shares.iter().sum::<f64>() <= cpus + 1e-9);
            let firm = |claim: &Claim| claim.reserved.min(claim.wants);
            let fits = claims.iter().map(firm).sum::<f64>() <= cpus;
            for (claim, share) in claims.iter().zip(&shares) {
                prop_assert!(*share <= claim.wants + 1e-9, "{claim:?}: {share}");
                prop_assert!(!fits || *share >= firm(claim) - 1e-9, "{claim:?}: {share}");
            }
        }
    }
}
