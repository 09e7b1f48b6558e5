//! `qfabric status`: shows the reservation, the CPU time and the achieved quality of each application.

use std::collections::BTreeMap;
use std::path::PathBuf;

use comfy_table::CellAlignment;
use qfabric_types::api::contracts::JointHolding;
use qfabric_types::api::energy::EnergySaving;
use qfabric_types::api::net::LinkInfo;
use qfabric_types::api::{Application, ConfiguredContract, CpuStatus, HostStatus, Loan};
use qfabric_types::{BitRate, Bytes, JobSource, Nanos, Overload, ServerCounts, Share, UtilityStatus};

use crate::exit::{Done, Outcome};
use crate::{connect, net, output};

mod memory;
mod slots;

/// Shows the reservation, the used CPU time and the achieved quality of each application, and the rates that open links
/// promise to each user.
///
/// Ends with 4 if no daemon answers; start one with `qfabric daemon`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric status --json")]
pub(crate) struct Args {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Path of the daemon's socket [default: $QFABRIC_SOCKET; else $XDG_RUNTIME_DIR/qfabric/qfabric.sock, then
    /// /run/qfabric/qfabric.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> Outcome {
    let client = connect::daemon(args.socket.as_deref())?;
    let status = client.status().map_err(connect::failure)?;
    let interfaces = client.interfaces().map_err(connect::failure)?;
    let links = interfaces.into_iter().filter_map(|info| Some((info.interface, info.link?))).collect();
    if args.json {
        output::print_json(&Shown { status: &status, links: &links })?;
    } else {
        output::print(&(text(&status) + &link_lines(&links)))?;
    }
    Ok(Done(0))
}

/// The state of the host, and its open links by interface.
#[derive(serde::Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    status: &'a HostStatus,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    links: &'a BTreeMap<String, LinkInfo>,
}

/// The promised rates of each open link and each user.
fn link_lines(links: &BTreeMap<String, LinkInfo>) -> String {
    links.iter().map(|(interface, link)| net::link_text(interface, link)).collect()
}

/// The first line of `status` and `top`.
pub(crate) fn headline(status: &HostStatus) -> String {
    let fallback = status.fallback.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
    format!(
        "mechanism {}: {} granted, {} guaranteed, of {} that may be promised{fallback}",
        status.mechanism, status.granted, status.guaranteed, status.capacity
    )
}

fn text(status: &HostStatus) -> String {
    if status.applications.is_empty() {
        return headline(status)
            + "\n"
            + &loan_lines(status)
            + &joint_lines(status)
            + &configured_lines(status)
            + &memory::lines(status)
            + "no application has a reservation; start one with qfabric run -- PROGRAM\n";
    }
    let has_memory = status.applications.iter().any(|app| app.memory.is_some());
    let has_bandwidth = status.applications.iter().any(|app| !app.bandwidth.is_empty());
    let resources = [has_memory.then_some("memory"), has_bandwidth.then_some("bandwidth")];
    let mut table = output::new_table(columns(status).into_iter().chain(resources.into_iter().flatten()));
    for app in &status.applications {
        let memory = has_memory.then(|| memory::cell(app));
        let bandwidth = has_bandwidth.then(|| bandwidth_cell(app));
        table.add_row(row(app, has_servers(status)).into_iter().chain(memory).chain(bandwidth));
    }
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let applications = [
        overload_lines(status),
        utility_lines(status),
        energy_lines(status),
        loan_lines(status),
        joint_lines(status),
        configured_lines(status),
    ]
    .concat();
    let resources = [memory::lines(status), cpu_lines(status), slots::lines(status)].concat();
    let above = applications + &resources;
    format!("{}\n{above}\n{table}\n", headline(status))
}

/// The sum of the rates that links promise to an application.
fn bandwidth_cell(app: &Application) -> String {
    match &app.bandwidth[..] {
        [] => "–".into(),
        streams => streams.iter().map(|stream| stream.rate_bps).sum::<BitRate>().to_string(),
    }
}

/// One line for each application in overload.
fn overload_lines(status: &HostStatus) -> String {
    let line = |app: &Application| {
        let overload = app.overload?;
        let Overload { wanted, granted } = overload;
        let (id, name, part) = (app.id, &app.contract.name, 100.0 * overload.part());
        Some(format!(
            "overload: application {id} ({name}) is granted {granted} of the {wanted} it asks for; \
             its jobs should cost at most {part:.0} % of what they cost now\n"
        ))
    };
    status.applications.iter().filter_map(line).collect()
}

