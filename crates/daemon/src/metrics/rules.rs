//! The rules of `promtool check metrics` for names and descriptions, so that a test needs no Prometheus. Source:
//! client_golang, `prometheus/testutil/promlint`.

const UNITS: [&str; 10] =
    ["amperes", "bytes", "celsius", "grams", "joules", "kelvin", "meters", "metres", "seconds", "volts"];
/// Units for which the rules want another one.
const OTHER_UNITS: [&str; 14] = [
    "bits",
    "calories",
    "days",
    "fahrenheit",
    "hours",
    "inches",
    "kelvins",
    "miles",
    "minutes",
    "ounces",
    "pounds",
    "rankine",
    "weeks",
    "yards",
];
const PREFIXES: [&str; 18] = [
    "pico", "nano", "micro", "milli", "centi", "deci", "deca", "hecto", "kilo", "kibi", "mega", "mibi", "giga", "gibi",
    "tera", "tebi", "peta", "pebi",
];
const ABBREVIATIONS: [&str; 14] = ["s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d"];
const TYPES: [&str; 4] = ["counter", "gauge", "summary", "histogram"];
/// Ends that only samples have: those of counters, and of histograms.
const ENDS: [&str; 4] = ["total", "bucket", "count", "sum"];

fn is_scaled(word: &str) -> bool {
    let is_unit = |rest: &str| UNITS.contains(&rest) || OTHER_UNITS.contains(&rest);
    PREFIXES.iter().filter_map(|prefix| word.strip_prefix(*prefix)).any(is_unit)
}

fn is_wrong(word: &str) -> bool {
    OTHER_UNITS.contains(&word) || ABBREVIATIONS.contains(&word) || TYPES.contains(&word) || is_scaled(word)
}

/// What the rules object to in a metric with this name, without `_total`, and this description.
pub(super) fn complaint(name: &str, help: &str) -> Option<String> {
    let is_sign = |byte: u8| !(byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    if help.trim().is_empty() || help.contains('\n') {
        return Some(format!("{name} needs one line of description"));
    }
    if name.bytes().any(is_sign) {
        return Some(format!("{name} has other signs than small letters, digits and _"));
    }
    let end = name.rsplit('_').next().filter(|end| ENDS.contains(end));
    let wrong = end.or_else(|| name.split('_').find(|word| is_wrong(word)));
    wrong.map(|word| format!("{name} must not contain {word:?}"))
}

/// The complaints about all metrics that a text in OpenMetrics describes.
pub(super) fn complaints(text: &str) -> Vec<String> {
    let described = text.lines().filter_map(|line| line.strip_prefix("# HELP "));
    described
        .filter_map(|line| line.split_once(' ').map_or(Some(line.to_owned()), |(name, help)| complaint(name, help)))
        .collect()
}

#[test]
fn units_that_are_no_base_units_and_reserved_words_are_found() {
    for name in
        ["q_rate_bits", "q_cpu_ns", "q_milliseconds", "q_jobs_total", "q_wait_count", "q_gauge", "qJobs", "q:jobs"]
    {
        assert!(complaint(name, "a description").is_some(), "{name}");
    }
    for name in ["q_jobs", "q_wait_seconds", "q_free_bytes", "q_bit_rate", "q_microphones"] {
        assert_eq!(complaint(name, "a description"), None);
    }
    assert!(complaint("q_jobs", " ").is_some());
    assert_eq!(complaints("# HELP q_cpu_ns time.\n# TYPE q_cpu_ns counter\n# HELP q_jobs jobs.\n").len(), 1);
}
