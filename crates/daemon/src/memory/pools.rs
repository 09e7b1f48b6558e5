//! Reserves of programs that link the library: the table of each one, its locked segments, and its locked text.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use qfabric_broker::{Member, MemoryRequester, Pool};
use qfabric_linux::program_text::ProgramText;
use qfabric_shm::{LockedPages, LockedSegment};
use qfabric_sync::{Lock, rank};
use qfabric_types::api::Problem;
use qfabric_types::api::memory::{AllocationId, AllocationPlace, PoolStatus, ReserveId};
use qfabric_types::{Bytes, Owner};

use super::{Accounts, Drawn, Memory, PromiseTarget, problems};

/// A reserve that a program made.
pub(super) struct Reserve {
    pub(super) id: ReserveId,
    /// The user of the process that made it.
    pub(super) owner: Owner,
    pid: i32,
    /// Held while pages are locked.
    state: Lock<State, { rank::MEMORY_POOL }>,
}

struct State {
    pool: Pool,
    /// Segments have huge pages where the host has free ones.
    is_huge: bool,
    members: BTreeSet<Member>,
    segments: BTreeMap<u64, LockedSegment>,
    texts: BTreeMap<Member, Vec<LockedPages>>,
    /// The part that a joint contract gave.
    drawn: Drawn,
    /// The last member has left.
    is_over: bool,
}

/// An allocation and the file of its segment.
pub(super) type Placed = (AllocationPlace, OwnedFd);

impl Memory {
    /// Makes a reserve for a member, in whole huge pages of the size `huge`, or in pages of the smallest size.
    pub(super) fn reserve(
        &self,
        whom: PromiseTarget<'_>,
        member: Member,
        bytes: Bytes,
        huge: Option<Bytes>,
    ) -> Result<Arc<Reserve>, Problem> {
        let page = huge.map_or(self.page, Bytes::get);
        let bytes = bytes.round_up(page);
        let (owner, pid) = (whom.owner, whom.pid);
        let (id, drawn) = self.accounts.with(|accounts| accounts.admit(whom, bytes))?;
        let state = State {
            pool: Pool::new(page, self.granted(id)),
            is_huge: huge.is_some(),
            members: [member].into(),
            segments: BTreeMap::new(),
            texts: BTreeMap::new(),
            drawn,
            is_over: false,
        };
        let reserve = Arc::new(Reserve { id, owner, pid, state: state.into() });
        self.reserves.with(|reserves| reserves.insert(id, reserve.clone()));
        Ok(reserve)
    }

    /// The reserve of this number.
    pub(super) fn find(&self, id: ReserveId) -> Result<Arc<Reserve>, Problem> {
        self.reserves.with(|reserves| reserves.get(&id).cloned()).ok_or_else(|| problems::no_such_reserve(id))
    }

    /// Changes the amount of a reserve. Returns the amount in whole pages.
    pub(super) fn resize(&self, reserve: &Reserve, bytes: Bytes) -> Result<Bytes, Problem> {
        let mut state = reserve.state.lock();
        let bytes = bytes.round_up(state.pool.page());
        state.pool.check_size(bytes).map_err(|refusal| refusal.problem())?;
        // The pages beyond the new amount are not in use, as checked above.
        let granted = self.accounts.with(|accounts| accounts.resize(reserve.id, &mut state.drawn, bytes));
        let granted = granted.map_err(|refusal| refusal.problem())?;
        state.pool.resize(granted);
        Ok(granted)
    }

    /// A member leaves: its allocations and its text are free. The last member ends the reserve.
    pub(super) fn leave(&self, reserve: &Reserve, member: Member) {
        let mut state = reserve.state.lock();
        for segment in state.pool.leave(member) {
            state.segments.remove(&segment);
        }
        state.texts.remove(&member);
        state.members.remove(&member);
        if state.members.is_empty() && !std::mem::replace(&mut state.is_over, true) {
            self.reserves.with(|reserves| reserves.remove(&reserve.id));
            self.accounts.with(|accounts| {
                accounts.broker.release(reserve.id);
                accounts.return_to(state.drawn.as_ref());
            });
        }
    }

    /// All reserves, for the status.
    pub(super) fn pools(&self) -> Vec<PoolStatus> {
        let reserves: Vec<Arc<Reserve>> = self.reserves.with(|reserves| reserves.values().cloned().collect());
        reserves.iter().map(|reserve| reserve.status()).collect()
    }
}

