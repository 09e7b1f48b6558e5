//! Preprocessing 2: a handler samples and averages in the kernel; the application hears of every 64th sample only, by
//! a signal that carries the average.

use anyhow::{Context, Result};
use qfabric_client::ecalls::{Ecalls, Signals, Subscribe};

use crate::PATIENCE;

/// Is somebody on the CPU? Per mille of 64 samples.
pub const CODE: &str = "
struct output { long busy; };
{
    static long samples;
    static long busy;
    samples++;
    if (input.pid != 0) busy++;
    if (samples < 64) return 0;
    output.busy = 1000 * busy / samples;
    samples = 0;
    busy = 0;
    return 1;
}";

const SIGNAL: i32 = 41;

/// The next `count` averages of how busy CPU 0 is, in per mille, sampled every `period`.
pub fn averages(ecalls: &Ecalls, period: &str, count: usize) -> Result<Vec<u64>> {
    let signals = Signals::keep(SIGNAL)?;
    let wanted = Subscribe::to("timer").option("period", period).option("cpu", 0).code(CODE).signal(SIGNAL);
    let _subscription = ecalls.subscribe(&wanted)?;
    (0..count).map(|_| signals.next(PATIENCE)?.context("no signal came in time")).collect()
}
