//! Wraps the BPF system calls, through libbpf's thin wrappers. Each function is safe to call with any arguments: the
//! kernel refuses arguments that do not fit. The kernel's verifier and its locks may take long, so no function may be
//! called with a lock of the event path held.
#![allow(unsafe_code)] // the BPF system calls of this room; other modules use these safe functions

use std::ffi::{CStr, c_char, c_void};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_sys as bpf;
use perf_event_open_sys::ioctls;
use qfabric_ecode::bpf::Insn;
use qfabric_sync::assert_may_block;

/// Map types that have a value for each CPU.
const PER_CPU: [u32; 4] = [
    bpf::BPF_MAP_TYPE_PERCPU_HASH,
    bpf::BPF_MAP_TYPE_PERCPU_ARRAY,
    bpf::BPF_MAP_TYPE_LRU_PERCPU_HASH,
    bpf::BPF_MAP_TYPE_PERCPU_CGROUP_STORAGE,
];

/// Parameters of a new map.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MapSpec<'a> {
    pub kind: u32,
    pub key_bytes: u32,
    pub value_bytes: u32,
    pub entries: u32,
    pub flags: u32,
    /// Type information: descriptor, type of the key, type of the value.
    pub btf: Option<(BorrowedFd<'a>, u32, u32)>,
}

/// Parameters of a program to load.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProgramSpec<'a> {
    pub name: &'a CStr,
    pub kind: u32,
    pub attach_type: u32,
    pub attach_btf_id: u32,
    pub flags: u32,
    pub insns: &'a [Insn],
}

/// Direction of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SkbSide {
    Ingress,
    Egress,
}

/// An attached program; detached when dropped.
#[derive(Debug)]
pub(crate) struct Link {
    _fd: OwnedFd,
}

/// The kernel's counters of a program.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProgramInfo {
    pub id: u32,
    pub run_ns: u64,
    pub runs: u64,
    pub verified_insns: u32,
    pub recursion_misses: u64,
}

/// Access to the entries of a map. The kernel copies as many bytes as the map's key and value have, regardless of the
/// buffers. Therefore this type asks for their sizes once (they never change) and checks every call against them.
#[derive(Debug)]
pub(super) struct Entries {
    map: OwnedFd,
    key_bytes: usize,
    value_bytes: usize,
}

impl Entries {
    /// Wraps an existing map. Refuses maps with a value for each CPU, because the kernel copies several values for
    /// them.
    pub(super) fn of(map: OwnedFd) -> io::Result<Entries> {
        assert_may_block("asking the kernel about a map");
        let mut info = bpf::bpf_map_info::default();
        let mut length = size_of::<bpf::bpf_map_info>() as u32;
        // SAFETY: info is live and `length` holds its size.
        answer(unsafe { bpf::bpf_map_get_info_by_fd(map.as_raw_fd(), &raw mut info, &raw mut length) })?;
        match PER_CPU.contains(&info.type_) {
            false => Ok(Entries { map, key_bytes: info.key_size as usize, value_bytes: info.value_size as usize }),
            true => Err(invalid(format!(
                "the map of type {} has a value for each CPU, but only one value is supported",
                info.type_
            ))),
        }
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.map
    }

    /// Size of a value, in bytes.
    pub(super) fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    pub(super) fn update(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.update_with(key, value, 0)
    }

    /// Writes under the lock inside the value, a `bpf_spin_lock`, which is not overwritten.
    pub(super) fn update_locked(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.update_with(key, value, u64::from(bpf::BPF_F_LOCK))
    }

    fn update_with(&self, key: &[u8], value: &[u8], flags: u64) -> io::Result<()> {
        assert_may_block("writing to a map");
        self.check(key, Some(value))?;
        let (key, value) = (key.as_ptr().cast::<c_void>(), value.as_ptr().cast::<c_void>());
        // SAFETY: the kernel reads as many bytes as the map's key and value have; `check` has compared the lengths.
        answer(unsafe { bpf::bpf_map_update_elem(self.map.as_raw_fd(), key, value, flags) }).map(drop)
    }

    pub(super) fn lookup(&self, key: &[u8], value: &mut [u8]) -> io::Result<()> {
        assert_may_block("reading from a map");
        self.check(key, Some(value))?;
        let (key, value) = (key.as_ptr().cast::<c_void>(), value.as_mut_ptr().cast::<c_void>());
        // SAFETY: the kernel reads and writes as many bytes as the map's key and value have; `check` has compared the
        // lengths.
        answer(unsafe { bpf::bpf_map_lookup_elem(self.map.as_raw_fd(), key, value) }).map(drop)
    }

