//! Patterns for names in configurations: a `*` at the end stands for any continuation.

use crate::channel::Name;

/// Whether `name` matches the pattern.
pub fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => pattern == name,
    }
}

/// Whether the pattern can match a [`Name`].
pub fn is_of_names(pattern: &str) -> bool {
    pattern == "*" || pattern.strip_suffix('*').unwrap_or(pattern).parse::<Name>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_at_the_end_matches_any_continuation() {
        assert!(matches("*", "video") && matches("vi*", "video") && matches("video", "video"));
        assert!(!matches("vi", "video") && !matches("video", "vi") && !matches("*o", "video"));
    }

    #[test]
    fn a_pattern_that_matches_no_name_is_refused() {
        assert!(["*", "video", "vi*"].into_iter().all(is_of_names));
        assert!(!["", "**", "*o", "a b", "_*"].into_iter().any(is_of_names));
    }
}
