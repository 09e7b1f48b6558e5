//! `qfabric ecode ls` and `rm`: lists and removes installed handlers.

use std::path::PathBuf;

use qfabric_client::ecalls::{State, SubscriptionCounters, SubscriptionInfo};

use crate::exit::{Done, Failure, Outcome};
use crate::{connect, output};

/// Lists the installed handlers, with their counts of passed, blocked, faulted and dropped events.
///
/// The last lines that handlers printed follow the table.
///
/// Handlers on other hosts are shown as those hosts described them in the last seconds. A user of another host who has a
/// handler here is shown as UID@HOST.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric ecode ls --json")]
pub(super) struct Args {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Path of the daemon's socket [default: $QFABRIC_SOCKET; else $XDG_RUNTIME_DIR/qfabric/qfabric.sock, then
    /// /run/qfabric/qfabric.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// Removes installed handlers.
///
/// Ends with 3 if one of them does not exist or belongs to another user; the others are removed.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric ecode rm 7")]
pub(super) struct RmArgs {
    /// Numbers of the handlers, as `qfabric ecode ls` shows them
    #[arg(required = true, value_name = "ID")]
    ids: Vec<u64>,
    /// Path of the daemon's socket [default: $QFABRIC_SOCKET; else $XDG_RUNTIME_DIR/qfabric/qfabric.sock, then
    /// /run/qfabric/qfabric.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

pub(super) fn run(args: Args) -> Outcome {
    let list = connect::daemon(args.socket.as_deref())?.subscriptions().map_err(connect::failure)?;
    match args.json {
        true => output::print_json(&list)?,
        false => output::print(&text(&list))?,
    }
    Ok(Done(0))
}

/// Removes all handlers that can be removed. Every refusal is printed; the last one decides the exit code.
pub(super) fn remove(args: RmArgs) -> Outcome {
    let client = connect::daemon(args.socket.as_deref())?;
    let mut failed: Option<Failure> = None;
    for id in &args.ids {
        if let Err(error) = client.unsubscribe(*id)
            && let Some(earlier) = failed.replace(connect::failure(error))
        {
            // The exit code is that of the last failure.
            let _ = earlier.report();
        }
    }
    failed.map_or(Ok(Done(0)), Err)
}

fn text(list: &[SubscriptionInfo]) -> String {
    if list.is_empty() {
        return "no handler is installed; install one with qfabric ecode install\n".to_owned();
    }
    let mut table = output::new_table([
        "id", "service", "uid", "pid", "where", "events", "passed", "blocked", "faults", "dropped", "state",
    ]);
    let mut printed = String::new();
    for subscription in list {
        table.add_row(row(subscription));
        subscription.printed.iter().for_each(|line| printed += &format!("{}: {line}\n", subscription.id));
    }
    format!("{table}\n{printed}")
}

fn row(subscription: &SubscriptionInfo) -> [String; 11] {
    let SubscriptionInfo { id, service, owner, counters, .. } = subscription;
    let pid = subscription.only_pid.unwrap_or(subscription.process_id);
    [
        id.to_string(),
        service.clone(),
        subscription.author.as_ref().map_or(owner.uid.to_string(), |author| format!("{}@{}", author.uid, author.host)),
        if pid == 0 { "–".to_owned() } else { pid.to_string() },
        place(subscription),
        counters.events.to_string(),
        counters.passed.to_string(),
        counters.blocked.to_string(),
        counters.faults.to_string(),
        dropped(counters).to_string(),
        state(&subscription.state),
    ]
}

fn place(subscription: &SubscriptionInfo) -> String {
    let place = match (subscription.in_kernel.is_empty(), subscription.in_daemon.is_empty()) {
        (false, true) => "kernel",
        (true, _) => "daemon",
        (false, false) => "kernel, daemon",
    };
    subscription.host.as_ref().map_or(place.to_owned(), |host| format!("{place} of {host}"))
}

/// Sum of all dropped events.
fn dropped(counters: &SubscriptionCounters) -> u64 {
    let c = counters;
    c.dropped_memory + c.dropped_ring + c.dropped_queue + c.dropped_signals + c.dropped_channel + c.late + c.contended
}

fn state(state: &State) -> String {
    match state {
        State::Active => "active".to_owned(),
        State::TakenOut { why } => format!("removed: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_drops_has_every_kind_of_drop() {
        let counters = SubscriptionCounters {
            dropped_memory: 1,
            dropped_ring: 10,
            dropped_queue: 100,
            dropped_signals: 1_000,
            late: 10_000,
            contended: 100_000,
            dropped_channel: 1_000_000,
            ..SubscriptionCounters::default()
        };
        assert_eq!(dropped(&counters), 1_111_111);
    }

    #[test]
    fn an_empty_list_names_the_command_that_installs_a_handler() {
        assert!(text(&[]).contains("qfabric ecode install"));
    }
}
