//! Settings carried out on servers: one for each thread.

use std::collections::HashMap;

use qfabric_types::{Setting, ThreadId};

use super::{Ext, ExtConfig, ExtError, ServerId};
use crate::mechanism::{ApplyError, Mechanism};

/// One server for each thread under reservation. No journal: when the owner ends, the kernel puts all back.
#[derive(Debug)]
pub struct ExtMechanism {
    ext: Ext,
    servers: HashMap<ThreadId, ServerId>,
}

impl ExtMechanism {
    /// Loads the scheduler.
    pub fn load(config: &ExtConfig) -> Result<ExtMechanism, ExtError> {
        Ok(ExtMechanism { ext: Ext::load(config)?, servers: HashMap::new() })
    }

    /// The scheduler, for groups, events and statistics.
    pub fn ext(&mut self) -> &mut Ext {
        &mut self.ext
    }

    /// The server of a thread.
    pub fn server(&self, thread: ThreadId) -> Option<ServerId> {
        self.servers.get(&thread).copied()
    }
}

impl Mechanism for ExtMechanism {
    fn name(&self) -> &'static str {
        "ext"
    }

    fn apply(&mut self, setting: &Setting) -> Result<(), ApplyError> {
        Err(ApplyError::Gone { thread: setting.thread })
    }

    fn forget(&mut self, thread: ThreadId) {
        self.servers.remove(&thread);
    }

    fn restore_all(&mut self) -> Vec<ApplyError> {
        self.servers.clear();
        Vec::new()
    }
}
