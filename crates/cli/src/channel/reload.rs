//! `qfabric channel reload`: makes the daemon read its access list and certificate again.

use qfabric_client::channel::ReloadOutcome;

use crate::connect::{self, Daemon};
use crate::exit::{Done, Outcome};
use crate::output;

/// Makes the daemon read its access list and its certificate again; for root and the user that the daemon runs as.
///
/// The new rules apply at once, also to existing members: members that are no longer allowed are removed. If a file is
/// invalid, nothing changes and the command ends with 3. If the connections to other hosts must be opened again, no
/// events travel between the hosts for some tenths of a second. To apply the whole configuration, send SIGHUP to the
/// daemon: systemctl reload qfabric.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric channel reload")]
pub(super) struct Args {
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

pub(super) fn run(args: Args) -> Outcome {
    let reloaded = args.daemon.client()?.reload_access().map_err(connect::failure)?;
    match args.json {
        true => output::print_json(&reloaded)?,
        false => output::print(&text(reloaded))?,
    }
    Ok(Done(0))
}

fn text(ReloadOutcome { hosts, rules, changed, rejoined }: ReloadOutcome) -> String {
    let list = format!("access list: {hosts} hosts, {rules} rules");
    let effect = match (changed, rejoined) {
        (false, _) => "nothing has changed",
        (true, false) => "the changes apply from now on",
        (true, true) => "the changes apply from now on; the connections to other hosts were reopened",
    };
    format!("{list}; {effect}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effect_of_a_reload_is_printed_in_one_line() {
        let reloaded = ReloadOutcome { hosts: 3, rules: 2, changed: false, rejoined: false };
        assert_eq!(text(reloaded), "access list: 3 hosts, 2 rules; nothing has changed\n");
        assert!(text(ReloadOutcome { changed: true, rejoined: true, ..reloaded }).contains("reopened"));
    }
}
