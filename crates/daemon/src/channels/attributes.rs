//! Attributes that this host can read: the kernel's, and those that the control thread publishes for its
//! applications.

use qfabric_host::monitor::Jobs;
use qfabric_linux::monitor::{Meters, Missing};
use qfabric_types::monitor::{Attribute, AttributeId, Readers};
use qfabric_types::{AppId, Instant};

use crate::control::Monitored;

pub(super) struct Attributes {
    meters: Meters,
    jobs: Jobs,
    /// Attributes of both; rebuilt after a rescan.
    all: Vec<Attribute>,
}

impl Attributes {
    pub(super) fn open() -> Attributes {
        let mut attributes = Attributes { meters: Meters::open(), jobs: Jobs::default(), all: Vec::new() };
        attributes.list();
        attributes
    }

    /// Attributes that this host cannot read, with the reasons.
    pub(super) fn missing(&self) -> &[Missing] {
        self.meters.missing()
    }

    /// Finds interfaces and disks that appeared or disappeared.
    pub(super) fn rescan(&mut self) {
        if self.meters.is_stale() {
            self.meters.rescan();
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
        self.all.extend(self.meters.attributes().iter().chain(self.jobs.attributes()).cloned());
    }
}

impl Readers for Attributes {
    fn attributes(&self) -> &[Attribute] {
        &self.all
    }

    fn read(&mut self, attribute: AttributeId, application: AppId, now: Instant) -> Option<i64> {
        let Attributes { meters, jobs, .. } = self;
        jobs.read(attribute, application, now).or_else(|| meters.read(attribute, application, now))
    }
}
