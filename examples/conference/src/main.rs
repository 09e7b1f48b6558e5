//! `qfabric-conference`: serves a film or a test picture to other hosts, or shows what a host serves.
#![forbid(unsafe_code)]

mod transport;

use std::fs::File;
use std::io::{BufRead, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};
use qfabric_conference::wire::{FRAGMENT, Feedback};
use qfabric_conference::{
    Codec, Concession, CpuTime, JoinOptions, Level, LevelLadder, LevelSwitch, MetpJoin, MetpServe, Preset,
    PresetLadder, Report, ServeOptions, Source, Stop, available, join, request_level, serve,
};
use qfabric_energy::{Model, SHIPPED};
use qfabric_types::{BitRate, Contract, Nanos, Share};
use transport::Transport;

/// A video conference over channels, whose codec, quality and picture size can change while it runs
#[derive(Parser)]
#[command(
    name = "qfabric-conference",
    version,
    after_help = "Example:\n  host a: qfabric conference serve test\n  host b: qfabric conference join a\n\n\
                  The same over METP, with certificates of `qfabric channel issue`:\n  \
                  host a: qfabric conference serve test --transport metp --tls FOLDER\n  \
                  host b: qfabric conference join a --transport metp --tls FOLDER"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Send pictures to all hosts that join, until Ctrl-C. A line of standard input changes the level: CODEC:QUALITY:SIZE,
    /// or `quality N`, `size S`, `codec C`
    Serve(Box<Serve>),
    /// Receive and decode the pictures of a host, until Ctrl-C. Rates and times are printed; no picture is drawn
    Join(Box<Join>),
    /// Ask the server of a channel for another level
    Level(Set),
}

#[derive(Args)]
struct Common {
    /// Name of the channel
    #[arg(long, default_value = "video")]
    channel: String,
    /// Pictures per second, 1 to 100
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=100))]
    fps: u64,
    /// Codecs that may be used, separated by commas [default: all that this host has]
    #[arg(long, value_delimiter = ',')]
    codecs: Vec<Codec>,
    /// Reserve CPU time for the thread that codes, or shows, pictures, at this host's daemon: as much as the rate needs, at
    /// most this share of one CPU, such as 0.8. The daemon needs a mechanism for a fixed service: dispatcher or ext
    #[arg(long, value_name = "SHARE")]
    cpu: Option<Share>,
    /// Hold a contract, and leave its CPU time and the level to the policies of this host's daemon: `qfabric policy start
    /// integrated`, `cpu` or `adapt`. --cpu is then the limit of the contract, and --adapt changes no level: it only
    /// states what the levels are worth in the report
    #[arg(long)]
    by_policy: bool,
    /// End after this many seconds
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Print one JSON object per second
    #[arg(long)]
    json: bool,
    /// The daemon's socket; searched in the usual places if not given
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    #[command(flatten)]
    transport: Transport,
}

#[derive(Args)]
struct Serve {
    /// A film, or `test`
    source: Source,
    /// First level: codec, quality and size
    #[arg(long, default_value = "jpeg:50:352x288")]
    level: Level,
    /// Lower this dimension while receivers show too few pictures, and raise it again in reverse order. Its values go
    /// from the best to the minimum: quality=75,50,25, size=640x480,320x240 or codec=jpeg,h264. May be repeated: the
    /// first dimension is lowered first, and the first values are the first level. The median receiver counts
    #[arg(long, value_name = "WHAT=VALUE,VALUE")]
    adapt: Vec<Concession>,
    /// Presets of the H.264 encoder, such as ultrafast,veryfast,medium: the one that needs the least energy for coding and
    /// sending runs, by measured CPU times and sizes and by --energy-model
    #[arg(long, value_delimiter = ',', value_name = "PRESET,PRESET")]
    presets: Vec<Preset>,
    /// Model of the energy of this device, as for `qfabric sim energy`
    #[arg(long, value_name = "NAME", default_value = "pixel6-tensor", value_parser = energy_model)]
    energy_model: Model,
    /// A picture that has not arrived this long after it was coded is dropped
    #[arg(long, default_value = "1s")]
    deadline: Nanos,
    /// Largest number of bytes of a picture in one event
    #[arg(long, value_name = "BYTES", default_value_t = *FRAGMENT.end() as u64,
          value_parser = clap::value_parser!(u64).range(*FRAGMENT.start() as u64..=*FRAGMENT.end() as u64))]
    fragment: u64,
    /// With --transport metp: port on which receivers connect, or ADDRESS:PORT [default address: all addresses of this
    /// host]
    #[arg(long, value_name = "PORT", default_value = transport::PORT)]
    listen: String,
    /// With --transport metp: most bits per second to each receiver, such as 20M, headers included. Congestion control
    /// may lower it
    #[arg(long, value_name = "RATE", default_value = "100M")]
    rate: BitRate,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
