//! Installs a subscription. All or nothing: on an error everything created so far is dropped, and the registry
//! changes in the last step only.
//!
//! ```text
//! receiver, events ─> rights ─> order ─> compile ─> memory ─> stages in the daemon ─> hook in the kernel ─> registry
//! ```

use std::io;
use std::sync::Arc;
use std::time::Instant;

use qfabric_ecode::{Bound, Environment, Program};
use qfabric_linux::clock;
use qfabric_linux::ecalls::{Aim, Install, Installed, Step as KernelStep};
use qfabric_sync::{assert_may_block, lock};
use qfabric_types::Nanos;
use qfabric_types::api::Problem;
use qfabric_types::api::ecalls::{
    Author, CHANNEL_SERVICE, MemoryUp, OnFault, Origin, ServiceInfo, Step, SubscriptionInfo, SubscriptionRequest,
};
use qfabric_types::format::Format;
use qfabric_types::memory::{ATTRIBUTES, Geometry};

use super::checks::{
    check_calls, check_cost, check_fault_policy, check_functions, check_no_loop, check_signal_target, interrupts,
    numbered, receiver, restrict,
};
use super::draft::{Draft, EMISSIONS, Parts, deadline};
use super::memory::{Down, Up};
use super::plan::Plan;
use super::pool::Backlog;
use super::registry::{GroupHook, Tail};
use super::subscription::Subscription;
use super::{Ecalls, KernelSide, Source, misses, problems};
use crate::auth::Peer;
use crate::channels::Outlet;
use crate::problem;

impl Ecalls {
    pub(crate) fn subscribe(&self, peer: Peer, request: SubscriptionRequest) -> Result<SubscriptionInfo, Problem> {
        self.subscribe_as(peer, request, None)
    }

    /// With an author, for another host, whose rights were checked; `peer` has the user id of that host's handlers.
    pub(super) fn subscribe_as(
        &self,
        peer: Peer,
        request: SubscriptionRequest,
        author: Option<Author>,
    ) -> Result<SubscriptionInfo, Problem> {
        let _one_at_a_time = lock(&self.setup);
        let made = self.install(peer, request, author);
        if made.is_err() {
            drop(self.unused_services());
        }
        made
    }

    fn install(
        &self,
        peer: Peer,
        request: SubscriptionRequest,
        author: Option<Author>,
    ) -> Result<SubscriptionInfo, Problem> {
        let started = Instant::now();
        let service = match request.service.starts_with(CHANNEL_SERVICE) {
            true => self.service_of_channels(peer, &request.service)?,
            false => self.service(&request.service)?,
        };
        let draft = self.draft(peer, request, service, author)?;
        let id = self.registry().number();
        let up = draft.make_memory()?;
        let stages = draft.stages(&up, &self.hub)?;
        let aim = self.new_aim(draft.is_at_hook() && draft.request.favour && !draft.holds())?;
        let installed = match draft.is_at_hook() {
            true => Some(self.hook(&draft, id, up.as_ref(), aim.as_deref())?),
            false => None,
        };
        let of_group = self.hook_of_group(&draft)?;
        let outlet = self.outlet(peer, &draft)?;
        let took = started.elapsed().as_micros() as u64;
        let (backlog, max_cpu) = (Backlog::new(self.config().queue_per_subscription), self.config().max_cpu_per_user);
        let subscription =
            Arc::new(draft.finish(id, Parts { up, outlet, aim, stages, installed, backlog, max_cpu }, took));
        self.follow(&subscription)?;
        self.commit(subscription, of_group)
    }

