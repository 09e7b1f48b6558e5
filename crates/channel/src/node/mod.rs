//! One host's side of all channels.

use qfabric_types::Instant;
use qfabric_types::channel::{ChannelId, Name};

use crate::*;

/// One host's side of all channels. Every method says what it wants done to the port, and leaves nothing running.
#[derive(Debug)]
pub struct Node {}

#[allow(unused_variables)]
impl Node {
    /// A host that knows of no other.
    pub fn new(config: Config, now: Instant) -> Node {
        unimplemented!()
    }

    /// This host's name.
    pub fn host(&self) -> &Name {
        unimplemented!()
    }

    /// The network says that a host is there.
    pub fn appeared(&mut self, host: &Name, now: Instant, port: &mut dyn Port) {
        unimplemented!()
    }

    /// The network says that a host is gone.
    pub fn vanished(&mut self, host: &Name, now: Instant, port: &mut dyn Port) {
        unimplemented!()
    }

    /// A frame of a host that the network has authenticated.
    pub fn arrive(&mut self, from: &Name, lane: Lane, frame: &[u8], now: Instant, port: &mut dyn Port) {
        unimplemented!()
    }

    /// When [`Node::wake`] is to be called; it may change with every call.
    pub fn next_wakeup(&self) -> Option<Instant> {
        unimplemented!()
    }

    /// Does what is due.
    pub fn wake(&mut self, now: Instant, port: &mut dyn Port) {
        unimplemented!()
    }

    /// Creates a channel, and holds it until [`Node::close`].
    pub fn create(&mut self, channel: &ChannelId, spec: Spec, now: Instant, port: &mut dyn Port) -> Result<(), Error> {
        unimplemented!()
    }

    /// Holds a channel that some host holds. Each opening wants its [`Node::close`].
    pub fn open(&mut self, channel: &ChannelId, now: Instant, port: &mut dyn Port) -> Result<(), Error> {
        unimplemented!()
    }

    /// Takes one creation or opening back; the last takes the host's members with it.
    pub fn close(&mut self, channel: &ChannelId, now: Instant, port: &mut dyn Port) -> Result<(), Error> {
        unimplemented!()
    }

    /// A source on a channel that is open here.
    pub fn source_subscribe(
        &mut self,
        channel: &ChannelId,
        source: SourceSpec,
        now: Instant,
        port: &mut dyn Port,
    ) -> Result<SourceId, Error> {
        unimplemented!()
    }

    /// A sink on a channel that is open here.
    pub fn sink_subscribe(
        &mut self,
        channel: &ChannelId,
        sink: SinkSpec,
        now: Instant,
        port: &mut dyn Port,
    ) -> Result<SinkId, Error> {
        unimplemented!()
    }

    /// Ends a source.
    pub fn leave_source(&mut self, source: SourceId, now: Instant, port: &mut dyn Port) -> Result<(), Error> {
        unimplemented!()
    }

    /// Ends a sink; what is in its queue is gone.
    pub fn leave_sink(&mut self, sink: SinkId, now: Instant, port: &mut dyn Port) -> Result<(), Error> {
        unimplemented!()
    }

    /// Sets a source's attribute; none takes it away.
    pub fn set_source_attribute(
        &mut self,
        source: SourceId,
        key: Key,
        value: Option<i64>,
        now: Instant,
        port: &mut dyn Port,
    ) -> Result<(), Error> {
        unimplemented!()
    }

    /// Sets a sink's attribute, which OUT-filters at all sources see; none takes it away.
    pub fn set_sink_attribute(
        &mut self,
        sink: SinkId,
        key: Key,
        value: Option<i64>,
        now: Instant,
        port: &mut dyn Port,
    ) -> Result<(), Error> {
        unimplemented!()
    }

    /// Submits an event.
    pub fn submit(
        &mut self,
        source: SourceId,
        event: &Submission<'_>,
        now: Instant,
        port: &mut dyn Port,
    ) -> Result<Sent, SubmitError> {
        unimplemented!()
    }

    /// Takes the next event of a queue; false: there is none.
    pub fn take(&mut self, sink: SinkId, into: &mut Taken, now: Instant, port: &mut dyn Port) -> Result<bool, Error> {
        unimplemented!()
    }

    /// Installs a filter in E-code on this host, or replaces it.
    pub fn install(&mut self, filter: &FilterSpec) -> Result<(), FilterError> {
        unimplemented!()
    }

    /// Installs a filter in Rust on this host, or replaces it.
    pub fn install_closure(
        &mut self,
        spot: Spot,
        sink: Option<MemberId>,
        types: &[String],
        choose: Choose,
    ) -> Result<(), FilterError> {
        unimplemented!()
    }

    /// Removes a filter of this host.
    pub fn remove_filter(&mut self, spot: &Spot) -> Result<(), FilterError> {
        unimplemented!()
    }

    /// Changes a filter's parameter on this host; the next event sees it.
    pub fn set_parameter(&mut self, spot: &Spot, parameter: &str, value: i64) -> Result<(), FilterError> {
        unimplemented!()
    }

    /// A filter's parameter.
    pub fn parameter(&self, spot: &Spot, parameter: &str) -> Result<i64, FilterError> {
        unimplemented!()
    }

    /// Binds a filter's parameter to events of a channel. The sink ends it ([`Node::leave_sink`]).
    pub fn bind(&mut self, binding: &Binding, now: Instant, port: &mut dyn Port) -> Result<SinkId, FilterError> {
        unimplemented!()
    }

    /// Asks hosts to do something with their filters; each answers with a notice. An empty list: all hosts that hold
    /// the channel.
    pub fn ship(&mut self, to: &[Name], order: &FilterOrder, now: Instant, port: &mut dyn Port) -> RequestId {
        unimplemented!()
    }

    /// The filters of a channel on this host.
    pub fn filters(&self, channel: &ChannelId) -> Vec<(Spot, FilterCounts)> {
        unimplemented!()
    }

    /// An application joins a group, and this host the group's Q-channel.
    pub fn register(
        &mut self,
        registration: Registration,
        now: Instant,
        port: &mut dyn Port,
    ) -> Result<RegistrationId, Error> {
        unimplemented!()
    }

    /// It leaves.
    pub fn unregister(&mut self, id: RegistrationId, now: Instant, port: &mut dyn Port) -> Result<(), Error> {
        unimplemented!()
    }

    /// What all hosts have told of themselves.
    pub fn directory(&self) -> &Directory {
        unimplemented!()
    }

    /// What was counted of a source.
    pub fn source_counts(&self, source: SourceId) -> Result<SourceCounts, Error> {
        unimplemented!()
    }

    /// What was counted of a sink.
    pub fn sink_counts(&self, sink: SinkId) -> Result<SinkCounts, Error> {
        unimplemented!()
    }

    /// What was counted of all.
    pub fn counts(&self) -> &NodeCounts {
        unimplemented!()
    }

    /// What is to be added to the time of another host's clock to get this one's, and how far it may be off; none:
    /// not known yet.
    pub fn clock_offset(&self, host: &Name) -> Option<(i64, qfabric_types::Nanos)> {
        unimplemented!()
    }
}
