//! Attributes that this host can read: the kernel's, those that the control thread publishes for its applications, and
//! those of streams of packets.

use std::sync::Arc;

use qfabric_host::monitor::Jobs;
use qfabric_linux::monitor::{Meters, Missing};
use qfabric_types::monitor::{Attribute, AttributeId, Readers};
use qfabric_types::{AppId, Instant};

use crate::control::Monitored;
use crate::net::Board;

pub(super) struct Attributes {
    meters: Meters,
    jobs: Jobs,
    board: Arc<Board>,
    /// The version of the board's list.
    version: u64,
    /// Attributes of all; rebuilt after a rescan.
    all: Vec<Attribute>,
}

impl Attributes {
    pub(super) fn open(board: Arc<Board>) -> Attributes {
        let (meters, jobs) = (Meters::open(), Jobs::default());
        let mut attributes = Attributes { meters, jobs, board, version: 0, all: Vec::new() };
        attributes.list();
        attributes
    }

    /// Attributes that this host cannot read, with the reasons.
    pub(super) fn missing(&self) -> &[Missing] {
        self.meters.missing()
    }

    /// Finds interfaces, disks and streams that appeared or disappeared.
    pub(super) fn rescan(&mut self) {
        let is_stale = self.meters.is_stale();
        if is_stale {
            self.meters.rescan();
        }
        if is_stale || self.version != self.board.version() {
            self.list();
        }
    }

    /// Reads `app.*` of an application until it is removed. At most `qfabric_linux::monitor::MAX_APPLICATIONS` are read.
    pub(super) fn add(&mut self, application: AppId, monitored: Monitored) -> Result<(), Missing> {
        if !self.jobs.has(application) {
            self.meters.add_process(application, monitored.pid)?;
            self.jobs.add(application, monitored.numbers);
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, application: AppId) {
        self.meters.remove_application(application);
        self.jobs.remove(application);
    }

    /// Applications that have ended but whose attributes are still read.
    pub(super) fn left(&self) -> Vec<AppId> {
        self.jobs.left().collect()
    }

    fn list(&mut self) {
        self.all.clear();
        self.version = self.board.version();
        self.all.extend(self.meters.attributes().iter().chain(self.jobs.attributes()).cloned());
        self.all.extend(self.board.attributes());
    }
}

impl Readers for Attributes {
    fn attributes(&self) -> &[Attribute] {
        &self.all
    }

    fn read(&mut self, attribute: AttributeId, application: AppId, now: Instant) -> Option<i64> {
        let Attributes { meters, jobs, board, .. } = self;
        let of_applications = jobs.read(attribute, application, now);
        of_applications.or_else(|| meters.read(attribute, application, now)).or_else(|| board.read(attribute))
    }
}
