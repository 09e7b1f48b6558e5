//! Attribute monitors over what Linux tells: each attribute's raw number, read without allocating.
//!
//! | file | attributes |
//! |---|---|
//! | `cpu.rs` | `cpu.*` of /proc/stat |
//! | `pressure.rs` | `*.pressure`, `memory.stalled` of /proc/pressure |
//! | `memory.rs` | `memory.*` of /proc/meminfo and /proc/vmstat |
//! | `interface.rs` | `net.*` of /proc/net/dev |
//! | `queue.rs` | `net.*.queue…`, asked of the kernel (rtnetlink) |
//! | `socket.rs` | `socket.*` of /proc/net/{sockstat,snmp,netstat} |
//! | `disk.rs` | `disk.*` of /proc/diskstats and the file system |
//! | `energy.rs` | `energy.*`, `battery.*`, `thermal.*` of /sys/class |
//! | `application.rs` | `app.*` of /proc/PID |
//! | [`trigger`] | thresholds that the kernel reports by itself |
//! | [`handler`] | totals that a handler in the kernel counts |
//!
//! A *meter* is what one file, or one exchange with the kernel, tells at once. Its file stays open; a look reads it
//! anew from its beginning (`pread`) into memory that all meters share. Reads of one moment share one look.
//!
//! What this kernel does not offer is left out, with the reason: [`Meters::missing`].

mod application;
mod cpu;
mod disk;
mod energy;
pub mod handler;
mod interface;
mod memory;
mod pressure;
mod queue;
mod socket;
mod text;
pub mod trigger;

use std::path::{Path, PathBuf};

use qfabric_types::monitor::{Attribute, AttributeId, Metric, Readers};
use qfabric_types::{AppId, Instant};

use application::Application;
use text::Scratch;

use crate::files;

pub use application::MAX_PROCESSES;

/// Most interfaces, disks or zones of a kind that are read; more are left out.
pub const MAX_INSTANCES: usize = 128;
/// Most applications that are read.
pub const MAX_APPLICATIONS: usize = 1_024;

/// Why an attribute is left out whose file is there.
const UNTOLD: &str = "this kernel does not tell it";

/// Where the kernel's files are; elsewhere for tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// `/proc`.
    pub proc: PathBuf,
    /// `/sys`.
    pub sys: PathBuf,
    /// The folder whose file system `disk.free` is about.
    pub data: PathBuf,
    /// Whether the queues of interfaces may be asked of the running kernel.
    pub queues: bool,
}

impl Default for Roots {
    fn default() -> Roots {
        Roots { proc: "/proc".into(), sys: "/sys".into(), data: "/".into(), queues: true }
    }
}

/// What cannot be read here, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The attribute, or a pattern of several: `energy.*`.
    pub name: &'static str,
    /// The reason, with what would help.
    pub why: String,
}

/// Something that tells several raw numbers at once.
trait Meter: Send {
    /// The attributes, in the order of their slots. None: there was one in this slot, which is gone.
    fn attributes(&self) -> Vec<Option<Attribute>>;

    /// Looks anew: a number for each slot, left alone where it is not told.
    fn look(&mut self, scratch: &mut Scratch, values: &mut [Option<i64>]);

    /// Finds interfaces and the like that came or went; may allocate. Says whether it wants to, before.
    fn rescan(&mut self) {}

    /// Whether a look has met something unknown.
    fn is_stale(&self) -> bool {
        false
    }
}

/// A meter with what it told last.
struct Group {
    meter: Box<dyn Meter>,
    values: Vec<Option<i64>>,
    looked: Option<Instant>,
}

impl Group {
    fn new(meter: Box<dyn Meter>) -> Group {
        let values = vec![None; meter.attributes().len()];
        Group { meter, values, looked: None }
    }

    fn read(&mut self, slot: usize, now: Instant, scratch: &mut Scratch) -> Option<i64> {
        if self.looked != Some(now) {
            self.look(scratch);
            self.looked = Some(now);
        }
        *self.values.get(slot)?
    }

    fn look(&mut self, scratch: &mut Scratch) {
        self.values.fill(None);
        self.meter.look(scratch, &mut self.values);
    }
}

