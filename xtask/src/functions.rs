//! Finds functions that are too long. The lint `too_many_lines` of clippy does, too, but later and
//! where the code compiles only.

/// The maximum number of lines of code in the body of a function; blank lines and comments do not
/// count.
const LINES: usize = 70;

/// Returns a complaint for each function of a formatted file that is too long.
pub(crate) fn complaints(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let Some(name) = function(line) else { continue };
        let indent = &line[..line.len() - line.trim_start().len()];
        // rustfmt puts the end of a function below its beginning.
        let end = format!("{indent}}}");
        let signature = lines[i..].iter().position(|line| line.ends_with(['{', ';', '}']));
        let Some(opens) = signature.map(|n| i + n).filter(|&n| lines[n].ends_with('{')) else {
            continue;
        };
        let body = lines[opens + 1..].iter().take_while(|line| **line != end);
        let code = body.filter(|line| is_code(line)).count();
        if code > LINES {
            found.push(format!("line {}: `{name}` has {code} lines; {LINES} are the most", i + 1));
        }
    }
    found
}

fn is_code(line: &str) -> bool {
    let line = line.trim_start();
    !line.is_empty() && !line.starts_with("//")
}

/// Returns the name of the function that begins in a line.
fn function(line: &str) -> Option<&str> {
    let before = ["pub", "const", "async", "unsafe", "extern", "\"C\""];
    let mut words = line.split_whitespace();
    let is_visible = |word: &str| before.contains(&word) || word.starts_with("pub(");
    let first = words.find(|word| !is_visible(word))?;
    let name = (first == "fn").then(|| words.next())??;
    name.split(['(', '<']).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_functions_are_found() {
        let function = |lines: usize| {
            format!(
                "    pub(crate) fn f<T>(\n        a: T,\n    ) {{\n{}    }}\n",
                "        a;\n".repeat(lines)
            )
        };
        assert!(complaints(&function(LINES)).is_empty());
        let found = complaints(&function(LINES + 1));
        assert_eq!(found, ["line 1: `f` has 71 lines; 70 are the most"]);
    }

    #[test]
    fn comments_and_other_functions_do_not_count() {
        let short = "fn f() {\n    a;\n}\n".repeat(LINES);
        assert!(complaints(&short).is_empty());
        let commented = format!("fn f() {{\n{}}}\n", "    // a\n\n".repeat(LINES));
        assert!(complaints(&commented).is_empty());
        assert!(
            complaints(&format!("trait T {{\n    fn f();\n{}}}\n", "    a;\n".repeat(99)))
                .is_empty()
        );
    }
}
