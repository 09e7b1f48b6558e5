//! The metrics of Q-channels.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;

use super::Value::{Amount, Counter, Gauge};
use super::{Labels, Metric, family, of, one};
use crate::channels::{ChannelReport, ChannelsReport};

pub(super) const TOTALS: [Metric<ChannelsReport>; 48] = [
    of("channels_hosts", "number of hosts in the realm, including this one", |r| Gauge(r.hosts as f64)),
    of("channels_known", "number of channels on all hosts", |r| Gauge(r.channels_known as f64)),
    of("channels_connections", "number of connections to channels.sock", |r| Gauge(r.connections as f64)),
    of("channels_submitted", "events submitted by applications of this host", |r| Counter(r.submitted)),
    of("channels_refused", "events of applications of this host that were refused", |r| Counter(r.refused)),
    of("channels_delivered", "events delivered to applications of this host", |r| Counter(r.delivered)),
    of("channels_nonsense", "invalid messages of applications", |r| Counter(r.nonsense)),
    of("channels_reports_refused", "reports of users beyond the values of a channel or the rate of a user", |r| {
        Counter(r.reports_refused)
    }),
    of("channels_notices_dropped", "notices of the node dropped because a queue was full", |r| {
        Counter(r.notices_dropped)
    }),
    of("channels_decisions", "decisions of managers about applications of this host", |r| Counter(r.decisions)),
    of("channels_policies", "number of policies that run on this host", |r| Gauge(r.policies as f64)),
    of("channels_policies_cpu_seconds", "CPU time used by policies, in seconds", |r| {
        Amount(r.policy_usage.cpu.as_secs_f64())
    }),
    of("channels_policies_dropped", "changes dropped because a policy was too slow", |r| {
        Counter(r.policy_usage.dropped)
    }),
    of("channels_policies_suspensions", "times that a policy was suspended because it used too much CPU time", |r| {
        Counter(r.policy_usage.suspensions)
    }),
    of("channels_filters_suspensions", "times that the filters of a user or host were suspended", |r| {
        Counter(r.filters.suspensions)
    }),
    of(
        "channels_filters_skipped",
        "events that a suspended filter dropped without a call, once for each such filter",
        |r| Counter(r.filters.skipped),
    ),
    of("channels_unsent", "events of managers that could not be submitted", |r| Counter(r.unsent)),
    of("channels_unread", "events of managers that could not be read", |r| Counter(r.unread)),
    of("channels_engine_dropped", "frames dropped because a connection to another host was full", |r| {
        Counter(r.engine[0])
    }),
    of("channels_engine_refused", "frames and connections that the network engine refused", |r| Counter(r.engine[1])),
    of("channels_engine_ended", "connections ended because the other host was silent", |r| Counter(r.engine[2])),
    of("channels_frames_out", "frames sent to other hosts", |r| Counter(r.node.frames_out)),
    of("channels_frames_in", "frames received from other hosts", |r| Counter(r.node.frames_in)),
    of("channels_malformed", "malformed frames received", |r| Counter(r.node.malformed)),
    of("channels_other_version", "frames received with another version of the protocol", |r| {
        Counter(r.node.other_version)
    }),
    of("channels_stranger", "frames received from unknown hosts, or from an earlier start of a host", |r| {
        Counter(r.node.stranger)
    }),
    of("channels_forbidden", "frames received with a request that the access list does not allow", |r| {
        Counter(r.node.forbidden)
    }),
    of("channels_out_of_order", "events received twice, or after a later event of the same source", |r| {
        Counter(r.node.out_of_order)
    }),
    of("channels_incomplete", "large events received without one of their fragments", |r| Counter(r.node.incomplete)),
    of("channels_mismatched", "events received in a format that their channel does not have", |r| {
        Counter(r.node.mismatched)
    }),
    of("channels_gaps", "changes of other hosts that were missed and requested again", |r| Counter(r.node.gaps)),
    of("channels_bundles_out", "frames sent that carry several frames", |r| Counter(r.node.bundles_out)),
    of("channels_combined", "frames that came in one frame with others", |r| Counter(r.node.combined)),
    of("channels_passed_on", "frames of other hosts passed on in one frame with others", |r| Counter(r.node.passed_on)),
    of("channels_undelivered", "frames of other hosts for a host that is not present", |r| Counter(r.node.undelivered)),
    of("channels_beyond_limit", "changes of other hosts refused because of a limit", |r| Counter(r.node.beyond_limit)),
    of(
        "channels_kernel_path_accepted",
        "changes of filter parameters that other hosts sent by the kernel path and the kernel applied",
        |r| Counter(r.path.arrived.accepted),
    ),
    of(
        "channels_kernel_path_malformed",
        "datagrams to the kernel path with a wrong length, or changes with a wrong magic number",
        |r| Counter(r.path.arrived.malformed),
    ),
    of(
        "channels_kernel_path_unknown",
        "changes refused by the kernel path because there is no key of their peer and epoch",
        |r| Counter(r.path.arrived.unknown),
    ),
    of(
        "channels_kernel_path_forged",
        "changes refused by the kernel path because of a wrong authentication code",
        |r| Counter(r.path.arrived.forged),
    ),
    of(
        "channels_kernel_path_denied",
        "changes refused by the kernel path because their host may not change the word",
        |r| Counter(r.path.arrived.denied),
    ),
    of(
        "channels_kernel_path_replayed",
        "changes refused by the kernel path because they were not newer than the last one of their host",
        |r| Counter(r.path.arrived.replayed),
    ),
    of(
        "channels_kernel_path_too_many",
        "changes refused by the kernel path because they were above the rate of their host",
        |r| Counter(r.path.arrived.too_many),
    ),
    of("channels_kernel_path_sent", "changes of filter parameters sent to kernels of other hosts", |r| {
        Counter(r.path.sent)
    }),
    of(
        "channels_kernel_path_fallbacks",
        "changes of filter parameters for other hosts that went through their daemons, although this host has a kernel path",
        |r| Counter(r.path.fallbacks),
    ),
    of(
        "channels_kernel_path_repeated",
        "changes sent to kernels of other hosts, not confirmed, and sent again through their daemons",
        |r| Counter(r.path.repeated),
    ),
    of("channels_kernel_path_keys_renewed", "keys of the kernel path that were replaced", |r| Counter(r.path.renewed)),
    of(
        "channels_kernel_path_followed",
        "filter parameters of this host that other hosts can change by the kernel path",
        |r| Gauge(r.path.followed as f64),
    ),
];

