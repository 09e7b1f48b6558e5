//! `qfabric net link`: opens links to all users, closes and lists them.

use std::collections::BTreeMap;
use std::str::FromStr;

use clap::Subcommand;
use qfabric_types::api::net::{InterfaceInfo, LinkBook, LinkInfo, LinkRequest, NetMechanism, RateHolder};
use qfabric_types::{BitRate, Share};

use crate::connect::{self, Daemon};
use crate::exit::{Done, Outcome};
use crate::output;

/// Opens links to all users, closes and lists them.
///
/// On an open link, users may add streams for their own packets, within the maxima that the administrator sets.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Add(AddArgs),
    Rm(RmArgs),
    Ls(LsArgs),
}

/// Opens a link to all users, or replaces the limits of an open link.
///
/// Attaches the interface first, if it is not under packet scheduling, and paces it to the rate. Streams are promised
/// the rate less the part of best effort. Promises for arriving packets (--rate-in) are only counted, because the host
/// of each sender enforces its own. The link closes with `qfabric net link rm`, with `qfabric net detach`, and when the
/// daemon ends; a link in the section [net.links] of the daemon's configuration opens at each start. Needs root or
/// CAP_NET_ADMIN; ends with 3 without them. Next step: `qfabric net stream add`, as any user.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples: qfabric net link add eth0 --rate 100M --user-cap 20M
          qfabric net link add eth0 --rate 1G --best-effort 0.1 --user 1000=500M --group 44=100M")]
struct AddArgs {
    /// Interface, such as eth0
    interface: String,
    /// Rate of the link in bits per second, such as 800k, 100M or 2.5G; from 1k to 400G
    #[arg(long, value_name = "BITS")]
    rate: BitRate,
    /// Rate at which the host receives, for the receivers' parts of joint contracts; from 1k to 400G [default: --rate]
    #[arg(long, value_name = "BITS")]
    rate_in: Option<BitRate>,
    /// Largest rate of each user's streams together [default: no maximum]
    #[arg(long, value_name = "BITS")]
    user_cap: Option<BitRate>,
    /// Largest rate of one user's streams together, in place of --user-cap; UID is a number (id -u); may be repeated
    #[arg(long, value_name = "UID=BITS")]
    user: Vec<NamedRate>,
    /// Largest rate of one group's streams together; GID is a number (id -g); may be repeated
    #[arg(long, value_name = "GID=BITS")]
    group: Vec<NamedRate>,
    /// Largest number of streams of each user, 1 to 64; root is excepted
    #[arg(long, value_name = "COUNT", default_value_t = LinkRequest::STREAMS_PER_USER)]
    streams_per_user: u32,
    /// Part of the link that is not promised, 0 to 0.9 [default: the part that the interface guarantees to packets
    /// without a stream, 0.05 unless it was attached with another]
    #[arg(long, value_name = "SHARE")]
    best_effort: Option<Share>,
    /// Use the classes of a hierarchical token bucket, if the interface is not attached yet
    #[arg(long)]
    htb: bool,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Closes a link: the streams of users without CAP_NET_ADMIN end.
///
/// If `qfabric net link add` attached the interface, the former queueing discipline is restored and all streams end.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric net link rm eth0")]
struct RmArgs {
    /// Interface, such as eth0
    interface: String,
    #[command(flatten)]
    daemon: Daemon,
}

/// Lists the open links: promised and free rates, maxima, and the rate of each user.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric net link ls")]
struct LsArgs {
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// The maximum of one user or group.
#[derive(Clone, Copy, Debug, PartialEq)]
struct NamedRate(u32, BitRate);

impl FromStr for NamedRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("{text:?} is not a number with its rate; write NUMBER=BITS, such as 1000=20M");
        let (id, rate) = text.split_once('=').ok_or_else(expected)?;
        let rate = rate.parse().map_err(|why| format!("{why}"))?;
        Ok(NamedRate(id.parse().map_err(|_| expected())?, rate))
    }
}

