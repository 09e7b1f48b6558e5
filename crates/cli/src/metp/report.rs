//! The numbers of a connection as text and as JSON.

use std::time::Duration;

use qfabric_carrier::{ConnectionStatistics, End, FrameKind};
use qfabric_types::Nanos;
use serde_json::{Value, json};

/// The side that sent.
pub(super) fn sent(statistics: &ConnectionStatistics, end: Option<&End>, time: Duration) -> Value {
    let session = &statistics.session;
    let kinds = FrameKind::ALL.iter().zip(session.dropped).map(|(kind, count)| (format!("{kind:?}"), json!(count)));
    json!({
        "frames": session.messages,
        "delivered": session.delivered,
        "partly": session.partly,
        "expired": session.expired,
        "dropped": session.dropped.iter().sum::<u64>(),
        "dropped_too_large": session.dropped_too_large,
        "dropped_by_kind": kinds.collect::<serde_json::Map<_, _>>(),
        "retransmissions": session.retransmissions,
        "copies": session.copies,
        "duplicates": session.peer_duplicates,
        "refused_late": session.refused_late,
        "sent_bytes": session.sent_bytes,
        "acknowledged_bytes": session.acknowledged_bytes,
        "seconds": time.as_secs_f64(),
        "rate_bps": statistics.rate.get(),
        "granted_bps": statistics.granted.map(|rate| rate.get()),
        "revocations": statistics.revocations,
        "profile_renewals": statistics.renewals,
        "largest_datagram": session.largest_datagram,
        "rtt_ms": ms(session.rtt),
        "min_rtt_ms": ms(session.min_rtt),
        "carriers": carriers(statistics),
        "end": end.map(ToString::to_string),
    })
}

/// The side that received.
pub(super) fn received(statistics: &ConnectionStatistics, end: Option<&End>, time: Duration) -> Value {
    let session = &statistics.session;
    json!({
        "frames": session.received,
        "in_time": session.in_time,
        "with_holes": session.with_holes,
        "skipped": session.skipped,
        "not_taken": session.not_taken,
        "received_bytes": session.received_bytes,
        "duplicates": session.duplicates,
        "late_tpdus": session.late_tpdus,
        "unreadable": session.unreadable,
        "refused": session.refused,
        "seconds": time.as_secs_f64(),
        "delay_p50_ms": ms(session.delay.p50),
        "delay_p99_ms": ms(session.delay.p99),
        "delay_max_ms": ms(session.delay.max),
        "carriers": carriers(statistics),
        "end": end.map(ToString::to_string),
    })
}

fn carriers(statistics: &ConnectionStatistics) -> Vec<Value> {
    let one = |carrier: &qfabric_carrier::CarrierStatistics| {
        json!({
            "carrier": carrier.carrier,
            "kind": carrier.kind,
            "local": carrier.addresses.map(|(local, _)| local),
            "peer": carrier.addresses.map(|(_, peer)| peer),
            "max_datagram": carrier.max_datagram,
            "counts": carrier.counts,
        })
    };
    statistics.carriers.iter().map(one).collect()
}

/// One line for people: the counts that are not zero.
pub(super) fn line(report: &Value, keys: &[(&str, &str)]) -> String {
    let shown = keys.iter().filter_map(|(key, words)| {
        let number = report[key].as_f64().filter(|number| *number != 0.0)?;
        let digits = if number.fract() == 0.0 { format!("{number}") } else { format!("{number:.1}") };
        Some(words.replace("{}", &digits))
    });
    shown.collect::<Vec<_>>().join(", ")
}

fn ms(time: Nanos) -> f64 {
    (time.as_f64() / 1e4).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_leaves_out_what_did_not_happen() {
        let report = json!({"frames": 50, "dropped": 0, "delay_p99_ms": 12.34});
        let keys = [("frames", "{} frames"), ("dropped", "{} dropped"), ("delay_p99_ms", "p99 {} ms")];
        assert_eq!(line(&report, &keys), "50 frames, p99 12.3 ms");
    }
}
