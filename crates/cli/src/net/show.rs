//! `qfabric net show` and `qfabric net stream ls`: show interfaces, their streams and their counts.

use comfy_table::Table;
use qfabric_types::Nanos;
use qfabric_types::api::net::{
    InterfaceInfo, NetMechanism, StreamChange, StreamCounters, StreamInfo, StreamPromise, StreamSpec,
};

use super::link;
use crate::connect::{self, Daemon};
use crate::exit::{Done, Outcome};
use crate::output;
use qfabric_types::BitRate;

/// Shows the interfaces under packet scheduling, their streams, and the counts of sent, late and dropped packets.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples: qfabric net show
          qfabric net stream ls eth0
          qfabric net show eth0 --json")]
pub(super) struct Args {
    /// Interface to show [default: all interfaces under packet scheduling]
    interface: Option<String>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

pub(super) fn run(args: Args) -> Outcome {
    let client = args.daemon.client()?;
    let all = match &args.interface {
        Some(interface) => vec![client.interface(interface).map_err(connect::failure)?],
        None => client.interfaces().map_err(connect::failure)?,
    };
    if args.json {
        output::print_json(&all)?
    } else {
        output::print(&text(&all))?
    }
    Ok(Done(0))
}

fn text(all: &[InterfaceInfo]) -> String {
    match all {
        [] => "no interface is under packet scheduling; attach one: qfabric net attach eth0\n".to_owned(),
        all => all.iter().map(interface).collect::<Vec<_>>().join("\n"),
    }
}

pub(super) fn interface(info: &InterfaceInfo) -> String {
    let best = &info.best_effort_counters;
    let mut text = format!(
        "{}: {} at {}{}, {:.1} % promised; before: {}\n",
        info.interface,
        info.mechanism,
        BitRate::new(info.rate_bps),
        if info.paced { " (paced)" } else { "" },
        info.utilization.abs() * 100.0, // the sum of no streams is -0.0
        info.former,
    );
    if info.mechanism == NetMechanism::Htb {
        let why = info.instead.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        text += &format!("  rates only: no deadlines, windows or phases{why}\n");
    }
    if let Some(hold) = info.hold {
        text += &format!("  held back until {hold} before the first deadline: {} bursts\n", info.bursts);
    }
    text += &format!(
        "  best effort, sure of {} of the link: {} sent ({} before ready streams), {} dropped, {} waiting\n",
        info.best_effort.percent(),
        best.sent,
        best.owed,
        best.overflow,
        best.waiting
    );
    if let Some(link) = &info.link {
        text += &format!("  {}", link::text(&info.interface, link).replace("\n  ", "\n    "));
    }
    match info.mechanism {
        _ if info.streams.is_empty() => {}
        NetMechanism::Dwcs => text += &format!("\n{}\n", table(&info.streams)),
        NetMechanism::Htb => text += &format!("\n{}\n", rates(&info.streams)),
    }
    text += &info.streams.iter().filter_map(promise).collect::<String>();
    text += &info.streams.iter().filter_map(code_point).collect::<String>();
    text
}

fn code_point(stream: &StreamInfo) -> Option<String> {
    Some(format!("  packets of stream {} leave with the code point (DSCP) {}\n", stream.id, stream.spec.dscp?))
}

/// One line about the owner and the lease of a stream, and about the rate that it still wants. `None` if root holds all
/// of it without a lease.
fn promise(stream: &StreamInfo) -> Option<String> {
    let StreamPromise { owner, rate_bps, held_rate, wanted, offer, ends_in, delay_bound, measured_delay } =
        &stream.promise;
    let holder = stream.spec.terms.holder.map(|pid| format!("ends with process {pid}"));
    let lease = ends_in.map(|rest| format!("ends in {rest}"));
    let wanted = wanted.map(|wanted| format!("wants {wanted} B instead of {} B", stream.spec.size));
    let offer = offer.map(|size| format!("{size} B are free for it: qfabric net stream change --size"));
    let bound = delay_bound.map(|bound| format!("longest delay {bound}"));
    let measured = measured_delay.map(|delay| format!("measured delay of a message {delay} (p99)"));
    let drawn = held_rate.map(|id| format!("drawn from held rate {id}"));
    let parts: Vec<String> = [drawn, holder, lease, wanted, offer, bound, measured].into_iter().flatten().collect();
    let uid = owner.map(|owner| owner.uid).filter(|uid| *uid != 0 || !parts.is_empty())?;
    let mut line = format!("  stream {} of user {uid}: {rate_bps} promised", stream.id);
    for part in parts {
        line += &format!("; {part}");
    }
    Some(line + "\n")
}

/// The table for HTB classes, which count sent and dropped packets but no deadlines.
fn rates(streams: &[StreamInfo]) -> Table {
    let mut table = output::new_table(["stream", "packets of", "T", "C", "rate", "link", "sent", "dropped", "waiting"]);
    for StreamInfo { id, spec, utilization, counters, .. } in streams {
        table.add_row([
            id.to_string(),
            spec.selector.to_string(),
            spec.period.to_string(),
            format!("{} B", spec.size),
            rate(spec).to_string(),
            format!("{:.1} %", utilization * 100.0),
            counters.sent.to_string(),
            counters.overflow.to_string(),
            counters.waiting.to_string(),
        ]);
    }
    table
}

/// C/T in bits per second.
fn rate(spec: &StreamSpec) -> BitRate {
    BitRate::new((f64::from(spec.size) * 8.0 / spec.period.as_secs_f64()).round() as u64)
}

fn table(streams: &[StreamInfo]) -> Table {
    let mut table = output::new_table([
        "stream",
        "packets of",
        "T",
        "Θ",
        "C",
        "window",
        "link",
        "sent",
        "late",
        "dropped",
        "missed",
        "violations",
        "delay mean",
        "max",
    ]);
    for stream in streams {
        table.add_row(row(stream));
    }
    table
}

fn row(stream: &StreamInfo) -> [String; 14] {
    let (spec, counters) = (&stream.spec, &stream.counters);
    [
        stream.id.to_string(),
        spec.selector.to_string(),
        spec.period.to_string(),
        spec.phase.to_string(),
        format!("{} B", spec.size),
        spec.window.to_string(),
        format!("{:.1} %", stream.utilization * 100.0),
        counters.sent.to_string(),
        counters.sent_late.to_string(),
        (counters.late + counters.overflow).to_string(),
        counters.missed.to_string(),
        counters.violations.to_string(),
        mean(counters).to_string(),
        Nanos::new(counters.delay_max_ns).to_string(),
    ]
}

fn mean(counters: &StreamCounters) -> Nanos {
    Nanos::new(counters.delay_sum_ns / counters.sent.max(1))
}

/// Describes a stream that was admitted or changed, and names the requested options that are not in force.
pub(super) fn admitted(interface: &str, mechanism: NetMechanism, asked: &StreamChange, stream: &StreamInfo) -> String {
    let spec = &stream.spec;
    let StreamSpec { selector, size, period, window, .. } = spec;
    let link = stream.utilization * 100.0;
    let mut text = format!("stream {} of {interface}: {selector}, {size} B in every {period}, ", stream.id);
    text += &match mechanism {
        NetMechanism::Dwcs => {
            let latest = spec.phase + spec.period;
            format!("window {window}, at most {latest} late for the wire; {link:.1} % of the link\n")
        }
        NetMechanism::Htb => format!("at a rate of {}; {link:.1} % of the link\n", rate(spec)),
    };
    let beyond =
        [("--window", asked.window.is_some()), ("--phase", asked.phase.is_some()), ("--start", asked.start.is_some())];
    for (option, _) in beyond.iter().filter(|(_, asked)| *asked && mechanism == NetMechanism::Htb) {
        text += &format!("  {option} is not in force: HTB classes keep rates only; --dwcs needs Linux 6.16 or newer\n");
    }
    text += &promise(stream).unwrap_or_default();
    if let Some(subscription) = stream.follows {
        text += &format!("  follows the attributes of subscription {subscription}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use qfabric_types::api::net::Selector;
    use qfabric_types::{Owner, Share, Window};

    fn info() -> InterfaceInfo {
        let mut spec = StreamSpec::new(Selector::Mark(7), Nanos::from_millis(40));
        spec.window = Window::new(1, 10).unwrap();
        let counters = StreamCounters { sent: 4, delay_sum_ns: 8_000_000, violations: 2, ..Default::default() };
        InterfaceInfo {
            interface: "eth0".into(),
            mechanism: NetMechanism::Dwcs,
            instead: None,
            rate_bps: 20_000_000,
            paced: true,
            best_effort: Share::from_ppm(50_000),
            hold: None,
            former: "fq_codel".into(),
            utilization: 0.25,
            streams: vec![StreamInfo {
                id: 0,
                spec,
                utilization: 0.25,
                follows: None,
                promise: StreamPromise::default(),
                counters,
            }],
            best_effort_counters: Default::default(),
            bursts: 0,
            link: None,
        }
    }

    #[test]
    fn an_interface_is_shown_with_its_streams_and_units() {
        let text = text(&[info()]);
        for part in ["eth0: dwcs at 20 Mbit/s (paced), 25.0 % promised; before: fq_codel", "mark 7", "40 ms", "2 ms"] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn a_partly_granted_stream_is_shown_with_its_owner_its_lease_and_the_offer() {
        let mut shown = info();
        let stream = &mut shown.streams[0];
        stream.spec.terms.holder = Some(4_711);
        stream.promise = StreamPromise {
            owner: Some(Owner { uid: 1_000, gid: 1_000 }),
            rate_bps: BitRate::new(302_800),
            held_rate: Some(9),
            wanted: Some(3_000),
            offer: Some(2_000),
            ends_in: Some(Nanos::from_millis(5_000)),
            delay_bound: Some(Nanos::from_millis(45)),
            measured_delay: Some(Nanos::from_millis(60)),
        };
        let line = "  stream 0 of user 1000: 302.8 kbit/s promised; drawn from held rate 9; ends with process 4711; ends in 5 s; \
                    wants 3000 B instead of 1514 B; 2000 B are free for it: qfabric net stream change --size; \
                    longest delay 45 ms; measured delay of a message 60 ms (p99)\n";
        assert!(text(&[shown]).ends_with(line));
        assert!(!text(&[info()]).contains("of user"));
    }

    #[test]
    fn for_htb_classes_only_rates_are_shown() {
        let htb = InterfaceInfo {
            mechanism: NetMechanism::Htb,
            instead: Some("this kernel has no queueing disciplines in BPF (Linux 6.16)".into()),
            ..info()
        };
        let text = text(std::slice::from_ref(&htb));
        for part in
            ["rates only: no deadlines, windows or phases (this kernel", "sure of 5 % of the link", "302.8 kbit/s"]
        {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        for promise in ["missed", "violations", "--htb", "CPU", "1/10"] {
            assert!(!text.contains(promise), "{promise} is in\n{text}");
        }
        let start = Some(qfabric_types::Instant::new(1));
        let asked = StreamChange { window: Window::new(1, 10).ok(), start, ..StreamChange::default() };
        let begun = admitted("eth0", NetMechanism::Htb, &asked, &htb.streams[0]);
        let said = ["--window is not in force", "--start is not in force"].iter().all(|part| begun.contains(part));
        assert!(said && !begun.contains("late for the wire"), "{begun}");
        let kept = admitted("eth0", NetMechanism::Dwcs, &asked, &htb.streams[0]);
        assert!(kept.contains("window 1/10, at most 40 ms late"), "{kept}");
    }

    #[test]
    fn without_an_attached_interface_the_command_to_attach_one_is_named() {
        assert!(super::text(&[]).contains("qfabric net attach"));
    }
}
