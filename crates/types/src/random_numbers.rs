//! Random numbers from a seed: splitmix64 (Steele and others, 2014).

/// A sequence of random numbers that the seed determines on every machine, so a run can be repeated. Not for secrets:
/// one number reveals all numbers that follow.
#[derive(Clone, Debug)]
pub struct RandomNumbers {
    state: u64,
}

impl RandomNumbers {
    pub fn new(seed: u64) -> RandomNumbers {
        RandomNumbers { state: seed }
    }

    /// The next number, in the whole range of 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next number, in [0, 1).
    pub fn uniform(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_splitmix64() {
        let mut numbers = RandomNumbers::new(1_234_567);
        let drawn = [numbers.draw(), numbers.draw(), numbers.draw()];
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
        assert!((0..1_000).all(|_| (0.0..1.0).contains(&numbers.uniform())));
    }
}
