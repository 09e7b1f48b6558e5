//! The CPUs on which a thread may run.

use std::io;

use qfabric_types::ThreadId;
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

use crate::cpus::CpuList;

/// The CPUs on which a thread may run. `ESRCH`: the thread has ended.
pub(super) fn of(thread: ThreadId) -> io::Result<CpuList> {
    let set = sched_getaffinity(Pid::from_raw(thread.0))?;
    Ok((0..CpuSet::MAX_CPU as u32).filter(|&cpu| set.is_set(cpu as usize)).collect())
}

/// Lets a thread run only on `cpus`. `EINVAL`: its cpuset has none of them.
pub(super) fn give(thread: ThreadId, cpus: &CpuList) -> io::Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().filter(|&cpu| (cpu as usize) < CpuSet::MAX_CPU).for_each(|cpu| set.set(cpu as usize));
    Ok(sched_setaffinity(Pid::from_raw(thread.0), &set)?)
}

pub(super) fn only(cpu: u32) -> CpuList {
    [cpu].into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gets_its_former_cpus_back() {
        std::thread::spawn(|| {
            let me = ThreadId(0);
            let all = of(me).unwrap();
            let first = only(all.iter().next().unwrap());
            give(me, &first).unwrap();
            assert_eq!(of(me).unwrap(), first);
            give(me, &all).unwrap();
            assert_eq!(of(me).unwrap(), all);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn no_cpu_is_refused_by_the_kernel() {
        let refused = give(ThreadId(0), &CpuList::default()).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
    }
}
