//! Attribute monitors: read the raw number of each attribute from Linux without allocating.
//!
//! | file | attributes |
//! |---|---|
//! | `cpu.rs` | `cpu.*` from /proc/stat |
//! | `pressure.rs` | `*.pressure`, `memory.stalled` from /proc/pressure |
//! | `memory.rs` | `memory.*` from /proc/meminfo and /proc/vmstat |
//! | `interface.rs` | `net.*` from /proc/net/dev |
//! | `queue.rs` | `net.*.queue…` from the kernel by rtnetlink |
//! | `socket.rs` | `socket.*` from /proc/net/{sockstat,snmp,netstat} |
//! | `disk.rs` | `disk.*` from /proc/diskstats and the file system |
//! | `energy.rs` | `energy.*`, `battery.*`, `thermal.*` from /sys/class |
//! | `application.rs` | `app.*` from /proc/PID |
//! | [`trigger`] | thresholds that the kernel itself watches |
//! | [`handler`] | totals that a handler in the kernel counts |
//!
//! A *meter* returns all numbers of one file, or of one exchange with the kernel. Its file stays open; a look reads the
//! file from its beginning (`pread`) into memory that all meters share. All reads for one moment share one look.
//!
//! Attributes that this kernel does not offer are left out; [`Meters::missing`] lists them with the reason.

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

/// Largest number of interfaces, disks or zones of a kind that are read; further ones are left out.
pub const MAX_INSTANCES: usize = 128;
/// Largest number of applications that are read.
pub const MAX_APPLICATIONS: usize = 1_024;

/// Reason for an attribute whose file exists but lacks the number.
const NOT_REPORTED: &str = "this kernel does not report it";

/// Folders of the kernel's files; tests use others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    pub proc: PathBuf,
    pub sys: PathBuf,
    /// A folder on the file system that `disk.free` measures.
    pub data: PathBuf,
    /// True if the queues of interfaces may be read from the running kernel.
    pub queues: bool,
}

impl Default for Roots {
    fn default() -> Roots {
        Roots { proc: "/proc".into(), sys: "/sys".into(), data: "/".into(), queues: true }
    }
}

/// Attributes that cannot be read on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The attribute, or a pattern such as `energy.*`.
    pub name: &'static str,
    /// The reason, and the next step if there is one.
    pub why: String,
}

/// A source of several raw numbers that are read together.
trait Meter: Send {
    /// The attributes in the order of their slots. `None`: the slot's interface or disk is gone.
    fn attributes(&self) -> Vec<Option<Attribute>>;

    /// Reads the numbers into their slots. A number that the kernel does not report leaves its slot unchanged.
    fn look(&mut self, scratch: &mut Scratch, values: &mut [Option<i64>]);

    /// Finds new and vanished interfaces and disks; may allocate. [`Meter::is_stale`] tells when a call is useful.
    fn rescan(&mut self) {}

    /// True if a look has found an unknown interface or disk.
    fn is_stale(&self) -> bool {
        false
    }
}

/// A meter and the numbers of its last look.
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
    /// Sorted by application.
    applications: Vec<(AppId, Application)>,
    attributes: Vec<Attribute>,
    /// Group and slot of each attribute, sorted by attribute id.
    places: Vec<(AttributeId, usize, usize)>,
    missing: Vec<Missing>,
    scratch: Scratch,
}

impl Meters {
    /// Opens the monitors of this host. [`Meters::missing`] lists the attributes that it lacks.
    pub fn open() -> Meters {
        Meters::open_at(Roots::default())
    }

    /// Opens the monitors of the files below `roots`.
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

    /// The attributes that are left out, with the reason.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// True if an interface or disk has appeared since the last [`Meters::rescan`].
    pub fn is_stale(&self) -> bool {
        self.groups.iter().any(|group| group.meter.is_stale())
    }

    /// Finds new interfaces and disks, and forgets vanished ones. Allocates, so it is not for the hot path: call it
    /// if [`Meters::is_stale`] returns true, or every few seconds.
    pub fn rescan(&mut self) {
        for group in &mut self.groups {
            group.meter.rescan();
            group.values.resize(group.meter.attributes().len(), None);
            group.looked = None;
        }
        self.list();
    }

