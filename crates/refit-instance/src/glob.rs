//! Patterns for object names: `*` matches any characters including `/`, `?` matches one character,
//! and every other character matches itself.
//!
//! File names may contain any characters. Nothing else is special and nothing needs to be escaped:
//! a name that contains a `*` is matched by itself. Matching takes O(name · pattern) time without
//! recursion: on a mismatch only the last `*` is extended, since a shorter match of an earlier one
//! never helps.

use crate::wire::ObjectInfo;

/// A pattern for object names.
///
/// ```
/// use refit_instance::Glob;
/// assert!(Glob::new("fcm:/logs/*").matches("fcm:/logs/2026/nov"));
/// assert!(!Glob::new("fcm:/logs/?").matches("fcm:/logs/10"));
/// ```
#[derive(Clone, Debug)]
pub struct Glob {
    text: String,
    pattern: Vec<char>,
    /// If given, only objects of this mount match.
    mount: Option<String>,
}

impl Glob {
    /// Creates a pattern. Every text is a valid one.
    pub fn new(text: &str) -> Self {
        Glob { text: text.to_owned(), pattern: text.chars().collect(), mount: None }
    }

    /// Returns the same pattern restricted to objects of one mount, if given.
    #[must_use]
    pub fn of_mount(self, mount: Option<&str>) -> Self {
        Glob { mount: mount.map(str::to_owned), ..self }
    }

    /// Returns whether an object matches. Its [mount](ObjectInfo::mount) must be known.
    pub(crate) fn selects(&self, object: &ObjectInfo) -> bool {
        self.matches(&object.name)
            && self.mount.as_ref().is_none_or(|m| object.mount.as_ref() == Some(m))
    }

    /// Returns the text of the pattern.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether the pattern matches only the name that is spelled like it.
    pub fn is_literal(&self) -> bool {
        !self.pattern.iter().any(|c| matches!(c, '*' | '?'))
    }

    /// Returns whether the whole of `name` matches.
    pub fn matches(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        let pattern = &self.pattern;
        let (mut n, mut p) = (0, 0);
        // The position of the last star, and how much of the name it has matched so far.
        let mut star: Option<(usize, usize)> = None;
        while n < name.len() {
            match pattern.get(p) {
                Some('*') => {
                    star = Some((p, n));
                    p += 1;
                }
                Some(&c) if c == '?' || c == name[n] => {
                    n += 1;
                    p += 1;
                }
                _ => match &mut star {
                    Some((at, taken)) => {
                        *taken += 1;
                        n = *taken;
                        p = *at + 1;
                    }
                    None => return false,
                },
            }
        }
        pattern[p..].iter().all(|c| *c == '*')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        Glob::new(pattern).matches(name)
    }

    #[test]
    fn literals_match_themselves_only() {
        assert!(matches("fcm:/a", "fcm:/a"));
        assert!(!matches("fcm:/a", "fcm:/ab"));
        assert!(!matches("fcm:/ab", "fcm:/a"));
        assert!(!matches("", "a"));
        assert!(matches("", ""));
    }

    #[test]
    fn star_matches_any_characters_slashes_too() {
        for name in ["fcm:/logs/", "fcm:/logs/a", "fcm:/logs/a/b/c"] {
            assert!(matches("fcm:/logs/*", name), "{name}");
        }
        assert!(matches("*", ""));
        assert!(matches("*", "anything/at all"));
        assert!(matches("*.log", "a.log.log"));
        assert!(matches("a*b*c", "a-b-b-c"));
        assert!(!matches("a*b*c", "a-c-b"));
    }

    #[test]
    fn question_mark_matches_one_character_of_any_width() {
        assert!(matches("fcm:/?", "fcm:/é"));
        assert!(!matches("fcm:/?", "fcm:/"));
        assert!(!matches("fcm:/?", "fcm:/ab"));
    }

    #[test]
    fn everything_else_is_literal() {
        assert!(matches("a[b]{c}\\", "a[b]{c}\\"));
        assert!(!matches("[ab]", "a"));
        assert!(matches("a*b", "a*b"), "a name with a star in it is matched by itself");
    }

    #[test]
    fn many_stars_do_not_take_forever() {
        let pattern = "*a".repeat(200);
        let name = "a".repeat(199) + &"b".repeat(2000);
        assert!(!matches(&pattern, &name));
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
        for p in words(&['a', '*', '?'], 4) {
            for n in words(&['a', 'b'], 4) {
                let (ps, ns): (String, String) = (p.iter().collect(), n.iter().collect());
                assert_eq!(matches(&ps, &ns), slow(&p, &n), "{ps} against {ns}");
            }
        }
    }
}