/// All attribute monitors of this host.
pub struct Meters {
    roots: Roots,
    groups: Vec<Group>,
    /// Ascending by application.
    applications: Vec<(AppId, Application)>,
    attributes: Vec<Attribute>,
    /// Where each is read: group and slot. Ascending by number.
    places: Vec<(AttributeId, usize, usize)>,
    missing: Vec<Missing>,
    scratch: Scratch,
}

impl Meters {
    /// Those of this host. What is not there is [`Meters::missing`].
    pub fn open() -> Meters {
        Meters::open_at(Roots::default())
    }

    /// Those of the files there.
    pub fn open_at(roots: Roots) -> Meters {
        let mut finder = Finder { roots: &roots, groups: Vec::new(), missing: Vec::new() };
        cpu::find(&mut finder);
        pressure::find(&mut finder);
        memory::find(&mut finder);
        interface::find(&mut finder);
        queue::find(&mut finder);
        socket::find(&mut finder);
        disk::find(&mut finder);
        energy::find(&mut finder);
        let Finder { groups, missing, .. } = finder;
        let mut meters = Meters {
            groups,
            applications: Vec::new(),
            attributes: Vec::new(),
            places: Vec::new(),
            missing,
            scratch: Scratch::new(),
            roots,
        };
        meters.list();
        meters
    }

    /// What is left out here, and why.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// Whether an interface or a disk has come since the last [`Meters::rescan`].
    pub fn is_stale(&self) -> bool {
        self.groups.iter().any(|group| group.meter.is_stale())
    }

    /// Finds interfaces and disks that came, and forgets those that are gone. Allocates: not for the hot path; call it
    /// when [`Meters::is_stale`] says so, or every few seconds.
    pub fn rescan(&mut self) {
        for group in &mut self.groups {
            group.meter.rescan();
            group.values.resize(group.meter.attributes().len(), None);
            group.looked = None;
        }
        self.list();
    }

    /// From now on the process counts as the application's.
    pub fn add_process(&mut self, application: AppId, pid: i32) -> Result<(), Missing> {
        let refused = |why: String| Err(Missing { name: "app.*", why });
        let at = match self.applications.binary_search_by_key(&application, |(id, _)| *id) {
            Ok(at) => at,
            Err(_) if self.applications.len() >= MAX_APPLICATIONS => {
                return refused(format!("{MAX_APPLICATIONS} applications are read already"));
            }
            Err(at) => {
                self.applications.insert(at, (application, Application::new(&self.roots.proc)));
                at
            }
        };
        self.applications[at].1.add(pid).or_else(|error| refused(format!("process {pid}: {error}")))
    }

    /// The application is gone.
    pub fn remove_application(&mut self, application: AppId) {
        self.applications.retain(|(id, _)| *id != application);
    }

    /// Lists what can be read now, and where all is read.
    fn list(&mut self) {
        self.attributes.clear();
        self.places.clear();
        self.missing.retain(|missing| missing.why != UNTOLD);
        for (number, group) in self.groups.iter_mut().enumerate() {
            group.look(&mut self.scratch);
            for (slot, attribute) in group.meter.attributes().into_iter().enumerate() {
                let Some(attribute) = attribute else { continue };
                self.places.push((attribute.id(), number, slot));
                match (group.values[slot], Metric::find(attribute.name.as_str())) {
                    (Some(_), _) => self.attributes.push(attribute),
                    (None, Some(metric)) => self.missing.push(Missing { name: metric.name, why: UNTOLD.to_owned() }),
                    // An interface without a queue: nothing to wonder at.
                    (None, None) => (),
                }
            }
        }
        self.attributes.extend(application::attributes());
        self.places.sort_unstable();
        // Two interfaces whose names differ in odd letters alone: the first is read.
        self.places.dedup_by_key(|(id, ..)| *id);
    }

    fn read_application(&mut self, attribute: AttributeId, application: AppId, now: Instant) -> Option<i64> {
        let at = self.applications.binary_search_by_key(&application, |(id, _)| *id).ok()?;
        self.applications[at].1.read(attribute, now, &mut self.scratch)
    }
}