    pub(super) fn delete(&self, key: &[u8]) -> io::Result<()> {
        assert_may_block("removing from a map");
        self.check(key, None)?;
        // SAFETY: the kernel reads as many bytes as the map's key has; `check` has compared the length.
        answer(unsafe { bpf::bpf_map_delete_elem(self.map.as_raw_fd(), key.as_ptr().cast::<c_void>()) }).map(drop)
    }

    /// From now on only programs write to the map; the kernel refuses if it is mapped for writing.
    pub(super) fn freeze(&self) -> io::Result<()> {
        assert_may_block("freezing a map");
        // SAFETY: takes only a number.
        answer(unsafe { bpf::bpf_map_freeze(self.map.as_raw_fd()) }).map(drop)
    }

    fn check(&self, key: &[u8], value: Option<&[u8]>) -> io::Result<()> {
        same("key", key.len(), self.key_bytes)?;
        value.map_or(Ok(()), |value| same("value", value.len(), self.value_bytes))
    }
}

fn same(what: &str, asked: usize, has: usize) -> io::Result<()> {
    match asked == has {
        true => Ok(()),
        false => {
            Err(invalid(format!("a {what} of {asked} bytes does not fit the map, whose {what}s have {has} bytes")))
        }
    }
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// Converts instructions to the kernel's form of 8 bytes each; [`Insn`] has the same fields in another order.
fn packed(insns: &[Insn]) -> Vec<u64> {
    insns.iter().map(|insn| u64::from_le_bytes(insn.to_bytes())).collect()
}

pub(super) fn map_create(spec: &MapSpec) -> io::Result<OwnedFd> {
    assert_may_block("making a map");
    let mut opts = bpf::bpf_map_create_opts { sz: size_of::<bpf::bpf_map_create_opts>() as _, ..Default::default() };
    opts.map_flags = spec.flags;
    if let Some((btf, key, value)) = spec.btf {
        (opts.btf_fd, opts.btf_key_type_id, opts.btf_value_type_id) = (btf.as_raw_fd() as u32, key, value);
    }
    // SAFETY: name and opts are live, opts holds its own size; the call keeps no pointer.
    let fd = unsafe {
        bpf::bpf_map_create(
            spec.kind,
            c"qfabric".as_ptr(),
            spec.key_bytes,
            spec.value_bytes,
            spec.entries,
            &raw const opts,
        )
    };
    owned(fd)
}

/// `log` receives the verifier's log. Without a log the kernel writes none, which is faster.
pub(super) fn prog_load(spec: &ProgramSpec, log: Option<&mut [u8]>) -> io::Result<OwnedFd> {
    assert_may_block("loading a program");
    let mut opts = bpf::bpf_prog_load_opts { sz: size_of::<bpf::bpf_prog_load_opts>() as _, ..Default::default() };
    // The kernel returns EAGAIN if a signal interrupts the verifier.
    opts.attempts = 5;
    (opts.expected_attach_type, opts.attach_btf_id) = (spec.attach_type, spec.attach_btf_id);
    opts.prog_flags = spec.flags;
    if let Some(log) = log {
        (opts.log_level, opts.log_size, opts.log_buf) = (1, log.len() as u32, log.as_mut_ptr().cast::<c_char>());
    }
    let insns = packed(spec.insns);
    // SAFETY: name, licence, instructions and log buffer are live and have the given lengths; the call keeps no
    // pointer.
    let fd = unsafe {
        bpf::bpf_prog_load(
            spec.kind,
            spec.name.as_ptr(),
            c"Dual BSD/GPL".as_ptr(),
            insns.as_ptr().cast::<bpf::bpf_insn>(),
            insns.len() as _,
            &raw mut opts,
        )
    };
    owned(fd)
}

/// Loads type information into the kernel.
pub(super) fn btf_load(data: &[u8]) -> io::Result<OwnedFd> {
    assert_may_block("loading type information");
    // SAFETY: the data is live and has the given length; null is a valid value for the options.
    owned(unsafe { bpf::bpf_btf_load(data.as_ptr().cast::<c_void>(), data.len() as _, std::ptr::null_mut()) })
}

/// Attaches a program that was loaded with the BTF id of a tracepoint.
pub(super) fn attach_tracepoint(program: BorrowedFd) -> io::Result<Link> {
    assert_may_block("attaching a program");
    // SAFETY: the name is null, because the program itself names its tracepoint.
    let fd = unsafe { bpf::bpf_raw_tracepoint_open(std::ptr::null(), program.as_raw_fd()) };
    Ok(Link { _fd: owned(fd)? })
}

/// Attaches a program to an interface, after the existing programs.
pub(super) fn attach_tcx(program: BorrowedFd, interface: u32, side: SkbSide) -> io::Result<Link> {
    assert_may_block("attaching a program");
    let attach_type = match side {
        SkbSide::Ingress => bpf::BPF_TCX_INGRESS,
        SkbSide::Egress => bpf::BPF_TCX_EGRESS,
    };
    let opts = bpf::bpf_link_create_opts { sz: size_of::<bpf::bpf_link_create_opts>() as _, ..Default::default() };
    // SAFETY: opts is live and holds its own size; its union is all zeros, which is valid for every variant.
    let fd = unsafe { bpf::bpf_link_create(program.as_raw_fd(), interface as i32, attach_type, &raw const opts) };
    Ok(Link { _fd: owned(fd)? })
}

/// Attaches a program to the bytes that arrive at the sockets that are added to a map until it has no descriptor left.
pub(super) fn attach_sockets(program: BorrowedFd, map: BorrowedFd) -> io::Result<()> {
    assert_may_block("attaching a program");
    let (program, map) = (program.as_raw_fd(), map.as_raw_fd());
    // SAFETY: takes only numbers.
    answer(unsafe { bpf::bpf_prog_attach(program, map, bpf::BPF_SK_SKB_VERDICT, 0) }).map(drop)
}

/// Attaches a program to the TCP connections of a control group, after the existing programs.
pub(super) fn attach_group(program: BorrowedFd, group: BorrowedFd) -> io::Result<Link> {
    assert_may_block("attaching a program");
    let opts = bpf::bpf_link_create_opts { sz: size_of::<bpf::bpf_link_create_opts>() as _, ..Default::default() };
    let (program, group, kind) = (program.as_raw_fd(), group.as_raw_fd(), bpf::BPF_CGROUP_SOCK_OPS);
    // SAFETY: opts is live and holds its own size; its union is all zeros, which is valid for every variant.
    let fd = unsafe { bpf::bpf_link_create(program, group, kind, &raw const opts) };
    Ok(Link { _fd: owned(fd)? })
}

/// Attaches a program to a perf event and starts the event; both end when the link is dropped.
pub(super) fn attach_perf(program: BorrowedFd, event: OwnedFd) -> io::Result<Link> {
    assert_may_block("attaching a program");
    // SAFETY: both descriptors are open; the calls take numbers by value and keep no pointer.
    let rc = unsafe { ioctls::SET_BPF(event.as_raw_fd(), program.as_raw_fd() as u32) };
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    let rc = unsafe { ioctls::ENABLE(event.as_raw_fd(), 0) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(Link { _fd: event }) }
}

/// Runs a program `repeat` times on a packet of zeros. Returns its result and the mean duration of a run in
/// nanoseconds.
pub(super) fn test_run(program: BorrowedFd, repeat: u32) -> io::Result<(u32, u32)> {
    assert_may_block("running a program");
    let packet = [0u8; 64];
    let mut opts = bpf::bpf_test_run_opts { sz: size_of::<bpf::bpf_test_run_opts>() as _, ..Default::default() };
    (opts.data_in, opts.data_size_in) = (packet.as_ptr().cast::<c_void>(), packet.len() as u32);
    opts.repeat = repeat as i32;
    // SAFETY: opts and the packet are live and have the given lengths; the call keeps no pointer.
    let rc = unsafe { bpf::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut opts) };
    answer(rc).map(|_| (opts.retval, opts.duration))
}

