//! A channel that is open.

use std::collections::BTreeMap;
use std::sync::Arc;

use qfabric_types::Nanos;
use qfabric_types::api::channel::{
    BindingRequest, ChannelInfo, Direction, FilterRequest, FilterScope, Installed, Order, ParameterRequest, Pressure,
    SinkRequest, SourceRequest,
};
use qfabric_types::channel::{ChannelId, Plane};
use qfabric_types::channel_wire::{Event, FromClient};
use qfabric_types::format::Format;

use super::connection::{Inner, WINDOW, name};
use super::handlers::Handler;
use super::members::{Sink, Source};
use crate::error::ClientError;

/// What a channel is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// What its events look like, as C structure declarations: each that is no other's member is a type of events.
    pub formats: String,
    /// Order of queued events of one priority.
    pub order: Order,
    /// What happens to an event when a sink's queue is full.
    pub pressure: Pressure,
    /// With [`Pressure::Block`]: how long a slow sink may hold up the others.
    pub patience: Nanos,
}

impl Spec {
    /// Events of these formats, in the order of time; where a queue is full, the oldest makes room.
    pub fn of(formats: &str) -> Spec {
        let (order, pressure) = (Order::Time, Pressure::DropOldest);
        Spec { formats: formats.to_owned(), order, pressure, patience: Nanos::from_millis(1_000) }
    }
}

/// What a source is to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceOptions {
    /// Whose it is, for people.
    pub application: Option<String>,
    /// What filters can know of it.
    pub attributes: BTreeMap<String, i64>,
}

/// What a sink is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkOptions {
    /// Whose it is, for people.
    pub application: Option<String>,
    /// Names of the types it wants; none: all.
    pub types: Vec<String>,
    /// Its own idea of the formats: refused where it cannot read the channel's. Empty: the channel's.
    pub formats: String,
    /// What OUT-filters can know of it.
    pub attributes: BTreeMap<String, i64>,
    /// Events its queue in the daemon holds.
    pub capacity: u32,
}

impl Default for SinkOptions {
    /// All types, 256 events.
    fn default() -> SinkOptions {
        let (types, formats, attributes) = (Vec::new(), String::new(), BTreeMap::new());
        SinkOptions { application: None, types, formats, attributes, capacity: 256 }
    }
}

/// A filter that is wanted; `code` is E-code. See [`FilterRequest`] for the rest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    /// E-code.
    pub code: String,
    /// The only sink that it decides on: `NUMBER` on this host, or `HOST/NUMBER`; none: all.
    pub sink: Option<String>,
    /// Names of the types it is called for; none: all.
    pub types: Vec<String>,
    /// First values of what it gets by `get_attribute(name)`.
    pub parameters: BTreeMap<String, i64>,
    /// Where: here, on other hosts whose access lists allow it, or both.
    pub to: FilterScope,
}

/// A channel that is open; dropping it closes it, with the sources and sinks of this host if nobody else holds it here.
#[derive(Debug)]
pub struct Channel {
    inner: Arc<Inner>,
    id: ChannelId,
    info: ChannelInfo,
}

impl Channel {
    pub(super) fn new(inner: Arc<Inner>, info: ChannelInfo) -> Channel {
        let id = ChannelId { plane: info.plane, name: info.name.clone() };
        Channel { inner, id, info }
    }

    /// Its name.
    pub fn id(&self) -> &ChannelId {
        &self.id
    }

    /// What it was when it was opened.
    pub fn info(&self) -> &ChannelInfo {
        &self.info
    }

    /// What it is now.
    pub fn look(&self) -> Result<ChannelInfo, ClientError> {
        self.inner.client.channel(&self.id)
    }

    /// The number of a type of events.
    pub fn type_number(&self, name: &str) -> Option<u16> {
        self.info.types.iter().position(|known| known.format.name == name).map(|at| at as u16)
    }

    /// The format of a type of events.
    pub fn format(&self, number: u16) -> Option<&Format> {
        self.info.types.get(usize::from(number)).map(|known| &known.format)
    }

