//! Patterns for paths: `*` matches any characters including `/`; every other character matches
//! itself.

/// Returns whether `text` matches `pattern`.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to continue when the part after the last `*` does not match: the star takes one
    // character more.
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        if p < pattern.len() && pattern[p] == b'*' {
            retry = Some((p, t));
            p += 1;
        } else if p < pattern.len() && pattern[p] == text[t] {
            p += 1;
            t += 1;
        } else if let Some((star, from)) = retry {
            retry = Some((star, from + 1));
            p = star + 1;
            t = from + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_takes_any_characters() {
        for (pattern, text, expected) in [
            ("/logs/*", "/logs/a/b.log", true),
            ("/logs/*", "/log", false),
            ("*", "", true),
            ("", "", true),
            ("", "x", false),
            ("*.log", "/a.log.log", true),
            ("/*/x*z", "/a/b/xyyz", true),
            ("/*/x*z", "/a/b/xyy", false),
            ("a*b*c", "aXbXbXc", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }
}
