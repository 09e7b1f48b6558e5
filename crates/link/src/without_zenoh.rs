//! Stands in for the engine Zenoh in a build without the feature `zenoh`: Zenoh and its dependencies are half of the build,
//! and the demo needs no network.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use qfabric_channel::Incarnation;

use crate::engine::{Engine, Handler};
use crate::{Config, Error};

/// Refuses.
pub(crate) fn open(
    _: &Config,
    _: Incarnation,
    _: Arc<dyn Handler>,
    _: impl FnOnce() + Send + 'static,
) -> Result<Arc<dyn Engine>, Error> {
    Err(Error::WithoutZenoh)
}

/// There is none.
#[derive(Debug)]
pub enum Attending {}

/// There is no thread of a network.
pub fn attend(
    _: OwnedFd,
    _: impl FnMut() -> bool + Send + 'static,
    _: impl Fn(&'static str, String) + Send + 'static,
) -> io::Result<Option<Attending>> {
    Ok(None)
}

/// Whether two configurations open the same network; the engine plain has no settings of its own.
pub(crate) fn is_same(one: &Config, other: &Config) -> bool {
    one == other
}