    /// Joins as a source.
    pub fn source_subscribe(&self, options: &SourceOptions) -> Result<Source, ClientError> {
        let request = SourceRequest {
            lease: self.inner.own()?,
            application: options.application.as_deref().map(name).transpose()?,
            attributes: options.attributes.clone(),
        };
        let joined = self.inner.client.join_source(&self.id, &request)?;
        Ok(Source::new(self.inner.clone(), joined.number))
    }

    /// Joins as a sink whose events are handled by [`super::Channels::poll`], in the thread that calls it.
    pub fn sink_subscribe(
        &self,
        options: &SinkOptions,
        handler: impl FnMut(&Event<'_>) + Send + 'static,
    ) -> Result<Sink, ClientError> {
        self.join(options, Some(Box::new(handler)))
    }

    /// Joins as a sink whose events are taken by [`Sink::next`].
    pub fn sink(&self, options: &SinkOptions) -> Result<Sink, ClientError> {
        self.join(options, None)
    }

    fn join(&self, options: &SinkOptions, handler: Option<Handler>) -> Result<Sink, ClientError> {
        let request = SinkRequest {
            lease: self.inner.own()?,
            application: options.application.as_deref().map(name).transpose()?,
            types: options.types.clone(),
            formats: options.formats.clone(),
            attributes: options.attributes.clone(),
            capacity: options.capacity,
        };
        let joined = self.inner.client.join_sink(&self.id, &request)?;
        let sink = Sink { inner: self.inner.clone(), number: joined.number };
        self.inner.begin_sink(sink.number);
        if let Some(handler) = handler {
            self.inner.set_handler(sink.number, handler);
        }
        self.inner.send(&FromClient::More { sink: sink.number, events: WINDOW })?;
        Ok(sink)
    }

    /// Installs a filter, or replaces the one of that name between two events. It ends with the connection, on all hosts,
    /// however that ends; a host that comes later and is meant gets it too.
    pub fn install(&self, direction: Direction, filter: &str, wanted: &Filter) -> Result<Installed, ClientError> {
        let Filter { code, sink, types, parameters, to } = wanted.clone();
        let lease = Some(self.inner.own()?);
        let request = FilterRequest { lease, code, sink, types, parameters, to };
        self.inner.client.install_filter(&self.id, direction, &name(filter)?, &request)
    }

    /// Changes a parameter of a filter: the next event sees it.
    pub fn set_parameter(
        &self,
        direction: Direction,
        filter: &str,
        parameter: &str,
        value: i64,
        to: FilterScope,
    ) -> Result<Installed, ClientError> {
        let request = ParameterRequest { parameters: BTreeMap::from([(parameter.to_owned(), value)]), to };
        self.inner.client.set_filter_parameters(&self.id, direction, &name(filter)?, &request)
    }

    /// Removes a filter.
    pub fn remove_filter(&self, direction: Direction, filter: &str, to: FilterScope) -> Result<Installed, ClientError> {
        self.inner.client.remove_filter(&self.id, direction, &name(filter)?, to)
    }

    /// From now on the number `field` in events of type `event_type` on `from` is the filter's `parameter`. Dropping
    /// the answer ends it.
    pub fn bind(
        &self,
        direction: Direction,
        filter: &str,
        parameter: &str,
        from: &Channel,
        event_type: &str,
        field: &str,
    ) -> Result<Sink, ClientError> {
        let request = BindingRequest {
            lease: self.inner.own()?,
            parameter: parameter.to_owned(),
            channel: from.id.to_string(),
            event_type: event_type.to_owned(),
            field: field.to_owned(),
        };
        let bound = self.inner.client.bind_filter(&self.id, direction, &name(filter)?, &request)?;
        Ok(Sink { inner: self.inner.clone(), number: bound.number })
    }

    /// Opens the hidden Q-channel: what the resource managers tell each other about this channel.
    pub fn quality(&self) -> Result<Channel, ClientError> {
        let id = ChannelId { plane: Plane::Quality, name: self.id.name.clone() };
        let info = self.inner.client.open_channel(&id, self.inner.own()?)?;
        Ok(Channel::new(self.inner.clone(), info))
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // In a child of a fork it is the parent's.
        if let Ok(lease) = self.inner.own() {
            // Lost to another creator, or gone with the daemon: that was the aim.
            let _ = self.inner.client.close_channel(&self.id, lease);
        }
    }
}
