//! `qfabric limits`: shows and changes the administrator's limits while the daemon runs.

mod memory;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use clap::{ArgGroup, Subcommand};
use qfabric_client::{Application, Change, HostLimits, HostStatus, LimitsPatch, Share};

use crate::connect::{self, Daemon};
use crate::exit::{Done, Outcome};
use crate::output;

/// Options of which `limits set` needs at least one.
const CHANGES: [&str; 12] = [
    "capacity",
    "user",
    "group",
    "level",
    "default_user",
    "max_applications",
    "max_applications_per_user",
    "max_threads",
    memory::CHANGES[0],
    memory::CHANGES[1],
    memory::CHANGES[2],
    memory::CHANGES[3],
];

/// Shows and changes the limits of promised bandwidth and memory.
///
/// There are limits in total and for each user, group and priority level. Without a command, shows all limits.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples: qfabric limits\n          qfabric limits set --user 1000=0.5")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand, Debug)]
enum Command {
    Show(ShowArgs),
    Set(Box<SetArgs>),
}

/// Shows every limit, with the bandwidth and the memory that are promised under it now.
#[derive(clap::Args, Debug, Default)]
#[command(after_help = "Example: qfabric limits show")]
struct ShowArgs {
    /// Print the limits as JSON, in the format of PUT /v1/limits
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Changes limits until the next start or reload of the daemon; limits that are not named stay.
///
/// All named limits change at once. If one value is refused, no limit changes; the command ends with 2 or 3 then.
/// Existing guarantees and promises stay; the remaining bandwidth is divided again. Needs root, or the user that the
/// daemon runs as. To change limits permanently, edit [limits] and [memory] in daemon.toml.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples: qfabric limits set --user 1000=0.5 --level 9=0.8
          qfabric limits set --user 1000=none --capacity none
          qfabric limits set --memory-reserve 512M --memory-user 1000=64M")]
#[command(group = ArgGroup::new("change").required(true).multiple(true).args(CHANGES))]
struct SetArgs {
    /// Largest bandwidth of all applications together, in CPUs; none: as much as the kernel admits
    #[arg(long, value_name = "CPUS")]
    capacity: Option<Limit<Share>>,
    /// Largest bandwidth of one user's applications together; UID is a number (id -u); none removes the limit; may be
    /// repeated
    #[arg(long, value_name = "UID=CPUS")]
    user: Vec<KeyedLimit<u32, Share>>,
    /// Largest bandwidth of one group's applications together; GID is a number (id -g); none removes the limit; may be
    /// repeated
    #[arg(long, value_name = "GID=CPUS")]
    group: Vec<KeyedLimit<u32, Share>>,
    /// Largest bandwidth of the applications of a priority level together, 0 (last) to 9 (first); none removes the
    /// limit; may be repeated
    #[arg(long, value_name = "LEVEL=CPUS")]
    level: Vec<KeyedLimit<u8, Share>>,
    /// Largest bandwidth of each user that has no limit by --user, in CPUs; none: unlimited
    #[arg(long, value_name = "CPUS")]
    default_user: Option<Limit<Share>>,
    /// Largest number of applications at the same time, 1 to 10000
    #[arg(long, value_name = "COUNT")]
    max_applications: Option<usize>,
    /// Largest number of applications of one user at the same time, 1 to 10000; root is excepted
    #[arg(long, value_name = "COUNT")]
    max_applications_per_user: Option<usize>,
    /// Largest number of threads of one application under reservation, 1 to 10000; more threads stay under the normal
    /// scheduler
    #[arg(long, value_name = "COUNT")]
    max_threads: Option<usize>,
    #[command(flatten)]
    memory: memory::MemoryArgs,
    /// Print all limits as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// A limit; `None` is the word `none`: no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Limit<T>(Option<T>);

impl<T: FromStr<Err: Display>> FromStr for Limit<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Limit(None));
        }
        text.parse().map(|limit| Limit(Some(limit))).map_err(|why| format!("{why}, or none"))
    }
}

/// The limit of one user, group or level.
#[derive(Clone, Copy, Debug, PartialEq)]
struct KeyedLimit<K, V> {
    key: K,
    limit: Limit<V>,
}

impl<K: FromStr<Err: Display>, V: FromStr<Err: Display>> FromStr for KeyedLimit<K, V> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected =
            || format!("{text:?} is not a number with its limit; write NUMBER=LIMIT, such as 1000=0.5 or 1000=none");
        let (key, limit) = text.split_once('=').ok_or_else(expected)?;
        Ok(KeyedLimit { key: key.parse().map_err(|_| expected())?, limit: limit.parse()? })
    }
}

pub(crate) fn run(args: Args) -> Outcome {
    match args.command.unwrap_or_else(|| Command::Show(ShowArgs::default())) {
        Command::Show(args) => {
            let client = args.daemon.client()?;
            let limits = client.limits().map_err(connect::failure)?;
            match args.json {
                true => output::print_json(&limits)?,
                false => output::print(&limits_text(&limits, &client.status().map_err(connect::failure)?))?,
            }
        }
        Command::Set(args) => {
            let client = args.daemon.client()?;
            let limits = client.change_limits(&args.patch()).map_err(connect::failure)?;
            match args.json {
                true => output::print_json(&limits)?,
                false => output::print(&limits_text(&limits, &client.status().map_err(connect::failure)?))?,
            }
        }
    }
    Ok(Done(0))
}

