//! Places for connections: so many in all, so many of one user.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Counts connections.
#[derive(Clone)]
pub(crate) struct Places {
    all: Arc<Semaphore>,
    of_user: Arc<Mutex<HashMap<u32, usize>>>,
    most_of_user: usize,
}

/// A connection's place, given back when dropped.
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
    uid: u32,
    of_user: Arc<Mutex<HashMap<u32, usize>>>,
}

impl Places {
    /// `most` in all, half of them for any one user but root: nobody can lock the others out.
    pub fn new(most: usize) -> Self {
        Places { all: Arc::new(Semaphore::new(most)), of_user: Arc::default(), most_of_user: most.div_ceil(2) }
    }

    /// Waits until a place is free.
    pub async fn wait(&self) -> OwnedSemaphorePermit {
        self.all.clone().acquire_owned().await.expect("the semaphore is never closed")
    }

    /// Takes a place for a user; none, where it has too many.
    pub fn take(&self, permit: OwnedSemaphorePermit, uid: u32) -> Option<Place> {
        let mut of_user = self.of_user.lock().unwrap_or_else(PoisonError::into_inner);
        let count = of_user.entry(uid).or_default();
        if uid != 0 && *count >= self.most_of_user {
            return None;
        }
        *count += 1;
        Some(Place { _permit: permit, uid, of_user: self.of_user.clone() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut of_user = self.of_user.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = of_user.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                of_user.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_user_gets_half_of_the_places_and_gives_them_back() {
        let places = Places::new(4);
        let mut taken = Vec::new();
        for expected in [true, true, false] {
            let place = places.take(places.wait().await, 7);
            assert_eq!(place.is_some(), expected);
            taken.extend(place);
        }
        assert!(places.take(places.wait().await, 8).is_some());
        taken.pop();
        assert!(places.take(places.wait().await, 7).is_some());
    }
}
