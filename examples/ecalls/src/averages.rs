//! Preprocessing 2: a handler samples a CPU and computes averages in the kernel. The application receives a signal
//! only for every 64th sample; the signal carries the average.

use anyhow::{Context, Result};
use qfabric_client::ecalls::{Ecalls, Signals, SubscriptionBuilder};

use crate::EVENT_TIMEOUT;

/// Sends, for every 64 samples, in how many of them the CPU was busy, in per mille.
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

/// Returns the next `count` averages of the load of CPU 0 in per mille. `period` is the time between two samples.
pub fn averages(ecalls: &Ecalls, period: &str, count: usize) -> Result<Vec<u64>> {
    let signals = Signals::keep(SIGNAL)?;
    let wanted = SubscriptionBuilder::to("timer").option("period", period).option("cpu", 0).code(CODE).signal(SIGNAL);
    let _subscription = ecalls.subscribe(&wanted)?;
    (0..count).map(|_| signals.next(EVENT_TIMEOUT)?.context("no signal arrived within 10 s")).collect()
}
