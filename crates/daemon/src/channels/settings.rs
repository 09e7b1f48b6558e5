//! The configuration in force. What follows from it alone is decided here: rights, limits and periods.

use std::sync::Arc;

use qfabric_sync::{Lock, rank};

use super::ChannelsConfig;

/// The configuration in force. A reload replaces it.
pub(super) struct Settings(Lock<Arc<ChannelsConfig>, { rank::CHANNELS_CONFIG }>);

impl Settings {
    pub(super) fn new(config: ChannelsConfig) -> Settings {
        Settings(Lock::new(Arc::new(config)))
    }

    pub(super) fn get(&self) -> Arc<ChannelsConfig> {
        self.0.lock().clone()
    }

    pub(super) fn replace(&self, config: ChannelsConfig) {
        *self.0.lock() = Arc::new(config);
    }
}