    fn draft(
        &self,
        peer: Peer,
        mut request: SubscriptionRequest,
        service: ServiceInfo,
        author: Option<Author>,
    ) -> Result<Draft, Problem> {
        let granted = self.check_service(peer, &service, author.as_ref())?;
        let target = if author.is_some() { None } else { receiver(peer, &mut request)? };
        let filtered = restrict(peer, &mut request, &service, granted)?;
        let interrupts = self.interrupts(peer, &request, &service, granted)?;
        let at_hook = service.origin == Origin::Kernel && request.group.is_none();
        let plan = Plan::of(&request, at_hook)?;
        check_signal_target(&plan, target.as_ref())?;
        check_calls(&request)?;
        let config = self.config();
        self.check_room(|registry| registry.check_room_for_subscription(peer.owner, &config, clock::now()))?;
        let (down, known) = self.session_of(peer, &request)?;
        let (programs, attributes) = self.compile(peer, &request, &service, &plan, known)?;
        let bound = self.bound(peer, &request, &service, &programs)?;
        let format = delivered(&service.format, &plan, &programs, Step::MemoryUp);
        let geometry = geometry(request.memory_up.as_ref(), &format)?;
        let queues: u64 = programs.iter().map(|program| u64::from(program.uses.queues)).sum();
        let memory_bytes = queues + geometry.map_or(0, |geometry| u64::from(geometry.total_bytes()));
        self.check_room(|registry| registry.check_room_for_memory(peer.owner, memory_bytes, &config))?;
        check_fault_policy(&request, &programs)?;
        check_functions(&plan, &programs)?;
        numbered(&attributes, &request.attributes)?;
        let owner = peer.owner;
        Ok(Draft {
            request,
            service,
            author,
            owner,
            target,
            filtered,
            plan,
            bound,
            interrupts,
            programs,
            attributes,
            down,
            format,
            geometry,
            memory_bytes,
        })
    }

    /// Whether `peer` may receive all events of the service (`true`) or only those of the peer's own processes
    /// (`false`).
    fn check_service(&self, peer: Peer, service: &ServiceInfo, author: Option<&Author>) -> Result<bool, Problem> {
        let missing = self.registry().services.get(&service.id).and_then(|service| service.unavailable.clone());
        if let Some(why) = missing {
            return Err(problems::unavailable(&service.name, &why.what, &why.remedy));
        }
        if let Some(author) = author {
            let is_kernels = service.origin == Origin::Kernel;
            return if is_kernels { Ok(true) } else { Err(problems::not_for_host(author, &service.name)) };
        }
        if service.origin == Origin::Channel {
            // The right to join the channel was checked with the service.
            return Ok(true);
        }
        let granted = self.config().grants(peer.owner, &service.name);
        let Some(owner) = service.owner else { return Ok(granted) };
        let open = self.registry().services.get(&service.id).and_then(|s| s.owner).is_some_and(|owner| owner.open);
        match granted || open || peer.may_touch(owner) {
            true => Ok(true),
            false => Err(problems::not_your_service(&service.name, owner.uid, peer.owner.uid)),
        }
    }

    /// Checks the cost of the hook for other processes. Returns the interrupts per second of its timer.
    fn interrupts(
        &self,
        peer: Peer,
        request: &SubscriptionRequest,
        service: &ServiceInfo,
        granted: bool,
    ) -> Result<u64, Problem> {
        if service.origin != Origin::Kernel {
            return Ok(0);
        }
        let cost = self.kernel_side(&service.name)?.kernel.cost(&service.name, &request.options);
        check_cost(peer.owner, &service.name, cost, granted)?;
        let more = interrupts(cost.timer);
        self.registry().check_room_for_interrupts(peer.owner, more)?;
        Ok(more)
    }

    /// The instructions that one event may take in these handlers; checks the limit for all of the user's handlers
    /// there.
    fn bound(
        &self,
        peer: Peer,
        request: &SubscriptionRequest,
        service: &ServiceInfo,
        programs: &[Arc<Program>],
    ) -> Result<Bound, Problem> {
        let (most, key) = self.config().instructions_at(&service.name, service.origin);
        if let Some(fuel) = request.fuel.filter(|fuel| *fuel > most) {
            return Err(problems::limit(&format!("{fuel} instructions of fuel"), most, key));
        }
        let bound = Bound::of(programs.iter().map(|program| &**program), request.fuel, most);
        self.registry().check_room_for_instructions(peer.owner, service, bound.instructions, key)?;
        Ok(bound)
    }

