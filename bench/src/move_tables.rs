//! The table of moves.

use crate::moves::{CALLS, MoveTotals, WAYS, Way};
use crate::report::Report;
use crate::stats::Sample;

impl Report {
    pub(crate) fn moves(&mut self, measured: Result<[MoveTotals; 2], String>) {
        let title =
            "Moves of a thread between instances, as the program sees them (`docs/guide/move.md`)";
        let heads = ["what", "`refit boot --awake`", "without", "must reach"];
        let Some(both) = self.begin(title, "moves", &heads, measured) else { return };
        let mut row =
            |what: String, digits: usize, of: &dyn Fn(&MoveTotals) -> &Sample, bar: &str| {
                let [awake, asleep] = both.each_ref().map(|moves| of(moves).show(digits));
                self.row(&[what, awake, asleep, bar.to_owned()]);
            };
        for (at, way) in WAYS.iter().enumerate() {
            let (what, bar) = way_there(*way);
            let what = format!("`refit_move` {what}, from call to return, µs");
            row(what, 1, &|moves| &moves.lookups[at], bar);
        }
        for (at, way) in WAYS.iter().enumerate() {
            let (what, bar) = way_there(*way);
            let what = format!("`refit move` {what}: it does not run, µs");
            row(what, 1, &|moves| &moves.stands[at][0], bar);
            let what = "the same, with what it touches then, µs".to_owned();
            row(what, 1, &|moves| &moves.stands[at][1], "");
        }
        let touches = [
            ("first touch of a mapping: a page that is there, µs", ""),
            ("private memory, retrieved, µs", ""),
            ("frames that others have, retrieved, µs", ""),
        ];
        for (at, (what, bar)) in touches.into_iter().enumerate() {
            row(what.to_owned(), 1, &|moves| &moves.touches[at], bar);
        }
        let what = "the same, on an average of 50 mappings, µs".to_owned();
        row(what, 1, &|moves| &moves.each, "≤ 10");
        let what = "the same with `--ahead 1`: each asked for by itself, µs".to_owned();
        row(what, 1, &|moves| &moves.alone, "");
        let pages = [
            ("a page of the origin, moved to be written (`--pages move --ahead 1`), µs", "≤ 30"),
            ("one of another instance, µs", ""),
        ];
        for (at, (what, bar)) in pages.into_iter().enumerate() {
            row(what.to_owned(), 1, &|moves| &moves.pages[at], bar);
        }
        let what = "a computation after the move, times natively".to_owned();
        row(what, 3, &|moves| &moves.computes, "≤ 1.02");
        for (call, name) in CALLS.iter().enumerate() {
            for (place, at) in ["natively", "at home", "elsewhere"].iter().enumerate() {
                let what = format!("`{name}` {at}, µs");
                row(what, 2, &|moves| &moves.calls[call][place], "");
            }
        }
    }
}

/// Returns the name of a way, and the limit that it must reach.
fn way_there(way: Way) -> (&'static str, &'static str) {
    match way {
        Way::First => ("for the first time", ""),
        Way::New => ("to an instance where it has not been", "≤ 800"),
        Way::Warm => ("to one where it has been", "≤ 150"),
        Way::Back => ("back", "≤ 60"),
    }
}
