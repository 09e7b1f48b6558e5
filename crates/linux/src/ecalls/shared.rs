//! One program per hook for the handlers of many processes, so that the cost of an event of a process without handlers
//! does not depend on the number of handlers of other processes.
//!
//! ```text
//! event ─> shared program: first process ─> its handlers ─┐      table `heads`: process → first handler
//!                                                         v      `nexts`: handler → next handler of the process
//!                          second process ─> its handlers        `programs`: handler → program
//! ```
//! Each arrow is a tail call, which never returns. So each handler ends with a tail call to the next one, and the last
//! one with a call of entry 0: the program for the event's second process, or none. The kernel allows 33 tail calls in
//! a row, so a shared program has at most [`CHAIN`] handlers of one process; a further handler of this process goes to
//! the next shared program of the hook.
//!
//! A handler checks by itself whether the event concerns its process, so an event that meets a change of the tables
//! never reaches a wrong one. If it meets a handler that is just being removed, the call fails, and the event goes on
//! with the next one: a removed handler keeps its entry in `nexts` until its number is given out again.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use qfabric_ecode::bpf::{Alu, Asm, Code, Jmp, Label, Reg, Size};
use qfabric_sync::{Lock, rank};
use qfabric_types::format::Format;

use super::options::Options;
use super::services::{At, Hook};
use super::source::{CONTEXT, Prologue, helper};
use crate::bpf::{self, Btf, Link, Loaded, Map, Mapping, Table};

/// Handlers of one process at one shared program.
const CHAIN: usize = 15;
/// Handlers at one shared program, a power of two; entry 0 is not a handler.
const HANDLERS: u32 = 4096;
/// Entry of the program that continues with the event's second process.
const SECOND: u32 = 0;
/// No process has this id.
const NO_PROCESS: i32 = -1;

/// Map numbers in the shared programs.
const HEADS: u32 = 0;
const PROGRAMS: u32 = 1;
const OTHER: u32 = 2;
const NEXTS: u32 = 3;
/// Offset of the number of failed calls in `nexts`: the place of [`SECOND`], which is followed by no handler.
const MISSED: usize = 8 * SECOND as usize;
/// Stack offset of the key of a look-up.
const KEY: i16 = -16;

/// The shared programs of a kernel.
#[derive(Debug, Default)]
pub(super) struct SharedHooks {
    all: Lock<Vec<SharedHook>, { rank::SHARED_HOOKS }>,
}

/// The maps of a shared program that its handlers use.
#[derive(Debug)]
struct Maps {
    programs: Map,
    nexts: Map,
}

#[derive(Debug)]
struct SharedHook {
    // The link comes first: a detached program no longer runs when its maps are freed.
    _link: Link,
    loaded: Vec<Loaded>,
    hook: &'static Hook,
    maps: Arc<Maps>,
    heads: Table,
    programs: Table,
    nexts: Mapping,
    /// The handlers of each process, in their order.
    chains: BTreeMap<i32, Vec<u32>>,
    /// Reserved numbers, connected or not.
    taken: BTreeSet<(i32, u32)>,
    /// The number after the last one that was given out, so that a number is not reused at once.
    fresh: u32,
}

/// The place of a handler at a shared program; free again when dropped.
#[derive(Debug)]
pub(super) struct Seat {
    hooks: Arc<SharedHooks>,
    maps: Arc<Maps>,
    pid: i32,
    pub number: u32,
}

impl SharedHooks {
    /// A place for a handler of the process at a hook. `None`: the events of this hook belong to no process, or this
    /// kernel cannot share programs; then the handler is attached alone.
    pub(super) fn seat(self: &Arc<Self>, btf: &Btf, hook: &'static Hook, pid: i32) -> Option<Seat> {
        if hook.processes.is_empty() || hook.processes.len() > 2 || !matches!(hook.at, At::Tracepoint(_)) {
            return None;
        }
        let mut all = self.all.lock();
        let found = all.iter_mut().find(|shared| std::ptr::eq(shared.hook, hook) && shared.has_room(pid));
        let shared = match found {
            Some(shared) => shared,
            None => {
                let made = SharedHook::new(btf, hook);
                let made = made.inspect_err(|why| tracing::debug!(%why, "handlers at this hook are attached alone"));
                all.push(made.ok()?);
                all.last_mut()?
            }
        };
        let number = shared.reserve(pid);
        Some(Seat { hooks: self.clone(), maps: shared.maps.clone(), pid, number })
    }

    /// The kernel's ids of the shared programs.
    pub(super) fn program_ids(&self) -> Vec<u32> {
        let all = self.all.lock();
        let programs = all.iter().flat_map(|shared| &shared.loaded);
        programs.filter_map(|program| program.info().ok()).map(|info| info.id).collect()
    }

