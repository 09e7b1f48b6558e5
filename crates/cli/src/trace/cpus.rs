//! `qfabric trace --cpus`: which thread ran on which CPU, beside the records of the daemon.
//!
//! This process observes the switches itself, so that they cost the daemon nothing.

use std::io::ErrorKind;

use qfabric_linux::observe::{CpuObserver, CpuStretch};
use qfabric_timeline::{CpuSlice, TraceWriter};

use crate::exit::Failure;

/// The observer of all CPUs, if the command line asks for it.
pub(super) struct Cpus(Option<CpuObserver>);

impl Cpus {
    /// Begins to observe.
    pub(super) fn open(wanted: bool) -> Result<Cpus, Failure> {
        if !wanted {
            return Ok(Cpus(None));
        }
        let observer = CpuObserver::new().map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => Failure::refused(format!(
                "--cpus: the kernel refuses to show the threads of all users: {error}\n\
                 try: run it as root or with CAP_PERFMON, or leave --cpus out"
            )),
            _ => Failure::unavailable(format!(
                "--cpus: the kernel offers no perf events here: {error}\ntry: leave --cpus out"
            )),
        })?;
        Ok(Cpus(Some(observer)))
    }

    /// Adds what ran since the last call. Call it every 50 ms, so that the kernel drops no records.
    pub(super) fn read(&mut self, writer: &mut TraceWriter) {
        let Some(observer) = &mut self.0 else { return };
        let lost = observer.poll(&mut |stretch| add(writer, &stretch));
        writer.add_lost_switches(lost);
    }

    /// Adds the rest, up to now.
    pub(super) fn finish(mut self, writer: &mut TraceWriter) {
        self.read(writer);
        if let Some(observer) = self.0 {
            observer.finish(&mut |stretch| add(writer, &stretch));
        }
    }
}

fn add(writer: &mut TraceWriter, stretch: &CpuStretch) {
    let CpuStretch { cpu, pid, thread, ref name, from, to } = *stretch;
    writer.add_cpu(&CpuSlice { cpu, pid, tid: thread.0, name, from, to });
}
