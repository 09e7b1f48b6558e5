//! `qfabric status`: who holds what, uses what, achieves what.

use std::path::PathBuf;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use qfabric_types::api::{Application, HostStatus};
use qfabric_types::{JobSource, Share};

use crate::exit::{Done, Outcome};
use crate::{connect, output};

/// Who holds what, uses what and achieves what.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric status --json")]
pub struct Args {
    /// As JSON
    #[arg(long)]
    json: bool,
    /// The daemon's socket [default: searched for]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// Carries it out.
pub fn run(args: Args) -> Outcome {
    let status = connect::daemon(args.socket.as_deref())?.status().map_err(connect::failure)?;
    if args.json {
        output::print_json(&status)?;
    } else {
        output::print(&text(&status))?;
    }
    Ok(Done(0))
}

/// The first line of `status` and `top`.
pub fn headline(status: &HostStatus) -> String {
    format!(
        "mechanism {}: {} granted, {} guaranteed, of {} that may be promised",
        status.mechanism, status.granted, status.guaranteed, status.capacity
    )
}

fn text(status: &HostStatus) -> String {
    if status.applications.is_empty() {
        return headline(status) + "\nnobody holds a reservation; start one with qfabric run -- PROGRAM\n";
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(COLUMNS);
    for app in &status.applications {
        table.add_row(row(app));
    }
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{}\n\n{table}\n", headline(status))
}

/// What `status` and `top` show of an application; shares in percent of one CPU.
pub const COLUMNS: [&str; 11] =
    ["id", "name", "pid", "class", "period", "wanted", "granted", "used", "jobs", "missed", "in target"];

/// One application in those columns.
pub fn row(app: &Application) -> [String; 11] {
    let counts_jobs = app.contract.jobs != JobSource::Consumption && app.quality.jobs > 0;
    let of_jobs = |fraction: f64| if counts_jobs { format!("{:.1} %", 100.0 * fraction) } else { "–".into() };
    [
        app.id.to_string(),
        app.contract.name.clone(),
        app.pid.to_string(),
        app.contract.class.to_string(),
        app.contract.period.to_string(),
        percent(app.wanted),
        percent(app.granted),
        percent(app.used),
        app.quality.jobs.to_string(),
        of_jobs(app.quality.misses as f64 / app.quality.jobs.max(1) as f64),
        of_jobs(app.quality.in_target),
    ]
}

fn percent(share: Share) -> String {
    format!("{:.1} %", 100.0 * share.as_f64())
}

#[cfg(test)]
pub mod tests {
    use qfabric_types::{AppId, Contract, Nanos, Owner, Quality};

    use super::*;

    /// An application called `name` that is granted `cpus` and missed one job in a hundred.
    pub fn application(id: u64, name: &str, cpus: f64) -> Application {
        let jobs = JobSource::Activations;
        Application {
            id: AppId(id),
            pid: 100 + id as i32,
            owner: Owner { uid: 0, gid: 0 },
            contract: Contract { jobs, ..Contract::new(name, Nanos::from_millis(40)) },
            guaranteed: Share::ZERO,
            wanted: Share::from_f64(cpus),
            granted: Share::from_f64(cpus),
            threads: Vec::new(),
            quality: Quality { jobs: 100, misses: 1, in_target: 0.9, ..Quality::default() },
            used: Share::from_f64(cpus / 2.0),
            server: None,
            cpus: Vec::new(),
        }
    }

    /// A host with these applications.
    pub fn host(applications: Vec<Application>) -> HostStatus {
        HostStatus {
            version: "0".into(),
            mechanism: "deadline".into(),
            capacity: Share::from_f64(1.8),
            guaranteed: Share::ZERO,
            granted: applications.iter().map(|a| a.granted).sum(),
            applications,
            cpus: Vec::new(),
            fallback: None,
        }
    }

    #[test]
    fn the_table_says_who_holds_uses_and_achieves_what() {
        let text = text(&host(vec![application(1, "mpv", 0.25), application(2, "encoder", 0.5)]));
        for part in ["0.75 CPU granted", "of 1.8 CPU", "mpv", "25.0 %", "12.5 %", "1.0 %", "90.0 %", "encoder"] {
            assert!(text.contains(part), "{text}\nlacks {part}");
        }
    }

    #[test]
    fn an_empty_host_says_how_to_start() {
        assert!(text(&host(vec![])).contains("qfabric run"));
    }

    #[test]
    fn nothing_is_claimed_of_jobs_that_were_not_seen() {
        let mut app = application(1, "mpv", 0.25);
        app.contract.jobs = JobSource::Consumption;
        assert_eq!(row(&app)[9..], ["–", "–"]);
    }
}
