//! The promise to an application under contract.

use std::fmt;
use std::sync::Arc;

use qfabric_types::api::Problem;
use qfabric_types::api::memory::ReserveId;
use qfabric_types::{AppId, Bytes};

use super::Memory;

/// A promise of memory to one application. When it is dropped, the group of the program is put back, and then the room
/// is free. No call blocks.
pub(crate) struct Promise {
    memory: Arc<Memory>,
    reserve: ReserveId,
}

impl fmt::Debug for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Promise").field(&self.reserve).finish()
    }
}

impl Promise {
    pub(super) fn new(memory: Arc<Memory>, reserve: ReserveId) -> Promise {
        Promise { memory, reserve }
    }

    #[cfg(test)]
    pub(super) fn reserve(&self) -> ReserveId {
        self.reserve
    }

    /// Names the application, after it was admitted.
    pub(crate) fn belongs_to(&self, app: AppId) {
        self.memory.accounts.with(|accounts| {
            if let Some(program) = accounts.programs.get_mut(&self.reserve) {
                program.app = Some(app);
            }
        });
    }

    pub(crate) fn bytes(&self) -> Bytes {
        self.memory.granted(self.reserve)
    }

    /// Changes the amount. An increase is taken from the joint contract of the application first; a decrease returns to it
    /// when it has taken effect.
    ///
    /// # Errors
    /// An increase does not fit; the promise stays as it was. A decrease never fails.
    pub(crate) fn change(&self, bytes: Bytes) -> Result<(), Problem> {
        let changed = self.memory.accounts.with(|accounts| {
            let granted = accounts.change_program(self.reserve, bytes);
            if self.memory.keeper.is_none() {
                accounts.settle_program(self.reserve);
            }
            granted
        });
        let granted = changed.map_err(|refusal| refusal.problem())?;
        if let Some(keeper) = &self.memory.keeper {
            keeper.resize(self.reserve, granted);
        }
        Ok(())
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        match &self.memory.keeper {
            Some(keeper) => keeper.release(self.reserve),
            None => {
                self.memory.watcher.end(self.reserve);
                self.memory.accounts.with(|accounts| accounts.release(self.reserve));
            }
        }
    }
}
