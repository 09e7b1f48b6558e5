//! `qfabric ecode install`: installs a handler that stays at a service after the command has ended.

use std::path::PathBuf;

use qfabric_client::ecalls::{
    CHANNEL_SERVICE, DeploymentAnswer, DeploymentRequest, OnFault, Step, SubscriptionInfo, SubscriptionRequest,
};
use qfabric_client::{Client, ClientError};
use qfabric_ecode::Environment;
use qfabric_types::Nanos;
use qfabric_types::channel::{InvalidName, Name};

use super::source::{Source, attribute, pair};
use crate::exit::{Done, Failure, Outcome};
use crate::{connect, output, services};

/// The options of `install` and `trace` that describe where a handler runs.
#[derive(clap::Args, Debug)]
pub(super) struct Place {
    /// Service whose events the handler receives; `qfabric services` lists them
    ///
    /// `channel:NAME` is a channel: the handler receives its events from all hosts (`channel:NAME/TYPE` if the channel
    /// has several types). `channel:A+B` are the inputs of one handler, which has a queue for each.
    #[arg(long)]
    pub service: String,
    /// Process id: handle only events that concern this process
    #[arg(long)]
    pub pid: Option<i32>,
    /// Option of the service, such as interface=lo; `qfabric services NAME` lists them; may be repeated
    #[arg(long = "option", value_name = "NAME=VALUE", value_parser = pair)]
    pub options: Vec<(String, String)>,
    /// Initial value of an attribute of the handler, a whole number of 64 bits; may be repeated
    #[arg(long = "attr", value_name = "NAME=VALUE", value_parser = attribute)]
    pub attributes: Vec<(String, i64)>,
    /// Fuel: number of instructions that the loops of one call may execute [default: as many as they need; if this is
    /// unknown, a quarter of the service's limit]
    #[arg(long)]
    pub fuel: Option<u32>,
    /// Path of the daemon's socket [default: $QFABRIC_SOCKET; else $XDG_RUNTIME_DIR/qfabric/qfabric.sock, then
    /// /run/qfabric/qfabric.sock]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

impl Place {
    /// A subscription to the service, without steps.
    pub(super) fn request(&self) -> SubscriptionRequest {
        SubscriptionRequest {
            service: self.service.clone(),
            only_pid: self.pid,
            options: self.options.iter().cloned().collect(),
            attributes: self.attributes.iter().cloned().collect(),
            fuel: self.fuel,
            ..SubscriptionRequest::default()
        }
    }

