//! The kernel's services: events with a name, a documented format, and the hook they come from.
//!
//! A service is one short file with one `Spec`: its fields, and for each hook where each field comes from. See
//! the guide's chapter «Writing a service».

use qfabric_types::format::{Field as Member, Format, Kind, Scalar};

use super::Unsupported;
use super::options::Options;
use super::source::{Prologue, Source};
use crate::bpf::{Btf, SkbSide};

mod app_deferred;
mod mem_pressure;
mod net;
mod packet;
mod proc_exec;
mod proc_exit;
mod proc_fork;
mod sched_switch;
mod sched_wakeup;
mod sock_ready;
mod tcp_accept;
mod tcp_state;
mod timer;

pub(super) static ALL: [&Spec; 13] = [
    &sched_wakeup::SPEC,
    &sched_switch::SPEC,
    &proc_fork::SPEC,
    &proc_exec::SPEC,
    &proc_exit::SPEC,
    &net::RX,
    &net::TX,
    &tcp_accept::SPEC,
    &tcp_state::SPEC,
    &sock_ready::SPEC,
    &mem_pressure::SPEC,
    &timer::SPEC,
    &app_deferred::SPEC,
];

/// A service one can subscribe to.
#[derive(Clone, Debug)]
pub struct Service {
    /// Its name, such as `sched.wakeup`.
    pub name: &'static str,
    /// One line: when an event is raised.
    pub about: &'static str,
    /// Where in the kernel.
    pub hook: String,
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

impl OptionSpec {
    const fn required(name: &'static str, about: &'static str) -> Self {
        OptionSpec { name, about, required: true }
    }

    const fn optional(name: &'static str, about: &'static str) -> Self {
        OptionSpec { name, about, required: false }
    }
}

/// A service as its file declares it.
#[derive(Debug)]
pub(super) struct Spec {
    pub name: &'static str,
    pub about: &'static str,
    pub fields: &'static [Field],
    pub options: &'static [OptionSpec],
    /// Each becomes a program; all share the handler's state.
    pub hooks: &'static [Hook],
    pub verdict: Option<&'static str>,
    /// One event at a time, for what the service itself keeps between events.
    pub exclusive: bool,
    /// Only with a process named.
    pub needs_pid: bool,
}

impl Spec {
    const NEW: Spec = Spec {
        name: "",
        about: "",
        fields: &[],
        options: &[],
        hooks: &[],
        verdict: None,
        exclusive: false,
        needs_pid: false,
    };
}

/// A field of an event.
#[derive(Debug)]
pub(super) struct Field {
    pub name: &'static str,
    pub ty: Scalar,
    /// Elements; 0: a single value.
    pub count: u32,
    pub about: &'static str,
}

impl Field {
    const fn one(name: &'static str, ty: Scalar, about: &'static str) -> Field {
        Field { name, ty, count: 0, about }
    }

    const fn many(name: &'static str, ty: Scalar, count: u32, about: &'static str) -> Field {
        Field { name, ty, count, about }
    }

    /// Bytes it takes.
    pub fn bytes(&self) -> u32 {
        self.ty.bytes() * self.count.max(1)
    }
}

/// A place in the kernel, and how an event is made there.
#[derive(Debug)]
pub(super) struct Hook {
    pub at: At,
    /// Where each field comes from, in the fields' order.
    pub sources: &'static [Source],
    /// The processes an event concerns; with a process named in the request, one of them must be that.
    pub processes: &'static [Source],
    /// Fields that tell of one process each: a handler that is for another one's events finds zeros there.
    pub sides: &'static [Side],
    /// Only with these options is there such a hook.
    pub when: fn(&Options) -> bool,
    /// Decides early whether this is an event at all: jumps to [`Prologue::skip`] if not. r6 to r8 are free.
    pub before: Option<Emit>,
    /// Makes the fields whose source is [`Source::Made`]. r7, r8 are free.
    pub make: Option<Emit>,
}

/// Fields of an event that tell of one of several processes.
#[derive(Debug)]
pub(super) struct Side {
    /// Of which.
    pub process: Source,
    /// Their names.
    pub fields: &'static [&'static str],
}

/// Emits code.
pub(super) type Emit = fn(&mut Prologue) -> Result<(), Unsupported>;

impl Hook {
    const NEW: Hook =
        Hook { at: At::Timer, sources: &[], processes: &[], sides: &[], when: always, before: None, make: None };

    const fn tracepoint(name: &'static str, sources: &'static [Source]) -> Hook {
        Hook { at: At::Tracepoint(name), sources, ..Hook::NEW }
    }
}

fn always(_: &Options) -> bool {
    true
}

/// A kind of hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// A tracepoint, by its name.
    Tracepoint(&'static str),
    /// Packets at the interfaces of the option `interface`.
    Packets(SkbSide),
    /// A timer with the option `period`.
    Timer,
}

impl At {
    fn describe(self) -> String {
        match self {
            At::Tracepoint(name) => format!("tracepoint {name}"),
            At::Packets(SkbSide::Ingress) => "tcx ingress".into(),
            At::Packets(SkbSide::Egress) => "tcx egress".into(),
            At::Timer => "CPU clock".into(),
        }
    }
}

/// The layout that C gives the fields.
pub(super) fn format_of(spec: &Spec) -> Format {
    let mut format = Format { name: spec.name.replace('.', "_"), size: 0, align: 1, fields: Vec::new() };
    for field in spec.fields {
        let offset = format.size.next_multiple_of(field.ty.bytes());
        let dims = if field.count == 0 { Vec::new() } else { vec![field.count] };
        format.fields.push(Member { name: field.name.into(), offset, kind: Kind::Scalar(field.ty), dims });
        format.size = offset + field.bytes();
        format.align = format.align.max(field.ty.bytes());
    }
    format.size = format.size.next_multiple_of(format.align);
    format
}

/// What users see of a service; `broken`: why it cannot be had.
pub(super) fn describe(spec: &'static Spec, broken: Option<Unsupported>) -> Service {
    let hooks: Vec<_> = spec.hooks.iter().map(|hook| hook.at.describe()).collect();
    Service {
        name: spec.name,
        about: spec.about,
        hook: hooks.join(", "),
        format: format_of(spec),
        fields: spec.fields.iter().map(|field| (field.name, field.about)).collect(),
        options: spec.options,
        concerns_process: concerns_process(spec),
        verdict: spec.verdict,
        unavailable: broken,
    }
}

/// Whether this kernel has the tracepoints and structure members the service needs.
pub(super) fn check(spec: &Spec, btf: &Btf) -> Result<(), Unsupported> {
    for hook in spec.hooks {
        let sources = hook.sources.iter().chain(hook.processes);
        sources.map(|source| source.resolve(hook.at, btf).map(drop)).collect::<Result<Vec<_>, _>>()?;
    }
    Ok(())
}

/// Whether its events concern one process each.
pub(super) fn concerns_process(spec: &Spec) -> bool {
    spec.needs_pid || spec.hooks.iter().all(|hook| !hook.processes.is_empty())
}