    /// The memory_down of the connection with its numbered attributes; without a connection, a new memory_down.
    fn session_of(&self, peer: Peer, request: &SubscriptionRequest) -> Result<(Arc<Down>, Vec<String>), Problem> {
        let Some(lease) = request.lease else {
            let made = Down::new(self.kernel().is_ok());
            let failed = |error: io::Error| problem::internal(format!("cannot create memory_down: {error}"));
            return Ok((Arc::new(made.map_err(failed)?), Vec::new()));
        };
        let known = self.registry().lease(lease, peer)?.attributes.clone();
        Ok((self.down_of(lease)?, known))
    }

    /// Compiles the chain's handlers; the input of each is the output of the one before.
    fn compile(
        &self,
        peer: Peer,
        request: &SubscriptionRequest,
        service: &ServiceInfo,
        plan: &Plan,
        mut attributes: Vec<String>,
    ) -> Result<(Vec<Arc<Program>>, Vec<String>), Problem> {
        let (mut input, mut programs) = (service.format.clone(), Vec::new());
        for step in plan.in_kernel.iter().chain(&plan.in_daemon) {
            let environment =
                Environment { input: Some(input.clone()), attributes: attributes.clone(), ..Environment::default() };
            let program = match step {
                Step::KHandler => self.named(request.k_handler.as_deref().unwrap_or_default(), peer, environment)?,
                Step::KCode => compiled(*step, request.k_code.as_deref().unwrap_or_default(), &environment)?,
                _ => continue,
            };
            attributes.clone_from(&program.attributes);
            input = program.output.clone().unwrap_or(input);
            programs.push(program);
        }
        match attributes.len() <= ATTRIBUTES {
            true => Ok((programs, attributes)),
            false => Err(problems::limit(
                &format!("the handlers of this connection use {} attributes", attributes.len()),
                ATTRIBUTES,
                "nothing: use another connection",
            )),
        }
    }

    /// The program of a named handler, which is compiled at its first use.
    fn named(&self, name: &str, peer: Peer, environment: Environment) -> Result<Arc<Program>, Problem> {
        let (code, known) = {
            let registry = self.registry();
            let handler = registry.handler(name, peer)?;
            (handler.info.code.clone(), handler.compiled.find(&environment))
        };
        if let Some(program) = known {
            return Ok(program);
        }
        let program = compiled(Step::KHandler, &code, &environment)?;
        // Another text may have taken the name in the meantime.
        let mut registry = self.registry();
        let handler = registry.handlers.get_mut(name).filter(|handler| handler.info.code == code);
        handler.into_iter().for_each(|handler| handler.compiled.keep(environment.clone(), &program));
        Ok(program)
    }

    /// The source through which the chain submits events to a channel.
    fn outlet(&self, peer: Peer, draft: &Draft) -> Result<Option<Outlet>, Problem> {
        let Some(name) = &draft.request.channel else { return Ok(None) };
        let format = delivered(&draft.service.format, &draft.plan, &draft.programs, Step::Channel);
        check_no_loop(&draft.service, name)?;
        self.fabric()?.outlet(peer, name, &format).map(Some)
    }

    /// Attaches the kernel's part of the chain to the hook.
    fn hook(&self, draft: &Draft, id: u64, up: Option<&Up>, aim: Option<&Aim>) -> Result<Installed, Problem> {
        let side = self.kernel_side(&draft.service.name)?;
        let mut programs = draft.programs.iter();
        let mut steps = Vec::new();
        for step in &draft.plan.in_kernel {
            steps.push(match step {
                Step::MemoryUp => memory_step(draft, up)?,
                _ => KernelStep::Handler(programs.next().expect("a program for every handler")),
            });
        }
        steps.extend(aim.zip(self.favours.get()).and_then(|(aim, favours)| favours.step(aim)));
        if !draft.plan.in_daemon.is_empty() {
            steps.extend(draft.signal_of_kernel().map(KernelStep::Signal));
            steps.push(KernelStep::Tail { ring: &side.ring, id, user: draft.bounded_user() });
        }
        install(side, draft, &steps, deadline(draft.request.deadline_us).filter(|_| !draft.holds()))
    }

