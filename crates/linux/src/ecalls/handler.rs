//! Installs a chain: turns a request into programs at their hooks, completely or not at all.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use qfabric_ecode::bpf::Size;
use qfabric_ecode::hir::Builtin;
use qfabric_ecode::{Fault, Prints, Program};
use qfabric_types::format::{Format, Kind as FieldKind};
use qfabric_types::memory::{CALL_VALUES, CallRecord, CallVerdict};

use super::assemble::{Placement, Plan, Shared, Stage};
use super::by_kernel::{SignalCalls, SignalTo};
use super::deferred::{HANDLERS, Place};
use super::delivery::{Functions, Preemption, RECORD_HEADER, RingBound, Target};
use super::favour::KICK;
use super::follow::Followed;
use super::holders::KernelObject;
use super::options::Options;
use super::services::{self, At, Hook, OptionSpec, Spec};
use super::shared::{Seat, SharedHooks};
use super::streams::{Connections, Ports, StreamMaps};
use super::{Counters, DownMemory, EventRing, Install, InstallError, Step, UpMemory, state};
use crate::bpf::{self, Btf, Link, LoadError, Loaded, Map, Mapping};

/// Attempts to take a lock that another CPU holds, about 20 µs; then the handler gives the event up and counts it.
const SPINS: u64 = 1000;

/// A chain of steps in the kernel. Dropping it removes it.
#[derive(Debug)]
pub struct Installed {
    // The links come first: a detached program no longer runs when its maps are freed.
    _links: Vec<Link>,
    _connections: Option<Connections>,
    followed: Option<Arc<Followed>>,
    _seats: Vec<Option<Seat>>,
    programs: Vec<Loaded>,
    program_ids: Vec<u32>,
    functions: Vec<Functions>,
    state: Mapping,
    entries: u32,
    entry_bytes: u32,
    /// What each handler prints, and the place of its statics in the state.
    prints: Vec<(Prints, u32)>,
    _maps: Vec<Map>,
    _streams: Option<StreamMaps>,
    // After the links: a handler that still runs keeps its place.
    _place: Option<Place>,
    _ring_user: Option<Arc<u32>>,
    _down: Option<DownMemory>,
}

