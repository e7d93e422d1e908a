//! Notes for the report, from wherever in an export or import they arise.

use std::cell::RefCell;

/// More than this many notes of one transfer are not kept, only counted.
const MOST: usize = 32;

thread_local! {
    /// The notes of the transfer that this thread works for.
    static NOTES: RefCell<Option<(Vec<String>, usize)>> = const { RefCell::new(None) };
}

/// Adds a line to the report of the change for which this thread exports or imports state; anywhere else it is
/// forgotten.
pub fn note(text: impl Into<String>) {
    NOTES.with_borrow_mut(|notes| {
        if let Some((kept, more)) = notes {
            if kept.len() < MOST { kept.push(text.into()) } else { *more += 1 }
        }
    });
}

/// Runs `f` and gives the notes it made.
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
        assert_eq!((outer.len(), outer[0].as_str()), (MOST + 1, "a"));
        assert_eq!(outer[MOST], "and 9 more notes");
    }
}
