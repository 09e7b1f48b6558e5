//! Loads, attaches and runs programs that this crate generated.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use libbpf_sys as bpf;
use perf_event_open_sys::bindings as perf;
use qfabric_ecode::bpf::{Code, Insn};

use super::sys::{self, Link, ProgramInfo, ProgramSpec, SkbSide};
use super::{Map, TypeId};

/// Purpose of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A tracepoint whose arguments are typed pointers.
    Tracepoint(TypeId),
    Packets(SkbSide),
    /// Runs on the bytes that arrive at the sockets of a map.
    Streams,
    /// Runs when a TCP connection of a control group changes its state.
    Connections,
    Perf,
    /// Runs on demand, without a hook.
    Demand,
    /// Runs when a process with its descriptor calls it.
    Call,
    /// Lists objects of the kernel: those of this function (`bpf_iter_…`), for each of which it runs.
    Listing(TypeId),
}

/// `BPF_F_SLEEPABLE`: the kernel requires it of programs that a process calls.
const SLEEPABLE: u32 = 1 << 4;

/// Code, and the maps to which it refers by number.
pub(crate) struct Program<'a> {
    pub kind: Kind,
    pub code: Code,
    pub maps: &'a [BorrowedFd<'a>],
}

/// The kernel refused a program.
#[derive(Debug)]
pub(crate) struct LoadError {
    pub error: io::Error,
    /// The end of the verifier's log; empty if the verifier wrote nothing.
    pub log: String,
}

#[derive(Debug)]
pub(crate) struct Loaded {
    fd: OwnedFd,
    kind: Kind,
    took: Duration,
}

const LOG_BYTES: usize = 16 << 20;
const LOG_SHOWN: usize = 4 << 10;

impl Program<'_> {
    /// Loads the program; the kernel verifies it. Only after a refusal is the call repeated with a log, to get the
    /// reason: writing a log takes several times as long as loading, and a log buffer that is too small makes the call
    /// fail.
    pub(crate) fn load(mut self) -> Result<Loaded, LoadError> {
        self.relocate();
        let started = Instant::now();
        let spec = self.spec();
        let first = match sys::prog_load(&spec, None) {
            Ok(fd) => return Ok(Loaded { fd, kind: self.kind, took: started.elapsed() }),
            Err(error) => error,
        };
        let mut log = vec![0; LOG_BYTES];
        match sys::prog_load(&spec, Some(&mut log)) {
            Ok(fd) => Ok(Loaded { fd, kind: self.kind, took: started.elapsed() }),
            Err(_) => Err(LoadError { error: first, log: tail(&log) }),
        }
    }

    fn relocate(&mut self) {
        use std::os::fd::AsRawFd;
        for &(at, map) in &self.code.relocations {
            self.code.insns[at].imm = self.maps[map as usize].as_raw_fd();
        }
    }

    fn spec(&self) -> ProgramSpec<'_> {
        let (kind, attach_type, attach_btf_id) = match self.kind {
            Kind::Tracepoint(id) => (bpf::BPF_PROG_TYPE_TRACING, bpf::BPF_TRACE_RAW_TP, id.0),
            Kind::Packets(SkbSide::Ingress) => (bpf::BPF_PROG_TYPE_SCHED_CLS, bpf::BPF_TCX_INGRESS, 0),
            Kind::Packets(SkbSide::Egress) => (bpf::BPF_PROG_TYPE_SCHED_CLS, bpf::BPF_TCX_EGRESS, 0),
            Kind::Streams => (bpf::BPF_PROG_TYPE_SK_SKB, bpf::BPF_SK_SKB_VERDICT, 0),
            Kind::Connections => (bpf::BPF_PROG_TYPE_SOCK_OPS, bpf::BPF_CGROUP_SOCK_OPS, 0),
            Kind::Perf => (bpf::BPF_PROG_TYPE_PERF_EVENT, 0, 0),
            Kind::Demand => (bpf::BPF_PROG_TYPE_SCHED_CLS, 0, 0),
            Kind::Call => (bpf::BPF_PROG_TYPE_SYSCALL, 0, 0),
            Kind::Listing(objects) => (bpf::BPF_PROG_TYPE_TRACING, bpf::BPF_TRACE_ITER, objects.0),
        };
        let flags = if self.kind == Kind::Call { SLEEPABLE } else { 0 };
        ProgramSpec { name: c"qfabric", kind, attach_type, attach_btf_id, flags, insns: &self.code.insns }
    }
}

