//! Prints events as text or JSON.

use qfabric_client::channel::{Channel, Event};
use qfabric_client::clock;
use qfabric_types::event_json;
use serde_json::{Map, Value, json};

/// One line for an event that has just arrived: its origin, its latency, its type, its fields and its Q-attributes.
pub(super) fn line(channel: &Channel, event: &Event<'_>, as_json: bool) -> String {
    let latency_us = clock::now().get().saturating_sub(event.sent_ns) as f64 / 1e3;
    let format = channel.format(event.event_type);
    let beyond = event.payload.len().saturating_sub(format.map_or(0, |format| format.size as usize));
    let name = format.map_or("?", |format| format.name.as_str());
    if as_json {
        let fields = format.map(|format| event_json::decode_whole(format, event.payload)).unwrap_or_default();
        return as_object(event, name, fields, beyond, latency_us).to_string() + "\n";
    }
    let fields = format.map(|format| event_json::decode(format, event.payload)).unwrap_or_default();
    let order = format.into_iter().flat_map(|format| format.fields.iter().map(|field| &field.name));
    let shown: Vec<_> = order.map(|field| format!("{field}={}", fields[field])).collect();
    let attributes: String = event.attributes.iter().map(|(key, value)| format!(" @{key}={value}")).collect();
    let more = if beyond > 0 { format!(" +{beyond} B") } else { String::new() };
    let (host, source, number, shown) = (event.host, event.source, event.number, shown.join(" "));
    format!("{host}/{source} #{number} {:.2} ms {name} {shown}{more}{attributes}\n", latency_us / 1e3)
}

fn as_object(event: &Event<'_>, name: &str, fields: Map<String, Value>, beyond: usize, latency_us: f64) -> Value {
    let attributes: Map<_, _> = event.attributes.iter().map(|(key, value)| (key.to_owned(), value.into())).collect();
    json!({
        "host": event.host,
        "source": event.source,
        "number": event.number,
        "type": name,
        "priority": event.priority,
        "sent_ns": event.sent_ns,
        "deadline_ns": event.deadline_ns,
        "latency_us": latency_us,
        "attributes": attributes,
        "event": fields,
        "bytes_beyond": beyond,
    })
}