/// Runs a program of type `syscall` once; it reads and writes `context`. Returns the program's return value.
pub(super) fn run_syscall(program: BorrowedFd, context: &mut [u8]) -> io::Result<i32> {
    assert_may_block("running a program");
    let mut opts = bpf::bpf_test_run_opts { sz: size_of::<bpf::bpf_test_run_opts>() as _, ..Default::default() };
    // For this type of program the kernel writes the context back to the input buffer and accepts no output buffer.
    (opts.ctx_in, opts.ctx_size_in) = (context.as_mut_ptr().cast_const().cast::<c_void>(), context.len() as u32);
    // SAFETY: opts and the context are live and have the given lengths; the call keeps no pointer.
    let rc = unsafe { bpf::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut opts) };
    answer(rc).map(|_| opts.retval as i32)
}

pub(super) fn prog_info(program: BorrowedFd) -> io::Result<ProgramInfo> {
    let mut info = bpf::bpf_prog_info::default();
    let mut length = size_of::<bpf::bpf_prog_info>() as u32;
    // SAFETY: info is live and all zeros, so it names no buffers; `length` holds its size.
    let rc = unsafe { bpf::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut length) };
    answer(rc)?;
    Ok(ProgramInfo {
        id: info.id,
        run_ns: info.run_time_ns,
        runs: info.run_cnt,
        verified_insns: info.verified_insns,
        recursion_misses: info.recursion_misses,
    })
}