fn tail(log: &[u8]) -> String {
    let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
    String::from_utf8_lossy(&log[end.saturating_sub(LOG_SHOWN)..end]).trim().to_owned()
}

impl Loaded {
    /// A second descriptor of the program.
    pub(crate) fn try_clone(&self) -> io::Result<Loaded> {
        Ok(Loaded { fd: self.fd.try_clone()?, kind: self.kind, took: self.took })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Whether processes call it.
    pub(crate) fn is_called(&self) -> bool {
        self.kind == Kind::Call
    }

    /// Calls the program, which reads and writes `context`.
    pub(crate) fn call(&self, context: &mut [u8]) -> io::Result<()> {
        match self.kind {
            Kind::Call => sys::run_syscall(self.fd.as_fd(), context).map(drop),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Lists objects of the kernel: the numbers of 4 bytes that the program writes.
    pub(crate) fn list(&self) -> io::Result<Vec<u32>> {
        if !matches!(self.kind, Kind::Listing(_)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut bytes = Vec::new();
        sys::open_listing(self.fd.as_fd())?.read_to_end(&mut bytes)?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|word| u32::from_ne_bytes(*word)).collect())
    }

    /// Duration of verification and translation.
    pub(crate) fn took(&self) -> Duration {
        self.took
    }

    pub(crate) fn info(&self) -> io::Result<ProgramInfo> {
        sys::prog_info(self.fd.as_fd())
    }

    pub(crate) fn attach_tracepoint(&self) -> io::Result<Link> {
        sys::attach_tracepoint(self.fd.as_fd())
    }

    pub(crate) fn attach_interface(&self, interface: u32) -> io::Result<Link> {
        match self.kind {
            Kind::Packets(side) => sys::attach_tcx(self.fd.as_fd(), interface, side),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Attaches the program to the sockets that are added to the map from now on. The map has at most one program.
    pub(crate) fn attach_sockets(&self, sockets: &Map) -> io::Result<()> {
        match self.kind {
            Kind::Streams => sys::attach_sockets(self.fd.as_fd(), sockets.fd()),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Attaches the program to the connections of a control group and the groups below it.
    pub(crate) fn attach_group(&self, group: BorrowedFd) -> io::Result<Link> {
        match self.kind {
            Kind::Connections => sys::attach_group(self.fd.as_fd(), group),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Attaches the program to a timer on the given CPU that fires every `period_ns` (at least 10,000).
    pub(crate) fn attach_timer(&self, cpu: u32, period_ns: u64) -> io::Result<Link> {
        let mut attr = perf::perf_event_attr::default();
        attr.type_ = perf::PERF_TYPE_SOFTWARE;
        attr.config = u64::from(perf::PERF_COUNT_SW_CPU_CLOCK);
        attr.__bindgen_anon_1.sample_period = period_ns;
        attr.set_disabled(1);
        let event = crate::sys::perf_event_open(&mut attr, -1, cpu as i32)?;
        sys::attach_perf(self.fd.as_fd(), event)
    }

    /// Runs the program `repeat` times. Returns the last result and the mean duration of a run.
    pub(crate) fn run(&self, repeat: u32) -> io::Result<(u32, Duration)> {
        let (result, ns) = sys::test_run(self.fd.as_fd(), repeat)?;
        Ok((result, Duration::from_nanos(ns.into())))
    }
}

/// The kernel measures the run times of programs while the returned descriptor is open.
pub(crate) fn enable_stats() -> io::Result<OwnedFd> {
    sys::enable_stats()
}

/// True if the kernel has a program with this id.
pub(crate) fn exists(id: u32) -> bool {
    sys::prog_exists(id)
}

/// Finds out if this process may load programs, by loading the smallest one.
pub(crate) fn probe() -> io::Result<()> {
    let exit = [Insn { code: 0xb7, ..Insn::default() }, Insn { code: 0x95, ..Insn::default() }];
    let code = Code { insns: exit.to_vec(), relocations: Vec::new() };
    let program = Program { kind: Kind::Demand, code, maps: &[] };
    sys::prog_load(&program.spec(), None).map(drop)?;
    Map::array(8, 1).map(drop)
}