    /// The members of a group share one hook, which only passes events to the daemon; each member has its own
    /// deadline.
    fn hook_of_group(&self, draft: &Draft) -> Result<Option<GroupHook>, Problem> {
        let group = draft.group().filter(|_| draft.service.origin == Origin::Kernel);
        let Some(key) = group else { return Ok(None) };
        let (options, only_pid) = (&draft.request.options, draft.request.only_pid);
        {
            let registry = self.registry();
            let groups = registry.services.get(&draft.service.id).map(|service| &service.groups);
            let hook = groups.and_then(|groups| groups.get(&key)).and_then(|group| group.hook.as_ref());
            if let Some(hook) = hook {
                return match (&hook.options, hook.only_pid) == (options, only_pid) {
                    true => Ok(None),
                    false => Err(problems::chain(
                        format!("the members of group {} have other options or another filter", key.name),
                        "use the same options and the same only_pid for all members",
                    )),
                };
            }
        }
        let side = self.kernel_side(&draft.service.name)?;
        let tail = self.registry().number();
        let step = KernelStep::Tail { ring: &side.ring, id: tail, user: draft.bounded_user() };
        let installed = install(side, draft, &[step], None)?;
        Ok(Some(GroupHook { installed: installed.into(), options: options.clone(), only_pid, tail, charged: 0 }))
    }

    fn kernel_side(&self, service: &str) -> Result<&KernelSide, Problem> {
        self.kernel().map_err(|why| problems::unavailable(service, &why.what, &why.remedy))
    }

    /// Adds the subscription to the registry; from here on it receives events.
    fn commit(&self, subscription: Arc<Subscription>, hook: Option<GroupHook>) -> Result<SubscriptionInfo, Problem> {
        let id = subscription.id;
        for process in subscription.processes() {
            let failed = |error: io::Error| problem::internal(format!("cannot watch the process: {error}"));
            self.watch(process, Source::Process(id)).map_err(failed)?;
        }
        let mut registry = self.registry();
        if let Some(lease) = subscription.terms.lease {
            let lease = registry.leases.get_mut(&lease).ok_or_else(|| problems::no_such_lease(lease))?;
            lease.attributes.clone_from(&subscription.terms.attributes);
        }
        let service = registry.services.get_mut(&subscription.terms.service);
        let service = service.ok_or_else(|| problems::no_such_service(&subscription.terms.service_name))?;
        if let Some(key) = subscription.terms.group.as_ref().filter(|_| service.origin == Origin::Kernel) {
            // The other members may have ended since `hook_of_group`, and the hook of the group with them.
            let has_hook = hook.is_some() || service.groups.get(key).is_some_and(|group| group.hook.is_some());
            if !has_hook {
                let message =
                    format!("the other members of group {} have just ended, and its hook with them", key.name);
                return Err(problems::chain(message, "subscribe again"));
            }
        }
        service.subscriptions.push(subscription.clone());
        let tail = hook.as_ref().map(|hook| hook.tail);
        if let Some(key) = &subscription.terms.group {
            let group = service.groups.entry(key.clone()).or_default();
            group.hook = hook.or(group.hook.take());
        }
        registry.subscriptions.insert(id, subscription.clone());
        registry.tails.insert(id, Tail::Subscription(id));
        if let (Some(tail), Some(group)) = (tail, &subscription.terms.group) {
            registry.tails.insert(tail, Tail::Group(subscription.terms.service, group.clone()));
        }
        self.misses.want(registry.has_subscriber(misses::SERVICE));
        drop(registry);
        // From now on the dispatcher must judge faults.
        self.nudge();
        Ok(subscription.info())
    }
}

