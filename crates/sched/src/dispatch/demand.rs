//! The demand of a group, and its rounding to whole slots.

use std::fmt;

use qfabric_types::Nanos;

use super::Refusal;

/// A group of threads that run in the same slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u64);

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// `service` (C) of CPU time in every `period` (T), for all threads of a group together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    pub group: GroupId,
    pub service: Nanos,
    pub period: Nanos,
}

/// A demand in whole slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slotted {
    pub group: GroupId,
    /// Slots in every period.
    pub service: u32,
    /// Length of the period in slots.
    pub period: u32,
}

impl Demand {
    /// C rounded up and T rounded down to whole slots, so that the group never gets less than it asked for.
    ///
    /// # Errors
    /// [`Refusal::PeriodBelowSlot`], [`Refusal::ServiceOverPeriod`] and [`Refusal::NoService`].
    pub fn slotted(&self, slot: Nanos) -> Result<Slotted, Refusal> {
        let Demand { group, service, period } = *self;
        let (c, t) = (service.get().div_ceil(slot.get()), period.get() / slot.get());
        if service == Nanos::ZERO {
            return Err(Refusal::NoService);
        }
        if t == 0 {
            return Err(Refusal::PeriodBelowSlot { period, slot });
        }
        if c > t {
            return Err(Refusal::ServiceOverPeriod { service, period, slot, service_slots: c, period_slots: t });
        }
        let whole = |slots: u64| u32::try_from(slots).unwrap_or(u32::MAX);
        Ok(Slotted { group, service: whole(c), period: whole(t) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slotted(service_us: u64, period_us: u64) -> Result<(u32, u32), Refusal> {
        let (service, period) = (Nanos::from_micros(service_us), Nanos::from_micros(period_us));
        let demand = Demand { group: GroupId(1), service, period };
        demand.slotted(Nanos::from_millis(10)).map(|s| (s.service, s.period))
    }

    #[test]
    fn the_service_is_rounded_up_and_the_period_down() {
        assert_eq!(slotted(10_000, 20_000), Ok((1, 2)));
        assert_eq!(slotted(10_001, 29_999), Ok((2, 2)));
        assert_eq!(slotted(1, 41_666), Ok((1, 4)));
    }

    #[test]
    fn a_demand_that_whole_slots_cannot_serve_is_refused_with_its_values() {
        for (demand, part) in [
            (slotted(0, 20_000), "0 ms"),
            (slotted(1_000, 9_999), "9.999 ms is shorter than a slot of 10 ms"),
            (slotted(10_001, 19_999), "2 slots of 10 ms in every 1 whole slots"),
        ] {
            let text = demand.unwrap_err().to_string();
            assert!(text.contains(part), "{text} lacks {part}");
        }
    }
}