    /// Counts the process as part of the application from now on.
    pub fn add_process(&mut self, application: AppId, pid: i32) -> Result<(), Missing> {
        let refused = |why: String| Err(Missing { name: "app.*", why });
        let at = match self.applications.binary_search_by_key(&application, |(id, _)| *id) {
            Ok(at) => at,
            Err(_) if self.applications.len() >= MAX_APPLICATIONS => {
                return refused(format!("{MAX_APPLICATIONS} applications are already read, which is the limit"));
            }
            Err(at) => {
                self.applications.insert(at, (application, Application::new(&self.roots.proc)));
                at
            }
        };
        self.applications[at].1.add(pid).or_else(|error| refused(format!("process {pid}: {error}")))
    }

    /// Call this when the application has ended.
    pub fn remove_application(&mut self, application: AppId) {
        self.applications.retain(|(id, _)| *id != application);
    }

    /// Updates the list of readable attributes and their places.
    fn list(&mut self) {
        self.attributes.clear();
        self.places.clear();
        self.missing.retain(|missing| missing.why != NOT_REPORTED);
        for (number, group) in self.groups.iter_mut().enumerate() {
            group.look(&mut self.scratch);
            for (slot, attribute) in group.meter.attributes().into_iter().enumerate() {
                let Some(attribute) = attribute else { continue };
                self.places.push((attribute.id(), number, slot));
                match (group.values[slot], Metric::find(attribute.name.as_str())) {
                    (Some(_), _) => self.attributes.push(attribute),
                    (None, Some(metric)) => {
                        self.missing.push(Missing { name: metric.name, why: NOT_REPORTED.to_owned() })
                    }
                    // An interface without a queue is normal, so it is not listed as missing.
                    (None, None) => (),
                }
            }
        }
        self.attributes.extend(application::attributes());
        self.places.sort_unstable();
        // Two interfaces whose names differ only in characters that attribute names cannot contain: the first one is
        // read.
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

/// Collects meters during the search of a host.
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

/// The standard attribute `metric`, with `instance` (an interface, disk or zone) in place of `*`. `None` if the name of
/// the instance is too long or empty.
fn attribute(metric: &str, instance: &str) -> Option<Attribute> {
    let metric = Metric::find(metric).unwrap_or_else(|| panic!("{metric} is not a standard attribute"));
    Attribute::new(&metric.name_of(instance), metric.unit, metric.shape).ok()
}

/// Standard attributes without an instance.
fn attributes(metrics: &[&str]) -> Vec<Option<Attribute>> {
    metrics.iter().map(|metric| attribute(metric, "")).collect()
}

/// Names of the entries of a folder, sorted; empty if the folder does not exist.
fn entries(folder: &Path) -> Vec<String> {
    let entries = files::folder(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Stores `new` in a free slot or a new one, if the limit allows it.
fn assign_slot<T>(places: &mut Vec<Option<T>>, new: T) {
    match places.iter().position(Option::is_none) {
        Some(free) => places[free] = Some(new),
        None if places.len() < MAX_INSTANCES => places.push(Some(new)),
        None => (),
    }
}

/// A total that follows a counter of the kernel, which may restart at zero or wrap.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    before: Option<u64>,
    total: i64,
}

impl Total {
    /// Adds the increase since the last call. A counter that went back has restarted.
    fn take(&mut self, count: u64) -> i64 {
        let increase = self.before.replace(count).map_or(0, |before| count.saturating_sub(before));
        self.add(increase)
    }

    /// Like [`Total::take`], for a counter of 32 bits, which wraps.
    fn take_u32(&mut self, count: u32) -> i64 {
        let increase = self.before.replace(count.into()).map_or(0, |before| count.wrapping_sub(before as u32));
        self.add(increase.into())
    }

    fn add(&mut self, increase: u64) -> i64 {
        self.total = self.total.saturating_add(i64::try_from(increase).unwrap_or(i64::MAX));
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_continues_when_its_counter_restarts_or_wraps() {
        let mut total = Total::default();
        assert_eq!([100, 130, 10, 15].map(|count| total.take(count)), [0, 30, 30, 35]);
        let mut total = Total::default();
        assert_eq!([u32::MAX - 1, 3].map(|count| total.take_u32(count)), [0, 5]);
        assert_eq!(total.add(u64::MAX), i64::MAX);
    }

    #[test]
    fn every_standard_attribute_has_a_meter_or_comes_from_the_host_room() {
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
