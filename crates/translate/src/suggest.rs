//! Finds the known key that a misspelt key was probably meant to be.

/// Returns the known key closest to `wrong`, or `None` if more than a third of its letters differ.
pub(crate) fn nearest<'a>(wrong: &str, known: &[&'a str]) -> Option<&'a str> {
    if wrong.len() > 64 {
        return None;
    }
    let distance = |name: &&'a str| strsim::damerau_levenshtein(&wrong.to_lowercase(), name);
    let closest = known.iter().copied().min_by_key(distance)?;
    (distance(&closest) <= (wrong.len() / 3).max(1)).then_some(closest)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_misspelt_key_finds_the_known_key() {
        assert_eq!(nearest("frame_raet", &["frame_rate", "frame_size"]), Some("frame_rate"));
        assert_eq!(nearest("Dealy", &["jitter", "delay"]), Some("delay"));
        assert_eq!(nearest("colour", &["jitter", "delay"]), None);
    }
}
