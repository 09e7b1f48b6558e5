//! `qfabric channel reload`.

use qfabric_client::channel::Reloaded;

use crate::connect::{self, Daemon};
use crate::exit::{Done, Outcome};
use crate::output;

/// Has the daemon read its access list and its certificate again; for root.
///
/// What they say holds from now on, for those who are in, too. Files that cannot be used change nothing. Where other hosts'
/// connections have to be made anew, it is for all members as if the cable had been cut and joined.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric channel reload")]
pub struct Args {
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Carries it out.
pub fn run(args: Args) -> Outcome {
    let reloaded = args.daemon.client()?.reload_access().map_err(connect::failure)?;
    match args.json {
        true => output::print_json(&reloaded)?,
        false => output::print(&said(reloaded))?,
    }
    Ok(Done(0))
}

fn said(Reloaded { hosts, rules, changed, rejoined }: Reloaded) -> String {
    let list = format!("access list: {hosts} hosts, {rules} rules");
    let what = match (changed, rejoined) {
        (false, _) => "nothing has changed",
        (true, false) => "they hold from now on",
        (true, true) => "they hold from now on; connections to other hosts were made anew",
    };
    format!("{list}; {what}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_of_it_is_said_in_a_line() {
        let reloaded = Reloaded { hosts: 3, rules: 2, changed: false, rejoined: false };
        assert_eq!(said(reloaded), "access list: 3 hosts, 2 rules; nothing has changed\n");
        assert!(said(Reloaded { changed: true, rejoined: true, ..reloaded }).contains("made anew"));
    }
}
