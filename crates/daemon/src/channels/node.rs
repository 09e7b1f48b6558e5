//! Configuration of the node.

use std::time::{SystemTime, UNIX_EPOCH};

use qfabric_channel::{Config, Engines, Incarnation};
use qfabric_ecode::Interpreter;
use qfabric_linux::clock;
use qfabric_types::channel::Name;

/// A node of this name, whose filters are machine code.
pub(super) fn config(host: Name) -> Config {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, ns) = (since_1970.as_secs() as u32, since_1970.as_nanos() as u64);
    let random = ns as u32 ^ std::process::id().rotate_left(16);
    let mut config = Config::new(host, Incarnation::new(seconds, random));
    config.unix_offset_ns = ns.saturating_sub(clock::now().get());
    config.engines = engines();
    config
}

/// Compiles filters to machine code; if that fails, uses the interpreter, which gives the same results.
pub(super) fn engines() -> Engines {
    Box::new(|program, limits| match qfabric_jit::Jit::new(program, limits) {
        Ok(jit) => Ok(Box::new(jit)),
        Err(error) => {
            tracing::warn!(%error, "a filter is interpreted");
            Ok(Box::new(Interpreter::new(program, limits)))
        }
    })
}
