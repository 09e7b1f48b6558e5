//! The options that describe the link.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use qfabric_netlab::settings::MTU_RANGE;
use qfabric_netlab::{
    LabSettings, LinkChange, LinkDirection, LinkRate, LossModel, QueueLimit, Scenario, Schedule, TextError, Trace,
};
use qfabric_types::Nanos;

use crate::exit::{Advice, Failure};

/// Largest file of a trace or schedule. A trace with the most lines has less.
const FILE_MAX: u64 = 128 << 20;

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "The link")]
pub(crate) struct LinkOptions {
    /// Rate of both directions, such as 30M, in bits of IP packets per second [default: unlimited]
    #[arg(long, value_name = "RATE")]
    rate: Option<LinkRate>,
    /// Delay of one way, such as 20ms [default: 0ms]
    #[arg(long, value_name = "TIME", conflicts_with = "rtt")]
    delay: Option<Nanos>,
    /// Round trip time, such as 40ms: half of it is the delay of each way
    #[arg(long, value_name = "TIME")]
    rtt: Option<Nanos>,
    /// Largest additional delay of a packet; packets keep their order [default: 0ms]
    #[arg(long, value_name = "TIME")]
    jitter: Option<Nanos>,
    /// Part of the packets that is lost: 2%, or ge:P,R for bursts, such as ge:1%,30% [default: 0%]
    ///
    /// ge:P,R is the model of Gilbert and Elliott: after a packet, a burst of losses begins with probability P, and ends
    /// with probability R. The mean loss is P/(P+R).
    #[arg(long, value_name = "LOSS")]
    loss: Option<LossModel>,
    /// Size of the queue before the link, as bytes or as a time at its rate, such as 64kB or 300ms [default: 300ms]
    #[arg(long, value_name = "SIZE")]
    queue: Option<QueueLimit>,
    /// Properties of the direction from the program to the peer, such as 'rate 1M delay 10ms loss 2% queue 64kB'
    #[arg(long, value_name = "PROPERTIES")]
    up: Option<LinkChange>,
    /// Properties of the direction from the peer to the program
    #[arg(long, value_name = "PROPERTIES")]
    down: Option<LinkChange>,
    /// Rate of both directions from a trace of mahimahi: each line is a time in ms at which 1,500 bytes can be sent
    #[arg(long, value_name = "FILE", conflicts_with = "rate")]
    trace: Option<PathBuf>,
    /// Trace of the direction to the peer
    #[arg(long, value_name = "FILE")]
    trace_up: Option<PathBuf>,
    /// Trace of the direction from the peer
    #[arg(long, value_name = "FILE")]
    trace_down: Option<PathBuf>,
    /// Changes while the program runs, with lines such as: at 40s up rate 1M loss 2%
    #[arg(long, value_name = "FILE", conflicts_with = "scenario")]
    schedule: Option<PathBuf>,
    /// Test case of RFC 8867: rfc8867-5.1 to rfc8867-5.8; other options change it
    #[arg(long, value_name = "NAME")]
    scenario: Option<Scenario>,
    /// Additional one-way delays of several addresses of the peer, such as 0ms,15ms,40ms; see $QFABRIC_LAB_PEERS
    #[arg(long, value_name = "TIMES", value_delimiter = ',')]
    paths: Vec<Nanos>,
    /// Largest packet in bytes, from 576 to 9000 [default: 1500]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(i64::from(*MTU_RANGE.start())..=i64::from(*MTU_RANGE.end())))]
    mtu: Option<u16>,
    /// Seed of losses and jitter: the same seed loses the same packets
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

impl LinkOptions {
    /// The link that the options describe.
    pub(crate) fn settings(&self) -> Result<LabSettings, Failure> {
        let mut settings = match self.scenario {
            Some(scenario) => scenario.settings(self.seed),
            None => LabSettings { seed: self.seed, ..LabSettings::default() },
        };
        let trace = self.trace.as_deref().map(read_trace).transpose()?;
        let both = self.both(trace);
        LinkDirection::BOTH.into_iter().for_each(|direction| both.apply(settings.link_mut(direction)));
        for (direction, change, trace) in
            [(LinkDirection::Up, &self.up, &self.trace_up), (LinkDirection::Down, &self.down, &self.trace_down)]
        {
            let link = settings.link_mut(direction);
            if let Some(change) = change {
                change.apply(link);
            }
            if let Some(trace) = trace {
                link.rate = read_trace(trace)?;
            }
        }
        if let Some(file) = &self.schedule {
            settings.schedule = Schedule::parse(&text(file)?).map_err(|error| wrong(file, &error))?;
        }
        if !self.paths.is_empty() {
            settings.paths.clone_from(&self.paths);
        }
        settings.mtu = self.mtu.unwrap_or(settings.mtu);
        settings.check().map_err(|error| Failure::usage(Advice(&error.problem())))?;
        Ok(settings)
    }

    /// The properties of both directions.
    fn both(&self, trace: Option<LinkRate>) -> LinkChange {
        LinkChange {
            rate: self.rate.clone().or(trace),
            queue: self.queue,
            delay: self.delay.or(self.rtt.map(|rtt| Nanos::new(rtt.get() / 2))),
            jitter: self.jitter,
            loss: self.loss,
        }
    }
}

fn read_trace(file: &Path) -> Result<LinkRate, Failure> {
    let trace = Trace::parse(&text(file)?).map_err(|error| wrong(file, &error))?;
    Ok(LinkRate::Trace(Arc::new(trace)))
}

fn text(file: &Path) -> Result<String, Failure> {
    let failed = |why: String| Failure::usage(format!("cannot read {}: {why}", file.display()));
    let mut text = String::new();
    let opened = File::open(file).map_err(|error| failed(error.to_string()))?;
    let read = opened.take(FILE_MAX + 1).read_to_string(&mut text).map_err(|error| failed(error.to_string()))?;
    if read as u64 > FILE_MAX {
        return Err(failed(format!("it is larger than {} MiB", FILE_MAX >> 20)));
    }
    Ok(text)
}

fn wrong(file: &Path, error: &TextError) -> Failure {
    Failure::usage(Advice(&error.problem())).context(file.display())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use qfabric_types::BitRate;

    use super::*;

    #[derive(Parser, Debug)]
    struct Line {
        #[command(flatten)]
        link: LinkOptions,
    }

    fn settings(line: &str) -> LabSettings {
        let words = ["lab"].into_iter().chain(line.split('|').filter(|word| !word.is_empty()));
        Line::try_parse_from(words).unwrap().link.settings().unwrap()
    }

    fn rate(bps: u64) -> LinkRate {
        LinkRate::Constant(BitRate::new(bps))
    }

    #[test]
    fn a_direction_overrides_both_directions_and_a_scenario_is_the_begin() {
        let found = settings("--rate|30M|--rtt|40ms|--loss|2%|--down|rate 1M delay 5ms|--seed|9");
        assert_eq!((found.up.rate.clone(), found.up.delay), (rate(30_000_000), Nanos::from_millis(20)));
        assert_eq!((found.down.rate.clone(), found.down.delay), (rate(1_000_000), Nanos::from_millis(5)));
        assert_eq!((found.down.loss, found.seed), ("2%".parse().unwrap(), 9));
        let found = settings("--scenario|rfc8867-5.6|--queue|1s");
        assert_eq!((found.up.rate.clone(), found.up.queue.to_string()), (rate(2_000_000), "1 s".into()));
    }

    #[test]
    fn without_options_the_link_is_perfect() {
        assert_eq!(settings(""), LabSettings::default());
    }
}
