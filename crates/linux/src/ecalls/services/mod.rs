//! The kernel's services: events with a name, a documented format, and the hook they come from.

use qfabric_types::format::Format;

use super::Unsupported;

/// A service one can subscribe to.
#[derive(Clone, Debug)]
pub struct Service {
    /// Its name, such as `sched.wakeup`.
    pub name: &'static str,
    /// One line: when an event is raised.
    pub about: &'static str,
    /// Where in the kernel.
    pub hook: &'static str,
    /// Layout of an event.
    pub format: Format,
    /// What each field means, in the format's order: (name, unit and meaning).
    pub fields: Vec<(&'static str, &'static str)>,
    /// Its options.
    pub options: &'static [OptionSpec],
    /// Events concern one process each, so that users may see those of their own.
    pub concerns_process: bool,
    /// What a verdict 0 does beyond ending the chain, with which option; none: nothing.
    pub verdict: Option<&'static str>,
    /// Why it cannot be had here.
    pub unavailable: Option<Unsupported>,
}

/// An option of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionSpec {
    /// Its name.
    pub name: &'static str,
    /// What its value looks like and means.
    pub about: &'static str,
    /// Whether it must be given.
    pub required: bool,
}

pub(super) fn all() -> Vec<Service> {
    Vec::new()
}