struct Join {
    /// The host that serves
    host: String,
    /// How long the first picture waits before it is shown; this absorbs the jitter of the network
    #[arg(long, default_value = "100ms")]
    delay: Nanos,
    /// Write one JSON object per picture that is shown into this file
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// With --transport metp: where the server listens [default: the host, at port 7800]
    #[arg(long, value_name = "HOST:PORT")]
    address: Option<String>,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
struct Set {
    /// CODEC:QUALITY:SIZE, such as h264:20:640x480
    level: Level,
    /// Name of the channel
    #[arg(long, default_value = "video")]
    channel: String,
    /// The daemon's socket; searched in the usual places if not given
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(options) => serving(*options),
        Command::Join(options) => joining(*options),
        Command::Level(set) => request_level(set.socket.as_ref(), &set.channel, set.level),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("qfabric-conference: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Common {
    /// Set by SIGINT, SIGTERM, and the end of `--seconds`.
    fn stop(&self) -> Result<Stop> {
        let stop = Stop::default();
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stop.0)).context("cannot install the signal handlers")?;
        }
        if let Some(seconds) = self.seconds {
            let stop = stop.clone();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_secs(seconds));
                stop.0.store(true, std::sync::atomic::Ordering::Relaxed);
            });
        }
        Ok(stop)
    }

    fn codecs(&self) -> Result<Vec<Codec>> {
        let here = available();
        if let Some(missing) = self.codecs.iter().find(|codec| !here.contains(codec)) {
            eprintln!("qfabric-conference: this host has no {missing}; going on without it");
        }
        let wanted = |codec: &Codec| self.codecs.is_empty() || self.codecs.contains(codec);
        let codecs: Vec<Codec> = here.into_iter().filter(wanted).collect();
        ensure!(!codecs.is_empty(), "this host has no codec of --codecs; use jpeg, which is always there");
        Ok(codecs)
    }

    fn cpu(&self) -> Option<CpuTime> {
        match self.by_policy {
            true => Some(CpuTime::ByPolicy(self.cpu.unwrap_or(Contract::MAX_BANDWIDTH))),
            false => self.cpu.map(CpuTime::Own),
        }
    }

    fn period(&self) -> Nanos {
        Nanos::new(1_000_000_000 / self.fps)
    }
}

fn serving(options: Serve) -> Result<()> {
    let common = &options.common;
    let codecs = common.codecs()?;
    let ladder = ladder(&options, &codecs)?;
    let offered = |identity| -> Result<MetpServe> {
        Ok(MetpServe { identity, listen: transport::listen(&options.listen)?, rate: options.rate })
    };
    let metp = common.transport.identity()?.map(offered).transpose()?;
    let first = ladder.as_ref().map_or(options.level, LevelLadder::level);
    let switch = Arc::new(LevelSwitch::new(first, &codecs)?);
    let stop = common.stop()?;
    read_levels(switch.clone());
    let settings = ServeOptions {
        source: options.source,
        channel: common.channel.clone(),
        period: common.period(),
        deadline: options.deadline,
        fragment: options.fragment as usize,
        metp,
        ladder,
        presets: (!options.presets.is_empty()).then(|| PresetLadder::new(&options.presets, &options.energy_model)),
        cpu: common.cpu(),
        socket: common.socket.clone(),
        stop,
    };
    let json = common.json;
    serve(&settings, &switch, &move |report| print(json, report, &|| served(report)))
}

fn energy_model(name: &str) -> Result<Model, String> {
    let names = || SHIPPED.map(|(name, _)| name).join(", ");
    Model::shipped(name).ok_or_else(|| format!("there is no model {name:?}; use {}", names()))
}

/// The ladder of `--adapt`, without codecs that this host lacks.
fn ladder(options: &Serve, codecs: &[Codec]) -> Result<Option<LevelLadder>> {
    let usable: Vec<Concession> = options.adapt.iter().cloned().filter_map(|one| one.limited_to(codecs)).collect();
    let ladder = || LevelLadder::new(options.level, &usable, options.common.fps as f64);
    (!usable.is_empty()).then(ladder).transpose()
}