impl Installed {
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for entry in 0..self.entries {
            let word = |at: i16| self.word(entry, at);
            sum.passed += word(state::PASSED);
            sum.blocked += word(state::BLOCKED);
            sum.faults += word(state::FAULTS);
            sum.dropped_memory += word(state::DROPPED_MEMORY);
            sum.dropped_ring += word(state::DROPPED_RING);
            sum.run_ns += word(state::RUN_NS);
            sum.contended += word(state::CONTENDED);
            sum.signals += word(state::SIGNALS);
            sum.last_fault = Fault::from_code(word(state::LAST_FAULT) as u32).or(sum.last_fault);
        }
        for info in self.programs.iter().filter_map(|program| program.info().ok()) {
            sum.contended += info.recursion_misses;
        }
        sum.events = sum.passed + sum.blocked + sum.contended;
        sum
    }

    /// The kernel's ids of its BPF programs, as shown by `bpftool prog`.
    pub fn program_ids(&self) -> &[u32] {
        &self.program_ids
    }

    /// Whether its events interrupt the CPUs of the servers that it favours, so that they do not wait for the next
    /// tick: it favours servers, and this kernel lets its programs interrupt a CPU.
    pub fn kicks(&self) -> bool {
        self.functions.iter().any(|functions| functions.kick.is_some())
    }

    /// Whether the kernel sends the signals of [`Step::Signal`] itself: the chain has such a step, and this kernel lets
    /// its programs send them. Otherwise user space gets all events.
    pub fn sends_signals(&self) -> bool {
        self.functions.iter().any(|functions| functions.signal.is_some())
    }

    /// Number of instructions that the verifier walked through; shows how expensive loading was.
    pub fn verified_instructions(&self) -> u32 {
        self.programs.iter().filter_map(|program| program.info().ok()).map(|info| info.verified_insns).sum()
    }

    /// Run time of its programs in nanoseconds while [`super::Kernel::measure`] was on. A chain at a shared program or
    /// at byte streams runs as a part of another program and shows 0 here.
    pub fn kernels_run_ns(&self) -> u64 {
        self.programs.iter().filter_map(|program| program.info().ok()).map(|info| info.run_ns).sum()
    }

    /// Number of runs of its programs while [`super::Kernel::measure`] was on, including events that do not concern it.
    pub fn runs(&self) -> u64 {
        self.programs.iter().filter_map(|program| program.info().ok()).map(|info| info.runs).sum()
    }

    /// The program that a process calls ([`Installed::call`]); `None`: the service is not `app.call`. Its process may
    /// have the descriptor: it runs the handlers for this process only, and none after this value is dropped.
    pub fn call_fd(&self) -> Option<BorrowedFd<'_>> {
        self.called().map(Loaded::fd)
    }

    /// The program of [`Installed::call_fd`] by its id.
    pub fn call_object(&self) -> Option<KernelObject> {
        self.called().and(self.program_ids.first()).map(|id| KernelObject::Program(*id))
    }

    /// Makes a fast call, for the process of the chain.
    ///
    /// # Errors
    /// The chain is at another service, or the kernel refuses the system call.
    pub fn call(&self, values: [i64; CALL_VALUES]) -> std::io::Result<CallVerdict> {
        let program = self.called().ok_or(std::io::ErrorKind::InvalidInput)?;
        let mut words = CallRecord::new(values).to_bytes();
        program.call(&mut words)?;
        Ok(CallRecord::verdict_in(&words))
    }

    fn called(&self) -> Option<&Loaded> {
        self.programs.iter().find(|program| program.is_called())
    }

    /// The interfaces that the chain follows; `None`: its request named them, or its events are not packets.
    pub fn followed(&self) -> Option<&Arc<Followed>> {
        self.followed.as_ref()
    }

    /// The number of calls of `printf` of its handlers, and the last lines of each.
    pub fn printed(&self) -> (u64, Vec<String>) {
        let (mut calls, mut lines) = (0, Vec::new());
        for (prints, statics) in &self.prints {
            // A handler that prints has statics, so all CPUs share one entry.
            let word = |at: u32| self.state.words((statics + at) as usize)[0].load(Ordering::Relaxed);
            let (more, last) = prints.read(word);
            calls += more;
            lines.extend(last);
        }
        (calls, lines)
    }

    fn word(&self, entry: u32, at: i16) -> u64 {
        let offset = (entry * self.entry_bytes) as usize + at as usize;
        self.state.words(offset)[0].load(Ordering::Relaxed)
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        if let Some(followed) = &self.followed {
            followed.end();
        }
        if self.called().is_some() {
            // The process may keep the program.
            self.state.words(state::SERVICE as usize)[0].store(1, Ordering::Relaxed);
        }
    }
}

/// Everything that one installation needs.
pub(super) struct Installer<'a> {
    pub btf: &'a Btf,
    pub cpus: u32,
    pub spec: &'static Spec,
    pub request: &'a Install<'a>,
    pub shared: &'a Arc<SharedHooks>,
    pub ports: &'a Arc<Ports>,
}

