//! `qfabric ecode install`: a handler that stays at a service.

use std::path::PathBuf;

use qfabric_client::ecalls::{OnFault, Step, SubscriptionInfo, SubscriptionRequest};
use qfabric_ecode::Environment;
use qfabric_types::Nanos;

use super::source::{Source, attribute, pair};
use crate::exit::{Done, Failure, Outcome};
use crate::{connect, output, services};

/// What `install` and `trace` say of where a handler goes.
#[derive(clap::Args, Debug)]
pub struct Place {
    /// The service; qfabric services lists them
    #[arg(long)]
    pub service: String,
    /// Only events that concern this process
    #[arg(long)]
    pub pid: Option<i32>,
    /// An option of the service
    #[arg(long = "option", value_name = "NAME=VALUE", value_parser = pair)]
    pub options: Vec<(String, String)>,
    /// First value of an attribute
    #[arg(long = "attr", value_name = "NAME=VALUE", value_parser = attribute)]
    pub attributes: Vec<(String, i64)>,
    /// Instructions that the loops of one call may take [default: what they need, else a quarter of the service's limit]
    #[arg(long)]
    pub fuel: Option<u32>,
    /// The daemon's socket [default: searched for]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

impl Place {
    /// A subscription there, without steps.
    pub fn request(&self) -> SubscriptionRequest {
        SubscriptionRequest {
            service: self.service.clone(),
            only_pid: self.pid,
            options: self.options.iter().cloned().collect(),
            attributes: self.attributes.iter().cloned().collect(),
            fuel: self.fuel,
            ..SubscriptionRequest::default()
        }
    }

    /// The text compiled for the service, so that what is wrong with it is shown with its lines.
    pub fn check(&self, client: &qfabric_client::Client, source: &Source) -> Result<(), Failure> {
        let list = client.services().map_err(connect::failure)?;
        let input = Some(services::find(&list, &self.service)?.format.clone());
        source.compile(&Environment { input, ..Environment::default() }).map(drop)
    }
}

/// Installs a handler at a service, live in the kernel at once; it stays until it is removed.
///
/// With --pid it goes with that process. Needs a daemon, which holds it.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples: qfabric ecode install f.ec --service sched.wakeup --pid 1234
          qfabric ecode install f.ec --service timer --option period=10ms --signal 40 --tell 1234
Remove it with qfabric ecode rm ID; see what it does with qfabric ecode ls.")]
pub struct Args {
    /// The file; - for the standard input
    file: Option<PathBuf>,
    /// The text itself
    #[arg(long, value_name = "TEXT", conflicts_with = "file")]
    code: Option<String>,
    #[command(flatten)]
    place: Place,
    /// The real-time signal that is sent for events that pass, 34 to 64
    #[arg(long)]
    signal: Option<i32>,
    /// The field that travels with the signal [default: the first one]
    #[arg(long, value_name = "FIELD")]
    signal_value: Option<String>,
    /// The process that gets the signal [default: that of --pid]
    #[arg(long, value_name = "PID")]
    tell: Option<i32>,
    /// Run the handler in a thread of the daemon, not in the kernel
    #[arg(long)]
    thread: bool,
    /// The order of the steps, such as k_code,signal
    #[arg(long, value_delimiter = ',', value_name = "STEPS")]
    order: Vec<Step>,
    /// Events are late so long after they happened, such as 2ms
    #[arg(long)]
    deadline: Option<Nanos>,
    /// Of the subscriptions of a group one is told, in turn
    #[arg(long)]
    group: Option<String>,
    /// Let events pass at which the handler faults
    #[arg(long)]
    pass_faults: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Carries it out.
pub fn run(args: Args) -> Outcome {
    let source = Source::of(args.file.as_deref(), args.code.as_deref())?;
    let client = connect::daemon(args.place.socket.as_deref())?;
    args.place.check(&client, &source)?;
    let installed = client.subscribe(&request(&args, source.text)).map_err(connect::failure)?;
    match args.json {
        true => output::print_json(&installed)?,
        false => output::print(&text(&installed))?,
    }
    Ok(Done(0))
}

fn request(args: &Args, code: String) -> SubscriptionRequest {
    SubscriptionRequest {
        process_id: args.tell.unwrap_or(0),
        signal: args.signal,
        signal_value: args.signal_value.clone(),
        k_code: Some(code),
        k_thread: args.thread,
        order: args.order.clone(),
        deadline_us: args.deadline.map_or(0, |deadline| deadline.get().div_ceil(1_000)),
        group: args.group.clone(),
        on_fault: if args.pass_faults { OnFault::Pass } else { OnFault::Block },
        ..args.place.request()
    }
}

fn text(installed: &SubscriptionInfo) -> String {
    let place = if installed.in_kernel.is_empty() { "in the daemon" } else { "in the kernel" };
    let SubscriptionInfo { id, service, installed_in_us, .. } = installed;
    let took = Nanos::from_micros(*installed_in_us);
    format!("{id}: at {service}, {place} after {took}; remove it with qfabric ecode rm {id}\n")
}
