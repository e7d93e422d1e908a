//! The message at the end of a program whose memory was not limited as it should have been.

use refit_instance::{Kind, Refusal};
use refit_limits::{Unserved, Warnings};

use super::standard_error::StandardError;
use crate::failure::Failure;
use crate::format;

/// Says it where the program's own errors go; nothing if there is nothing to say.
pub(super) fn say(error: &StandardError, warnings: &Warnings, swap: &str) {
    let name = refit_sys::process::name(error.process());
    let operation = format!("run {}", printable(&name));
    let remarks = remarks(&operation, warnings, swap);
    if !remarks.is_empty() {
        // No process is left to which a failure could be reported.
        let _ = error.say(&format!("{}\n", Failure::Several(remarks)));
    }
}

/// The remarks; `swap` is where the swap file is.
fn remarks(operation: &str, warnings: &Warnings, swap: &str) -> Vec<Refusal> {
    let Warnings { unserved, others, lost, full, failures } = warnings;
    let mut remarks = Vec::new();
    let mut remark = |obstacle: String, remedy: &str| {
        remarks.push(Refusal::new(Kind::Failed, operation, obstacle, remedy));
    };
    let count = others + unserved.iter().map(|one| one.count).sum::<u64>();
    if count > 0 {
        let were = if count == 1 { "was" } else { "were" };
        let which = which(unserved, *others);
        let obstacle = format!("{} {were} not limited: {which}", format::counted(count, "program"));
        remark(obstacle, "see `Limits` in docs/guide/limit.md");
    }
    if *full {
        let obstacle =
            "pages could not be written to the swap file, so the program exceeded its limit";
        remark(obstacle.to_owned(), &format!("make room in {swap}"));
    }
    if *lost > 0 {
        let were = if *lost == 1 { "was" } else { "were" };
        let obstacle = format!("{} {were} lost", format::counted(*lost, "page"));
        remark(obstacle, "check the disk of the swap file, which did not return what was written");
    }
    if *failures > 0 {
        let times = format::counted(*failures, "fault");
        remark(
            format!("the program exceeded its limit for a while, because of {times} inside refit"),
            "see the instance's log",
        );
    }
    remarks
}

/// Returns, for example, `2 × chromium (why), sleep (why), 3 others`.
fn which(unserved: &[Unserved], others: u64) -> String {
    let one = |Unserved { name, why, count }: &Unserved| {
        let times = if *count == 1 { String::new() } else { format!("{count} × ") };
        format!("{times}{} ({why})", printable(name))
    };
    let mut parts: Vec<String> = unserved.iter().map(one).collect();
    if others > 0 {
        parts.push(format::counted(others, "other"));
    }
    parts.join(", ")
}

/// Returns the name without control characters, because a program chooses its name, and the reader
/// may be a terminal.
fn printable(name: &str) -> String {
    name.escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(warnings: &Warnings) -> String {
        Failure::Several(remarks("run x", warnings, "/var/tmp")).to_string()
    }

    fn unserved(name: &str, why: &str, count: u64) -> Unserved {
        Unserved { name: name.to_owned(), why: why.to_owned(), count }
    }

    #[test]
    fn each_thing_has_a_line() {
        let warnings = Warnings {
            unserved: vec![unserved("a\x1b\n", "so", 2), unserved("b", "otherwise", 1)],
            others: 1,
            lost: 12,
            full: true,
            failures: 1,
        };
        assert_eq!(
            lines(&warnings),
            "refit: run x: 4 programs were not limited: 2 × a\\u{1b}\\n (so), b (otherwise), \
             1 other; see `Limits` in docs/guide/limit.md\n\
             refit: run x: pages could not be written to the swap file, so the program exceeded its \
             limit; make room in /var/tmp\n\
             refit: run x: 12 pages were lost; check the disk of the swap file, which did not return what was \
             written\n\
             refit: run x: the program exceeded its limit for a while, because of 1 fault inside \
             refit; see the instance's log"
        );
        assert!(remarks("run x", &Warnings::default(), "/var/tmp").is_empty());
    }

    #[test]
    fn one_is_not_told_as_several() {
        let warnings =
            Warnings { unserved: vec![unserved("a", "so", 1)], lost: 1, ..Warnings::default() };
        let lines = lines(&warnings);
        assert!(lines.contains("1 program was not limited: a (so);"), "{lines}");
        assert!(lines.contains("1 page was lost;"), "{lines}");
    }
}
