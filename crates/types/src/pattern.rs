//! Names in configurations that stand for several: what ends in `*` stands for all names that begin so.

use crate::channel::Name;

/// Whether `name` is the pattern, or begins as it says.
pub fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => pattern == name,
    }
}

/// Whether it can stand for a [`Name`].
pub fn is_of_names(pattern: &str) -> bool {
    pattern == "*" || pattern.strip_suffix('*').unwrap_or(pattern).parse::<Name>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_at_the_end_stands_for_every_end() {
        assert!(matches("*", "video") && matches("vi*", "video") && matches("video", "video"));
        assert!(!matches("vi", "video") && !matches("video", "vi") && !matches("*o", "video"));
    }

    #[test]
    fn what_could_never_be_a_name_is_no_pattern() {
        assert!(["*", "video", "vi*"].into_iter().all(is_of_names));
        assert!(!["", "**", "*o", "a b", "_*"].into_iter().any(is_of_names));
    }
}