    /// Events that missed handlers of a process because [`CHAIN`] handlers before them were just being removed.
    pub(super) fn missed(&self) -> u64 {
        let all = self.all.lock();
        all.iter().map(|shared| shared.nexts.words(MISSED)[0].load(Ordering::Relaxed)).sum()
    }

    fn with<T>(&self, maps: &Arc<Maps>, act: impl FnOnce(&mut SharedHook) -> T) -> Option<T> {
        self.all.lock().iter_mut().find(|shared| Arc::ptr_eq(&shared.maps, maps)).map(act)
    }
}

impl Seat {
    /// The maps for the end of the handler's program: `nexts` and `programs`.
    pub(super) fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.maps.nexts.fd(), self.maps.programs.fd()]
    }

    /// From now on the handler receives events.
    pub(super) fn connect(&self, program: &Loaded) -> io::Result<()> {
        let connected = self.hooks.with(&self.maps, |shared| shared.connect(self.pid, self.number, program));
        connected.unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut all = self.hooks.all.lock();
        let Some(at) = all.iter().position(|shared| Arc::ptr_eq(&shared.maps, &self.maps)) else { return };
        all[at].remove(self.pid, self.number);
        if all[at].taken.is_empty() {
            let ended = all.swap_remove(at);
            drop(all);
            drop(ended);
        }
    }
}

/// Appends the end of a handler's program: a tail call to the next handler. `maps`: number of the map `nexts`, which
/// the map `programs` follows.
pub(super) fn go_to_next(asm: &mut Asm, maps: u32, number: u32) {
    asm.lddw_map_value(Reg::R8, maps, 8 * number);
    asm.load(Size::W, Reg::R8, Reg::R8, 0);
    go_to(asm, maps + 1, maps);
    asm.mov(Reg::R0, 0);
    asm.exit();
}

/// A tail call of entry r8. If the entry is empty, continues with the entry that follows it in `nexts`; after [`CHAIN`]
/// empty entries counts this and continues with the second process. Returns if there is none. Loses r7.
fn go_to(asm: &mut Asm, programs: u32, nexts: u32) {
    let (again, none) = (asm.label(), asm.label());
    asm.mov(Reg::R7, CHAIN as i32);
    asm.bind(again);
    tail_call(asm, programs);
    asm.jump_if(Jmp::Eq, Reg::R8, SECOND as i32, none);
    asm.alu64(Alu::And, Reg::R8, HANDLERS as i32 - 1);
    asm.alu64(Alu::Lsh, Reg::R8, 3);
    asm.lddw_map_value(Reg::R1, nexts, 0);
    asm.alu64(Alu::Add, Reg::R1, Reg::R8);
    asm.load(Size::W, Reg::R8, Reg::R1, 0);
    asm.alu64(Alu::Sub, Reg::R7, 1);
    asm.jump_if(Jmp::Ne, Reg::R7, 0, again);
    asm.lddw_map_value(Reg::R1, nexts, MISSED as u32);
    asm.mov(Reg::R0, 1);
    asm.atomic_add(Size::D, Reg::R1, 0, Reg::R0);
    asm.mov(Reg::R8, SECOND as i32);
    tail_call(asm, programs);
    asm.bind(none);
}

fn tail_call(asm: &mut Asm, programs: u32) {
    asm.load(Size::D, Reg::R1, Reg::R10, CONTEXT);
    asm.lddw_map(Reg::R2, programs);
    asm.mov(Reg::R3, Reg::R8);
    asm.call(helper::TAIL_CALL);
}

impl SharedHook {
    fn new(btf: &Btf, hook: &'static Hook) -> io::Result<SharedHook> {
        let At::Tracepoint(name) = hook.at else { return Err(io::ErrorKind::InvalidInput.into()) };
        let id = btf.tracepoint(name).ok_or(io::ErrorKind::NotFound)?;
        let (heads, programs) = (Map::table_of_words(HANDLERS)?, Map::programs(HANDLERS)?);
        let (nexts, other) = (Map::array(8 * HANDLERS, 1)?, Map::word_of_each_cpu()?);
        let load = |code: Code| {
            let maps = [heads.fd(), programs.fd(), other.fd(), nexts.fd()];
            let loaded = bpf::Program { kind: bpf::Kind::Tracepoint(id), code, maps: &maps }.load();
            loaded.map_err(|refusal| io::Error::other(format!("{}: {}", refusal.error, refusal.log)))
        };
        let mut loaded = vec![load(assemble(btf, hook)?)?];
        let entries = programs.table()?;
        if hook.processes.len() == 2 {
            loaded.push(load(second()?)?);
            entries.set(&SECOND, &loaded[1].fd().as_raw_fd())?;
        }
        Ok(SharedHook {
            _link: loaded[0].attach_tracepoint()?,
            loaded,
            hook,
            heads: heads.table()?,
            programs: entries,
            nexts: nexts.map(8 * HANDLERS as usize)?,
            maps: Arc::new(Maps { programs, nexts }),
            chains: BTreeMap::new(),
            taken: BTreeSet::new(),
            fresh: SECOND,
        })
    }