pub(super) fn run(args: Args) -> Outcome {
    match args.command {
        Command::Add(args) => add(args),
        Command::Rm(args) => rm(args),
        Command::Ls(args) => ls(args),
    }
}

impl AddArgs {
    /// If a user or group is given twice, the last rate counts.
    fn request(&self) -> LinkRequest {
        let named = |all: &[NamedRate]| all.iter().map(|NamedRate(id, rate)| (*id, *rate)).collect::<BTreeMap<_, _>>();
        LinkRequest {
            rate_in_bps: self.rate_in,
            best_effort: self.best_effort,
            user_cap_bps: self.user_cap,
            users: named(&self.user),
            groups: named(&self.group),
            streams_per_user: self.streams_per_user,
            mechanism: self.htb.then_some(NetMechanism::Htb),
            ..LinkRequest::of_rate(self.rate)
        }
    }
}

fn add(args: AddArgs) -> Outcome {
    let info = args.daemon.client()?.open_link(&args.interface, &args.request()).map_err(connect::failure)?;
    if args.json {
        output::print_json(&info)?
    } else {
        output::print(&info.link.as_ref().map_or(String::new(), |link| text(&info.interface, link)))?
    }
    Ok(Done(0))
}

fn rm(args: RmArgs) -> Outcome {
    args.daemon.client()?.close_link(&args.interface).map_err(connect::failure)?;
    output::print(&format!("the link of {} is closed; only root may have streams\n", args.interface))?;
    Ok(Done(0))
}

fn ls(args: LsArgs) -> Outcome {
    let all = args.daemon.client()?.interfaces().map_err(connect::failure)?;
    let open: Vec<&InterfaceInfo> = all.iter().filter(|info| info.link.is_some()).collect();
    if args.json {
        let links = open.iter().filter_map(|info| Some((&info.interface, info.link.as_ref()?)));
        output::print_json(&links.collect::<BTreeMap<_, _>>())?
    } else {
        output::print(&list(&open))?
    }
    Ok(Done(0))
}

fn list(open: &[&InterfaceInfo]) -> String {
    match open {
        [] => "no link is open to all users; open one as root: qfabric net link add eth0 --rate 100M\n".to_owned(),
        open => open.iter().filter_map(|info| Some(text(&info.interface, info.link.as_ref()?))).collect(),
    }
}

/// A link with its rates and maxima, then one line for each user with a promise or a maximum.
pub(super) fn text(interface: &str, link: &LinkInfo) -> String {
    let LinkRequest { rate_bps, user_cap_bps, users, groups, streams_per_user, .. } = &link.limits;
    let maximum = user_cap_bps.map_or("no maximum".to_owned(), |cap| format!("at most {cap}"));
    let mut text = format!(
        "{interface} out: open to all users: {} of {} promised, {} free (the link has {rate_bps}); each user: \
         {maximum}, {streams_per_user} streams\n",
        link.promised_bps, link.capacity_bps, link.free_bps,
    );
    text += &held_lines(&link.holders);
    let mut ids: Vec<u32> = users.keys().chain(link.users_bps.keys()).copied().collect();
    ids.sort_unstable();
    ids.dedup();
    for uid in ids {
        let promised = link.users_bps.get(&uid).copied().unwrap_or_default();
        let own = users.get(&uid).map(|cap| format!(", at most {cap}")).unwrap_or_default();
        text += &format!("  user {uid}: {promised} promised{own}\n");
    }
    for (gid, cap) in groups {
        text += &format!("  group {gid}: at most {cap}\n");
    }
    text + &link.incoming.as_ref().map_or(String::new(), |book| incoming(interface, link, book))
}

