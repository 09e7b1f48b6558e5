//! Finds the known name that a misspelt name was probably meant to be.

/// Returns the known name closest to `wrong`, or `None` if none is close enough.
pub(crate) fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // At most a third of the letters may differ. A name longer than 64 bytes gets no suggestion.
    let most = (wrong.len() / 3).max(1);
    if wrong.len() > 64 {
        return None;
    }
    known
        .into_iter()
        .filter(|name| name.len().abs_diff(wrong.len()) <= most && *name != wrong)
        .map(|name| (distance(wrong.as_bytes(), name.as_bytes()), name))
        .filter(|(distance, name)| *distance <= most && *distance < name.len())
        .min()
        .map(|(_, name)| name)
}

/// Number of letters to insert, remove, replace or swap with a neighbour. Upper and lower case count as equal.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let same = |x: u8, y: u8| x.eq_ignore_ascii_case(&y);
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(!same(a[i - 1], b[j - 1]));
            let mut least = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]) {
                least = least.min(before_last[j - 2] + 1);
            }
            row.push(least);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_finds_the_known_name() {
        assert_eq!(nearest("treshold", ["threshold", "thread"]), Some("threshold"));
        assert_eq!(nearest("lenght", ["len", "length"]), Some("length"));
        assert_eq!(nearest("Count", ["count"]), Some("count"));
    }

    #[test]
    fn an_unrelated_name_finds_nothing() {
        assert_eq!(nearest("apples", ["oranges", "pears"]), None);
        assert_eq!(nearest("x", ["y"]), None);
    }
}
