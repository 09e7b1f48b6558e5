//! Which versions of the client library and of the daemon understand each other: those with the same minor version.

/// Begins the `User-Agent` of the client library; its version follows.
pub const LIBRARY_AGENT: &str = "qfabric-client/";

/// Whether a library and a daemon of these versions understand each other.
pub fn is_compatible(one: &str, other: &str) -> bool {
    minor(one).is_some_and(|found| minor(other) == Some(found))
}

fn minor(version: &str) -> Option<(&str, &str)> {
    let mut parts = version.split('.');
    Some((parts.next()?, parts.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compatible_when_their_minor_is_the_same() {
        assert!(is_compatible("0.1.0", "0.1.7-rc1"));
        for (one, other) in [("0.1.0", "0.2.0"), ("0.1.0", "1.1.0"), ("0.1.0", ""), ("", ""), ("1", "1")] {
            assert!(!is_compatible(one, other), "{one} and {other}");
        }
    }
}
