//! The machine in this kernel, called step by step.

use std::io;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use qfabric_linux::abi::*;
use qfabric_linux::bpf::object::Entry;
use qfabric_linux::bpf::{Object, OpenObject, Table, objects};

/// The shared machine in its initial state. Tests use it in turn, because verifying the object takes longer than most
/// tests.
pub(crate) fn fresh() -> MutexGuard<'static, Kernel> {
    static ONE: OnceLock<Mutex<Kernel>> = OnceLock::new();
    let kernel = ONE.get_or_init(|| Mutex::new(Kernel::load())).lock().unwrap_or_else(PoisonError::into_inner);
    kernel.reset();
    kernel
}

/// The test object with two CPUs.
pub(crate) struct Kernel {
    _object: Object,
    call: Entry,
    control: Entry,
    decide: Entry,
    cpus: Table,
    servers: Table,
}

impl Kernel {
    fn load() -> Kernel {
        let object = OpenObject::open("test/machine", objects::TEST_MACHINE).unwrap();
        let object = object.load().unwrap_or_else(|error| panic!("{error}"));
        let (call, decide) = (object.entry("call").unwrap(), object.entry("decide").unwrap());
        let (cpus, servers) = (object.table("cpus").unwrap(), object.table(".bss.servers").unwrap());
        Kernel { control: object.entry("control").unwrap(), _object: object, call, decide, cpus, servers }
    }

    /// Returns the machine to its initial state.
    pub(crate) fn reset(&self) {
        self.servers.clear(&0u32).unwrap();
        for cpu in [0u32, 1] {
            self.cpus.clear(&cpu).unwrap();
            self.command(QF_TEST_CPU, cpu, 0, 0, cpu.into()).unwrap();
        }
    }

    pub(crate) fn add(&self, cpu: u32, slot: u32, config: qf_config) -> io::Result<i32> {
        let mut call = qf_test_call { op: QF_TEST_ADD, cpu, slot, config, ..Default::default() };
        self.call.call(&mut call)
    }

    pub(crate) fn change(&self, slot: u32, config: qf_config, now_ns: u64) -> io::Result<i32> {
        let mut call = qf_test_call { op: QF_TEST_CHANGE, slot, now_ns, config, ..Default::default() };
        self.call.call(&mut call)
    }

    /// Any other operation.
    pub(crate) fn command(&self, op: u32, cpu: u32, slot: u32, now_ns: u64, argument: u64) -> io::Result<i32> {
        let mut call = qf_test_call { op, cpu, slot, now_ns, argument, ..Default::default() };
        self.call.call(&mut call)
    }

    /// The decision at `now_ns`, after `used_ns` are charged to the last decision.
    pub(crate) fn decide(&mut self, cpu: u32, now_ns: u64, used_ns: u64) -> qf_test_decide {
        self.ask(cpu, now_ns, used_ns, false)
    }

    /// The decision that the machine would make, without making it.
    pub(crate) fn peek(&mut self, cpu: u32, now_ns: u64) -> qf_test_decide {
        self.ask(cpu, now_ns, 0, true)
    }

    fn ask(&mut self, cpu: u32, now_ns: u64, used_ns: u64, peek: bool) -> qf_test_decide {
        let mut decide =
            qf_test_decide { now_ns, used_ns, cpu, best_effort: 1, peek: peek.into(), ..Default::default() };
        self.decide.call(&mut decide).unwrap();
        decide
    }

    pub(crate) fn control(&self, slot: u32, config: qf_control_config) -> io::Result<i32> {
        self.control.call(&mut qf_test_control { slot, config, ..Default::default() })
    }

    /// Charges `used_ns` to the last decision, without a new decision.
    pub(crate) fn account(&mut self, cpu: u32, now_ns: u64, used_ns: u64) {
        let mut call = qf_test_decide { now_ns, used_ns, cpu, account_only: 1, ..Default::default() };
        self.decide.call(&mut call).unwrap();
    }

    pub(crate) fn server(&self, slot: u32) -> qf_server {
        self.servers.variable(slot as usize * size_of::<qf_server>()).unwrap()
    }
}

/// A server that wants C in every T, from time 0 on.
pub(crate) fn config(period_ns: u64, service_ns: u64, x: u16, y: u16) -> qf_config {
    qf_config { period_ns, service_ns, x, y, ask: QF_ASK_READY, ..Default::default() }
}