/// One line, which is lost if nobody reads it.
fn print(json: bool, report: &impl serde::Serialize, text: &dyn Fn() -> String) {
    let line = if json { serde_json::to_string(report).unwrap_or_default() } else { text() };
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn served(report: &Report) -> String {
    let Report { generated, sent, bytes, level, .. } = report;
    let mut text = format!(
        "generated {} sent {} frames/s, {} kB/s, {level}",
        thousandths(*generated),
        thousandths(*sent),
        bytes / 1_000
    );
    if let Some(metp) = report.metp {
        text += &format!("; {} connected over METP, {} pictures refused", metp.receivers, metp.refused);
    }
    for (receiver, feedback) in report.receivers.iter().take(4) {
        text +=
            &format!("; {receiver} shows {}, jitter {} ms", thousandths(feedback.shown), feedback.jitter_us / 1_000);
    }
    if report.receivers.len() > 4 {
        text += &format!("; {} more", report.receivers.len() - 4);
    }
    text
}

fn thousandths(rate: u32) -> String {
    format!("{:.1}", f64::from(rate) / 1e3)
}

/// Reads levels from standard input, in a thread that ends with the process.
fn read_levels(switch: Arc<LevelSwitch>) {
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok).filter(|line| !line.trim().is_empty()) {
            let changed = changed(switch.level(), line.trim()).and_then(|level| switch.set(level));
            if let Err(error) = changed {
                eprintln!("qfabric-conference: {error:#}");
            }
        }
    });
}

/// The level that a line of standard input asks for.
fn changed(level: Level, line: &str) -> Result<Level> {
    Ok(match line.split_once(' ') {
        Some(("quality", value)) => {
            let quality = value.trim().parse().with_context(|| format!("{value:?} is not a quality"))?;
            Level::new(level.codec(), quality, level.size())?
        }
        Some(("size", value)) => Level::new(level.codec(), level.quality(), value.trim().parse()?)?,
        Some(("codec", value)) => {
            let codec: Codec = value.trim().parse()?;
            Level::new(codec, level.quality().min(codec.best_quality()), level.size())?
        }
        _ => line.parse()?,
    })
}

fn joining(options: Join) -> Result<()> {
    let common = &options.common;
    let server = transport::server(options.address.as_ref(), &options.host);
    let settings = JoinOptions {
        metp: common.transport.identity()?.map(|identity| MetpJoin { identity, server }),
        host: options.host,
        channel: common.channel.clone(),
        period: common.period(),
        delay: options.delay,
        codecs: common.codecs()?,
        cpu: common.cpu(),
        socket: common.socket.clone(),
        stop: common.stop()?,
    };
    let open = |path: &PathBuf| File::create(path).with_context(|| format!("cannot write {}", path.display()));
    let mut log = options.log.as_ref().map(open).transpose()?.map(BufWriter::new);
    let json = common.json;
    let sink = log.as_mut().map(|log| log as &mut (dyn Write + Send));
    join(&settings, sink, &move |told| print(json, told, &|| joined(&told.feedback)))?;
    log.map_or(Ok(()), |mut log| log.flush()).context("cannot write the log")
}

fn joined(feedback: &Feedback) -> String {
    let Feedback { generated, sent, arrived, decoded, shown, jitter_us, lost, .. } = *feedback;
    let [generated, sent, arrived, decoded, shown] = [generated, sent, arrived, decoded, shown].map(thousandths);
    let jitter = jitter_us / 1_000;
    format!(
        "generated {generated} sent {sent} arrived {arrived} decoded {decoded} shown {shown} frames/s, jitter {jitter} ms, \
         {lost} lost"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_of_the_command_line_is_valid() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn a_line_changes_a_part_of_the_level_or_all_of_it() {
        let level: Level = "jpeg:60:352x288".parse().unwrap();
        for (line, expected) in [
            ("quality 20", "jpeg:20:352x288"),
            ("size small", "jpeg:60:176x144"),
            ("codec h261", "h261:30:352x288"),
            ("h264:9:640x480", "h264:9:640x480"),
        ] {
            assert_eq!(changed(level, line).unwrap().to_string(), expected);
        }
        assert!(changed(level, "quality 96").is_err() && changed(level, "louder").is_err());
    }
}