impl Installer<'_> {
    pub(super) fn install(&self) -> Result<Installed, InstallError> {
        let options =
            Options::new(self.spec, self.request.options).map_err(|(option, why)| self.option(option, why))?;
        let interfaces = self.interfaces(options)?;
        self.check_pid()?;
        let own = if self.request.down.is_none() { Some(system("memory_down", DownMemory::new())?) } else { None };
        let down = self.request.down.or(own.as_ref()).expect("given or made");
        let place = self.place(down)?;
        // The first is replaced by the state; the third is used by handlers of deferred values only.
        let mut fds = vec![down.fd(), down.fd(), place.as_ref().map_or(down.fd(), Place::fd)];
        let format = services::format_of(self.spec);
        let ring_user = self.ring_user()?;
        let stages = self.stages(&format, ring_user.as_deref().copied(), &mut fds)?;
        let hooks: Vec<&'static Hook> = self.spec.hooks.iter().filter(|hook| (hook.when)(&options)).collect();
        let streams = StreamMaps::of(&hooks, options)?;
        let plan = Plan {
            streams: streams.as_ref().map(|streams| streams.numbers(fds.len())),
            ..self.plan(options, &format, &stages, place.as_ref())
        };
        fds.extend(streams.iter().flat_map(StreamMaps::fds));
        let (placements, entry_bytes) = plan.placements();
        let entries = if plan.exclusive { 1 } else { self.cpus * states_of_cpu(&hooks) };
        let state = system("state", Map::array(entry_bytes, entries))?;
        let mapping = system("state", state.map((entries * entry_bytes) as usize))?;
        prepare(&mapping, &plan, &placements, entries, entry_bytes);
        if let Some(place) = &place {
            mapping.words(state::SERVICE as usize)[0].store(place.start.into(), Ordering::Relaxed);
        }
        fds[0] = state.fd();
        let seats = self.seats(&hooks);
        let (programs, functions): (Vec<_>, Vec<_>) = self.load(&plan, &hooks, &seats, &fds)?.into_iter().unzip();
        let links = self.attach(&programs, &hooks, &seats, options, interfaces.as_deref().unwrap_or_default())?;
        let followed = interfaces.is_none().then(|| self.follow(&programs)).transpose()?;
        let connections = self.connections(options, streams.as_ref().map(StreamMaps::sockets), &programs)?;
        let ids = programs.iter().filter_map(|program| program.info().ok()).map(|info| info.id);
        let program_ids = ids.chain(connections.as_ref().and_then(Connections::program_id)).collect();
        Ok(Installed {
            _links: links,
            _connections: connections,
            followed,
            _seats: seats,
            programs,
            program_ids,
            functions,
            state: mapping,
            entries,
            entry_bytes,
            prints: plan.programs().zip(&placements).map(|(p, at)| (p.uses.prints.clone(), at.statics)).collect(),
            _maps: vec![state],
            _streams: streams,
            _place: place,
            _ring_user: ring_user,
            _down: own,
        })
    }

    /// The number of the user whose records in the ring are bounded.
    fn ring_user(&self) -> Result<Option<Arc<u32>>, InstallError> {
        let Some(Step::Tail { ring, user: Some(user), .. }) = self.request.steps.last() else { return Ok(None) };
        let full = || {
            let most = ring.most_users();
            self.steps(format!("{most} users have handlers whose events leave the kernel, the limit; try again later"))
        };
        ring.number_of(*user).ok_or_else(full).map(Some)
    }

    /// The place of a handler of deferred values among those of its session.
    fn place(&self, down: &DownMemory) -> Result<Option<Place>, InstallError> {
        if !self.spec.takes_deferred {
            return Ok(None);
        }
        let full = || {
            let why = format!(
                "{HANDLERS} handlers of this connection take its deferred values, the limit; use another connection"
            );
            self.steps(why)
        };
        system("positions of handlers", Place::in_session(down))?.ok_or_else(full).map(Some)
    }

    fn plan<'p>(
        &'p self,
        options: Options<'p>,
        format: &'p Format,
        stages: &'p [Stage<'p>],
        place: Option<&Place>,
    ) -> Plan<'p> {
        let keeps = |stage: &Stage| matches!(stage, Stage::Run(program) if !program.statics.is_empty());
        Plan {
            spec: self.spec,
            format,
            options,
            only_pid: self.request.only_pid,
            stages,
            limits: self.request.limits,
            deadline_ns: self.request.deadline.map_or(0, |deadline| deadline.get()),
            fault_passes: self.request.fault_passes,
            exclusive: self.spec.exclusive || stages.iter().any(keeps),
            // A call runs in its caller's time, and the clock would also count the time for which it is preempted.
            measured: self.request.measured && self.spec.hooks.iter().all(|hook| hook.at != At::Call),
            deferred_handler: place.map_or(0, |place| place.number),
            streams: None,
        }
    }

    /// The places at shared programs, for a chain that receives the events of one process only.
    fn seats(&self, hooks: &[&'static Hook]) -> Vec<Option<Seat>> {
        let seat = |hook: &&'static Hook| self.shared.seat(self.btf, hook, self.request.only_pid?);
        hooks.iter().map(seat).collect()
    }

    /// The program of each hook, and the functions that it calls. A kernel that does not let such a program call a
    /// function gets a program without the call.
    fn load(
        &self,
        plan: &Plan,
        hooks: &[&Hook],
        seats: &[Option<Seat>],
        fds: &[BorrowedFd],
    ) -> Result<Vec<(Loaded, Functions)>, InstallError> {
        let each = hooks.iter().zip(seats).zip(0..).map(|((hook, seat), number)| {
            let shared = seat.as_ref().map(|seat| Shared { number: seat.number, maps: fds.len() as u32 });
            let kind = self.kind(hook.at)?;
            let maps = [fds, seat.as_ref().map(Seat::fds).as_ref().map_or(&[][..], |fds| fds)].concat();
            let load = |functions: Functions| {
                let code = plan.assemble(self.btf, hook, (number, states_of_cpu(hooks)), shared, functions)?;
                let loaded = bpf::Program { kind, code, maps: &maps }.load().map_err(refused)?;
                Ok::<_, InstallError>((loaded, functions))
            };
            let preemption = self.preemption(hook.at)?;
            let all = Functions { kick: self.kick(hook.at), signal: self.signal_calls(hook.at), preemption };
            let fewest = Functions { preemption, ..Functions::default() };
            let mut more = vec![all, Functions { signal: None, ..all }];
            more.dedup();
            more.retain(|functions| *functions != fewest);
            let loaded = more.into_iter().find_map(|functions| load(functions).ok());
            loaded.map_or_else(|| load(fewest), Ok)
        });
        each.collect()
    }

    /// The functions by which a program at this hook keeps its CPU. Only calls of a process can lose it; they must not
    /// while they write what others read, too.
    fn preemption(&self, at: At) -> Result<Option<Preemption>, InstallError> {
        let is_shared = |step: &Step| matches!(step, Step::Tail { .. } | Step::Favour { .. });
        if at != At::Call || !self.request.steps.iter().any(is_shared) {
            return Ok(None);
        }
        let lacking = |why| InstallError::Unavailable { service: self.spec.name.into(), why };
        Preemption::of(self.btf).map(Some).map_err(lacking)
    }

    /// The functions by which a program at this hook can send a signal, if its chain has one for the kernel.
    fn signal_calls(&self, at: At) -> Option<SignalCalls> {
        let is_asked = self.request.steps.iter().any(|step| matches!(step, Step::Signal(_)));
        // The kernel offers them to no program at byte streams.
        SignalCalls::of(self.btf).ok().filter(|_| is_asked && at != At::Streams)
    }

    /// The number of the function by which a program at this hook can interrupt a CPU, if its chain favours servers.
    fn kick(&self, at: At) -> Option<i32> {
        let favours = self.request.steps.iter().any(|step| matches!(step, Step::Favour { .. }));
        let may_call = matches!(at, At::Tracepoint(_) | At::Timer | At::Call);
        let function = self.btf.function(KICK).filter(|_| favours && may_call)?;
        i32::try_from(function.0).ok()
    }

    fn kind(&self, at: At) -> Result<bpf::Kind, InstallError> {
        Ok(match at {
            At::Packets(side) => bpf::Kind::Packets(side),
            At::Streams => bpf::Kind::Streams,
            At::Timer => bpf::Kind::Perf,
            At::Call => bpf::Kind::Call,
            At::Tracepoint(name) => match self.btf.tracepoint(name) {
                Some(id) => bpf::Kind::Tracepoint(id),
                None => return Err(self.steps(format!("this kernel does not have the tracepoint {name}"))),
            },
        })
    }

    fn attach(
        &self,
        programs: &[Loaded],
        hooks: &[&Hook],
        seats: &[Option<Seat>],
        options: Options,
        interfaces: &[u32],
    ) -> Result<Vec<Link>, InstallError> {
        let mut links = Vec::new();
        for ((program, hook), seat) in programs.iter().zip(hooks).zip(seats) {
            if let Some(seat) = seat {
                system("adding to the shared program", seat.connect(program))?;
                continue;
            }
            match hook.at {
                At::Tracepoint(_) => links.push(system("attaching to the tracepoint", program.attach_tracepoint())?),
                At::Timer => {
                    let period = options.period().as_nanos() as u64;
                    links.push(system("starting the timer", program.attach_timer(options.cpu(), period))?);
                }
                At::Packets(_) => {
                    for &interface in interfaces {
                        links.push(system("attaching to the interface", program.attach_interface(interface))?);
                    }
                }
                At::Streams | At::Call => {} // attached to the map of sockets; called by a process
            }
        }
        Ok(links)
    }

    /// Leads the connections of the option `listen` through the program, if there is a map for them.
    fn connections(
        &self,
        options: Options,
        sockets: Option<&Map>,
        programs: &[Loaded],
    ) -> Result<Option<Connections>, InstallError> {
        let (Some(sockets), Some(listen), [verdict]) = (sockets, options.listen(), programs) else { return Ok(None) };
        let taken = || {
            let why = format!("port {} belongs to another chain of this service; end that chain first", listen.port);
            self.option("listen".into(), why)
        };
        let port = self.ports.take(listen.port).ok_or_else(taken)?;
        Connections::follow(self.btf, port, &listen, sockets, verdict).map(Some)
    }

    /// The interfaces that the request names. `None`: the chain follows all interfaces that are up.
    fn interfaces(&self, options: Options) -> Result<Option<Vec<u32>>, InstallError> {
        let number = |name: &str| {
            let socket = rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::DGRAM, None)
                .map_err(|error| InstallError::System { what: "looking for the interface", error: error.into() })?;
            rustix::net::netdevice::name_to_index(&socket, name).map_err(|_| {
                self.option(
                    "interface".into(),
                    format!("no interface is named {name:?}; list the interfaces with `ip link`"),
                )
            })
        };
        let takes = |option: &OptionSpec| option.name == "interface";
        match options.interfaces() {
            None if self.spec.options.iter().any(takes) => Ok(None),
            names => names.unwrap_or_default().into_iter().map(number).collect::<Result<_, _>>().map(Some),
        }
    }

    /// Attaches the programs to the interfaces that are up.
    fn follow(&self, programs: &[Loaded]) -> Result<Arc<Followed>, InstallError> {
        let programs = programs.iter().map(Loaded::try_clone).collect::<Result<_, _>>();
        let followed = Followed::new(system("following the interfaces", programs)?);
        let mut found = system("attaching to the interfaces", followed.attach_new())?;
        match found.refused.pop() {
            Some((_, error)) => system("attaching to the interfaces", Err(error)),
            None => Ok(followed),
        }
    }

    fn check_pid(&self) -> Result<(), InstallError> {
        match self.request.only_pid {
            None if self.spec.needs_pid => Err(self.steps(format!("{} needs a process", self.spec.name))),
            Some(pid) if pid <= 0 => Err(self.steps(format!("{pid} is not a process id"))),
            Some(_) if !self.spec.needs_pid && !services::concerns_process(self.spec) => {
                Err(self.steps(format!("the events of {} belong to no process; leave out the process", self.spec.name)))
            }
            _ => Ok(()),
        }
    }

    /// Numbers the maps of the steps, and checks each step against the event that it receives.
    fn stages<'p>(
        &'p self,
        format: &Format,
        number: Option<u32>,
        fds: &mut Vec<BorrowedFd<'p>>,
    ) -> Result<Vec<Stage<'p>>, InstallError> {
        let (mut event, mut signal) = (format, None);
        let mut stages = Vec::new();
        for (at, step) in self.request.steps.iter().enumerate() {
            let last = at + 1 == self.request.steps.len();
            if let Step::Signal(to) = step {
                signal = Some(self.signal(*to, event, at)?);
                continue;
            }
            stages.push(match *step {
                Step::Handler(program) => {
                    self.check_program(program, event, at)?;
                    event = program.output.as_ref().unwrap_or(event);
                    Stage::Run(program)
                }
                Step::Memory { memory, position } => Stage::Deliver(self.memory(memory, position, event, fds)?),
                Step::Favour { raised, aim } => {
                    fds.extend([aim.map.fd(), raised]);
                    Stage::Deliver(Target::Favour { aim: fds.len() as u32 - 2, raised: fds.len() as u32 - 1 })
                }
                Step::Tail { ring, id, .. } if last => {
                    Stage::Deliver(self.ring((ring, id), number, event, signal, fds)?)
                }
                Step::Signal(_) => unreachable!("a signal is a part of the next step"),
                Step::Tail { .. } => return Err(self.steps("a step into user space must be the last one".into())),
            });
        }
        if stages.is_empty() { Err(self.steps("the chain has no step; add at least one".into())) } else { Ok(stages) }
    }

    fn check_program(&self, program: &Program, event: &Format, at: usize) -> Result<(), InstallError> {
        if program.input.size != 0 && program.input.size != event.size {
            let (has, gets) = (program.input.size, event.size);
            return Err(self.steps(format!(
                "step {}: its input has {has} bytes, but the event that reaches it has {gets}",
                at + 1
            )));
        }
        let another = self.request.steps[at + 1..].iter().any(|step| matches!(step, Step::Handler(_)));
        if another && program.uses.builtins.contains(&Builtin::Emit) {
            let why = "emits, but another program follows; emit only in the last program";
            return Err(self.steps(format!("step {}: it {why}", at + 1)));
        }
        Ok(())
    }

    fn memory<'p>(
        &self,
        memory: &'p UpMemory,
        position: Option<&str>,
        event: &Format,
        fds: &mut Vec<BorrowedFd<'p>>,
    ) -> Result<Target, InstallError> {
        let geometry = memory.geometry();
        if geometry.data_bytes() < event.size {
            let (room, size) = (geometry.data_bytes(), event.size);
            return Err(self.steps(format!("memory_up has {room} bytes for an event, but this event has {size}")));
        }
        let position = position.map(|name| self.position(name, event)).transpose()?;
        let first = fds.len() as u32;
        fds.extend([memory.fd(), memory.private_fd(), memory.wake_fd()]);
        Ok(Target::Memory { area: first, private: first + 1, wake: first + 2, geometry, position })
    }

    fn position(&self, name: &str, event: &Format) -> Result<(u32, Size), InstallError> {
        match event.field(name).map(|field| (field, &field.kind, field.dims.is_empty())) {
            Some((field, FieldKind::Scalar(scalar), true)) if !scalar.float => {
                Ok((field.offset, Size::of_bits(scalar.bits)))
            }
            _ => Err(self.steps(format!("the event has no integer field {name:?} that could name the slot"))),
        }
    }

    fn ring<'p>(
        &self,
        (ring, id): (&'p EventRing, u64),
        number: Option<u32>,
        event: &Format,
        signal: Option<SignalTo>,
        fds: &mut Vec<BorrowedFd<'p>>,
    ) -> Result<Target, InstallError> {
        if RECORD_HEADER + event.size.next_multiple_of(8) > ring.most() {
            let (size, bytes) = (event.size, ring.bytes());
            return Err(self.steps(format!("an event of {size} bytes exceeds an eighth of the ring ({bytes} bytes)")));
        }
        fds.push(ring.fd());
        let map = fds.len() as u32 - 1;
        let bound = number.map(|number| {
            fds.push(ring.counts_fd());
            RingBound { counts: map + 1, number }
        });
        Ok(Target::Ring { map, id, bound, signal })
    }

    /// Checks a signal at step `at`.
    fn signal(&self, to: SignalTo, event: &Format, at: usize) -> Result<SignalTo, InstallError> {
        if !matches!(self.request.steps.get(at + 1), Some(Step::Tail { .. })) {
            let why = "a signal needs a step into user space behind it, for when the kernel does not send it";
            return Err(self.steps(why.into()));
        }
        let end = to.value.map_or(0, |(offset, ty)| offset.saturating_add(ty.bytes()));
        match (end <= event.size, (34..=64).contains(&to.number)) {
            (false, _) => {
                Err(self.steps(format!("the signal's value is not inside the event of {} bytes", event.size)))
            }
            (_, false) => Err(self.steps(format!("signal {} is not a real-time signal, 34 to 64", to.number))),
            _ => Ok(to),
        }
    }

    fn steps(&self, why: String) -> InstallError {
        InstallError::Steps(format!("service {}: {why}", self.spec.name))
    }

    fn option(&self, option: String, why: String) -> InstallError {
        InstallError::Option { service: self.spec.name.into(), option, why }
    }
}

/// Number of states of each CPU: one for each hook, and two for the hook of byte streams.
fn states_of_cpu(hooks: &[&Hook]) -> u32 {
    if hooks.iter().any(|hook| hook.at == At::Streams) { 2 } else { hooks.len() as u32 }
}

/// Writes the initial contents of every state entry.
fn prepare(state: &Mapping, plan: &Plan, placements: &[Placement], entries: u32, entry_bytes: u32) {
    for entry in 0..entries {
        let base = (entry * entry_bytes) as usize;
        state.words(base + state::SPINS as usize)[0].store(SPINS, Ordering::Relaxed);
        for (program, placement) in plan.programs().zip(placements) {
            state.copy_from(base + placement.statics as usize, &program.statics);
        }
    }
}

pub(super) fn system<T>(what: &'static str, result: std::io::Result<T>) -> Result<T, InstallError> {
    result.map_err(|error| InstallError::System { what, error })
}

pub(super) fn refused(LoadError { error, log }: LoadError) -> InstallError {
    InstallError::Refused { error, log }
}
