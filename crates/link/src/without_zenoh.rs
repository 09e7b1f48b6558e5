//! Replaces the engine Zenoh in a build without the feature `zenoh`: Zenoh and its dependencies are half of the build,
//! and the demo needs no network.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use qfabric_channel::Incarnation;

use crate::engine::{Engine, Handler};
use crate::{Config, Error};

/// Always refuses.
pub(crate) fn open(
    _: &Config,
    _: Incarnation,
    _: Arc<dyn Handler>,
    _: impl FnOnce() + Send + 'static,
) -> Result<Arc<dyn Engine>, Error> {
    Err(Error::WithoutZenoh)
}

/// Never exists in this build.
#[derive(Debug)]
pub enum Attending {}

/// Always returns `None`, because there is no network thread.
///
/// # Errors
/// Never.
pub fn attend(
    _: impl AsFd + Send + Sync + 'static,
    _: impl FnMut(bool) + Send + 'static,
    _: impl Fn(&'static str, String) + Send + 'static,
) -> io::Result<Option<Attending>> {
    Ok(None)
}

/// Whether two configurations open the same network; the plain engine has no further settings.
pub(crate) fn is_same(one: &Config, other: &Config) -> bool {
    one == other
}

/// Always 0, because there are no handshakes.
pub fn refused_handshakes() -> u64 {
    0
}
