//! `qfabric contract apply`: reserves the resources of a stream on all its hosts, or nothing.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::str::FromStr;

use qfabric_client::ClientError;
use qfabric_translate::{Host, Offer, Profiles, Stream};
use qfabric_types::api::Problem;
use qfabric_types::api::contracts::{JointContract, JointHolder, JointPart, JointRefusal, JointRequest, UpgradePolicy};
use qfabric_types::channel::Name;
use qfabric_types::{Nanos, Resource, Resources};
use serde::Serialize;

use super::explain::{invalid, read_profiles, read_stream};
use super::{measure, table};
use crate::connect::{self, Daemon};
use crate::exit::{Done, Failure, Outcome};
use crate::output;

/// Reserves CPU, memory and bandwidth for a stream on all its hosts, all or nothing.
///
/// Translates the stream file as `qfabric contract explain` does. Every host grants each resource between the amounts
/// of the worst accepted quality and of the best one. If a host refuses, nothing is held, the message names the host,
/// the resource and the largest amount that would have been granted, and the command ends with 3. The contract stays in
/// force until `qfabric contract rm`, or until the daemon of this host ends; with --while or a COMMAND, until that process
/// ends, however it ends. COMMAND runs in place of this one, with the contract's identity in QFABRIC_CONTRACT. Other hosts
/// take part if their daemons have contracts = true in the section [channels] of the configuration.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples: qfabric contract apply stream.toml
          qfabric contract apply stream.toml --whole --patience 10s
          qfabric contract apply - --json <stream.toml
          qfabric contract apply stream.toml --while 4711 --application bob=player
          qfabric contract apply stream.toml -- ./server")]
pub(super) struct Args {
    /// Stream file; - is the standard input
    file: PathBuf,
    /// Accept only the best quality: refuse a contract that would be satisfied partly
    #[arg(long)]
    whole: bool,
    /// Try again for this time, such as 10s, if a refusal may pass when other contracts end; at most 60s
    #[arg(long, value_name = "TIME", default_value = "0s")]
    patience: Nanos,
    /// End the contract when this process ends
    #[arg(long = "while", value_name = "PID", conflicts_with = "command")]
    lease_pid: Option<i32>,
    /// Ask an application on another host for its consent, such as bob=player; once for each host
    #[arg(long = "application", value_name = "HOST=NAME")]
    applications: Vec<Application>,
    /// Who decides when more becomes free for a partly satisfied contract
    #[arg(long, value_enum, default_value = "accept")]
    upgrades: Upgrades,
    /// Print JSON instead of text, also for a refusal
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
    /// Program to run in place of this one; the contract ends with the program
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Upgrades {
    /// The daemon accepts it
    Accept,
    /// A program or a person: `qfabric contract upgrade`
    Ask,
    /// Nobody: nothing is offered, and the contract stays as it is
    Never,
}

/// The application on a host that must consent.
#[derive(Clone, Debug)]
struct Application {
    host: Name,
    name: Name,
}

impl FromStr for Application {
    type Err = String;

    fn from_str(text: &str) -> Result<Application, String> {
        let (host, name) = text.split_once('=').ok_or("use HOST=NAME, such as bob=player")?;
        let parsed = |part: &str| part.parse::<Name>().map_err(|error| format!("{part:?}: {error}"));
        Ok(Application { host: parsed(host)?, name: parsed(name)? })
    }
}

/// A refusal for tools: each key is always there.
#[derive(Serialize)]
struct Refusal<'a> {
    refused_by: &'a Name,
    resource: Option<&'a Resource>,
    asked: Option<f64>,
    free: Option<f64>,
    largest: Option<f64>,
    holders: &'a [JointHolder],
    others: Option<f64>,
    problem: &'a Problem,
}

/// What a command asks for: the file's stream, and its amounts by host.
struct Asked {
    stream: Stream,
    profiles: Profiles,
    amounts: Vec<(Host, Resources, Resources)>,
}

pub(super) fn run(args: Args) -> Outcome {
    let name = args.file.display().to_string();
    let asked = Asked::read(&args, &name)?;
    let client = args.daemon.client()?;
    let here = client.host_name().map_err(connect::failure)?;
    let request = asked.request(&here, &args).map_err(|failure| failure.context(&name))?;
    let contract = match client.apply(&request) {
        Ok(contract) => contract,
        Err(error) => return Err(refused(error, &here, args.json)?),
    };
    if let Some((program, arguments)) = args.command.split_first() {
        return Err(run_with(&contract, program, arguments));
    }
    match args.json {
        true => output::print_json(&contract)?,
        false => output::print(&asked.text(&contract, &here))?,
    }
    Ok(Done(0))
}

/// Runs a program in place of this one, so that the contract ends with it. Returns only if that fails.
fn run_with(contract: &JointContract, program: &OsString, arguments: &[OsString]) -> Failure {
    let error = Command::new(program).args(arguments).env("QFABRIC_CONTRACT", contract.id.to_string()).exec();
    let code = if error.kind() == ErrorKind::NotFound { 127 } else { 126 };
    Failure::program(code, format!("cannot run {}: {error}", program.display()))
}

impl Asked {
    /// The failure names no file, except if the file cannot be read or parsed.
    fn read(args: &Args, name: &str) -> Result<Asked, Failure> {
        let stream = read_stream(&args.file)?;
        let profiles = read_profiles(&stream).map_err(|failure| failure.context(name))?;
        let amounts = qfabric_translate::resources_by_level(&stream, &profiles);
        let amounts = amounts.map_err(|error| invalid(&error.problem()).context(name))?;
        Ok(Asked { stream, profiles, amounts })
    }

