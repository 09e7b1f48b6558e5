//! Groups of threads: their CPUs, their slots, and the parts that exist only while there is a group.

use std::path::Path;

use qfabric_sched::dispatch::{Demand, GroupId, Refusal};
use qfabric_types::api::Problem;
use qfabric_types::{Reservation, Share, ThreadId};

use super::{DispatcherMechanism, Group, Key};
use crate::cpus::CpuList;
use crate::deadline::denied;
use crate::dispatcher::affinity;
use crate::dispatcher::cpu::CpuTable;
use crate::dispatcher::guardian::Guardian;
use crate::dispatcher::idle::{DEVICE, ShortSleeps};
use crate::journal::Dispatched;
use crate::mechanism::ApplyError;

impl DispatcherMechanism {
    /// The asked CPU, otherwise that of the group, otherwise the allowed CPU with the most free slots.
    pub(super) fn cpu_for(&self, key: Key, asked: Option<u32>, before: &Dispatched) -> Result<u32, ApplyError> {
        let thread = before.thread.tid;
        let home = asked.or(self.groups.get(&key).map(|group| group.cpu));
        let online = CpuList::online();
        let used = |cpu: &u32| -> Share {
            let groups = self.groups.values().filter(|group| group.cpu == *cpu);
            groups.map(|group| group.reservation.share()).sum()
        };
        let free = || online.iter().filter(|&cpu| before.cpus.contains(cpu)).min_by_key(used);
        match home.or_else(free) {
            Some(cpu) if before.cpus.contains(cpu) => Ok(cpu),
            Some(cpu) => {
                let (mask, needed) = (before.cpus.clone(), affinity::only(cpu));
                Err(ApplyError::Affinity { thread, mask, needed })
            }
            None => Err(ApplyError::Affinity { thread, mask: before.cpus.clone(), needed: online }),
        }
    }

    /// Admits the group on `cpu`, if it is not there with this reservation.
    pub(super) fn admit(
        &mut self,
        key: Key,
        cpu: u32,
        reservation: Reservation,
        thread: ThreadId,
    ) -> Result<(), ApplyError> {
        let old = self.groups.get(&key).cloned();
        if old.as_ref().is_some_and(|group| group.cpu == cpu && group.reservation == reservation) {
            return Ok(());
        }
        let id = old.as_ref().map_or(GroupId(self.next_group), |group| group.id);
        let demand = Demand { group: id, service: reservation.budget(), period: reservation.period() };
        let admitted = self.table(cpu, thread)?.admit(demand);
        if let Err(refusal) = admitted {
            self.end_table_if_empty(cpu);
            return Err(no_slots(thread, refusal));
        }
        let members = old.as_ref().map_or(Vec::new(), |group| group.members.clone());
        self.groups.insert(key, Group { id, cpu, reservation, members });
        match old {
            None => self.next_group += 1,
            Some(old) if old.cpu != cpu => self.move_members(key, old.cpu),
            Some(_) => {}
        }
        Ok(())
    }

    /// Moves the members of a group from `old` to its CPU, and ends the group there.
    pub(super) fn move_members(&mut self, key: Key, old: u32) {
        let Some(Group { id, members, .. }) = self.groups.get(&key).cloned() else { return };
        for thread in members {
            if let Some(table) = self.tables.get(&old) {
                table.leave(id, thread);
            }
            let Some(before) = self.threads.get(&thread).map(|held| held.before.clone()) else { continue };
            if let Err(error) = self.enter(key, &before)
                && !matches!(error, ApplyError::Gone { .. })
            {
                tracing::warn!(%error, "a thread could not follow its group to another CPU");
            }
        }
        if let Some(table) = self.tables.get(&old) {
            table.release(id);
        }
        self.end_table_if_empty(old);
    }

    pub(super) fn table(&mut self, cpu: u32, thread: ThreadId) -> Result<&CpuTable, ApplyError> {
        let failed = |error: &std::io::Error| denied(thread, error);
        if self.guardian.is_none() {
            self.guardian = Some(Guardian::start().map_err(|error| failed(&error))?);
        }
        let guardian = self.guardian.as_ref().expect("started above");
        if !self.tables.contains_key(&cpu) {
            let table = CpuTable::start(cpu, self.rules, guardian.pulse(cpu)).map_err(|error| failed(&error))?;
            self.tables.insert(cpu, table);
            self.begin_short_sleeps();
        }
        Ok(&self.tables[&cpu])
    }

    /// Asks for short sleeps of idle CPUs, if they are wanted and not yet in force.
    fn begin_short_sleeps(&mut self) {
        let Some(most) = self.idle_latency.filter(|_| self.short_sleeps.is_none()) else { return };
        match ShortSleeps::request(Path::new(DEVICE), most) {
            Ok(sleeps) => self.short_sleeps = Some(sleeps),
            Err(error) => {
                // Not again with each table: any user may begin and end them in a loop.
                self.idle_latency = None;
                tracing::warn!(
                    %error,
                    "{DEVICE} cannot be written, so idle CPUs wake up as slowly as before; give the service the \
                     device, or remove mechanism.idle_latency"
                );
            }
        }
    }

    pub(super) fn end_if_empty(&mut self, key: Key) {
        if self.groups.get(&key).is_none_or(|group| !group.members.is_empty()) {
            return;
        }
        let Some(group) = self.groups.remove(&key) else { return };
        if let Some(table) = self.tables.get(&group.cpu) {
            table.release(group.id);
        }
        self.end_table_if_empty(group.cpu);
    }

    /// Without groups there is no thread, no timer, no guardian, and no request for short sleeps.
    pub(super) fn end_table_if_empty(&mut self, cpu: u32) {
        if self.tables.get(&cpu).is_some_and(CpuTable::is_empty) {
            self.tables.remove(&cpu);
        }
    }

    pub(super) fn end_guardian_if_unused(&mut self) {
        if self.tables.is_empty() {
            self.guardian = None;
            self.short_sleeps = None;
        }
    }
}

fn no_slots(thread: ThreadId, refusal: Refusal) -> ApplyError {
    let Problem { message: why, next_step: fix, .. } = refusal.problem();
    ApplyError::NoSlots { thread, why, fix }
}