    fn has_room(&self, pid: i32) -> bool {
        let own = self.taken.range((pid, 0)..=(pid, u32::MAX)).count();
        own < CHAIN && self.taken.len() + 1 < HANDLERS as usize
    }

    /// A number that no handler has. There is one: see [`SharedHook::has_room`].
    fn reserve(&mut self, pid: i32) -> u32 {
        let is_taken = |number: u32| self.taken.iter().any(|(_, other)| *other == number);
        let after = |number: u32| if number + 1 < HANDLERS { number + 1 } else { SECOND + 1 };
        let mut number = after(self.fresh);
        while is_taken(number) {
            number = after(number);
        }
        self.fresh = number;
        self.taken.insert((pid, number));
        number
    }

    fn connect(&mut self, pid: i32, number: u32, program: &Loaded) -> io::Result<()> {
        self.set_next(number, SECOND);
        self.programs.set(&number, &program.fd().as_raw_fd())?;
        match self.chains.get(&pid).and_then(|chain| chain.last()) {
            Some(&last) => self.set_next(last, number),
            None => self.heads.set(&pid, &number)?,
        }
        self.chains.entry(pid).or_default().push(number);
        Ok(())
    }

    fn remove(&mut self, pid: i32, number: u32) {
        self.taken.remove(&(pid, number));
        let Some(chain) = self.chains.get_mut(&pid) else { return };
        let Some(at) = chain.iter().position(|other| *other == number) else { return };
        chain.remove(at);
        let (before, next) = (at.checked_sub(1).map(|at| chain[at]), chain.get(at).copied());
        let is_last = chain.is_empty();
        // A refusal of the kernel leaves an entry that leads to no program.
        let _ = match before {
            Some(before) => {
                self.set_next(before, next.unwrap_or(SECOND));
                Ok(())
            }
            None => next.map_or_else(|| self.heads.remove(&pid), |next| self.heads.set(&pid, &next)),
        };
        let _ = self.programs.remove(&number);
        if is_last {
            self.chains.remove(&pid);
        }
    }

    fn set_next(&self, number: u32, next: u32) {
        self.nexts.words(8 * number as usize)[0].store(next.into(), Ordering::Release);
    }
}

/// The shared program of a hook.
fn assemble(btf: &Btf, hook: &Hook) -> io::Result<Code> {
    let mut asm = Asm::new();
    let (leave, only_second) = (asm.label(), asm.label());
    asm.store(Size::D, Reg::R10, CONTEXT, Reg::R1);
    if let [first, second] = hook.processes {
        process(&mut asm, btf, hook, *second)?;
        asm.mov(Reg::R7, Reg::R1);
        process(&mut asm, btf, hook, *first)?;
        asm.mov(Reg::R6, Reg::R1);
        find(&mut asm, Reg::R6, only_second);
        // A switch inside one process is one event.
        let different = asm.label();
        asm.jump_if32(Jmp::Ne, Reg::R6, Reg::R7, different);
        asm.mov(Reg::R7, NO_PROCESS);
        asm.bind(different);
        remember(&mut asm, Reg::R7, leave);
        run(&mut asm, leave);
        asm.bind(only_second);
        find(&mut asm, Reg::R7, leave);
        asm.mov(Reg::R7, NO_PROCESS);
        remember(&mut asm, Reg::R7, leave);
    } else {
        process(&mut asm, btf, hook, hook.processes[0])?;
        find(&mut asm, Reg::R1, leave);
    }
    run(&mut asm, leave);
    end(asm, leave)
}

/// The program that continues with the event's second process, once.
fn second() -> io::Result<Code> {
    let mut asm = Asm::new();
    let leave = asm.label();
    asm.store(Size::D, Reg::R10, CONTEXT, Reg::R1);
    asm.store_imm(Size::W, Reg::R10, KEY, 0);
    look_up(&mut asm, OTHER, leave);
    asm.load(Size::W, Reg::R7, Reg::R0, 0);
    asm.store_imm(Size::W, Reg::R0, 0, NO_PROCESS);
    find(&mut asm, Reg::R7, leave);
    run(&mut asm, leave);
    end(asm, leave)
}

fn end(mut asm: Asm, leave: Label) -> io::Result<Code> {
    asm.bind(leave);
    asm.mov(Reg::R0, 0);
    asm.exit();
    asm.finish().map_err(io::Error::other)
}

