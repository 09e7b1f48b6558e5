//! Events as people and programs read them.

use qfabric_client::channel::{Channel, Event};
use qfabric_types::event_json;
use serde_json::{Map, Value, json};

/// An event with its fields, as one line.
pub fn line(channel: &Channel, event: &Event<'_>, as_json: bool) -> String {
    let format = channel.format(event.event_type);
    let fields = format.map(|format| event_json::decode(format, event.payload)).unwrap_or_default();
    let beyond = event.payload.len().saturating_sub(format.map_or(0, |format| format.size as usize));
    let name = format.map_or("?", |format| format.name.as_str());
    if as_json {
        return as_object(event, name, fields, beyond).to_string() + "\n";
    }
    let order = format.into_iter().flat_map(|format| format.fields.iter().map(|field| &field.name));
    let shown: Vec<_> = order.map(|field| format!("{field}={}", fields[field])).collect();
    let attributes: String = event.attributes.iter().map(|(key, value)| format!(" @{key}={value}")).collect();
    let more = if beyond > 0 { format!(" +{beyond} B") } else { String::new() };
    format!("{}/{} #{} {name} {}{more}{attributes}\n", event.host, event.source, event.number, shown.join(" "))
}

fn as_object(event: &Event<'_>, name: &str, fields: Map<String, Value>, beyond: usize) -> Value {
    let attributes: Map<_, _> = event.attributes.iter().map(|(key, value)| (key.to_owned(), value.into())).collect();
    json!({
        "host": event.host,
        "source": event.source,
        "number": event.number,
        "type": name,
        "priority": event.priority,
        "sent_ns": event.sent_ns,
        "deadline_ns": event.deadline_ns,
        "attributes": attributes,
        "event": fields,
        "bytes_beyond": beyond,
    })
}
