//! The memory in the output of `status` and `top`.

use qfabric_types::Bytes;
use qfabric_types::api::memory::{HostMemory, PoolStatus};
use qfabric_types::api::{Application, HostStatus};

/// The promised memory of an application.
pub(super) fn cell(app: &Application) -> String {
    app.memory.as_ref().map_or("–".into(), |memory| memory.promised.to_string())
}

/// The line of the host, the promises that are not kept, and one line for each reserve of a program that links the
/// library. Empty if nothing is promised.
pub(super) fn lines(status: &HostStatus) -> String {
    let Some(memory) = status.memory.as_ref().filter(|memory| memory.promised > Bytes::ZERO) else {
        return String::new();
    };
    let HostMemory { global_reserve, promised, used, pools } = memory;
    let host = format!("memory: {promised} promised, {used} used, of {global_reserve} that may be promised\n");
    let programs = status.applications.iter().filter_map(missing);
    std::iter::once(host).chain(programs).chain(pools.iter().map(pool)).collect()
}

fn missing(app: &Application) -> Option<String> {
    let why = app.memory.as_ref()?.missing.as_ref()?;
    Some(format!("memory of application {} ({}) is only counted: {why}\n", app.id, app.contract.name))
}

fn pool(pool: &PoolStatus) -> String {
    let PoolStatus { reserve, pid, promised, used, members, .. } = pool;
    format!("memory reserve {reserve} of process {pid}: {used} used of {promised}, {members} connections\n")
}

#[cfg(test)]
mod tests {
    use qfabric_types::Owner;
    use qfabric_types::api::memory::{MemoryProtection, MemoryStatus, ReserveId};

    use super::*;
    use crate::status::tests::{application, host};

    #[test]
    fn promises_are_shown_with_what_is_missing_to_keep_them() {
        let mut app = application(1, "mpv", 0.25);
        let (reserve, promised) = (ReserveId(1), Bytes::from_mib(64));
        let missing = Some("cgroup v2 is not mounted".to_owned());
        app.memory =
            Some(MemoryStatus { reserve, promised, used: promised, protection: MemoryProtection::None, missing });
        let mut host = host(vec![app]);
        assert_eq!((cell(&host.applications[0]).as_str(), lines(&host)), ("64 MiB", String::new()));
        let owner = Owner { uid: 7, gid: 7 };
        let pool = PoolStatus { reserve, pid: 9, owner, promised, used: Bytes::from_mib(1), members: 2 };
        let [global_reserve, sum] = [1024, 128].map(Bytes::from_mib);
        host.memory = Some(HostMemory { global_reserve, promised: sum, used: promised, pools: vec![pool] });
        let text = lines(&host);
        for part in [
            "memory: 128 MiB promised, 64 MiB used, of 1 GiB",
            "memory of application 1 (mpv) is only counted: cgroup v2 is not mounted",
            "memory reserve 1 of process 9: 1 MiB used of 64 MiB, 2 connections",
        ] {
            assert!(text.contains(part), "{text} lacks {part}");
        }
    }
}