fn install(
    side: &KernelSide,
    draft: &Draft,
    steps: &[KernelStep<'_>],
    deadline: Option<Nanos>,
) -> Result<Installed, Problem> {
    let request = Install {
        service: &draft.service.name,
        options: &draft.request.options,
        only_pid: draft.request.only_pid,
        steps,
        limits: draft.bound.limits(EMISSIONS),
        down: draft.down.map(),
        deadline,
        fault_passes: draft.request.on_fault == OnFault::Pass,
        // Root has no limit of CPU time.
        measured: draft.owner.uid != 0,
    };
    assert_may_block("loading a program");
    side.kernel.install(&request).map_err(|error| error.problem())
}

fn memory_step<'a>(draft: &'a Draft, up: Option<&'a Up>) -> Result<KernelStep<'a>, Problem> {
    let none = || problem::internal("memory_up for the kernel does not exist".to_owned());
    let memory = up.and_then(Up::map).ok_or_else(none)?;
    let position = draft.request.memory_up.as_ref().and_then(|memory| memory.position.as_deref());
    Ok(KernelStep::Memory { memory, position })
}

fn compiled(step: Step, code: &str, environment: &Environment) -> Result<Arc<Program>, Problem> {
    let program = qfabric_ecode::compile(code, environment);
    program.map(Arc::new).map_err(|diagnostics| problems::code(step.name(), &diagnostics))
}

/// The format of events at this step; without the step, at the end of the chain.
fn delivered(input: &Format, plan: &Plan, programs: &[Arc<Program>], at: Step) -> Format {
    let mut format = input.clone();
    let mut programs = programs.iter();
    for step in plan.in_kernel.iter().chain(&plan.in_daemon) {
        match step {
            step if *step == at => return format,
            Step::KHandler | Step::KCode => {
                format = programs.next().and_then(|program| program.output.clone()).unwrap_or(format);
            }
            _ => {}
        }
    }
    format
}

fn geometry(memory: Option<&MemoryUp>, format: &Format) -> Result<Option<Geometry>, Problem> {
    let Some(memory) = memory else { return Ok(None) };
    let made = Geometry::new(memory.layout, memory.slots, format.size);
    made.map(Some).map_err(|error| error.problem())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};
    use std::sync::atomic::Ordering;

    use qfabric_types::Owner;
    use qfabric_types::api::ecalls::HandlerRequest;

    use super::*;
    use crate::ecalls::EcallsConfig;
    use crate::ending::Ending;

    /// A process of a user that is not root; killed when dropped. If the test does not run as root, the test's own
    /// process.
    struct UserProcess(Option<Child>, Peer);

    impl UserProcess {
        fn start() -> UserProcess {
            let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
            if uid != 0 {
                return UserProcess(None, Peer { pid: std::process::id() as i32, owner: Owner { uid, gid } });
            }
            let child = Command::new("sleep").arg("600").uid(1_000).gid(1_000).spawn().unwrap();
            let pid = child.id() as i32;
            UserProcess(Some(child), Peer { pid, owner: Owner { uid: 1_000, gid: 1_000 } })
        }
    }

    impl Drop for UserProcess {
        fn drop(&mut self) {
            if let Some(child) = &mut self.0 {
                child.kill().and_then(|()| child.wait()).unwrap();
            }
        }
    }

    #[test]
    fn a_named_handler_is_compiled_once_and_shared_by_its_subscriptions() {
        let folder = tempfile::tempdir().unwrap();
        let ecalls = Ecalls::new(EcallsConfig::default(), folder.path(), &Ending::new().unwrap()).unwrap();
        let root = Peer { pid: std::process::id() as i32, owner: Owner { uid: 0, gid: 0 } };
        let put = |code: &str| {
            let request = HandlerRequest { lease: None, code: code.to_owned(), open: false };
            ecalls.put_handler(root, "my.handler", request).unwrap()
        };
        put("attr.calls += 1; return 1;");
        let (service, k_handler) = (misses::SERVICE.to_owned(), Some("my.handler".to_owned()));
        let request = SubscriptionRequest { service, k_handler, ..Default::default() };
        ecalls.subscribe(root, request.clone()).unwrap();
        let input = Some(ecalls.service(misses::SERVICE).unwrap().format);
        let environment = || Environment { input: input.clone(), ..Environment::default() };
        let named = |peer| ecalls.named("my.handler", peer, environment());
        let of_first = ecalls.registry().handlers["my.handler"].compiled.find(&environment()).unwrap();
        assert!(Arc::ptr_eq(&named(root).unwrap(), &of_first));
        put("return 0;");
        assert!(!Arc::ptr_eq(&named(root).unwrap(), &of_first), "the text has changed");
        let other = Peer { owner: Owner { uid: 7, gid: 7 }, ..root };
        assert!(named(other).is_err(), "the handler is not open to others");
    }

    // A loop with an unknown number of turns gets a quarter of the limit, so three of these handlers fit.
    #[test]
    fn the_handlers_of_a_user_at_one_service_share_a_limit_and_roots_have_none() {
        let (folder, user) = (tempfile::tempdir().unwrap(), UserProcess::start());
        let ecalls = Ecalls::new(EcallsConfig::default(), folder.path(), &Ending::new().unwrap()).unwrap();
        let subscribe = |peer| {
            let code = "int n = 1; while (n != 0) n = n * 3; attr.calls += 1; return 1;";
            let (service, k_code) = (misses::SERVICE.to_owned(), Some(code.to_owned()));
            let only_pid = Some(user.1.pid);
            ecalls.subscribe(peer, SubscriptionRequest { service, k_code, only_pid, ..Default::default() })
        };
        let taken: Vec<u64> = (0..3).map(|_| subscribe(user.1).unwrap().instructions).collect();
        assert!(taken.iter().all(|instructions| (50_000..60_000).contains(instructions)), "{taken:?}");
        let refused = subscribe(user.1).unwrap_err();
        assert!(refused.code == "ecalls_limit" && refused.message.contains("200000 is the limit"), "{refused:?}");
        assert!(refused.message.contains(&taken.iter().sum::<u64>().to_string()), "{refused:?}");
        let root = Peer { pid: 1, owner: Owner { uid: 0, gid: 0 } };
        (0..5).for_each(|_| drop(subscribe(root).unwrap()));
    }

    #[test]
    fn a_user_who_ends_a_busy_handler_and_installs_it_again_is_refused_until_the_share_covers_it() {
        let (folder, user) = (tempfile::tempdir().unwrap(), UserProcess::start());
        let ecalls = Ecalls::new(EcallsConfig::default(), folder.path(), &Ending::new().unwrap()).unwrap();
        let subscribe = |peer: Peer| {
            let (service, k_code) = (misses::SERVICE.to_owned(), Some("return 1;".to_owned()));
            let only_pid = Some(user.1.pid);
            ecalls.subscribe(peer, SubscriptionRequest { service, k_code, only_pid, ..Default::default() })
        };
        let root = Peer { pid: 1, owner: Owner { uid: 0, gid: 0 } };
        for peer in [user.1, root] {
            let id = subscribe(peer).unwrap().id;
            let busy = ecalls.registry().subscription(id, peer).unwrap().clone();
            busy.tally.run_ns.fetch_add(60_000_000_000, Ordering::Relaxed);
            ecalls.unsubscribe(peer, id).unwrap();
        }
        let refused = subscribe(user.1).unwrap_err();
        assert_eq!(refused.code, "ecalls_limit");
        assert!(refused.message.contains("0.1 CPU (ecalls.max_cpu_per_user)"), "{refused:?}");
        subscribe(root).expect("root has no limit");
    }

    #[test]
    fn a_users_timers_are_rare_and_a_hook_that_slows_all_system_calls_needs_a_grant() {
        let (folder, user) = (tempfile::tempdir().unwrap(), UserProcess::start());
        let ecalls = Ecalls::new(EcallsConfig::default(), folder.path(), &Ending::new().unwrap()).unwrap();
        if ecalls.kernel().is_err() {
            return qfabric_linux::testing::skip("no handlers in this kernel");
        }
        let subscribe = |peer: Peer, options: &[(&str, &str)]| {
            let (service, k_code) = ("app.deferred".to_owned(), Some("return 1;".to_owned()));
            let options = options.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
            let only_pid = Some(user.1.pid);
            ecalls.subscribe(peer, SubscriptionRequest { service, k_code, options, only_pid, ..Default::default() })
        };
        let delay = |delay| [("when", "delay"), ("delay", delay)];
        let refused = subscribe(user.1, &[("when", "syscall")]).unwrap_err();
        assert!(refused.code == "not_granted" && refused.next_step.contains("[ecalls.users]"), "{refused:?}");
        let refused = subscribe(user.1, &delay("999us")).unwrap_err();
        assert!(refused.code == "ecalls_limit" && refused.message.contains("1ms is the limit"), "{refused:?}");
        let taken: Vec<_> = (0..2).map(|_| subscribe(user.1, &delay("2ms")).unwrap().id).collect();
        let refused = subscribe(user.1, &delay("1s")).unwrap_err();
        assert!(refused.message.contains("1001 times per second, 1000 is the limit"), "{refused:?}");
        ecalls.unsubscribe(user.1, taken[0]).unwrap();
        subscribe(user.1, &delay("10ms")).unwrap();
        let root = Peer { pid: 1, owner: Owner { uid: 0, gid: 0 } };
        subscribe(root, &[("when", "syscall")]).unwrap();
        subscribe(root, &delay("100us")).unwrap();
    }

    #[test]
    fn all_users_together_leave_an_eighth_of_the_subscriptions_to_root() {
        let (folder, user) = (tempfile::tempdir().unwrap(), UserProcess::start());
        let config = EcallsConfig { max_subscriptions: 16, ..EcallsConfig::default() };
        let ecalls = Ecalls::new(config, folder.path(), &Ending::new().unwrap()).unwrap();
        let subscribe = |peer: Peer| {
            let (service, k_code) = (misses::SERVICE.to_owned(), Some("return 1;".to_owned()));
            let only_pid = Some(user.1.pid);
            ecalls.subscribe(peer, SubscriptionRequest { service, k_code, only_pid, ..Default::default() })
        };
        let root = Peer { pid: 1, owner: Owner { uid: 0, gid: 0 } };
        (0..14).for_each(|_| drop(subscribe(user.1).unwrap()));
        let refused = subscribe(user.1).unwrap_err();
        assert!(refused.message.contains("14 is the limit"), "{refused:?}");
        (0..2).for_each(|_| drop(subscribe(root).unwrap()));
        assert!(subscribe(root).unwrap_err().message.contains("16 is the limit"));
    }

    #[test]
    fn groups_of_the_same_name_of_two_users_are_separate() {
        let (folder, user) = (tempfile::tempdir().unwrap(), UserProcess::start());
        let ecalls = Ecalls::new(EcallsConfig::default(), folder.path(), &Ending::new().unwrap()).unwrap();
        let root = Peer { pid: 1, owner: Owner { uid: 0, gid: 0 } };
        let subscribe = |peer: Peer| {
            let (service, group) = (misses::SERVICE.to_owned(), Some("workers".to_owned()));
            let (k_code, only_pid) = (Some("return 1;".to_owned()), Some(user.1.pid));
            let request = SubscriptionRequest { service, group, k_code, only_pid, ..Default::default() };
            ecalls.subscribe(peer, request).unwrap()
        };
        let [first, _, roots] = [user.1, user.1, root].map(subscribe);
        assert_eq!(first.group.as_deref(), Some("workers"));
        let mut registry = ecalls.registry();
        let (id, _) = registry.service(misses::SERVICE).unwrap();
        for _ in 0..4 {
            let told = registry.services.get_mut(&id).unwrap().receivers(-1, Some(user.1.pid));
            let of = |uid: u32| told.iter().filter(|subscription| subscription.terms.owner.uid == uid).count();
            assert_eq!((of(user.1.owner.uid), of(0)), (1, 1));
        }
        drop(registry);
        ecalls.unsubscribe(root, roots.id).unwrap();
        assert_eq!(ecalls.registry().services[&id].groups.len(), 1, "the other user's group stays");
    }
}
