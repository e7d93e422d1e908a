//! Notes for the report, from anywhere in an export or import.

use std::cell::RefCell;

/// The maximum number of notes of one transfer that are kept; others are only counted.
const MAX_NOTES: usize = 32;

thread_local! {
    /// The notes of the transfer that this thread works for.
    static NOTES: RefCell<Option<(Vec<String>, usize)>> = const { RefCell::new(None) };
}

/// Adds a line to the report of the change for which this thread exports or imports state;
/// elsewhere it has no effect.
pub fn note(text: impl Into<String>) {
    NOTES.with_borrow_mut(|notes| {
        if let Some((kept, more)) = notes {
            if kept.len() < MAX_NOTES { kept.push(text.into()) } else { *more += 1 }
        }
    });
}

/// Runs `f` and returns the notes that it has made.
pub(crate) fn collect<R>(f: impl FnOnce() -> R) -> (R, Vec<String>) {
    let before = NOTES.replace(Some((Vec::new(), 0)));
    let result = f();
    let (mut notes, more) = NOTES.replace(before).unwrap_or_default();
    if more > 0 {
        notes.push(format!("and {more} more notes"));
    }
    (result, notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_go_to_whoever_collects() {
        note("to nobody");
        let ((), outer) = collect(|| {
            note("a");
            assert_eq!(collect(|| note("b")).1, ["b"]);
            (0..40).for_each(|n| note(n.to_string()));
        });
        assert_eq!((outer.len(), outer[0].as_str()), (MAX_NOTES + 1, "a"));
        assert_eq!(outer[MAX_NOTES], "and 9 more notes");
    }
}