/// One line for each application with utility functions.
fn utility_lines(status: &HostStatus) -> String {
    let line = |app: &Application| {
        let UtilityStatus { utility, most, needs, levels } = app.utility.as_ref()?;
        let levels = levels.iter().map(|one| format!("{} {}", one.metric, one.level)).collect::<Vec<_>>().join(", ");
        let lack = if *utility == 0 && *needs > app.granted { "; the grant is below the minimum" } else { "" };
        let (id, name) = (app.id, &app.contract.name);
        Some(format!("utility: application {id} ({name}) has {utility} of {most} with {levels}{lack}\n"))
    };
    status.applications.iter().filter_map(line).collect()
}

/// One line for each application that saves energy.
fn energy_lines(status: &HostStatus) -> String {
    let line = |app: &Application| {
        let EnergySaving { clock_part, clamped, limited, missing } = app.energy.as_ref()?;
        let clocks = if *limited { "clocks limited to it" } else { "clocks not limited" };
        let missing = if missing.is_empty() { String::new() } else { format!("; {}", missing.join("; ")) };
        let (id, name, part) = (app.id, &app.contract.name, 100.0 * clock_part);
        Some(format!(
            "energy: application {id} ({name}) needs {part:.0} % of the highest clock; {clocks}, {clamped} threads \
             clamped{missing}\n"
        ))
    };
    status.applications.iter().filter_map(line).collect()
}

/// A remaining time is shown in steps of this number of nanoseconds.
const TENTH: u64 = 100_000_000;

/// One line for each loan.
fn loan_lines(status: &HostStatus) -> String {
    let line = |loan: &Loan| {
        let Loan { host, share, memory, rate, left_ns } = loan;
        let memory = if *memory == Bytes::ZERO { String::new() } else { format!(" and {memory} of memory") };
        let rate = rate.as_ref().map(|rate| format!(" and {rate}")).unwrap_or_default();
        let left = Nanos::new(left_ns.get() / TENTH * TENTH);
        format!("kept for an application of host {host}: {share}{memory}{rate}, for {left} more\n")
    };
    status.loans.iter().map(line).collect()
}

/// One line for each part of a joint contract.
fn joint_lines(status: &HostStatus) -> String {
    let line = |part: &JointHolding| {
        let JointHolding { initiator, resources, in_force, .. } = part;
        let amounts = resources.iter().map(|(resource, amount)| format!("{resource} {amount}"));
        let stage = if *in_force { "promised to" } else { "held for" };
        format!("{stage} a joint contract of host {initiator}: {}\n", amounts.collect::<Vec<_>>().join(", "))
    };
    status.joint.iter().map(line).collect()
}

/// One line for each contract of the daemon's configuration.
fn configured_lines(status: &HostStatus) -> String {
    let line = |one: &ConfiguredContract| {
        let ConfiguredContract { name, place, applications, refused } = one;
        let present = applications.iter().filter(|id| status.applications.iter().any(|app| app.id == **id));
        let present: Vec<String> = present.map(ToString::to_string).collect();
        let state = match present.len() {
            0 if refused.is_none() && applications.is_empty() => "nothing runs there".to_owned(),
            0 if refused.is_none() => "ended by another command".to_owned(),
            0 => "no application".to_owned(),
            1 => format!("application {}", present[0]),
            _ => format!("applications {}", present.join(", ")),
        };
        let refused = refused.as_ref().map(|why| format!("; refused: {why}")).unwrap_or_default();
        format!("contract {name} for {place}: {state}{refused}\n")
    };
    status.configured.iter().map(line).collect()
}

/// One line for each CPU on which servers are admitted.
fn cpu_lines(status: &HostStatus) -> String {
    let line = |cpu: &CpuStatus| {
        let CpuStatus { cpu, capacity, guaranteed, granted } = cpu;
        format!("CPU {cpu}: {granted} granted, {guaranteed} guaranteed, of {capacity}\n")
    };
    status.cpus.iter().map(line).collect()
}

/// The columns of `status` and `top`; shares are in percent of one CPU.
pub(crate) const COLUMNS: [&str; 11] =
    ["id", "name", "pid", "class", "period", "wanted", "granted", "used", "jobs", "missed", "in target"];
/// Additional columns for a mechanism whose servers count their periods.
pub(crate) const SERVER_COLUMNS: [&str; 5] = ["cpu", "window", "periods missed", "violations", "event boosts"];

pub(crate) fn columns(status: &HostStatus) -> Vec<&'static str> {
    let of_servers = if has_servers(status) { &SERVER_COLUMNS[..] } else { &[] };
    COLUMNS.iter().chain(of_servers).copied().collect()
}

