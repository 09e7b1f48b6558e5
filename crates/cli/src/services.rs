//! `qfabric services`: lists the services that one can subscribe to.

use std::path::PathBuf;

use qfabric_client::ecalls::{Origin, ServiceInfo};

use crate::connect::{self, Service};
use crate::exit::{Done, Failure, Outcome};
use crate::output;

/// Lists the services whose events handlers and programs can receive.
///
/// A service is raised by the kernel, by the daemon, or by a program. With a name, shows the event format and the
/// options of this service, and why it is not available here. Ends with 2 if no service has this name. Without a
/// daemon, does the daemon's work itself, which needs root.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples: qfabric services\n          qfabric services net.rx")]
pub(crate) struct Args {
    /// Service to show, with its event format and options [default: list all services]
    name: Option<String>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    /// Path of the daemon's socket [default: $QFABRIC_SOCKET; else $XDG_RUNTIME_DIR/qfabric/qfabric.sock, then
    /// /run/qfabric/qfabric.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> Outcome {
    let service = Service::find(args.socket.as_deref(), Default::default())?;
    let list = service.client.services().map_err(connect::failure)?;
    match args.name {
        Some(name) => {
            let found = find(&list, &name)?;
            if args.json { output::print_json(found)? } else { output::print(&one(found))? }
        }
        None if args.json => output::print_json(&list)?,
        None => output::print(&table(&list))?,
    }
    Ok(Done(0))
}

/// The service called `name`. The failure lists the names that exist.
pub(crate) fn find<'a>(list: &'a [ServiceInfo], name: &str) -> Result<&'a ServiceInfo, Failure> {
    let none = || {
        let known: Vec<_> = list.iter().map(|service| service.name.as_str()).collect();
        Failure::usage(format!("there is no service {name:?}; the services are: {}", known.join(", ")))
    };
    list.iter().find(|service| service.name == name).ok_or_else(none)
}

fn table(list: &[ServiceInfo]) -> String {
    let mut table = output::new_table(["service", "from", "subscribers", "raised", "dropped", "meaning"]);
    for service in list {
        table.add_row([
            service.name.clone(),
            origin(service).to_owned(),
            service.subscribers.to_string(),
            service.raised.to_string(),
            service.dropped.to_string(),
            meaning(service),
        ]);
    }
    format!("{table}\n\nDetails of one service: qfabric services NAME\n")
}

fn origin(service: &ServiceInfo) -> &'static str {
    match service.origin {
        Origin::Kernel => "kernel",
        Origin::Daemon => "daemon",
        Origin::User => "program",
        Origin::Channel => "channel",
    }
}

fn meaning(service: &ServiceInfo) -> String {
    match &service.unavailable {
        Some(why) => format!("not available: {why}"),
        None => service.about.clone(),
    }
}

fn one(service: &ServiceInfo) -> String {
    let mut text = format!("{}: {}\nraised by: {}\n", service.name, service.about, service.hook);
    if let Some(why) = &service.unavailable {
        text += &format!("not available here: {why}\n");
    }
    text += match service.concerns_process {
        true => "each event concerns one process: users may receive the events of their own processes\n",
        false => "the events concern the whole host: they need root or a grant in the daemon's configuration\n",
    };
    text += &format!("\n{}\n", service.declaration.trim_end());
    if !service.options.is_empty() {
        text += "\noptions:\n";
    }
    for option in &service.options {
        let must = if option.required { " (required)" } else { "" };
        text += &format!("  {}{must}: {}\n", option.name, option.about);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use qfabric_client::ecalls::OptionInfo;
    use qfabric_types::format::Format;

    fn service(name: &str) -> ServiceInfo {
        ServiceInfo {
            id: 1,
            name: name.into(),
            about: "wake-ups".into(),
            origin: Origin::Kernel,
            hook: "tp_btf/x".into(),
            format: Format { name: "e".into(), size: 0, align: 1, fields: vec![] },
            declaration: "struct e { };".into(),
            options: vec![OptionInfo { name: "cpu".into(), about: "which".into(), required: true }],
            concerns_process: true,
            unavailable: None,
            owner: None,
            pid: None,
            subscribers: 2,
            raised: 7,
            dropped: 0,
            cpu: 0,
            max_instructions: 10_000,
        }
    }

    #[test]
    fn the_table_says_why_a_service_is_not_available() {
        let missing = ServiceInfo { unavailable: Some("no BTF; use another kernel".into()), ..service("b.c") };
        let text = table(&[service("a.b"), missing]);
        for part in ["a.b", "wake-ups", "not available: no BTF", "kernel"] {
            assert!(text.contains(part), "{text} lacks {part}");
        }
    }

    #[test]
    fn one_service_shows_its_format_and_options() {
        let text = one(&service("a.b"));
        for part in ["struct e", "cpu (required): which", "tp_btf/x", "users may"] {
            assert!(text.contains(part), "{text} lacks {part}");
        }
    }
}
