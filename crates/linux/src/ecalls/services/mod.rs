//! The kernel's services: events with a name, a documented format, and the hook that raises them.
//!
//! A service is one short file with one `Spec`: its fields, and the source of each field for each hook. See the guide's
//! chapter «Writing a service».

use std::time::Duration;

use qfabric_types::format::{Field as Member, Format, Kind, Scalar};

use super::options::Options;
use super::source::{Prologue, Source};
use super::{Unsupported, streams};
use crate::bpf::{Btf, SkbSide};

mod app_call;
mod app_deferred;
mod listener;
mod mem_pressure;
mod net;
mod packet;
mod proc_exec;
mod proc_exit;
mod proc_fork;
mod sched_switch;
mod sched_wakeup;
mod sock_ready;
mod sock_stream;
mod tcp_accept;
mod tcp_state;
mod timer;

pub(super) use listener::own_namespace;

pub(super) static ALL: [&Spec; 15] = [
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
    &sock_stream::SPEC,
    &mem_pressure::SPEC,
    &timer::SPEC,
    &app_deferred::SPEC,
    &app_call::SPEC,
];

/// A service to which an application can subscribe.
#[derive(Clone, Debug)]
pub struct Service {
    /// Name, such as `sched.wakeup`.
    pub name: &'static str,
    /// One line: when an event is raised.
    pub about: &'static str,
    /// The hooks in the kernel, as text.
    pub hook: String,
    pub format: Format,
    /// Name of each field with its unit and meaning, in the format's order.
    pub fields: Vec<(&'static str, &'static str)>,
    pub options: &'static [OptionSpec],
    /// True if each event belongs to one process, so that users may receive the events of their processes.
    pub concerns_process: bool,
    /// Additional effect of a verdict 0 besides ending the chain, and the option that enables it; `None`: no effect.
    pub verdict: Option<&'static str>,
    /// Why the service is not available on this host; `None`: it is available.
    pub unavailable: Option<Unsupported>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionSpec {
    pub name: &'static str,
    /// Format and meaning of the value.
    pub about: &'static str,
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

/// The cost of a chain for processes that its events do not concern.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HookCost {
    /// It interrupts a CPU in this period.
    pub timer: Option<Duration>,
    /// The kernel takes the slow path of system calls for all threads of the host while it is attached.
    pub slows_system_calls: bool,
}

/// Declaration of a service in its file.
#[derive(Debug)]
pub(super) struct Spec {
    pub name: &'static str,
    pub about: &'static str,
    pub fields: &'static [Field],
    pub options: &'static [OptionSpec],
    /// Each hook becomes a program; all programs share the handler's state.
    pub hooks: &'static [Hook],
    pub verdict: Option<&'static str>,
    /// True if events are handled one at a time, because the service stores data between events.
    pub exclusive: bool,
    /// True if the request must name a process.
    pub needs_pid: bool,
    /// True if its handlers take the deferred values of a session.
    pub takes_deferred: bool,
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
        takes_deferred: false,
    };
}

#[derive(Debug)]
pub(super) struct Field {
    pub name: &'static str,
    pub ty: Scalar,
    /// Number of elements; 0: a single value.
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

    pub(super) fn bytes(&self) -> u32 {
        self.ty.bytes() * self.count.max(1)
    }
}

/// A place in the kernel, and how an event is made there.
#[derive(Debug)]
pub(super) struct Hook {
    pub at: At,
    /// Source of each field, in the fields' order.
    pub sources: &'static [Source],
    /// The processes that an event concerns. If the request names a process, one of them must be that process.
    pub processes: &'static [Source],
    /// Fields that describe one process each: a handler for the events of another process finds zeros in them.
    pub sides: &'static [Side],
    /// The hook is used only if this returns true for the options.
    pub when: fn(&Options) -> bool,
    /// Decides early if this is an event at all, without the lock; jumps to [`Prologue::skip`] if not. r6 to r8 are
    /// free, r9 is the state.
    pub before: Option<Emit>,
    /// Makes the fields whose source is [`Source::Made`]. r7 and r8 are free.
    pub make: Option<Emit>,
    /// True if the service is available without it: a kernel that lacks the hook refuses the options that choose it.
    pub optional: bool,
}

/// Fields of an event that describe one of several processes.
#[derive(Debug)]
pub(super) struct Side {
    /// The process that the fields describe.
    pub process: Source,
    pub fields: &'static [&'static str],
}

/// Generates code.
pub(super) type Emit = fn(&mut Prologue) -> Result<(), Unsupported>;

impl Hook {
    const NEW: Hook = Hook {
        at: At::Timer,
        sources: &[],
        processes: &[],
        sides: &[],
        when: always,
        before: None,
        make: None,
        optional: false,
    };

    const fn tracepoint(name: &'static str, sources: &'static [Source]) -> Hook {
        Hook { at: At::Tracepoint(name), sources, ..Hook::NEW }
    }
}

fn always(_: &Options) -> bool {
    true
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// A tracepoint, by name.
    Tracepoint(&'static str),
    /// Packets at the interfaces of the option `interface`.
    Packets(SkbSide),
    /// Bytes that arrive at the TCP connections of the option `listen`.
    Streams,
    /// A timer with the option `period`.
    Timer,
    /// A call of the application.
    Call,
}

impl At {
    fn describe(self) -> String {
        match self {
            At::Tracepoint(name) => format!("tracepoint {name}"),
            At::Packets(SkbSide::Ingress) => "tcx ingress".into(),
            At::Packets(SkbSide::Egress) => "tcx egress".into(),
            At::Streams => "sk_skb verdict".into(),
            At::Timer => "CPU clock".into(),
            At::Call => "BPF_PROG_RUN by the application".into(),
        }
    }
}

/// The layout that a C compiler gives to the fields.
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

/// The description of a service for users. `broken`: why it is not available.
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

/// Fails if this kernel lacks a tracepoint or structure member that the service needs.
pub(super) fn check(spec: &Spec, btf: &Btf) -> Result<(), Unsupported> {
    for hook in spec.hooks.iter().filter(|hook| !hook.optional) {
        if hook.at == At::Streams {
            streams::check(btf)?;
        }
        let sources = hook.sources.iter().chain(hook.processes);
        sources.map(|source| source.resolve(hook.at, btf).map(drop)).collect::<Result<Vec<_>, _>>()?;
    }
    Ok(())
}

pub(super) fn cost(spec: &Spec, options: &Options) -> HookCost {
    let mut cost = HookCost::default();
    for hook in spec.hooks.iter().filter(|hook| (hook.when)(options)) {
        match hook.at {
            At::Timer => cost.timer = Some(options.period()),
            At::Tracepoint(name) => cost.slows_system_calls |= ["sys_enter", "sys_exit"].contains(&name),
            At::Packets(_) | At::Streams | At::Call => {}
        }
    }
    cost
}

/// True if each of its events concerns a process.
pub(super) fn concerns_process(spec: &Spec) -> bool {
    spec.needs_pid || spec.hooks.iter().all(|hook| !hook.processes.is_empty())
}
