//! Q-channels: events between applications on many hosts, and what their resource managers make of them.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use qfabric_client::Client;
//! use qfabric_client::channel::{Channels, SinkOptions, SourceOptions, Spec, Submission};
//!
//! # fn main() -> Result<(), qfabric_client::ClientError> {
//! let channels = Channels::connect(&Client::connect()?)?;
//! let _registration = channels.register("player", "conference", &[("frame_rate", 10, 25)])?;
//! let video = channels.create("video", &Spec::of("struct frame { int number; };"))?;
//! let _sink = video.sink_subscribe(&SinkOptions::default(), |event| println!("{:?}", event.payload))?;
//! let source = video.source_subscribe(&SourceOptions::default())?;
//! loop {
//!     source.submit(&Submission { payload: &7i32.to_le_bytes(), ..Submission::default() })?;
//!     channels.poll(Duration::from_millis(40))?;
//! }
//! # }
//! ```
//! # The papers' names (000 §2.2 and §4, 001 §3)
//!
//! | paper | here |
//! |---|---|
//! | `qfabric_config(application_id, group_id, qos_params)` | [`Channels::register`] |
//! | `EChannel_create`, `EChannel_open` | [`Channels::create`], [`Channels::open`] |
//! | `ECsource_subscribe` | [`Channel::source_subscribe`] |
//! | `ECsink_subscribe` with a handler | [`Channel::sink_subscribe`] |
//! | `ECsubmit_event` | [`Source::submit`] |
//! | `CMpoll_network` | [`Channels::poll`] |
//! | asynchronous notification | [`Channels::fd`]: readable when there is something to poll |
//! | Q-attributes | [`Source::set_attribute`], [`Sink::set_attribute`], [`Submission::attributes`] |
//! | Q-filters | [`Channel::install`], [`Channel::set_parameter`], [`Channel::bind`] |
//! | the hidden Q-channel | [`Channel::quality`] |
//! | what resource managers decide | [`Channels::on_decided`], or [`Notice::Decided`] |
//! | what an application tells them | [`Registration::report`] |
//! | transcoders, before an event is submitted (§6.2) | [`Source::set_transcoders`], [`transcoded`] |
//!
//! The connection is a lease: what was opened with it ends with it, and with the process. A sink's events wait in the
//! daemon until this process has room for them: a slow reader costs only its own events.

mod calls;
mod connection;
mod handle;
mod handlers;
mod inbox;
mod members;
mod queued;
mod session;
mod slot;
mod transcoders;
mod turns;

pub use handle::{Channel, Filter, SinkOptions, SourceOptions, Spec};
pub use inbox::Notice;
pub use members::{Received, Sink, Source, Submission};
pub use session::{Channels, Registration};
pub use transcoders::{Transcoder, Transcoders, transcoded, transcoder_attribute};

pub use qfabric_types::api::channel::policies::*;
pub use qfabric_types::api::channel::{
    BindingRequest, ChannelInfo, Direction, FilterInfo, FilterRequest, FilterScope, GroupInfo, GroupMember,
    GroupRequest, Holding, HostAnswer, HostInfo, Installed, LeaseId, MonitorInfo, MonitorRequest, Order,
    ParameterRequest, Pressure, QosRange, ReloadOutcome, SinkCounts, SinkInfo, SourceCounts, SourceInfo, TypeInfo,
};
pub use qfabric_types::channel::{ChannelId, Name, Plane};
pub use qfabric_types::channel_wire::{Attributes, Decision, Destination, Event, Sent};
