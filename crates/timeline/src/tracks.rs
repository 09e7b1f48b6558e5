//! The tracks of a trace: each has a number that is the same in every trace of the same host, so that the traces of
//! several hosts can be put into one file.

use qfabric_types::AppId;

use crate::proto::{CounterDescriptor, TrackDescriptor};

/// A row of the picture.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Track {
    Host,
    App(AppId),
    Jobs(AppId),
    Misses(AppId),
    Budget(AppId),
    Error(AppId),
    Decisions(AppId),
    Ecalls,
    Channel(String),
    Policies,
    Cpus,
    Cpu(u32),
}

impl Track {
    /// The row that contains it.
    pub(crate) fn parent(&self) -> Option<Track> {
        match *self {
            Track::Host => None,
            Track::Jobs(app) | Track::Misses(app) | Track::Budget(app) | Track::Error(app) | Track::Decisions(app) => {
                Some(Track::App(app))
            }
            Track::Cpu(_) => Some(Track::Cpus),
            Track::App(_) | Track::Ecalls | Track::Channel(_) | Track::Policies | Track::Cpus => Some(Track::Host),
        }
    }

    /// Its number on `host`; never 0.
    pub(crate) fn uuid(&self, host: &str) -> u64 {
        hash(&format!("{host}\0{self:?}")).max(1)
    }

    /// Its description; `named` is the text for the host and for applications.
    pub(crate) fn describe(&self, host: &str, named: &str) -> TrackDescriptor {
        let (name, unit) = match self {
            Track::Host | Track::App(_) => (named.to_owned(), None),
            Track::Jobs(_) => ("jobs".to_owned(), None),
            Track::Misses(_) => ("misses".to_owned(), None),
            Track::Budget(_) => ("budget".to_owned(), Some("% of one CPU")),
            Track::Error(_) => ("error".to_owned(), Some("ms")),
            Track::Decisions(_) => ("decisions".to_owned(), None),
            Track::Ecalls => ("ECalls".to_owned(), None),
            Track::Channel(channel) => (format!("channel {channel}"), None),
            Track::Policies => ("policies".to_owned(), None),
            Track::Cpus => ("CPUs".to_owned(), None),
            Track::Cpu(cpu) => (format!("CPU {cpu}"), None),
        };
        TrackDescriptor {
            uuid: Some(self.uuid(host)),
            name: Some(name),
            parent_uuid: self.parent().map(|parent| parent.uuid(host)),
            counter: unit.map(|unit| CounterDescriptor { unit_name: Some(unit.to_owned()) }),
        }
    }
}

/// FNV-1a with 64 bits: the same on every host and in every version.
pub(crate) fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
