//! Patterns over names: `*` matches any characters, `/` too; `?` matches one; every other character
//! matches itself.
//!
//! File names are arbitrary bytes, so no other byte is special, and nothing has to be escaped: a
//! pattern that is a name with a `*` in it matches that name. A character is one UTF-8 character
//! or, where the bytes are not valid UTF-8, one byte.

/// Returns whether all of `name` matches `pattern`.
///
/// Takes time in proportion to the product of both lengths, without recursion: after a mismatch
/// only the last `*` is widened, since a shorter match of an earlier one never helps.
///
/// ```
/// use refit_sys::glob::matches;
/// assert!(matches(b"fcm:/logs/*", b"fcm:/logs/2026/nov"));
/// assert!(!matches(b"fcm:/logs/?", b"fcm:/logs/10"));
/// ```
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    // The last star in the pattern, and the end of what it matches so far in the name.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            // The last character matches all the rest.
            Some(b'*') if p + 1 == pattern.len() => return true,
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(b'?') => {
                n += width(&name[n..]);
                p += 1;
            }
            Some(&byte) if byte == name[n] => {
                n += 1;
                p += 1;
            }
            _ => {
                let Some((at, end)) = star else { return false };
                let end = end + width(&name[end..]);
                star = Some((at, end));
                (p, n) = (at + 1, end);
            }
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

/// Returns whether a pattern matches only the name that is spelled like it.
pub fn is_literal(pattern: &[u8]) -> bool {
    !pattern.iter().any(|byte| b"*?".contains(byte))
}

/// Returns the number of bytes of the first character of `text`, which is not empty.
fn width(text: &[u8]) -> usize {
    let claimed = match text[0] {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => 1,
    };
    let is_character = |bytes: &[u8]| std::str::from_utf8(bytes).is_ok();
    if text.get(..claimed).is_some_and(is_character) { claimed } else { 1 }
}

#[cfg(test)]
mod tests {
    fn matches(pattern: &str, name: &str) -> bool {
        super::matches(pattern.as_bytes(), name.as_bytes())
    }

    #[test]
    fn literals_match_themselves_only() {
        for (pattern, name, expected) in [
            ("fcm:/a", "fcm:/a", true),
            ("fcm:/a", "fcm:/ab", false),
            ("fcm:/ab", "fcm:/a", false),
            ("", "a", false),
            ("", "", true),
            ("a[b]{c}\\", "a[b]{c}\\", true),
            ("[ab]", "a", false),
            ("a*b", "a*b", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn star_matches_any_characters_slashes_too() {
        for (pattern, name, expected) in [
            ("fcm:/logs/*", "fcm:/logs/", true),
            ("fcm:/logs/*", "fcm:/logs/a/b/c", true),
            ("/logs/*", "/log", false),
            ("*", "", true),
            ("*.log", "a.log.log", true),
            ("/*/x*z", "/a/b/xyyz", true),
            ("/*/x*z", "/a/b/xyy", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn question_mark_matches_one_character_of_any_width() {
        for (pattern, name, expected) in [
            ("fcm:/?", "fcm:/é", true),
            ("fcm:/?", "fcm:/", false),
            ("fcm:/?", "fcm:/ab", false),
            ("*??", "€", false),
            ("*??", "a€", true),
            ("??", "é", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
        // Each byte that is not UTF-8 is a character.
        assert!(super::matches(b"a?", b"a\xff") && super::matches(b"a??", b"a\xe2\x82"));
        assert!(!super::matches(b"a?", b"a\xe2\x82"));
    }

    #[test]
    fn many_stars_do_not_take_forever() {
        let name = "a".repeat(199) + &"b".repeat(2000);
        assert!(!matches(&"*a".repeat(200), &name));
    }

    #[test]
    fn agrees_with_the_definition_on_all_short_words() {
        fn slow(p: &[char], n: &[char]) -> bool {
            match (p.split_first(), n.split_first()) {
                (None, _) => n.is_empty(),
                (Some(('*', rest)), _) => (0..=n.len()).any(|k| slow(rest, &n[k..])),
                (Some(_), None) => false,
                (Some((c, p)), Some((d, n))) => (*c == '?' || c == d) && slow(p, n),
            }
        }
        fn words(alphabet: &[char], upto: usize) -> Vec<Vec<char>> {
            let mut all = vec![vec![]];
            let mut from = 0;
            for _ in 0..upto {
                let till = all.len();
                for i in from..till {
                    for c in alphabet {
                        let mut word = all[i].clone();
                        word.push(*c);
                        all.push(word);
                    }
                }
                from = till;
            }
            all
        }
        for p in words(&['€', '*', '?'], 4) {
            for n in words(&['€', 'b'], 4) {
                let (ps, ns): (String, String) = (p.iter().collect(), n.iter().collect());
                assert_eq!(matches(&ps, &ns), slow(&p, &n), "{ps} against {ns}");
            }
        }
    }
}
