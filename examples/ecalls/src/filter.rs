//! Filtering 1: a handler looks at what arrives and discards, in the kernel, what is of no interest. What is, lies in
//! shared memory. What is of interest changes by a plain store: a fast user-ECall.

use anyhow::{Context, Result};
use qfabric_client::ecalls::{Attribute, Ecalls, MemoryUp, Subscribe, Subscription};

use crate::{PATIENCE, number};

/// Measurements above the threshold, of a sensor that sends `struct { u32 sensor; u32 value; }` in UDP packets.
pub const CODE: &str = "
struct output { unsigned int sensor; unsigned int value; };
{
    if (input.transport != 17 || input.destination_port != attr.port || input.data_len < 8) return 0;
    output.sensor = input.data[0] | input.data[1] << 8 | input.data[2] << 16 | input.data[3] << 24;
    output.value = input.data[4] | input.data[5] << 8 | input.data[6] << 16 | input.data[7] << 24;
    attr.seen += 1;
    return output.value > attr.threshold;
}";

/// Measurements of interest.
pub struct Measurements {
    subscription: Subscription,
    threshold: Attribute,
    seen: Attribute,
}

impl Measurements {
    /// Those that arrive at `port` through `interface`, above `threshold`.
    pub fn watch(ecalls: &Ecalls, interface: &str, port: u16, threshold: i64) -> Result<Measurements> {
        let wanted = Subscribe::to("net.rx").option("interface", interface).code(CODE).memory_up(MemoryUp::default());
        let wanted = wanted.attribute("port", port.into()).attribute("threshold", threshold);
        let subscription = ecalls.subscribe(&wanted)?;
        let (threshold, seen) = (ecalls.attribute("threshold")?, ecalls.attribute("seen")?);
        Ok(Measurements { subscription, threshold, seen })
    }

    /// From now on only those above `threshold`. No system call.
    pub fn above(&self, threshold: i64) {
        self.threshold.set(threshold);
    }

    /// Measurements the handler looked at.
    pub fn seen(&self) -> i64 {
        self.seen.get()
    }

    /// The next one of interest: sensor and value.
    pub fn take(&mut self) -> Result<(u32, u32)> {
        let event = self.subscription.next(PATIENCE)?.context("nothing of interest came in time")?;
        Ok((number::<4>(&event, 0) as u32, number::<4>(&event, 4) as u32))
    }
}