pub(super) const CHANNEL: [Metric<ChannelReport>; 13] = [
    of("channel_submitted", "events submitted by the channel's sources on this host", |c| Counter(c.sources.submitted)),
    of("channel_sent", "events sent by the channel's sources on this host, counted once for each intended sink", |c| {
        Counter(c.sources.sent)
    }),
    of(
        "channel_source_expired",
        "events of the channel's sources on this host refused because their deadline had passed",
        |c| Counter(c.sources.expired),
    ),
    of("channel_source_delivered", "sent events that were delivered, as the hosts of the sinks report", |c| {
        Counter(c.sources.delivered)
    }),
    of("channel_source_filtered", "sent events that a filter on this host or on the sink's host removed", |c| {
        Counter(c.sources.filtered)
    }),
    of("channel_source_dropped", "sent events that slow sinks or full queues dropped", |c| Counter(c.sources.dropped)),
    of("channel_source_late", "sent events that reached the sink after their deadline", |c| Counter(c.sources.late)),
    of("channel_source_lost", "sent events that were lost on the way, or with a host that is gone", |c| {
        Counter(c.sources.lost)
    }),
    of("channel_sink_delivered", "events delivered to the channel's sinks on this host", |c| {
        Counter(c.sinks.delivered)
    }),
    of("channel_sink_filtered", "events that IN-filters removed before the channel's sinks on this host", |c| {
        Counter(c.sinks.filtered)
    }),
    of("channel_sink_dropped", "events dropped because the queue of a sink on this host was full", |c| {
        Counter(c.sinks.dropped)
    }),
    of("channel_sink_late", "events for sinks on this host dropped because their deadline had passed", |c| {
        Counter(c.sinks.late)
    }),
    of("channel_sink_lost", "events lost on the way to the channel's sinks on this host", |c| Counter(c.sinks.lost)),
];

pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, report: Option<&ChannelsReport>) -> fmt::Result {
    let Some(report) = report else { return Ok(()) };
    TOTALS.iter().try_for_each(|metric| one(encoder, metric, report))?;
    for metric in &CHANNEL {
        let rows = report.channels.iter().map(|channel| (labels(report, channel), (metric.value)(channel)));
        family(encoder, metric.name, metric.help, rows)?;
    }
    Ok(())
}

fn labels(report: &ChannelsReport, channel: &ChannelReport) -> Labels {
    let (plane, name) = channel.channel.split_once(':').unwrap_or(("data", &channel.channel));
    let (host, realm) = (report.host.clone(), report.realm.clone());
    [("channel", name.to_owned()), ("plane", plane.to_owned()), ("host", host), ("realm", realm)]
}
