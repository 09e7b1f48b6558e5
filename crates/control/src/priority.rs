//! A rival: the paper's CPU manager, which moves a real-time priority by one per report. Source: thesis §5.4.

/// A rate in this part of the wanted one is right.
const TOLERANCE: f64 = 0.05;

/// The step of a priority after a report of the rate: 1 if it is too low, -1 if it is too high, else 0.
pub fn step(rate: f64, wanted: f64) -> i64 {
    match wanted - rate {
        missing if missing > TOLERANCE * wanted => 1,
        missing if missing < -TOLERANCE * wanted => -1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_priority_follows_the_sign_of_the_error() {
        assert_eq!([0.0, 18.0, 19.5, 20.5, 22.0, f64::NAN].map(|rate| step(rate, 20.0)), [1, 1, 0, 0, -1, 0]);
    }
}
