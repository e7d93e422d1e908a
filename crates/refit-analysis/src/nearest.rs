//! Names that resemble a name.

/// Returns up to `most` names that resemble `wanted`, the most similar first.
pub(crate) fn nearest<'a>(
    wanted: &str,
    names: impl Iterator<Item = &'a str>,
    most: usize,
) -> Vec<String> {
    let bare: String = wanted.chars().filter(|c| !"*?".contains(*c)).take(64).collect();
    let lower = bare.to_lowercase();
    let mut found: Vec<(usize, &str)> = Vec::new();
    for name in names {
        let distance = if !lower.is_empty() && name.to_lowercase().contains(&lower) {
            // The longer a name that contains `wanted`, the less likely it is meant.
            name.len().abs_diff(bare.len()).min(64) / 8
        } else if name.len().abs_diff(bare.len()) > bare.len() / 3 {
            continue;
        } else {
            edits(&lower, &name.to_lowercase())
        };
        if distance <= 1 + bare.len() / 3 {
            found.push((distance, name));
        }
    }
    found.sort_unstable();
    found.dedup();
    found.into_iter().take(most).map(|(_, name)| name.to_owned()).collect()
}

/// Returns the Levenshtein distance of two names.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_come_first() {
        let names = ["lookupKey", "lookupKeyRead", "expireKey", "main"];
        assert_eq!(nearest("lokupKey", names.into_iter(), 2), ["lookupKey"]);
        assert_eq!(nearest("lookupkey", names.into_iter(), 1), ["lookupKey"]);
        assert!(nearest("zzzz", names.into_iter(), 3).is_empty());
    }
}
