//! «Did you mean …?»

/// The known name that is nearest to a misspelt one, if one is near enough to be meant.
pub(crate) fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A third of the letters may be wrong. Longer words are not misspelt, they are other words.
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

/// Letters to insert, remove, replace or swap with their neighbour; case alone counts nothing.
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
    fn a_slip_of_the_finger_finds_its_word() {
        assert_eq!(nearest("treshold", ["threshold", "thread"]), Some("threshold"));
        assert_eq!(nearest("lenght", ["len", "length"]), Some("length"));
        assert_eq!(nearest("Count", ["count"]), Some("count"));
    }

    #[test]
    fn another_word_finds_nothing() {
        assert_eq!(nearest("apples", ["oranges", "pears"]), None);
        assert_eq!(nearest("x", ["y"]), None);
    }
}
