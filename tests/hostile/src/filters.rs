//! Properties of filters that arrive as text.

use qfabric_channel::{Direction, FilterId, FilterSpec, SinkSpec, SourceSpec, Submission};
use qfabric_types::channel::Name;

use crate::frames::{BEGIN, channel, open_node, types};
use crate::{NodeOutputs, Script};

/// Any text is installed as a filter or refused. Afterwards, each submitted event is delivered, filtered or
/// dropped at each sink, and counted. The text ends with a zero byte. It is followed by a byte (odd: an
/// IN-filter), attributes of the sinks, and events.
pub fn filter(bytes: &[u8]) {
    let mut script = Script(bytes);
    let Some(text) = script.text() else { return };
    let (mut node, mut outputs) = (open_node("h0"), NodeOutputs::default());
    node.create(&channel(), types(), BEGIN).expect("the channel is created");
    let source = node.source_subscribe(&channel(), SourceSpec::default(), BEGIN).expect("a source");
    let name: Name = "f".parse().expect("a name");
    let direction = if script.byte() % 2 == 1 { Direction::In } else { Direction::Out };
    for _ in 0..3 {
        let load = [("load".parse().expect("a key"), script.long().cast_signed())];
        let sink = SinkSpec { attributes: load.into_iter().collect(), ..SinkSpec::default() };
        node.sink_subscribe(&channel(), sink, BEGIN).expect("a sink");
    }
    let id = FilterId { channel: channel(), direction, name };
    let (types, parameters) = (Vec::new(), vec![("least".parse().expect("a key"), 2)]);
    let filter = FilterSpec { id: id.clone(), sink: None, types, text: text.to_owned(), parameters };
    match node.install(&filter) {
        Ok(()) => {}
        Err(why) => assert!(!why.to_string().is_empty()),
    }
    let _may_fail = node.set_parameter(&id, "least", script.long().cast_signed());
    while !script.is_over() {
        let mut payload = script.piece().to_vec();
        payload.resize(payload.len().clamp(8, 64), 0);
        let attributes = [("quality", i64::from(script.byte()))];
        let event = Submission {
            event_type: u16::from(script.byte() % 2),
            attributes: &attributes,
            payload: &payload,
            ..Submission::default()
        };
        let sent = node.submit(source, &event, BEGIN).expect("the event is valid");
        outputs.take_from(&mut node);
        assert_eq!((sent.remote, sent.local + sent.filtered + sent.dropped), (0, 3));
    }
}