impl Readers for Meters {
    fn attributes(&self) -> &[Attribute] {
        &self.attributes
    }

    fn read(&mut self, attribute: AttributeId, application: AppId, now: Instant) -> Option<i64> {
        match self.places.binary_search_by_key(&attribute, |(id, ..)| *id) {
            Ok(at) => {
                let (_, group, slot) = self.places[at];
                self.groups[group].read(slot, now, &mut self.scratch)
            }
            Err(_) => self.read_application(attribute, application, now),
        }
    }
}

/// Gathers meters while a host is looked through.
struct Finder<'a> {
    roots: &'a Roots,
    groups: Vec<Group>,
    missing: Vec<Missing>,
}

impl Finder<'_> {
    fn found(&mut self, meter: impl Meter + 'static) {
        self.groups.push(Group::new(Box::new(meter)));
    }

    fn missing(&mut self, name: &'static str, why: impl ToString) {
        self.missing.push(Missing { name, why: why.to_string() });
    }

    fn proc(&self, path: &str) -> PathBuf {
        self.roots.proc.join(path)
    }
}

/// The standard attribute of that name, for one interface, disk or zone where the name has a `*`. None: the instance's
/// name is too long, or empty.
fn attribute(metric: &str, instance: &str) -> Option<Attribute> {
    let metric = Metric::find(metric).unwrap_or_else(|| panic!("{metric} is no standard attribute"));
    Attribute::new(&metric.name_of(instance), metric.unit, metric.shape).ok()
}

/// Standard attributes of which a host has one each.
fn attributes(metrics: &[&str]) -> Vec<Option<Attribute>> {
    metrics.iter().map(|metric| attribute(metric, "")).collect()
}

/// Names of the entries of a folder, in order; none where it is not there.
fn entries(folder: &Path) -> Vec<String> {
    let entries = files::folder(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Gives something a place for good: a free one, or a new one, up to the bound.
fn settle<T>(places: &mut Vec<Option<T>>, new: T) {
    match places.iter().position(Option::is_none) {
        Some(free) => places[free] = Some(new),
        None if places.len() < MAX_INSTANCES => places.push(Some(new)),
        None => (),
    }
}

/// A total that grows by what others count, who may begin anew or count in few bits.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    before: Option<u64>,
    total: i64,
}

impl Total {
    /// Adds what came since `count` was told last; a count that went back began anew.
    fn take(&mut self, count: u64) -> i64 {
        let came = self.before.replace(count).map_or(0, |before| count.saturating_sub(before));
        self.add(came)
    }

    /// The same of a count of 32 bits, which wraps.
    fn take_u32(&mut self, count: u32) -> i64 {
        let came = self.before.replace(count.into()).map_or(0, |before| count.wrapping_sub(before as u32));
        self.add(came.into())
    }

    fn add(&mut self, came: u64) -> i64 {
        self.total = self.total.saturating_add(i64::try_from(came).unwrap_or(i64::MAX));
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_goes_on_when_its_count_begins_anew_or_wraps() {
        let mut total = Total::default();
        assert_eq!([100, 130, 10, 15].map(|count| total.take(count)), [0, 30, 30, 35]);
        let mut total = Total::default();
        assert_eq!([u32::MAX - 1, 3].map(|count| total.take_u32(count)), [0, 5]);
        assert_eq!(total.add(u64::MAX), i64::MAX);
    }

    #[test]
    fn every_standard_attribute_has_a_meter_or_comes_from_the_host_itself() {
        let folders = ["cpu.rs", "pressure.rs", "memory.rs", "interface.rs", "queue.rs", "socket.rs", "disk.rs"];
        let folders = folders.iter().chain(&["energy.rs", "application.rs"]);
        let sources: String = folders
            .map(|file| std::fs::read_to_string(format!("{}/src/monitor/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap())
            .collect();
        let by_host = ["app.jobs", "app.misses", "app.budget"];
        for metric in qfabric_types::monitor::METRICS {
            assert!(
                sources.contains(&format!("{:?}", metric.name)) || by_host.contains(&metric.name),
                "{}",
                metric.name
            );
        }
    }
}
