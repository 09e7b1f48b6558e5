//! Helpers shared by the tests of handlers in the running kernel.

use std::collections::BTreeMap;
use std::time::Duration;

use qfabric_ecode::{Environment, Limits, Program, compile};
use qfabric_linux::ecalls::{DownMemory, Install, InstallError, Installed, Kernel, Step, UpMemory};
use qfabric_types::Nanos;
use qfabric_types::format::Format;
use qfabric_types::memory::{Geometry, Layout};

pub(crate) fn options(of: &[(&str, &str)]) -> BTreeMap<String, String> {
    of.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

pub(crate) fn own_pid() -> i32 {
    std::process::id() as i32
}

/// A request to install a handler chain. Each test changes only the fields that matter to it.
pub(crate) struct Request {
    pub service: &'static str,
    pub options: BTreeMap<String, String>,
    pub pid: Option<i32>,
    pub deadline: Option<Nanos>,
    pub fault_passes: bool,
    pub measured: bool,
    pub limits: Limits,
}

impl Request {
    pub(crate) fn of(service: &'static str) -> Request {
        let (options, limits) = (BTreeMap::new(), Limits::default());
        Request { service, options, pid: None, deadline: None, fault_passes: true, measured: false, limits }
    }

    pub(crate) fn with(service: &'static str, options: &[(&str, &str)]) -> Request {
        Request { options: self::options(options), ..Request::of(service) }
    }

    pub(crate) fn own(self) -> Request {
        Request { pid: Some(own_pid()), ..self }
    }

    pub(crate) fn install(
        &self,
        kernel: &Kernel,
        steps: &[Step],
        down: Option<&DownMemory>,
    ) -> Result<Installed, InstallError> {
        kernel.install(&Install {
            service: self.service,
            options: &self.options,
            only_pid: self.pid,
            steps,
            limits: self.limits,
            down,
            deadline: self.deadline,
            fault_passes: self.fault_passes,
            measured: self.measured,
        })
    }

    pub(crate) fn program(&self, kernel: &Kernel, text: &str) -> Program {
        let input = Some(kernel.service(self.service).unwrap().format.clone());
        let env = Environment { input, attributes: vec!["seen".into(), "limit".into()], ..Environment::default() };
        compile(text, &env).unwrap_or_else(|errors| panic!("{}", errors.render("test", text, false)))
    }
}

pub(crate) fn up(format: &Format) -> UpMemory {
    UpMemory::new(Geometry::new(Layout::Ring, 64, format.size).unwrap()).unwrap()
}

/// Reads a field of an event that is a single number.
pub(crate) fn number(format: &Format, data: &[u8], name: &str) -> i64 {
    let field = format.field(name).unwrap_or_else(|| panic!("{} has no field {name}", format.name));
    let qfabric_types::format::Kind::Scalar(scalar) = field.kind else { panic!("{name} is not a number") };
    let mut bytes = [0; 8];
    let (at, length) = (field.offset as usize, scalar.bytes() as usize);
    bytes[..length].copy_from_slice(&data[at..at + length]);
    scalar.wrap(i64::from_le_bytes(bytes))
}

pub(crate) fn take_event(of: &UpMemory) -> Option<Vec<u8>> {
    let mut data = vec![0; of.geometry().data_bytes() as usize];
    of.reader().take(&mut data).is_some().then_some(data)
}

/// Waits for the next event. The limit of a minute only ends a test that hangs.
pub(crate) fn event(of: &UpMemory) -> Vec<u8> {
    let waited = (0..12_000).find_map(|_| {
        let data = take_event(of);
        if data.is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        data
    });
    waited.expect("an event within a minute")
}

/// Makes this process sleep for 2 ms and be woken.
pub(crate) fn nap() {
    std::thread::sleep(Duration::from_millis(2));
}

/// Naps until the chain has run for more events than before. One nap does not suffice: the kernel gives an event up if
/// it interrupts a handler of the same hook on the same processor, and tests run side by side.
pub(crate) fn nap_until_run(chain: &Installed) {
    let runs = || {
        let counters = chain.counters();
        counters.passed + counters.blocked
    };
    let before = runs();
    let waited = (0..5_000).find(|_| {
        nap();
        runs() > before
    });
    assert!(waited.is_some(), "{:?}", chain.counters());
}

/// The kernel, if this process may install handlers in it. Otherwise prints to standard error that the test is skipped.
pub(crate) fn kernel() -> Option<Kernel> {
    Kernel::open().map_err(qfabric_linux::testing::skip).ok()
}
