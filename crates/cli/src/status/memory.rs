//! The memory in the output of `status` and `top`.

use qfabric_types::Bytes;
use qfabric_types::api::memory::{HostMemory, MemoryPressure, PoolStatus};
use qfabric_types::api::{Application, HostStatus};

/// The used and the promised memory of an application.
pub(super) fn cell(app: &Application) -> String {
    app.memory.as_ref().map_or("–".into(), |memory| format!("{} of {}", memory.used, memory.promised))
}

/// The line of the host, the promises that are not kept, and one line for each reserve of a program that links the
/// library. Empty if nothing is promised.
pub(super) fn lines(status: &HostStatus) -> String {
    let Some(memory) = status.memory.as_ref().filter(|memory| memory.promised > Bytes::ZERO) else {
        return String::new();
    };
    let HostMemory { global_reserve, promised, used, pools, .. } = memory;
    let host = format!("memory: {promised} promised, {used} used, of {global_reserve} that may be promised\n");
    let programs = status.applications.iter().filter_map(missing);
    let pressed = status.applications.iter().filter_map(pressure);
    std::iter::once(host).chain(programs).chain(pressed).chain(pools.iter().map(pool)).collect()
}

fn missing(app: &Application) -> Option<String> {
    let why = app.memory.as_ref()?.missing.as_ref()?;
    Some(format!("memory of application {} ({}) is only counted: {why}\n", app.id, app.contract.name))
}

/// A notice of pressure, with the larger promise that fits.
fn pressure(app: &Application) -> Option<String> {
    let memory = app.memory.as_ref()?;
    let MemoryPressure { notices, used, offered } = memory.pressure?;
    let next = match offered {
        Some(offered) => format!("{offered} can be promised now"),
        None => "the host can promise no more".into(),
    };
    let (id, name, promised) = (app.id, &app.contract.name, memory.promised);
    Some(format!(
        "memory pressure on application {id} ({name}), {notices} notices: {promised} promised, {used} used; {next}\n"
    ))
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
        let pressure =
            Some(MemoryPressure { notices: 3, used: Bytes::from_mib(70), offered: Some(Bytes::from_mib(87)) });
        app.memory = Some(MemoryStatus {
            reserve,
            promised,
            used: Bytes::from_mib(60),
            swapped: Bytes::ZERO,
            locked: Bytes::ZERO,
            major_faults: 0,
            prefaulted: Bytes::ZERO,
            pressure,
            protection: MemoryProtection::None,
            missing,
        });
        let mut host = host(vec![app]);
        assert_eq!((cell(&host.applications[0]).as_str(), lines(&host)), ("60 MiB of 64 MiB", String::new()));
        let owner = Owner { uid: 7, gid: 7 };
        let pool = PoolStatus { reserve, pid: 9, owner, promised, used: Bytes::from_mib(1), members: 2 };
        let [global_reserve, sum] = [1024, 128].map(Bytes::from_mib);
        let pools = vec![pool];
        host.memory =
            Some(HostMemory { global_reserve, promised: sum, used: promised, pools, ..HostMemory::default() });
        let text = lines(&host);
        for part in [
            "memory: 128 MiB promised, 64 MiB used, of 1 GiB",
            "memory of application 1 (mpv) is only counted: cgroup v2 is not mounted",
            "memory pressure on application 1 (mpv), 3 notices: 64 MiB promised, 70 MiB used; 87 MiB can be promised now",
            "memory reserve 1 of process 9: 1 MiB used of 64 MiB, 2 connections",
        ] {
            assert!(text.contains(part), "{text} lacks {part}");
        }
    }
}
