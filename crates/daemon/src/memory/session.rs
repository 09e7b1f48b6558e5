//! One connection to `memory.sock`: the reserves that it holds. Everything is free when the session is dropped.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use qfabric_broker::Member;
use qfabric_linux::memory;
use qfabric_types::Bytes;
use qfabric_types::api::contracts::JointId;
use qfabric_types::api::memory::{MemoryAnswer, MemoryRequest, ReserveId};
use qfabric_types::api::{ApplicationScope, Problem};

use super::pools::{Placed, Reserve};
use super::{Memory, PromiseTarget, problems};
use crate::auth::{self, Peer, Target};
use crate::problem;

/// Most reserves of one connection.
const MOST: usize = 16;

/// The size of a huge page on a kernel that has none: then pages are only rounded to it.
const HUGE_PAGE: Bytes = Bytes::from_mib(2);

/// Numbers connections; a number is never used twice.
static LAST: AtomicU64 = AtomicU64::new(0);

/// The answer to a request, and the descriptor that goes with it.
pub(super) type Answered = (MemoryAnswer, Option<OwnedFd>);

pub(super) struct Session {
    memory: Arc<Memory>,
    member: Member,
    peer: Peer,
    target: Target,
    held: BTreeMap<ReserveId, Arc<Reserve>>,
}

impl Session {
    /// Reads the process of the peer.
    pub(super) fn open(memory: Arc<Memory>, peer: Peer) -> Result<Session, Problem> {
        let target = auth::target(peer, peer.pid, ApplicationScope::Program)?;
        let member = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(Session { memory, member, peer, target, held: BTreeMap::new() })
    }

    /// Carries out one request. A refused request changes nothing.
    pub(super) fn answer(&mut self, request: MemoryRequest) -> Answered {
        self.carry_out(request).unwrap_or_else(|problem| (MemoryAnswer::Refused(Box::new(problem)), None))
    }

    fn carry_out(&mut self, request: MemoryRequest) -> Result<Answered, Problem> {
        let answer = match request {
            MemoryRequest::Reserve(bytes) => {
                let (reserve, bytes) = self.reserve(bytes, None, None)?;
                MemoryAnswer::Reserved { reserve, bytes }
            }
            MemoryRequest::ReserveFrom { contract, bytes } => {
                let (reserve, bytes) = self.reserve(bytes, None, Some(contract))?;
                MemoryAnswer::Reserved { reserve, bytes }
            }
            MemoryRequest::ReserveHuge(bytes) => self.reserve_huge(bytes, None)?,
            MemoryRequest::ReserveHugeFrom { contract, bytes } => self.reserve_huge(bytes, Some(contract))?,
            MemoryRequest::Join(reserve) => self.join(reserve)?,
            MemoryRequest::Resize { reserve, bytes } => {
                let bytes = self.memory.resize(self.held(reserve)?, bytes)?;
                MemoryAnswer::Reserved { reserve, bytes }
            }
            MemoryRequest::LockText(reserve) => {
                self.check_process()?;
                let locked = self.held(reserve)?.lock_text(self.member, self.peer.pid);
                // Also afterwards: otherwise the text may be that of a later process with the same number.
                self.check_process()?;
                let (bytes, skipped) = locked?;
                MemoryAnswer::TextLocked { bytes, skipped }
            }
            MemoryRequest::Allocate { reserve, bytes } => {
                return Ok(placed(self.held(reserve)?.allocate(self.member, bytes)?));
            }
            MemoryRequest::Open { reserve, allocation } => return Ok(placed(self.held(reserve)?.open(allocation)?)),
            MemoryRequest::Free { reserve, allocation } => {
                self.held(reserve)?.free(self.member, allocation)?;
                MemoryAnswer::Done
            }
            MemoryRequest::FreeReserve(id) => {
                let reserve = self.held.remove(&id).ok_or_else(|| problems::no_such_reserve(id))?;
                self.memory.leave(&reserve, self.member);
                MemoryAnswer::Done
            }
        };
        Ok((answer, None))
    }

    /// The process may have ended, and its number may be another's, or it has executed a set-uid program: other processes
    /// may have the same connection.
    fn check_process(&self) -> Result<(), Problem> {
        let is_same = auth::still_owns(self.peer.owner, self.peer.pid) && !self.target.watch.ended();
        if is_same { Ok(()) } else { Err(problem::gone(self.peer.pid)) }
    }

    fn held(&self, reserve: ReserveId) -> Result<&Reserve, Problem> {
        self.held.get(&reserve).map(|reserve| &**reserve).ok_or_else(|| problems::no_such_reserve(reserve))
    }

    /// Makes a reserve, in pages of the size `huge`, or from a joint contract. Returns its number and its amount.
    fn reserve(
        &mut self,
        bytes: Bytes,
        huge: Option<Bytes>,
        from: Option<JointId>,
    ) -> Result<(ReserveId, Bytes), Problem> {
        from.iter().try_for_each(|contract| self.memory.check_drawer(self.peer, contract))?;
        self.check_places()?;
        let Target { owner, groups, pid, .. } = &self.target;
        let name = qfabric_linux::threads::name(qfabric_types::ThreadId(*pid)).unwrap_or_default();
        let whom = PromiseTarget { owner: *owner, groups, name: &name, pid: *pid, from };
        let reserve = self.memory.reserve(whom, self.member, bytes, huge)?;
        let made = (reserve.id, self.memory.granted(reserve.id));
        self.held.insert(reserve.id, reserve);
        Ok(made)
    }

    fn reserve_huge(&mut self, bytes: Bytes, from: Option<JointId>) -> Result<MemoryAnswer, Problem> {
        let host = memory::huge_pages();
        let size = host.map_or(HUGE_PAGE, |host| host.size);
        let (reserve, bytes) = self.reserve(bytes, Some(size), from)?;
        let needed = bytes.get() / size.get();
        let free = host.map_or(0, |host| host.free);
        let missing = (free < needed).then(|| match host {
            Some(_) => format!(
                "{free} of {needed} huge pages of {size} are free, the rest has ordinary pages; \
                 ask the administrator to raise vm.nr_hugepages by {}",
                needed - free
            ),
            None => "this kernel has no huge pages (CONFIG_HUGETLBFS); the reserve has ordinary pages".to_owned(),
        });
        Ok(MemoryAnswer::HugeReserved { reserve, bytes, missing })
    }

    fn join(&mut self, id: ReserveId) -> Result<MemoryAnswer, Problem> {
        self.check_places()?;
        let reserve = self.memory.find(id)?;
        if !self.peer.may_touch(reserve.owner) {
            return Err(problems::not_your_reserve(id, reserve.owner.uid, self.peer.owner.uid));
        }
        let bytes = reserve.join(self.member)?;
        self.held.insert(id, reserve);
        Ok(MemoryAnswer::Reserved { reserve: id, bytes })
    }

    fn check_places(&self) -> Result<(), Problem> {
        if self.held.len() >= MOST { Err(problems::too_many_joined(MOST)) } else { Ok(()) }
    }
}

fn placed((place, file): Placed) -> Answered {
    (MemoryAnswer::Placed(place), Some(file))
}

impl Drop for Session {
    fn drop(&mut self) {
        for reserve in self.held.values() {
            self.memory.leave(reserve, self.member);
        }
    }
}