    fn request(&self, here: &Name, args: &Args) -> Result<JointRequest, Failure> {
        let mut parts = parts(&self.amounts, here, args.whole)?;
        for part in &mut parts {
            let of_host = args.applications.iter().find(|application| application.host == part.host);
            part.application = of_host.map(|application| application.name.clone());
        }
        let is_part = |application: &&Application| parts.iter().any(|part| part.host == application.host);
        if let Some(other) = args.applications.iter().find(|application| !is_part(application)) {
            let message = format!("--application names host {}, of which the stream needs nothing", other.host);
            return Err(Failure::usage(format!("{message}\ntry: name a host of `qfabric contract explain`")));
        }
        let request = JointRequest::new(parts);
        let request = request.and_then(|request| request.with_patience_ms(args.patience.get().div_ceil(1_000_000)));
        let request = request.map_err(|error| invalid(&error.problem()))?.with_upgrades(match args.upgrades {
            Upgrades::Accept => UpgradePolicy::Accept,
            Upgrades::Ask => UpgradePolicy::Ask,
            Upgrades::Never => UpgradePolicy::Never,
        });
        // The command runs in this process.
        let own = (!args.command.is_empty()).then(|| std::process::id() as i32);
        Ok(match args.lease_pid.or(own) {
            Some(pid) => request.with_lease(pid),
            None => request,
        })
    }

    fn text(&self, contract: &JointContract, here: &Name) -> String {
        let id = &contract.id;
        let mut text = format!("contract {id} is in force\n{}", table(contract));
        if contract.is_partial() {
            text += &format!(
                "\npartly satisfied: {}. It is raised as soon as more is free; see qfabric contract show {id}\n",
                self.best(contract, here).unwrap_or_else(|| "some amounts are less than asked".to_owned())
            );
        }
        text + &format!("\nend it: qfabric contract rm {id}\n")
    }

    /// The best quality that the granted amounts carry.
    fn best(&self, contract: &JointContract, here: &Name) -> Option<String> {
        let granted = |(host, ..): &(Host, Resources, Resources)| {
            let mut amounts = Resources::default();
            let name = name(host, here);
            for found in contract.resources.iter().filter(|found| found.host == name) {
                amounts.set_units(&found.resource, found.granted_units()).ok()?;
            }
            Some((host.clone(), amounts))
        };
        let granted: Vec<_> = self.amounts.iter().map(granted).collect::<Option<_>>()?;
        let Ok(Offer::Within(best)) = qfabric_translate::offer(&self.stream, &granted, &self.profiles) else {
            return None;
        };
        let quality = best.quality;
        let frames = quality.frame_rate.map(|rate| measure(rate.as_f64(), "frames/s"));
        let samples = quality.sample_rate.map(|rate| format!("{rate} samples/s"));
        let dropped = quality.degradation.as_f64();
        let dropped = (dropped > 0.0).then(|| format!("{} of the bytes dropped", measure(100.0 * dropped, "%")));
        let all: Vec<String> = [frames, samples, dropped].into_iter().flatten().collect();
        Some(format!("the amounts are enough for {}", all.join(", ")))
    }
}

/// A request for the amounts of the best quality, or nothing. The contract ends with this process.
#[cfg(feature = "metp")]
pub(crate) fn leased_request(stream: &Stream, here: &Name) -> Result<JointRequest, Failure> {
    let amounts = qfabric_translate::resources_by_level(stream, &read_profiles(stream)?);
    let amounts = amounts.map_err(|error| invalid(&error.problem()))?;
    let request = JointRequest::new(parts(&amounts, here, true)?);
    let request = request.map_err(|error| invalid(&error.problem()))?;
    Ok(request.with_lease(std::process::id() as i32))
}

/// The parts of the hosts of which the stream needs anything. `is_whole`: no less than the wanted amounts.
fn parts(amounts: &[(Host, Resources, Resources)], here: &Name, is_whole: bool) -> Result<Vec<JointPart>, Failure> {
    let part = |(host, minimum, wanted): &(Host, Resources, Resources)| JointPart {
        host: name(host, here),
        wanted: wanted.clone(),
        minimum: (!is_whole).then(|| minimum.clone()),
        application: None,
    };
    let parts: Vec<JointPart> = amounts.iter().filter(|(.., wanted)| !wanted.is_zero()).map(part).collect();
    match parts.is_empty() {
        true => Err(Failure::usage("the stream needs no resource\ntry: give [local] a computation time, or memory")),
        false => Ok(parts),
    }
}

/// The name under which the hosts know each other.
fn name(host: &Host, here: &Name) -> Name {
    match host {
        Host::Local => here.clone(),
        Host::Peer(name) => name.clone(),
    }
}

/// The failure of a refused contract; with `--json`, the refusal is printed for tools first.
fn refused(error: ClientError, here: &Name, is_json: bool) -> Result<Failure, Failure> {
    if is_json {
        match &error {
            ClientError::JointRefused(refusal) => {
                let JointRefusal { refused_by, resource, asked, free, largest, holders, others, problem } = &**refusal;
                let (resource, asked, free, largest, others) = (resource.as_ref(), *asked, *free, *largest, *others);
                output::print_json(&Refusal { refused_by, resource, asked, free, largest, holders, others, problem })?;
            }
            ClientError::Refused(problem) => {
                let (refused_by, (resource, asked, free, largest, holders, others)) = (here, Default::default());
                output::print_json(&Refusal { refused_by, resource, asked, free, largest, holders, others, problem })?;
            }
            _ => {}
        }
    }
    Ok(connect::failure(error))
}
