//! Partial grants: as much of an amount as a broker with several bounds has.

/// Asks for `most`, then for the largest amount that each refusal names, until one is granted. Returns the granted amount.
///
/// # Errors
/// The refusal whose largest amount is less than `least`.
pub fn as_much_as_fits<T: Copy + Ord, E>(
    most: T,
    least: T,
    mut ask: impl FnMut(T) -> Result<(), E>,
    largest: impl Fn(&E) -> T,
) -> Result<T, E> {
    let mut asked = most;
    loop {
        match ask(asked) {
            Ok(()) => return Ok(asked),
            // One bound after the other is checked, so a smaller amount may exceed the next one.
            Err(refusal) if (least..asked).contains(&largest(&refusal)) => asked = largest(&refusal),
            Err(refusal) => return Err(refusal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bounds that are checked one after the other; a refusal names only the first that is exceeded.
    fn ask(bounds: &[u32], asked: u32) -> Result<(), u32> {
        bounds.iter().find(|bound| asked > **bound).map_or(Ok(()), |bound| Err(*bound))
    }

    #[test]
    fn the_smallest_bound_is_granted_if_it_is_enough_and_refused_otherwise() {
        let fits = |least| as_much_as_fits(9, least, |asked| ask(&[7, 5], asked), |largest| *largest);
        assert_eq!((fits(5), fits(6)), (Ok(5), Err(5)));
        assert_eq!(as_much_as_fits(9, 8, |asked| ask(&[9], asked), |largest| *largest), Ok(9));
    }
}