impl SetArgs {
    /// If a limit is given twice, the last value counts.
    fn patch(&self) -> LimitsPatch {
        let count = |count: Option<usize>| count.map_or(Change::Keep, Change::Set);
        LimitsPatch {
            capacity: self.capacity.map_or(Change::Keep, |limit| limit.0.into()),
            default_user: self.default_user.map_or(Change::Keep, |limit| limit.0.into()),
            users: changes(&self.user),
            groups: changes(&self.group),
            levels: changes(&self.level),
            max_applications: count(self.max_applications),
            max_applications_per_user: count(self.max_applications_per_user),
            max_threads: count(self.max_threads),
            memory: self.memory.patch(),
        }
    }
}

fn changes<K: Ord + Copy, V: Copy>(named: &[KeyedLimit<K, V>]) -> Change<BTreeMap<K, Option<V>>> {
    Change::Set(named.iter().map(|KeyedLimit { key, limit }| (*key, limit.0)).collect())
}

fn limits_text(limits: &HostLimits, status: &HostStatus) -> String {
    let mut table = output::new_table(["limit", "at most", "guaranteed", "granted"]);
    let mut row = |name: String, most: String, counts: &dyn Fn(&Application) -> bool| {
        let those = || status.applications.iter().filter(|app| counts(app));
        let [guaranteed, granted] = [those().map(|a| a.guaranteed).sum::<Share>(), those().map(|a| a.granted).sum()];
        table.add_row([name, most, guaranteed.to_string(), granted.to_string()]);
    };
    let capacity = match limits.capacity {
        Some(configured) if configured != status.capacity => format!("{} (of {configured})", status.capacity),
        _ => status.capacity.to_string(),
    };
    row("all".into(), capacity, &|_| true);
    for (level, most) in limits.levels.iter().rev() {
        row(format!("level {level}"), most.to_string(), &|app| app.contract.priority == *level);
    }
    for (uid, most) in &limits.users {
        row(format!("user {uid}"), most.to_string(), &|app| app.owner.uid == *uid);
    }
    if let Some(most) = limits.default_user {
        let others = |app: &Application| !limits.users.contains_key(&app.owner.uid);
        row("each other user".into(), most.to_string(), &others);
    }
    for (gid, most) in &limits.groups {
        row(format!("group {gid}"), most.to_string(), &|app| app.owner.gid == *gid);
    }
    let HostLimits { max_applications, max_applications_per_user, max_threads, .. } = limits;
    format!(
        "{table}\n{} of {max_applications} applications, at most {max_applications_per_user} of one user; at most \
         {max_threads} threads each\n{}",
        status.applications.len(),
        memory::text(limits, status)
    )
}

#[cfg(test)]
mod tests {
    use qfabric_types::Owner;

    use super::*;
    use crate::status::tests::application;

    fn cpus(cpus: f64) -> Share {
        Share::from_f64(cpus)
    }

    #[test]
    fn a_patch_changes_the_named_limits_only() {
        use clap::Parser;
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            set: SetArgs,
        }
        let line = "x --user 1000=0.4 --user 1000=0.5 --user 1001=none --level 9=80% --capacity none --max-threads 9";
        let line = Line::parse_from(line.split(' '));
        let mut limits =
            HostLimits { capacity: Some(cpus(1.5)), default_user: Some(cpus(0.3)), ..HostLimits::default() };
        limits.users.insert(1_001, cpus(0.1));
        limits.groups.insert(7, cpus(0.2));
        let limits = line.set.patch().apply(&limits).unwrap();
        assert_eq!(limits.users, [(1_000, cpus(0.5))].into());
        assert_eq!((limits.groups.len(), limits.levels), (1, [(9, cpus(0.8))].into()));
        assert_eq!((limits.capacity, limits.default_user, limits.max_threads), (None, Some(cpus(0.3)), 9));
    }

    #[test]
    fn an_invalid_limit_is_refused_with_an_example() {
        for bad in ["1000", "x=0.5", "-1=0.5", "1000=much", "1000=-0.1"] {
            let why = bad.parse::<KeyedLimit<u32, Share>>().unwrap_err();
            assert!(why.contains("such as"), "{bad}: {why}");
        }
    }

    #[test]
    fn every_limit_is_shown_with_the_bandwidth_granted_under_it() {
        let mut limits =
            HostLimits { capacity: Some(cpus(1.5)), default_user: Some(cpus(0.3)), ..HostLimits::default() };
        limits.users.insert(1_000, cpus(0.9));
        limits.levels.insert(9, cpus(0.4));
        let mut app = application(1, "player", 0.25);
        app.owner = Owner { uid: 1_000, gid: 7 };
        let status = HostStatus {
            version: "0".into(),
            mechanism: "deadline".into(),
            capacity: cpus(1.4),
            guaranteed: Share::ZERO,
            granted: app.granted,
            applications: vec![app],
            cpus: vec![],
            fallback: None,
            loans: vec![],
            tables: vec![],
            joint: vec![],
            configured: vec![],
            memory: None,
        };
        let text = limits_text(&limits, &status);
        for part in
            ["1.4 CPU (of 1.5 CPU)", "level 9", "user 1000", "0.9 CPU", "0.25 CPU", "each other user", "1 of 256"]
        {
            assert!(text.contains(part), "{text}\nlacks {part}");
        }
    }
}