impl Accounts {
    /// Admits a reserve of a program, as far as possible from the memory of its joint contract.
    fn admit(&mut self, whom: PromiseTarget<'_>, bytes: Bytes) -> Result<(ReserveId, Drawn), Problem> {
        let PromiseTarget { owner, groups, name, pid, from } = whom;
        let owner = self.broker.limits().counted_for(owner, groups);
        let drawn = match from {
            Some(id) => Some(self.take_from(id.clone(), bytes).ok_or_else(|| problems::no_memory_of(&id))?),
            None => None,
        };
        match self.broker.admit(MemoryRequester { owner, name, pid }, bytes) {
            Ok(id) => Ok((id, drawn)),
            Err(refusal) => {
                self.return_to(drawn.as_ref());
                Err(refusal.problem())
            }
        }
    }
}

impl Reserve {
    fn status(&self) -> PoolStatus {
        let state = self.state.lock();
        PoolStatus {
            reserve: self.id,
            pid: self.pid,
            owner: self.owner,
            promised: state.pool.reserved(),
            used: state.pool.used(),
            members: state.members.len(),
        }
    }

    /// Another connection takes part. Returns the amount of the reserve.
    pub(super) fn join(&self, member: Member) -> Result<Bytes, Problem> {
        let mut state = self.state.lock();
        if state.is_over {
            return Err(problems::no_such_reserve(self.id));
        }
        state.members.insert(member);
        Ok(state.pool.reserved())
    }

    pub(super) fn allocate(&self, member: Member, bytes: Bytes) -> Result<Placed, Problem> {
        let mut state = self.state.lock();
        let place = state.pool.allocate(member, bytes.get()).map_err(|refusal| refusal.problem())?;
        let made = state.make_segment(place).and_then(|()| state.placed(place));
        if made.is_err() {
            // The place was free before.
            let _ = state.pool.free(member, place.allocation);
        }
        made
    }

    /// An allocation of any member.
    pub(super) fn open(&self, allocation: AllocationId) -> Result<Placed, Problem> {
        let state = self.state.lock();
        let place = state.pool.place(allocation).map_err(|refusal| refusal.problem())?;
        state.placed(place)
    }

    pub(super) fn free(&self, member: Member, allocation: AllocationId) -> Result<(), Problem> {
        let mut state = self.state.lock();
        let empty = state.pool.free(member, allocation).map_err(|refusal| refusal.problem())?;
        if let Some(segment) = empty {
            state.segments.remove(&segment);
        }
        Ok(())
    }

    /// Locks the program text of the member's process. Returns its length, and the length of parts that are not locked.
    pub(super) fn lock_text(&self, member: Member, pid: i32) -> Result<(Bytes, Bytes), Problem> {
        let text = ProgramText::of(pid).map_err(|error| problems::cannot_read_text(&error))?;
        let mut state = self.state.lock();
        let bytes = Bytes::new(text.bytes());
        state.pool.lock_text(member, bytes).map_err(|refusal| refusal.problem())?;
        match lock_parts(&text, pid) {
            Ok(pages) => {
                state.texts.insert(member, pages);
                Ok((bytes, Bytes::new(text.skipped)))
            }
            Err(problem) => {
                state.texts.remove(&member);
                // Zero always fits.
                let _ = state.pool.lock_text(member, Bytes::ZERO);
                Err(problem)
            }
        }
    }
}

fn lock_parts(text: &ProgramText, pid: i32) -> Result<Vec<LockedPages>, Problem> {
    let lock = |part: &qfabric_linux::program_text::TextPart| {
        let file = part.open(pid).map_err(|error| problems::cannot_read_text(&error))?;
        let locked = LockedPages::of_file(&file, part.bytes() as usize, part.offset);
        locked.map_err(|error| problems::cannot_lock(Bytes::new(part.bytes()), &error))
    };
    text.parts.iter().map(lock).collect()
}

impl State {
    fn make_segment(&mut self, place: AllocationPlace) -> Result<(), Problem> {
        if self.segments.contains_key(&place.segment) {
            return Ok(());
        }
        let bytes = Bytes::new(place.segment_bytes);
        let make = if self.is_huge { LockedSegment::create_huge } else { LockedSegment::create };
        let made = make(place.segment_bytes as usize);
        self.segments.insert(place.segment, made.map_err(|error| problems::cannot_lock(bytes, &error))?);
        Ok(())
    }

    /// The place with the kind of its pages, and the file of its segment.
    fn placed(&self, place: AllocationPlace) -> Result<Placed, Problem> {
        let none = || crate::problem::internal("the segment of an allocation has no file".to_owned());
        let segment = self.segments.get(&place.segment).ok_or_else(none)?;
        let copied = segment.file().try_clone();
        let file = copied.map_err(|error| crate::problem::internal(format!("cannot copy a descriptor: {error}")))?;
        Ok((AllocationPlace { pages: segment.kind(), ..place }, file))
    }
}
