//! The characters that may appear in a name that one user gives and other users read.

/// Whether a character is visible and does not change how other characters are displayed. Control characters, line
/// and paragraph separators, and the controls of bidirectional text are refused: they could make one name look like
/// another (Unicode Technical Report 36, §2.5).
pub fn is_plain(c: char) -> bool {
    let directs = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let hides = matches!(c, '\u{200b}' | '\u{2028}' | '\u{2029}' | '\u{2060}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}');
    !(c.is_control() || directs || hides)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_all_scripts_are_plain_and_what_turns_them_round_is_not() {
        assert!("player-1 Würfel プレーヤー نص 👩‍🚀".chars().all(is_plain));
        for c in ['\n', '\u{1b}', '\u{85}', '\u{200f}', '\u{202e}', '\u{2066}', '\u{2028}', '\u{feff}', '\u{e0041}'] {
            assert!(!is_plain(c), "{c:?}");
        }
    }
}