/// r1 = the process that `source` names.
fn process(asm: &mut Asm, btf: &Btf, hook: &Hook, source: super::source::Source) -> io::Result<()> {
    let (given, wanted) = (BTreeMap::new(), BTreeSet::new());
    let format = Format { name: String::new(), size: 0, align: 1, fields: Vec::new() };
    let (skip, leave) = (asm.label(), asm.label());
    let mut prologue = Prologue {
        asm,
        options: Options::none(&given),
        skip,
        leave,
        btf,
        at: hook.at,
        format: &format,
        wanted: &wanted,
        input: 0,
        deferred_handler: 0,
    };
    prologue.process(source).map_err(|why| io::Error::other(why.to_string()))
}

/// r8 = the first handler of the process; jumps to `none` without one.
fn find(asm: &mut Asm, process: Reg, none: Label) {
    asm.store(Size::W, Reg::R10, KEY, process);
    look_up(asm, HEADS, none);
    asm.load(Size::W, Reg::R8, Reg::R0, 0);
}

/// r0 = the value of the key on the stack.
fn look_up(asm: &mut Asm, map: u32, none: Label) {
    asm.lddw_map(Reg::R1, map);
    asm.mov(Reg::R2, Reg::R10);
    asm.alu64(Alu::Add, Reg::R2, i32::from(KEY));
    asm.call(helper::MAP_LOOKUP_ELEM);
    asm.jump_if(Jmp::Eq, Reg::R0, 0, none);
}

/// Stores the process for [`second`], which runs on this CPU before another event does.
fn remember(asm: &mut Asm, process: Reg, leave: Label) {
    asm.store_imm(Size::W, Reg::R10, KEY, 0);
    look_up(asm, OTHER, leave);
    asm.store(Size::W, Reg::R0, 0, process);
}

/// Continues with handler r8.
fn run(asm: &mut Asm, leave: Label) {
    go_to(asm, PROGRAMS, NEXTS);
    asm.jump(leave);
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    use qfabric_ecode::{Environment, Limits, Program, compile};
    use rustix::process::Pid;
    use rustix::thread::CpuSet;

    use super::super::{DownMemory, Install, Installed, Kernel, Step};
    use super::*;

    fn of_process(kernel: &Kernel, pid: i32, program: &Program) -> (Installed, DownMemory) {
        let down = DownMemory::new().unwrap();
        let request = Install {
            service: "sched.switch",
            options: &BTreeMap::new(),
            only_pid: Some(pid),
            steps: &[Step::Handler(program)],
            limits: Limits::default(),
            down: Some(&down),
            deadline: None,
            fault_passes: true,
            measured: false,
        };
        (kernel.install(&request).unwrap(), down)
    }

    /// This thread and a child answer each other on one CPU. The entries of this process's first two handlers are empty,
    /// as while they are being removed. Its last handler and the child's get all switches.
    #[test]
    fn an_event_that_meets_removed_handlers_continues_with_the_next_one_and_its_second_process() {
        const TURNS: i64 = 200;
        let Ok(kernel) = Kernel::open().map_err(crate::testing::skip) else { return };
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let pids = [std::process::id() as i32, child.id() as i32];
        let mut one_cpu = CpuSet::new();
        one_cpu.set(0);
        for pid in [None, Pid::from_raw(pids[1])] {
            rustix::thread::sched_setaffinity(pid, &one_cpu).unwrap();
        }
        let input = Some(kernel.service("sched.switch").unwrap().format.clone());
        let environment = Environment { input, attributes: vec!["seen".into()], ..Environment::default() };
        let program = compile("attr.seen += input.next_pid != 0; return 1;", &environment).unwrap();
        let handlers = [pids[0], pids[0], pids[0], pids[1]].map(|pid| of_process(&kernel, pid, &program));
        for at in 0..2 {
            let shared = &kernel.shared().all.lock()[0];
            shared.programs.remove(&shared.chains[&pids[0]][at]).unwrap();
        }
        let (mut to, mut from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut turn = || {
            to.write_all(b"x").unwrap();
            from.read_exact(&mut [0]).unwrap();
        };
        let seen = || handlers.each_ref().map(|(_, down)| down.down().attribute(0));
        turn();
        let before = seen();
        (0..TURNS).for_each(|_| turn());
        let after = seen();
        drop(to);
        child.wait().unwrap();
        assert_eq!(after[..2], before[..2], "no event reaches the removed handlers");
        assert!((2..4).all(|at| after[at] - before[at] >= TURNS - 1), "{before:?} {after:?}");
        assert_eq!(kernel.missed_by_removals(), 0);
    }
}
