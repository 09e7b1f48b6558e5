//! Arithmetic on vectors of resources. All results contain only components that are not zero, so equal vectors are
//! equal values.

use crate::{Amount, BitRate, Bytes, Resource, Resources, Share, TooManyLinks};

impl Amount {
    /// The amount as an exact whole number: millionths of a CPU, bytes, or bits per second.
    pub const fn units(self) -> u64 {
        match self {
            Amount::Cpu(share) => share.ppm() as u64,
            Amount::Memory(bytes) => bytes.get(),
            Amount::Network(rate) => rate.get(),
        }
    }
}

impl Resource {
    /// The inverse of [`Amount::units`]. A share beyond 32 bits becomes the largest share.
    pub fn amount(&self, units: u64) -> Amount {
        match self {
            Resource::Cpu => Amount::Cpu(Share::from_ppm(u32::try_from(units).unwrap_or(u32::MAX))),
            Resource::Memory => Amount::Memory(Bytes::new(units)),
            Resource::Network(_) => Amount::Network(BitRate::new(units)),
        }
    }
}

impl Resources {
    /// The component of a resource in [`Amount::units`]; zero if the vector does not name it.
    pub fn units(&self, resource: &Resource) -> u64 {
        match resource {
            Resource::Cpu => self.cpu.ppm().into(),
            Resource::Memory => self.memory.get(),
            Resource::Network(end) => self.network(end).get(),
        }
    }

    /// Sets the component of a resource, in [`Amount::units`].
    ///
    /// # Errors
    /// The vector already names [`Resources::MAX_LINKS`] other links.
    pub fn set_units(&mut self, resource: &Resource, units: u64) -> Result<(), TooManyLinks> {
        match (resource, resource.amount(units)) {
            (Resource::Network(end), Amount::Network(rate)) => return self.set_network(end.clone(), rate),
            (_, Amount::Cpu(share)) => self.cpu = share,
            (_, Amount::Memory(bytes)) => self.memory = bytes,
            (_, Amount::Network(_)) => {}
        }
        Ok(())
    }

    /// Sets the component of a resource, in [`Amount::units`], in a vector that names the links of a valid vector only.
    ///
    /// # Panics
    /// The vector already names [`Resources::MAX_LINKS`] other links.
    pub fn put(&mut self, resource: &Resource, units: u64) {
        self.set_units(resource, units).expect("the links of a valid vector");
    }

    /// Whether no component is less than that of `other`.
    pub fn covers(&self, other: &Resources) -> bool {
        other.iter().all(|(resource, amount)| self.units(&resource) >= amount.units())
    }

    /// The difference of each component; zero where `other` is larger.
    #[must_use]
    pub fn minus(&self, other: &Resources) -> Resources {
        self.mapped(|resource, units| units.saturating_sub(other.units(resource)))
    }

    /// The smaller amount of each component.
    #[must_use]
    pub fn least(&self, other: &Resources) -> Resources {
        self.mapped(|resource, units| units.min(other.units(resource)))
    }

    /// The sum of each component.
    ///
    /// # Errors
    /// The sum would name more than [`Resources::MAX_LINKS`] links.
    pub fn plus(&self, other: &Resources) -> Result<Resources, TooManyLinks> {
        let mut sum = self.mapped(|_, units| units);
        for (resource, amount) in other.iter() {
            let units = sum.units(&resource).saturating_add(amount.units());
            sum.set_units(&resource, units)?;
        }
        Ok(sum)
    }

    /// Another amount for each component that is not zero. The result names no link that `self` does not name.
    fn mapped(&self, change: impl Fn(&Resource, u64) -> u64) -> Resources {
        let mut result = Resources::default();
        for (resource, amount) in self.iter() {
            result.put(&resource, change(&resource, amount.units()));
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Direction, LinkEnd};

    fn vectors() -> impl Strategy<Value = Resources> {
        (0..50u32, 0..50u64, 0..50u64, any::<bool>()).prop_map(|(cpu, memory, rate, out)| {
            let mut vector = Resources::default();
            (vector.cpu, vector.memory) = (Share::from_ppm(cpu), Bytes::new(memory));
            let direction = if out { Direction::Out } else { Direction::In };
            let end = LinkEnd { interface: "eth0".parse().unwrap(), direction };
            if rate > 0 {
                vector.set_network(end, BitRate::new(rate)).unwrap();
            }
            vector
        })
    }

    proptest! {
        #[test]
        fn a_sum_less_one_part_is_the_other_part(a in vectors(), b in vectors()) {
            let sum = a.plus(&b).unwrap();
            prop_assert!(sum.covers(&a) && sum.covers(&b));
            prop_assert_eq!(sum.minus(&a), b.clone());
            prop_assert_eq!(sum.minus(&b), a);
        }

        #[test]
        fn the_least_of_two_is_covered_by_both(a in vectors(), b in vectors()) {
            let least = a.least(&b);
            prop_assert!(a.covers(&least) && b.covers(&least));
            prop_assert_eq!(a.covers(&b), a.least(&b) == b.minus(&Resources::default()));
        }
    }

    #[test]
    fn a_component_of_zero_leaves_the_vector() {
        let mut vector = Resources::default();
        let resource = "network eth0 out".parse().unwrap();
        vector.put(&resource, 5);
        assert_eq!(vector.units(&resource), 5);
        vector.put(&resource, 0);
        assert_eq!(vector, Resources::default());
    }

    #[test]
    fn a_sum_names_at_most_the_allowed_number_of_links() {
        let mut full = Resources::default();
        for link in 0..Resources::MAX_LINKS {
            let end = LinkEnd { interface: format!("eth{link}").parse().unwrap(), direction: Direction::Out };
            full.set_network(end, BitRate::new(1)).unwrap();
        }
        let mut other = Resources::default();
        other.set_units(&"network lo in".parse().unwrap(), 1).unwrap();
        assert_eq!(full.plus(&other), Err(TooManyLinks));
        assert_eq!(full.plus(&full).unwrap().minus(&full), full);
    }
}
