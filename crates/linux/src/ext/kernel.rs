//! Loads and attaches the scheduler's object; gives access to its commands and its memory.

use std::os::fd::BorrowedFd;

use super::{ExtConfig, ExtError, support};
use crate::abi::*;
use crate::bpf::{Attached, Entry, Mapping, Object, OpenObject, Plain, Table, bytes_of_mut, objects};
use crate::cpus::CpuList;

/// The loaded scheduler. The link is dropped first, so the kernel's own scheduler is in charge before the memory is
/// freed.
#[derive(Debug)]
pub(super) struct Kernel {
    _attached: Attached,
    pub create: Entry,
    pub change: Entry,
    pub destroy: Entry,
    pub raise: Entry,
    pub join: Entry,
    pub control: Entry,
    raised: Table,
    clock: Table,
    servers: Mapping,
    slots: Mapping,
    controls: Mapping,
    counts: Mapping,
    exited: Mapping,
    cpus: u32,
    _object: Object,
}

impl Kernel {
    pub(super) fn load(config: &ExtConfig, linger: u16) -> Result<Kernel, ExtError> {
        let cpus = possible_cpus()?;
        let options = qf_sched_options {
            slice_ns: config.slice.get(),
            service_ns: config.best_effort_service.get(),
            period_ns: config.best_effort_period.get(),
            x: config.best_effort_window.x(),
            y: config.best_effort_window.y(),
            linger,
            cpus,
        };
        let object = OpenObject::open("sched/ops.bpf.c", objects::SCHED_OPS)
            .and_then(|open| open.constant(".rodata.options", &options)?.entries("cpus", cpus)?.load());
        let mut object = object.map_err(|e| support::not_loaded(&e))?;
        let attached = object.attach("qfabric").map_err(|e| support::not_loaded(&e))?;
        Kernel::open(object, attached, cpus).map_err(|e| support::not_loaded(&e))
    }

    fn open(object: Object, attached: Attached, cpus: u32) -> Result<Kernel, crate::bpf::ObjectError> {
        let memory = |name: &str, bytes: usize| -> Result<Mapping, crate::bpf::ObjectError> {
            let failed = |error| crate::bpf::ObjectError::Kernel { object: "sched".into(), name: name.into(), error };
            object.table(name)?.map(bytes).map_err(failed)
        };
        Ok(Kernel {
            create: object.entry("qf_command_create")?,
            change: object.entry("qf_command_change")?,
            destroy: object.entry("qf_command_destroy")?,
            raise: object.entry("qf_command_raise")?,
            join: object.entry("qf_command_join")?,
            control: object.entry("qf_command_control")?,
            raised: object.table(".bss.raised")?,
            clock: object.table(".bss.clock")?,
            servers: memory(".bss.servers", size_of::<qf_server>() * QF_SLOTS as usize)?,
            slots: memory(".bss.slots", size_of::<qf_slot>() * QF_SLOTS as usize)?,
            controls: memory(".bss.controls", size_of::<qf_control>() * QF_SLOTS as usize)?,
            counts: memory(".bss.counts", size_of::<qf_sched_cpu>() * QF_CPUS as usize)?,
            exited: memory(".bss.exited", size_of::<qf_exit>())?,
            _attached: attached,
            _object: object,
            cpus,
        })
    }

    pub(super) fn cpus(&self) -> u32 {
        self.cpus
    }

    pub(super) fn server(&self, slot: u32) -> qf_server {
        read(&self.servers, slot)
    }

    pub(super) fn slot(&self, slot: u32) -> qf_slot {
        read(&self.slots, slot)
    }

    pub(super) fn controller(&self, slot: u32) -> qf_control {
        read(&self.controls, slot)
    }

    pub(super) fn counts(&self, cpu: u32) -> qf_sched_cpu {
        read(&self.counts, cpu)
    }

    pub(super) fn raised(&self) -> BorrowedFd<'_> {
        self.raised.fd()
    }

    pub(super) fn clock(&self) -> BorrowedFd<'_> {
        self.clock.fd()
    }

    /// `None` while the scheduler is in charge. The kernel writes the reason before the kind.
    pub(super) fn exit_reason(&self) -> Option<String> {
        let exit: qf_exit = read(&self.exited, 0);
        if exit.kind == 0 {
            return None;
        }
        let (reason, message) = (text(&exit.reason), text(&exit.message));
        Some(if message.is_empty() { reason } else { format!("{reason}: {message}") })
    }
}

/// Reads record `index` of an array word by word: each word is consistent, but the words may be from different moments.
fn read<T: Plain + Default>(memory: &Mapping, index: u32) -> T {
    let mut record = T::default();
    memory.copy_to(size_of::<T>() * index as usize, bytes_of_mut(&mut record));
    record
}

fn text(bytes: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = bytes.iter().map(|&b| b as u8).take_while(|&b| b != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Number of CPUs that the kernel may ever use; the scheduler's memory is indexed by CPU.
fn possible_cpus() -> Result<u32, ExtError> {
    let possible = CpuList::read("/sys/devices/system/cpu/possible").unwrap_or_else(CpuList::online);
    match possible.iter().max().unwrap_or(0) + 1 {
        cpus if cpus <= QF_CPUS => Ok(cpus),
        cpus => Err(ExtError::OutOfRange {
            what: "the number of possible CPUs",
            value: cpus.to_string(),
            limits: format!("1 to {QF_CPUS}"),
            fix: "start the kernel with possible_cpus=256, or use --mechanism deadline",
        }),
    }
}