/// Whether the mechanism has servers that are bound to CPUs and count their periods.
pub(crate) fn has_servers(status: &HostStatus) -> bool {
    !status.cpus.is_empty() || status.applications.iter().any(|app| app.server.is_some())
}

/// The cells of one application; with `servers`, also those of [`SERVER_COLUMNS`].
pub(crate) fn row(app: &Application, servers: bool) -> Vec<String> {
    let counts_jobs = app.contract.jobs != JobSource::Consumption && app.quality.jobs > 0;
    let of_jobs = |fraction: f64| if counts_jobs { format!("{:.1} %", 100.0 * fraction) } else { "–".into() };
    let mut row = vec![
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
    ];
    if servers {
        row.extend(server_cells(app));
    }
    row
}

fn server_cells(app: &Application) -> [String; 5] {
    let cpus: Vec<String> = app.cpus.iter().map(u32::to_string).collect();
    let count = |count: fn(&ServerCounts) -> u64| app.server.as_ref().map_or("–".into(), |c| count(c).to_string());
    [
        if cpus.is_empty() { "–".into() } else { cpus.join(",") },
        app.contract.window.map_or("–".into(), |window| window.to_string()),
        count(|c| c.missed),
        count(|c| c.violations),
        count(|c| c.boosts),
    ]
}

fn percent(share: Share) -> String {
    format!("{:.1} %", 100.0 * share.as_f64())
}

#[cfg(test)]
pub(crate) mod tests {
    use qfabric_types::api::LoanRate;
    use qfabric_types::api::net::Bandwidth;
    use qfabric_types::{AppId, Contract, Direction, Owner, Quality};

    use super::*;

    /// An application called `name` that is granted `cpus` and has missed one job of a hundred.
    pub(crate) fn application(id: u64, name: &str, cpus: f64) -> Application {
        let jobs = JobSource::Activations;
        Application {
            id: AppId(id),
            pid: 100 + id as i32,
            owner: Owner { uid: 0, gid: 0 },
            contract: Contract { jobs, ..Contract::new(name, Nanos::from_millis(40)) },
            guaranteed: Share::ZERO,
            invariance: None,
            utility: None,
            wanted: Share::from_f64(cpus),
            granted: Share::from_f64(cpus),
            overload: None,
            threads: Vec::new(),
            quality: Quality { jobs: 100, misses: 1, in_target: 0.9, ..Quality::default() },
            used: Share::from_f64(cpus / 2.0),
            reserved: Default::default(),
            rhythm: None,
            server: None,
            cpus: Vec::new(),
            memory: None,
            bandwidth: Vec::new(),
            energy: None,
        }
    }

    pub(crate) fn host(applications: Vec<Application>) -> HostStatus {
        HostStatus {
            version: "0".into(),
            mechanism: "deadline".into(),
            capacity: Share::from_f64(1.8),
            guaranteed: Share::ZERO,
            granted: applications.iter().map(|a| a.granted).sum(),
            applications,
            cpus: Vec::new(),
            fallback: None,
            loans: Vec::new(),
            tables: Vec::new(),
            joint: Vec::new(),
            configured: Vec::new(),
            memory: None,
        }
    }

    #[test]
    fn the_table_shows_grant_use_and_quality_of_each_application() {
        let text = text(&host(vec![application(1, "mpv", 0.25), application(2, "encoder", 0.5)]));
        for part in ["0.75 CPU granted", "of 1.8 CPU", "mpv", "25.0 %", "12.5 %", "1.0 %", "90.0 %", "encoder"] {
            assert!(text.contains(part), "{text}\nlacks {part}");
        }
    }

    /// An application with a server on CPU 1.
    pub(crate) fn served(id: u64, name: &str) -> Application {
        let mut app = application(id, name, 0.25);
        app.contract.window = "1/5".parse().ok();
        app.server =
            Some(ServerCounts { served: 990, missed: 12, violations: 3, boosts: 45, ..ServerCounts::default() });
        app.cpus = vec![1];
        app
    }

    #[test]
    fn servers_are_shown_with_their_cpu_their_window_and_their_counts() {
        let mut host = host(vec![served(1, "mpv"), application(2, "plain", 0.1)]);
        let (capacity, granted) = (Share::from_f64(0.95), Share::from_f64(0.25));
        host.cpus = vec![CpuStatus { cpu: 1, capacity, guaranteed: Share::ZERO, granted }];
        let text = text(&host);
        for part in
            ["window", "1/5", "periods missed", "12", "violations", "event boosts", "45", "CPU 1: 0.25 CPU granted"]
        {
            assert!(text.contains(part), "{text}\nlacks {part}");
        }
        assert_eq!(row(&host.applications[1], true)[11..], ["–"; 5]);
    }

