//! Numbers the maps that keep values, and checks that all uses of a map fit each other.

use std::collections::BTreeMap;

use refit_splice::Key;

use crate::action::Do;
use crate::argument::{Argument, Maps, key};
use crate::error::Error;
use crate::spec::Spec;
use crate::statement::Statement;

/// A use of a map.
struct Use<'s> {
    name: &'s str,
    by: &'s [Argument],
    /// Whether numbers are kept in it; otherwise counts.
    keeps: bool,
    /// Whether it is changed; otherwise read.
    changes: bool,
}

/// Numbers the maps in which the actions of these probes keep values.
///
/// # Errors
/// [`Error::Map`]: a map has counts and values, or keys that differ, or is only read.
pub(crate) fn number(specs: &[Spec]) -> Result<Maps, Error> {
    let mut all = BTreeMap::<&str, Vec<Use<'_>>>::new();
    for one in specs.iter().flat_map(|spec| &spec.actions).flat_map(uses) {
        all.entry(one.name).or_default().push(one);
    }
    let kept = all.into_iter().filter(|(_, uses)| uses.iter().any(|one| one.keeps));
    let numbered = kept.enumerate().map(|(number, (name, uses))| {
        let wrong = |why: String| Error::Map { name: name.to_owned(), why };
        check(&uses).map_err(wrong)?;
        let number = u16::try_from(number).map_err(|_| wrong("there are too many".to_owned()))?;
        Ok((name.to_owned(), number))
    });
    numbered.collect()
}

/// Returns the uses of maps in an action.
fn uses(statement: &Statement) -> Vec<Use<'_>> {
    let keeps = matches!(statement.what, Do::Keep { .. });
    let by = statement.by.as_slice();
    let own = statement.map.as_deref().map(|name| Use { name, by, keeps, changes: true });
    let read = statement.what.arguments().iter().flat_map(Argument::kept);
    let read = read.map(|(name, by)| Use { name, by, keeps: true, changes: false });
    own.into_iter().chain(read).collect()
}

/// Says in which way the uses of a map do not fit each other.
fn check(uses: &[Use<'_>]) -> Result<(), String> {
    if uses.iter().any(|one| !one.keeps) {
        return Err("it counts in one place, and keeps values in another".to_owned());
    }
    if !uses.iter().any(|one| one.changes) {
        return Err("it is read, but nothing is assigned to it".to_owned());
    }
    let shape = |one: &Use<'_>| (one.by.len(), matches!(key(one.by), Some(Key::Tuple(_))));
    match uses.iter().find(|one| shape(one) != shape(&uses[0])) {
        None => Ok(()),
        Some(other) => {
            let shown = |one: &Use<'_>| {
                let parts: Vec<_> = one.by.iter().map(ToString::to_string).collect();
                format!("[{}]", parts.join(", "))
            };
            let (first, other) = (shown(&uses[0]), shown(other));
            Err(format!("its keys are {first} in one place, and {other} in another"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number_all(probes: &[&str]) -> Result<Maps, String> {
        let specs = probes.iter().map(|text| text.parse::<Spec>());
        let specs = specs.collect::<Result<Vec<_>, _>>().unwrap_or_else(|what| panic!("{what}"));
        number(&specs).map_err(|error| error.to_string())
    }

    #[test]
    fn only_maps_that_keep_values_have_numbers() {
        let maps = number_all(&[
            "uprobe:a:b { @start[tid] = nsecs; @calls = count() }",
            "uretprobe:a:b /@start[tid]/ { @took = hist(nsecs - @start[tid]); delete(@start[tid]) }",
            "uprobe:a:c { @last = arg0 }",
        ]);
        let wanted = [("last".to_owned(), 0), ("start".to_owned(), 1)];
        assert_eq!(maps, Ok(wanted.into()));
        assert_eq!(
            number_all(&["uprobe:a:b { @x[str(arg0), 1] = 1; @x[comm, tid] += 2 }"])
                .map(|maps| maps.len()),
            Ok(1)
        );
    }

    #[test]
    fn uses_that_do_not_fit_are_told() {
        for (probes, what) in [
            (&["uprobe:a:b { @x = count(); @x = 1 }"][..], "cannot use the map @x: it counts"),
            (&["uprobe:a:b { printf(\"%d\", @x) }"], "nothing is assigned"),
            (&["uprobe:a:b { @x[tid] = 1 }", "uprobe:a:c { @x = 1 }"], "its keys are [tid] in one"),
            (&["uprobe:a:b { @x[tid] = 1; delete(@x[tid, pid]) }"], "and [tid, pid] in another"),
        ] {
            let error = number_all(probes).expect_err(what);
            assert!(error.contains(what), "{error}");
        }
    }
}
