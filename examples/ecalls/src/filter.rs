//! Filtering 1: a handler examines arriving packets in the kernel and discards those that do not matter to the
//! application. The others are written into shared memory. The application changes the criterion with a plain
//! store to memory, without a system call (a fast user-ECall).

use anyhow::{Context, Result};
use qfabric_client::ecalls::{Attribute, Ecalls, MemoryUp, Subscription, SubscriptionBuilder};

use crate::{EVENT_TIMEOUT, number};

/// Delivers the measurements above the threshold. The sensor sends `struct { u32 sensor; u32 value; }` in UDP
/// packets.
pub const CODE: &str = "
struct output { unsigned int sensor; unsigned int value; };
{
    if (input.transport != 17 || input.destination_port != attr.port || input.data_len < 8) return 0;
    output.sensor = input.data[0] | input.data[1] << 8 | input.data[2] << 16 | input.data[3] << 24;
    output.value = input.data[4] | input.data[5] << 8 | input.data[6] << 16 | input.data[7] << 24;
    attr.seen += 1;
    return output.value > attr.threshold;
}";

/// A subscription to measurements above a threshold.
pub struct Measurements {
    subscription: Subscription,
    threshold: Attribute,
    seen: Attribute,
}

impl Measurements {
    /// Subscribes to the measurements above `threshold` that arrive at `port` through `interface`.
    pub fn watch(ecalls: &Ecalls, interface: &str, port: u16, threshold: i64) -> Result<Measurements> {
        let wanted =
            SubscriptionBuilder::to("net.rx").option("interface", interface).code(CODE).memory_up(MemoryUp::default());
        let wanted = wanted.attribute("port", port.into()).attribute("threshold", threshold);
        let subscription = ecalls.subscribe(&wanted)?;
        let (threshold, seen) = (ecalls.attribute("threshold")?, ecalls.attribute("seen")?);
        Ok(Measurements { subscription, threshold, seen })
    }

    /// Changes the threshold without a system call.
    pub fn set_threshold(&self, threshold: i64) {
        self.threshold.set(threshold);
    }

    /// Number of measurements that the handler examined.
    pub fn seen(&self) -> i64 {
        self.seen.get()
    }

    /// Waits for the next measurement above the threshold. Returns the sensor and the value.
    pub fn take(&mut self) -> Result<(u32, u32)> {
        let event =
            self.subscription.next(EVENT_TIMEOUT)?.context("no measurement above the threshold arrived within 10 s")?;
        Ok((number::<4>(&event, 0) as u32, number::<4>(&event, 4) as u32))
    }
}