    #[test]
    fn an_application_in_overload_is_named_with_its_grant_and_the_factor_to_reduce_its_cost() {
        let [calm, mut short] = [application(1, "calm", 0.25), application(2, "mpv", 0.2)];
        short.overload = Some(Overload { wanted: Share::from_f64(0.8), granted: Share::from_f64(0.2) });
        let text = text(&host(vec![calm, short]));
        let line = "overload: application 2 (mpv) is granted 0.2 CPU of the 0.8 CPU it asks for; \
                    its jobs should cost at most 25 % of what they cost now\n";
        assert!(text.contains(line), "{text}");
        assert_eq!(text.matches("overload").count(), 1, "{text}");
    }

    #[test]
    fn the_reason_for_a_fallback_is_shown() {
        let fallback = Some("ext was ended by the kernel: runnable task stall".to_owned());
        assert!(text(&HostStatus { fallback, ..host(vec![]) }).contains("runnable task stall"));
    }

    #[test]
    fn a_loan_is_shown_with_its_remaining_time() {
        let (share, left_ns) = (Share::from_f64(0.5), Nanos::from_millis(27_456));
        let loan = Loan { host: "alpha".parse().unwrap(), share, memory: Bytes::ZERO, rate: None, left_ns };
        for applications in [vec![], vec![application(1, "mpv", 0.25)]] {
            let text = text(&HostStatus { loans: vec![loan.clone()], ..host(applications) });
            assert!(text.contains("kept for an application of host alpha: 0.5 CPU, for 27.4 s more"), "{text}");
        }
        let rate = Some(LoanRate { interface: "eth0".parse().unwrap(), rate: BitRate::new(2_000_000) });
        let with_memory = Loan { memory: Bytes::from_mib(64), ..loan.clone() };
        let text = text(&HostStatus { loans: vec![with_memory], ..host(vec![]) });
        assert!(text.contains("0.5 CPU and 64 MiB of memory, for 27.4 s more"), "{text}");
        let text = super::text(&HostStatus { loans: vec![Loan { rate, ..loan }], ..host(vec![]) });
        assert!(text.contains("0.5 CPU and 2 Mbit/s out of eth0, for 27.4 s more"), "{text}");
    }

    #[test]
    fn contracts_of_the_configuration_are_shown_with_their_applications_or_the_refusal() {
        let configured = |applications: &[u64], refused: Option<&str>| ConfiguredContract {
            name: "player".into(),
            place: "mpd.service".into(),
            applications: applications.iter().map(|id| AppId(*id)).collect(),
            refused: refused.map(str::to_owned),
        };
        for (one, said) in [
            (configured(&[], None), "contract player for mpd.service: nothing runs there\n"),
            (configured(&[1, 2], None), "contract player for mpd.service: applications 1, 2\n"),
            (configured(&[7], None), "contract player for mpd.service: ended by another command\n"),
            (configured(&[1], Some("no room; ask for less")), "application 1; refused: no room; ask for less\n"),
        ] {
            let applications = vec![application(1, "mpd", 0.1), application(2, "mpd", 0.1)];
            let text = text(&HostStatus { configured: vec![one], ..host(applications) });
            assert!(text.contains(said), "{text}");
        }
        let waits = HostStatus { configured: vec![configured(&[], None)], ..host(vec![]) };
        assert!(text(&waits).contains("nothing runs there"));
    }

    #[test]
    fn without_applications_the_command_to_start_one_is_named() {
        assert!(text(&host(vec![])).contains("qfabric run"));
    }

    #[test]
    fn the_bandwidth_of_an_application_is_the_sum_over_its_streams() {
        let mut app = application(1, "mpv", 0.25);
        let stream = |stream, mbit: u64| Bandwidth {
            interface: "eth0".parse().unwrap(),
            direction: Direction::Out,
            stream,
            rate_bps: BitRate::new(mbit * 1_000_000),
        };
        app.bandwidth = vec![stream(0, 5), stream(3, 2)];
        let text = text(&host(vec![app, application(2, "plain", 0.1)]));
        assert!(text.contains("bandwidth") && text.contains("7 Mbit/s"), "{text}");
    }

    #[test]
    fn unknown_jobs_are_shown_as_a_dash() {
        let mut app = application(1, "mpv", 0.25);
        app.contract.jobs = JobSource::Consumption;
        assert_eq!(row(&app, false)[9..], ["–", "–"]);
    }
}