    /// Compiles the text for the service, so that errors are shown with their lines before the daemon receives the
    /// text.
    pub(super) fn check(&self, client: &qfabric_client::Client, source: &Source) -> Result<(), Failure> {
        if self.service.starts_with(CHANNEL_SERVICE) {
            // Such a service exists only while it has subscriptions; the daemon checks the text.
            return Ok(());
        }
        let list = client.services().map_err(connect::failure)?;
        let input = Some(services::find(&list, &self.service)?.format.clone());
        source.compile(&Environment { input, ..Environment::default() }).map(drop)
    }
}

/// Installs a handler at a service.
///
/// The handler runs in the kernel at once and stays until it is removed. With --pid the handler is removed when that
/// process ends. Needs a running daemon; ends with 4 without one. Ends with 2 if the text does not compile, and with 3
/// if the daemon refuses the handler.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples: qfabric ecode install f.ec --service sched.wakeup --pid 1234
          qfabric ecode install f.ec --service timer --option period=10ms --signal 40 --tell 1234
          qfabric ecode install f.ec --service sched.wakeup --pid 1234 --chain channel:wakeups
          qfabric ecode install f.ec --service channel:wakeups --signal 40 --tell 1234

`qfabric ecode ls` shows the handler and its counts, `qfabric ecode rm ID` removes the handler.")]
pub(super) struct Args {
    /// File with E-code; - is the standard input
    file: Option<PathBuf>,
    /// E-code as text, instead of a file
    #[arg(long, value_name = "TEXT", conflicts_with = "file")]
    code: Option<String>,
    #[command(flatten)]
    place: Place,
    /// Real-time signal to send for each event that passes the handler, 34 to 64
    #[arg(long)]
    signal: Option<i32>,
    /// Field of the event that is sent with the signal [default: the first field]
    #[arg(long, value_name = "FIELD")]
    signal_value: Option<String>,
    /// Let the kernel send the signal itself, without the daemon, if it can (`qfabric doctor`: kernel_signals); its
    /// si_code is then SI_KERNEL, and a signalfd does not show its value
    #[arg(long, requires = "signal")]
    signal_by_kernel: bool,
    /// Process id of the receiver of the signal [default: that of --pid]
    #[arg(long, value_name = "PID")]
    tell: Option<i32>,
    /// Run the handler in a thread of the daemon instead of the kernel
    #[arg(long)]
    thread: bool,
    /// Field with the time, in ns of CLOCK_MONOTONIC, until which an event waits for its signal or channel, at most
    /// 10 s; the field may be one of the handler's output
    #[arg(long, value_name = "FIELD")]
    hold_until: Option<String>,
    /// Order of the steps, such as k_code,signal [default: k_thread, k_handler, k_code, hold, memory_up, signal,
    /// channel]
    #[arg(long, value_delimiter = ',', value_name = "STEPS")]
    order: Vec<Step>,
    /// Drop an event that is not delivered within this time after it happened, such as 2ms [default: never]
    #[arg(long)]
    deadline: Option<Nanos>,
    /// Last step of the chain: `channel:NAME` submits each event that passes the handler to this channel, which is
    /// created if it does not exist
    #[arg(long, value_name = "STEP", value_parser = last_step)]
    chain: Option<Name>,
    /// Install the handler on this other host, whose configuration must allow it ([[ecalls.host]]); may be repeated
    ///
    /// The handler may name a service of the kernel, attributes and --chain, but no process. It ends when your host is
    /// gone.
    #[arg(long, value_name = "HOST")]
    host: Vec<Name>,
    /// Install the handler on all hosts that have a member in this group; `qfabric group ls` lists groups
    #[arg(long, value_name = "GROUP")]
    host_group: Option<Name>,
    /// Wake-one group: each event goes to one of your subscriptions with this group name, in turn
    #[arg(long)]
    group: Option<String>,
    /// Let an event pass if the handler faults on it, instead of blocking it
    #[arg(long)]
    pass_faults: bool,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args) -> Outcome {
    let source = Source::of(args.file.as_deref(), args.code.as_deref())?;
    let client = connect::daemon(args.place.socket.as_deref())?;
    if !args.host.is_empty() || args.host_group.is_some() {
        return deploy(&client, &args, source);
    }
    args.place.check(&client, &source)?;
    let installed = client.subscribe(&request(&args, source.text)).map_err(connect::failure)?;
    match args.json {
        true => output::print_json(&installed)?,
        false => output::print(&text(&installed))?,
    }
    Ok(Done(0))
}

/// Installs the handler on other hosts, which compile the text for their own services. Ends with the refusal of a host, if
/// there is one, after all answers are printed.
fn deploy(client: &Client, args: &Args, source: Source) -> Outcome {
    let subscription = request(args, source.text);
    let request = DeploymentRequest { hosts: args.host.clone(), group: args.host_group.clone(), subscription };
    let answers = client.deploy(&request).map_err(connect::failure)?;
    match args.json {
        true => output::print_json(&answers)?,
        false => answers.iter().try_for_each(|answer| output::print(&text_of(answer)))?,
    }
    let refused = answers.into_iter().find_map(|answer| answer.refused);
    refused.map_or(Ok(Done(0)), |problem| Err(connect::failure(ClientError::Refused(problem))))
}

fn text_of(DeploymentAnswer { host, subscription, refused }: &DeploymentAnswer) -> String {
    match (subscription, refused) {
        (Some(installed), _) => format!("{host}: {}", text(installed)),
        (None, Some(problem)) => format!("{host}: refused: {}\n", problem.message),
        (None, None) => format!("{host}: no answer\n"),
    }
}

fn request(args: &Args, code: String) -> SubscriptionRequest {
    SubscriptionRequest {
        process_id: args.tell.unwrap_or(0),
        signal: args.signal,
        signal_value: args.signal_value.clone(),
        signal_by_kernel: args.signal_by_kernel,
        k_code: Some(code),
        k_thread: args.thread,
        hold_until: args.hold_until.clone(),
        channel: args.chain.clone(),
        order: args.order.clone(),
        deadline_us: args.deadline.map_or(0, |deadline| deadline.get().div_ceil(1_000)),
        group: args.group.clone(),
        on_fault: if args.pass_faults { OnFault::Pass } else { OnFault::Block },
        ..args.place.request()
    }
}

/// The channel of a step `channel:NAME`.
fn last_step(text: &str) -> Result<Name, String> {
    let name = text.strip_prefix("channel:").ok_or_else(|| format!("{text:?} is not a step; use channel:NAME"))?;
    name.parse().map_err(|error: InvalidName| error.to_string())
}

fn text(installed: &SubscriptionInfo) -> String {
    let place = if installed.in_kernel.is_empty() { "in the daemon" } else { "in the kernel" };
    let SubscriptionInfo { id, service, installed_in_us, .. } = installed;
    let took = Nanos::from_micros(*installed_in_us);
    format!("{id}: at {service}, {place} after {took}; remove it with qfabric ecode rm {id}\n")
}