/// The direction *in*: what other hosts may send to this one.
fn incoming(interface: &str, link: &LinkInfo, book: &LinkBook) -> String {
    let LinkBook { capacity_bps, promised_bps, free_bps, users_bps, holders } = book;
    let mut text = format!(
        "{interface} in: {promised_bps} of {capacity_bps} promised, {free_bps} free (the link has {}); only counted: \
         the senders' hosts limit what arrives\n",
        link.limits.rate_in()
    );
    text += &held_lines(holders);
    text + &users_bps.iter().map(|(uid, rate)| format!("  user {uid}: {rate} promised\n")).collect::<String>()
}

/// One line for each rate that is promised without a stream.
fn held_lines(holders: &[RateHolder]) -> String {
    let line = |RateHolder { held_rate, name, uid, rate_bps, .. }: &RateHolder| {
        Some(format!("  held rate {} of user {uid}, for {name}: {rate_bps}\n", (*held_rate)?))
    };
    holders.iter().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser, Debug)]
    struct Line {
        #[command(flatten)]
        args: AddArgs,
    }

    #[test]
    fn options_become_the_limits_of_the_link() {
        let line = "x eth0 --rate 100M --rate-in 50M --user-cap 20M --user 1000=50M --group 44=1G --best-effort 0.1";
        let request = Line::try_parse_from(line.split(' ')).unwrap().args.request();
        let expected = LinkRequest {
            rate_in_bps: Some(BitRate::new(50_000_000)),
            best_effort: Some(Share::from_ppm(100_000)),
            user_cap_bps: Some(BitRate::new(20_000_000)),
            users: [(1_000, BitRate::new(50_000_000))].into(),
            groups: [(44, BitRate::new(1_000_000_000))].into(),
            ..LinkRequest::of_rate(BitRate::new(100_000_000))
        };
        assert_eq!(request, expected);
        for bad in ["1000", "x=5M", "1000=fast"] {
            assert!(bad.parse::<NamedRate>().is_err(), "{bad}");
        }
    }

    fn held(id: u64, mbit: u64) -> RateHolder {
        let (name, rate_bps) = ("contract a:1".to_owned(), BitRate::new(mbit * 1_000_000));
        RateHolder { stream: None, held_rate: Some(id), uid: 1_001, name, rate_bps }
    }

    #[test]
    fn a_link_is_shown_with_its_rates_users_and_maxima() {
        let mut limits = LinkRequest::of_rate(BitRate::new(100_000_000));
        (limits.user_cap_bps, limits.groups) = (Some(BitRate::new(20_000_000)), [(44, BitRate::new(1_000))].into());
        let link = LinkInfo {
            limits,
            capacity_bps: BitRate::new(95_000_000),
            promised_bps: BitRate::new(5_000_000),
            free_bps: BitRate::new(90_000_000),
            users_bps: [(1_000, BitRate::new(5_000_000))].into(),
            holders: vec![held(7, 5)],
            incoming: Some(LinkBook {
                capacity_bps: BitRate::new(95_000_000),
                promised_bps: BitRate::new(2_000_000),
                free_bps: BitRate::new(93_000_000),
                users_bps: [(1_001, BitRate::new(2_000_000))].into(),
                holders: vec![held(8, 2)],
            }),
        };
        let text = text("eth0", &link);
        for part in [
            "eth0 out: open to all users: 5 Mbit/s of 95 Mbit/s promised, 90 Mbit/s free (the link has 100 Mbit/s)",
            "each user: at most 20 Mbit/s, 16 streams",
            "  user 1000: 5 Mbit/s promised\n",
            "  group 44: at most 1 kbit/s\n",
            "  held rate 7 of user 1001, for contract a:1: 5 Mbit/s\n",
            "eth0 in: 2 Mbit/s of 95 Mbit/s promised, 93 Mbit/s free (the link has 100 Mbit/s); only counted",
            "  held rate 8 of user 1001, for contract a:1: 2 Mbit/s\n",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(list(&[]).contains("qfabric net link add"));
    }
}
