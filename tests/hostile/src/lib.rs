//! Properties that hold for all input bytes. There is one function for each place in which this program reads
//! input of another process, host or person. The function panics if a property does not hold.
//!
//! The fuzzer calls these functions (`make fuzz`, `fuzz/fuzz_targets`). An ordinary test also calls them, with the
//! inputs that the fuzzer stored (`corpus/NAME/`), so that a repaired error cannot return unnoticed.
#![forbid(unsafe_code)]

mod answers;
mod bodies;
mod conference;
mod contracts;
mod ecode;
mod events;
mod filters;
mod frames;
mod links;
mod managers;
mod memory;
mod messages;
mod metp;
mod metp_pair;
mod operations;
mod outputs;
mod script;
mod streams;
mod texts;

pub use answers::answer;
pub use bodies::api_body;
pub use conference::conference;
pub use contracts::contract_message;
pub use ecode::{ecode_engines, ecode_source};
pub use events::{event, format};
pub use filters::filter;
pub use frames::channel_frame;
pub use links::{hello, link_text, stream_header};
pub use managers::manager;
pub use memory::{memory_up, message_ring, ring};
pub use messages::{host_stream, local_message};
pub use metp::metp;
pub use metp_pair::metp_pair;
pub use operations::channel_operations;
pub use outputs::NodeOutputs;
pub use script::Script;
pub use streams::stream;
pub use texts::{access, config, words};

/// Parts that inputs of [`channel_frame`] are built with.
pub mod seeding {
    pub use crate::frames::{BEGIN, channel, node_under_test, open_node};
}

/// One fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name of the target, its source file and its corpus.
    pub name: &'static str,
    /// Panics if a property does not hold.
    pub check: fn(&[u8]),
}

/// All targets, sorted by name.
pub const TARGETS: [Target; 26] = [
    Target { name: "access", check: access },
    Target { name: "answer", check: answer },
    Target { name: "api_body", check: api_body },
    Target { name: "channel_frame", check: channel_frame },
    Target { name: "channel_operations", check: channel_operations },
    Target { name: "conference", check: conference },
    Target { name: "config", check: config },
    Target { name: "contract_message", check: contract_message },
    Target { name: "ecode_engines", check: ecode_engines },
    Target { name: "ecode_source", check: ecode_source },
    Target { name: "event", check: event },
    Target { name: "filter", check: filter },
    Target { name: "format", check: format },
    Target { name: "hello", check: hello },
    Target { name: "host_stream", check: host_stream },
    Target { name: "link_text", check: link_text },
    Target { name: "local_message", check: local_message },
    Target { name: "manager", check: manager },
    Target { name: "memory_up", check: memory_up },
    Target { name: "message_ring", check: message_ring },
    Target { name: "metp", check: metp },
    Target { name: "metp_pair", check: metp_pair },
    Target { name: "ring", check: ring },
    Target { name: "stream", check: stream },
    Target { name: "stream_header", check: stream_header },
    Target { name: "words", check: words },
];
