//! Writes the timeline in the JSON trace-event format, which ui.perfetto.dev and chrome://tracing open. One tick
//! is shown as one millisecond. There is one track per task and one for the free ticks. Misses and events are
//! instants on the track of their task.

use serde_json::{Value, json};

use super::draw::runs;
use super::files::PARTS;
use super::{Output, RaisedEvent, TaskSet, Tick};

/// Length of a tick in microseconds, the unit of the format.
const TICK_US: u64 = 1_000;

/// Returns the whole trace. `free` is the name of the track for free ticks. Contains only the misses of the first
/// [`super::MAX_DRAWN`] ticks.
pub fn perfetto(set: &TaskSet, events: &[RaisedEvent], output: &Output, free: &str) -> Value {
    let mut trace = vec![json!({"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "qfabric sim dwcs"}})];
    for track in 0..=set.len() {
        let name = if track < set.len() { set.id(track) } else { free };
        trace.push(json!({"ph": "M", "name": "thread_name", "pid": 1, "tid": track + 1, "args": {"name": name}}));
    }
    trace.extend(runs(&output.timeline).map(|(tick, first, length)| slice(set, tick, first, length, free)));
    for miss in &output.misses {
        let name = if miss.violation { "violation" } else { "miss" };
        trace.push(instant(name, miss.at * TICK_US, miss.task as usize));
    }
    for (event, dispatch) in events.iter().zip(&output.events) {
        let at = event.at / (PARTS / TICK_US);
        trace.push(instant("event", at, event.sink.0));
        if let Some(dispatch) = dispatch {
            let name = format!("delivered by rule {}", dispatch.rule.number());
            trace.push(instant(&name, dispatch.tick * TICK_US, event.sink.0));
        }
    }
    json!({"displayTimeUnit": "ms", "traceEvents": trace})
}

fn slice(set: &TaskSet, tick: Tick, first: u64, length: u64, free: &str) -> Value {
    let (track, name, kind) = match tick {
        Tick::Regular(task) => (task as usize, set.id(task as usize), "regular"),
        Tick::Extra(task) => (task as usize, set.id(task as usize), "extra"),
        Tick::Free => (set.len(), free, "free"),
    };
    let (ts, dur) = (first * TICK_US, length * TICK_US);
    json!({"ph": "X", "name": name, "cat": kind, "pid": 1, "tid": track + 1, "ts": ts, "dur": dur})
}

fn instant(name: &str, ts: u64, task: usize) -> Value {
    json!({"ph": "i", "s": "t", "name": name, "pid": 1, "tid": task + 1, "ts": ts})
}