/// The kernel's id of a map.
pub(super) fn map_id(map: BorrowedFd) -> io::Result<u32> {
    let mut info = bpf::bpf_map_info::default();
    let mut length = size_of::<bpf::bpf_map_info>() as u32;
    // SAFETY: info is live and all zeros, so it names no buffers; `length` holds its size.
    answer(unsafe { bpf::bpf_map_get_info_by_fd(map.as_raw_fd(), &raw mut info, &raw mut length) })?;
    Ok(info.id)
}

/// A file whose first reading runs the program for each object of the kernel that the program's type names. It has the
/// bytes that the program writes.
pub(super) fn open_listing(program: BorrowedFd) -> io::Result<File> {
    assert_may_block("listing objects of the kernel");
    // SAFETY: takes only numbers; null is a valid value for the options.
    let link = unsafe { bpf::bpf_link_create(program.as_raw_fd(), 0, bpf::BPF_TRACE_ITER, std::ptr::null()) };
    let link = owned(link)?;
    // SAFETY: takes only a number. The file holds the link.
    owned(unsafe { bpf::bpf_iter_create(link.as_raw_fd()) }).map(File::from)
}

/// True if the kernel has a program with this id.
pub(super) fn prog_exists(id: u32) -> bool {
    // SAFETY: takes only a number.
    owned(unsafe { bpf::bpf_prog_get_fd_by_id(id) }).is_ok()
}

/// The kernel measures the run times of programs while the returned descriptor is open.
pub(super) fn enable_stats() -> io::Result<OwnedFd> {
    assert_may_block("measuring programs");
    // SAFETY: takes only a number.
    owned(unsafe { bpf::bpf_enable_stats(bpf::BPF_STATS_RUN_TIME) })
}

/// Converts a result of libbpf, in which a negative value is an error number.
fn answer(rc: i32) -> io::Result<i32> {
    if rc < 0 { Err(io::Error::from_raw_os_error(-rc)) } else { Ok(rc) }
}

fn owned(rc: i32) -> io::Result<OwnedFd> {
    let fd = answer(rc)?;
    // SAFETY: the kernel has just created this descriptor for this process; it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_reach_the_kernel_in_its_own_order() {
        let insn = Insn { code: 0xb7, dst: 1, src: 2, off: 3, imm: 4 };
        assert_eq!(packed(&[insn])[0].to_le_bytes(), [0xb7, 0x21, 3, 0, 4, 0, 0, 0]);
    }

    /// `None` if this process may not create maps.
    fn made(kind: u32) -> Option<OwnedFd> {
        match map_create(&MapSpec { kind, key_bytes: 4, value_bytes: 8, entries: 2, ..MapSpec::default() }) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                crate::testing::skip("maps need CAP_BPF");
                None
            }
            made => Some(made.unwrap()),
        }
    }

    #[test]
    fn keys_and_values_of_the_wrong_size_are_refused() {
        let Some(map) = made(bpf::BPF_MAP_TYPE_ARRAY) else { return };
        let entries = Entries::of(map).unwrap();
        let mut value = [0; 8];
        entries.update(&[1, 0, 0, 0], &[7; 8]).unwrap();
        entries.lookup(&[1, 0, 0, 0], &mut value).unwrap();
        assert_eq!((value, entries.value_bytes()), ([7; 8], 8));
        let refused = [
            entries.update(&[1, 0, 0], &[7; 8]),
            entries.update(&[1, 0, 0, 0], &[7; 7]),
            entries.lookup(&[], &mut value),
            entries.lookup(&[1, 0, 0, 0], &mut value[..7]),
            entries.delete(&[1, 0, 0, 0, 0]),
        ];
        for refused in refused {
            let error = refused.unwrap_err();
            assert!(
                error.kind() == io::ErrorKind::InvalidInput
                    && error.to_string().contains(" bytes does not fit the map"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_map_with_a_value_for_each_cpu_is_refused() {
        let Some(map) = made(bpf::BPF_MAP_TYPE_PERCPU_ARRAY) else { return };
        let error = Entries::of(map).unwrap_err();
        assert!(error.to_string().contains("for each CPU"), "{error}");
    }
}
