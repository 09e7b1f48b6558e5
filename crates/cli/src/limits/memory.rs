//! The limits of memory in `qfabric limits`.

use std::collections::BTreeMap;

use qfabric_client::{Change, HostLimits, HostMemoryLimits, HostStatus, MemoryLimitsPatch};
use qfabric_types::api::memory::HostMemory;
use qfabric_types::{Bytes, Owner};

use super::{KeyedLimit, Limit, changes};
use crate::output;

/// Names of the options, for the group of which `limits set` needs one.
pub(super) const CHANGES: [&str; 4] = ["memory_reserve", "memory_user", "memory_group", "memory_default_user"];

#[derive(clap::Args, Debug)]
pub(super) struct MemoryArgs {
    /// Largest amount of memory promised in total, such as 256M; never below the present promises; none: 1/16 of the
    /// memory of the host; 0 switches reserves off
    #[arg(long, value_name = "BYTES")]
    memory_reserve: Option<Limit<Bytes>>,
    /// Largest amount of memory promised to one user, such as 1000=64M; none removes the limit; may be repeated
    #[arg(long, value_name = "UID=BYTES")]
    memory_user: Vec<KeyedLimit<u32, Bytes>>,
    /// Largest amount of memory promised to one group, such as 44=64M; none removes the limit; may be repeated
    #[arg(long, value_name = "GID=BYTES")]
    memory_group: Vec<KeyedLimit<u32, Bytes>>,
    /// Largest amount of memory promised to each user that has no limit by --memory-user; none: half of the total
    #[arg(long, value_name = "BYTES")]
    memory_default_user: Option<Limit<Bytes>>,
}

impl MemoryArgs {
    pub(super) fn patch(&self) -> MemoryLimitsPatch {
        let amount = |named: Option<Limit<Bytes>>| named.map_or(Change::Keep, |limit| limit.0.into());
        let amounts = |named: &[_]| if named.is_empty() { Change::Keep } else { changes(named) };
        MemoryLimitsPatch {
            global_reserve: amount(self.memory_reserve),
            users: amounts(&self.memory_user),
            groups: amounts(&self.memory_group),
            default_user: amount(self.memory_default_user),
        }
    }
}

/// A table of the limits, with the memory that is promised under each. Empty for a daemon that reports no memory.
pub(super) fn text(limits: &HostLimits, status: &HostStatus) -> String {
    let Some(memory) = &status.memory else { return String::new() };
    let promises = promises(status, memory);
    let mut table = output::new_table(["memory", "at most", "promised"]);
    let mut row = |name: String, most: Bytes, counts: &dyn Fn(Owner) -> bool| {
        let promised: Bytes = promises.iter().filter(|(owner, _)| counts(*owner)).map(|(_, bytes)| *bytes).sum();
        table.add_row([name, most.to_string(), promised.to_string()]);
    };
    let HostMemoryLimits { users, groups, default_user, .. } = &limits.memory;
    row("all".into(), memory.global_reserve, &|_| true);
    each(users, "user", |name, uid, most| row(name, most, &|owner| owner.uid == uid));
    let default_user = default_user.unwrap_or(Bytes::new(memory.global_reserve.get() / 2));
    row("each other user".into(), default_user, &|owner| !users.contains_key(&owner.uid));
    each(groups, "group", |name, gid, most| row(name, most, &|owner| owner.gid == gid));
    format!("\n{table}\n")
}

fn each(limits: &BTreeMap<u32, Bytes>, kind: &str, mut row: impl FnMut(String, u32, Bytes)) {
    limits.iter().for_each(|(id, most)| row(format!("{kind} {id}"), *id, *most));
}

/// The owner and the amount of each reserve.
fn promises(status: &HostStatus, memory: &HostMemory) -> Vec<(Owner, Bytes)> {
    let programs = status.applications.iter().filter_map(|app| Some((app.owner, app.memory.as_ref()?.promised)));
    programs.chain(memory.pools.iter().map(|pool| (pool.owner, pool.promised))).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use qfabric_types::api::memory::{PoolStatus, ReserveId};

    use super::*;
    use crate::status::tests::host;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        memory: MemoryArgs,
    }

    #[test]
    fn a_patch_names_the_given_amounts_only() {
        let line = "x --memory-reserve 256M --memory-user 1000=64M --memory-user 7=none --memory-default-user none";
        let patch = Line::parse_from(line.split(' ')).memory.patch();
        let users = Change::Set([(1_000, Some(Bytes::from_mib(64))), (7, None)].into());
        let global_reserve = Change::Set(Bytes::from_mib(256));
        let expected = MemoryLimitsPatch { global_reserve, users, groups: Change::Keep, default_user: Change::Remove };
        assert_eq!(patch, expected);
        assert!(Line::parse_from(["x"]).memory.patch().is_empty());
        let why = Line::try_parse_from(["x", "--memory-user", "1000=much"]).err().unwrap().to_string();
        assert!(why.contains("such as 64M"), "{why}");
    }

    #[test]
    fn every_limit_is_shown_with_the_promises_under_it() {
        let mut status = host(vec![]);
        let owner = Owner { uid: 1_000, gid: 7 };
        let [promised, used] = [48, 0].map(Bytes::from_mib);
        let pool = PoolStatus { reserve: ReserveId(1), pid: 9, owner, promised, used, members: 1 };
        let global_reserve = Bytes::from_mib(256);
        status.memory = Some(HostMemory { global_reserve, promised, used, pools: vec![pool], ..HostMemory::default() });
        let users = [(1_000, Bytes::from_mib(64))].into();
        let limits = HostLimits { memory: HostMemoryLimits { users, ..Default::default() }, ..Default::default() };
        let text = text(&limits, &status);
        for part in ["256 MiB", "user 1000", "64 MiB", "48 MiB", "each other user", "128 MiB", "0 B"] {
            assert!(text.contains(part), "{text}\nlacks {part}");
        }
    }
}
