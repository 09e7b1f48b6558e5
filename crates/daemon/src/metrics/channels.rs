//! The numbers of Q-channels.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;

use super::Value::{Counter, Gauge};
use super::{Labels, Metric, family, of, one};
use crate::channels::{ChannelReport, ChannelsReport};

const TOTALS: [Metric<ChannelsReport>; 29] = [
    of("channels_hosts", "hosts that take part, this one included", |r| Gauge(r.hosts as f64)),
    of("channels_known", "channels that some host holds", |r| Gauge(r.channels_known as f64)),
    of("channels_connections", "connections to channels.sock", |r| Gauge(r.connections as f64)),
    of("channels_submitted", "events that applications submitted", |r| Counter(r.submitted)),
    of("channels_refused", "events of applications that were refused", |r| Counter(r.refused)),
    of("channels_delivered", "events given to applications", |r| Counter(r.delivered)),
    of("channels_nonsense", "messages of applications that made no sense", |r| Counter(r.nonsense)),
    of("channels_notices_dropped", "notices of the node that there was no room for", |r| Counter(r.notices_dropped)),
    of("channels_decisions", "decisions of managers about applications of this host", |r| Counter(r.decisions)),
    of("channels_policies", "policies that run on this host", |r| Gauge(r.policies as f64)),
    of("channels_policies_cpu_ns", "CPU time that policies took", |r| Counter(r.policy_usage.cpu.get())),
    of("channels_policies_dropped", "changes that policies were too slow for", |r| Counter(r.policy_usage.dropped)),
    of("channels_policies_suspensions", "times that a policy took more CPU time than it may", |r| {
        Counter(r.policy_usage.suspensions)
    }),
    of("channels_unsent", "events of managers that could not be submitted", |r| Counter(r.unsent)),
    of("channels_unread", "events of managers that could not be read", |r| Counter(r.unread)),
    of("channels_engine_dropped", "frames that connections had no room for", |r| Counter(r.engine[0])),
    of("channels_engine_refused", "frames and connections that were refused", |r| Counter(r.engine[1])),
    of("channels_engine_ended", "connections ended because the other side was silent", |r| Counter(r.engine[2])),
    of("channels_frames_out", "frames sent to other hosts", |r| Counter(r.node.frames_out)),
    of("channels_frames_in", "frames of other hosts", |r| Counter(r.node.frames_in)),
    of("channels_malformed", "frames that were no frames", |r| Counter(r.node.malformed)),
    of("channels_other_version", "frames of another version of the protocol", |r| Counter(r.node.other_version)),
    of("channels_stranger", "frames of hosts that are not there", |r| Counter(r.node.stranger)),
    of("channels_forbidden", "frames that wanted what the access list does not allow", |r| Counter(r.node.forbidden)),
    of("channels_out_of_order", "events that came twice or too late", |r| Counter(r.node.out_of_order)),
    of("channels_incomplete", "large events of which a fragment was lost", |r| Counter(r.node.incomplete)),
    of("channels_mismatched", "events that are not of their channel's formats", |r| Counter(r.node.mismatched)),
    of("channels_gaps", "changes of other hosts that were asked for again", |r| Counter(r.node.gaps)),
    of("channels_beyond_limit", "changes of other hosts beyond a limit", |r| Counter(r.node.beyond_limit)),
];

const CHANNEL: [Metric<ChannelReport>; 13] = [
    of("channel_submitted", "events that its sources here submitted", |c| Counter(c.sources.submitted)),
    of("channel_sent", "sinks that they were meant for, one for each event", |c| Counter(c.sources.sent)),
    of("channel_source_expired", "events refused because their deadline had passed", |c| Counter(c.sources.expired)),
    of("channel_source_delivered", "of those sent: delivered, as the sinks' hosts report", |c| {
        Counter(c.sources.delivered)
    }),
    of("channel_source_filtered", "of those sent: passed over by filters, here or there", |c| {
        Counter(c.sources.filtered)
    }),
    of("channel_source_dropped", "of those sent: not taken by slow sinks or full queues", |c| {
        Counter(c.sources.dropped)
    }),
    of("channel_source_late", "of those sent: too late at the sink", |c| Counter(c.sources.late)),
    of("channel_source_lost", "of those sent: lost on the way, or with a host that is gone", |c| {
        Counter(c.sources.lost)
    }),
    of("channel_sink_delivered", "events given to its sinks here", |c| Counter(c.sinks.delivered)),
    of("channel_sink_filtered", "events that IN-filters kept from its sinks here", |c| Counter(c.sinks.filtered)),
    of("channel_sink_dropped", "events that their queues had no room for", |c| Counter(c.sinks.dropped)),
    of("channel_sink_late", "events that came, or waited, past their deadline", |c| Counter(c.sinks.late)),
    of("channel_sink_lost", "events lost on the way to its sinks here", |c| Counter(c.sinks.lost)),
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
