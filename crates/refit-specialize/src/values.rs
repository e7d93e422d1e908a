//! The values that an argument of a function has.

use std::time::Duration;

use refit_probe::files::{Files, Spot};
use refit_probe::spec::{Place, Spec, What};
use refit_probe::watch::{self, Error};
use refit_splice::process::Program;

/// Maximum number of versions of a function.
pub const MOST: usize = 4;
/// Part of all calls that versions together have to serve.
const HOT: f64 = 0.9;
/// Part of all calls that a version has to serve.
const EACH: f64 = 0.05;

/// The values of an argument, with the number of calls that had each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values {
    /// Values with the number of calls, the most frequent first.
    pub counts: Vec<(u64, u64)>,
    /// Number of all calls.
    pub calls: u64,
}

impl Values {
    /// Watches an argument for some time, which is in the register with this number when the
    /// function is called.
    ///
    /// # Errors
    /// [`Error`]: the function cannot be watched, or the program cannot be changed.
    pub fn watch(
        program: &Program,
        files: &Files,
        spot: Spot,
        register: u8,
        time: Duration,
    ) -> Result<Self, Error> {
        // By its address: other functions may have the same name.
        let opened = files.opened(spot.file());
        let entry = opened.map_or(0, |(module, _)| module.function(spot.function()).entry);
        let module = Some(files.mapped(spot.file()).path.display().to_string());
        let spec = Spec::count_by(Place { module, what: What::At(entry) }, register, None);
        let watch = watch::prepare(program, &[spec], None)?.install(program)?;
        // The time for which is counted.
        std::thread::sleep(time);
        let mut values = Self::default();
        for watching in watch.watched.iter().flat_map(|place| &place.actions) {
            let Ok(counts) = watch.read(watching) else { continue };
            let keys = counts.keys.iter().map(|(&value, reading)| (value, reading.count()));
            values.counts.extend(keys.filter(|&(_, count)| count > 0));
            values.calls += counts.all.count();
        }
        watch.remove(program)?;
        values.calls += values.counts.iter().map(|&(_, count)| count).sum::<u64>();
        values.counts.sort_by_key(|&(value, count)| (std::cmp::Reverse(count), value));
        Ok(values)
    }

    /// Returns the values for which versions are worthwhile: the least number of them that
    /// together have nearly all calls. None if that takes too many.
    pub fn hot(&self) -> Vec<u64> {
        let calls = self.calls.max(1) as f64;
        let frequent = self.counts.iter().take(MOST);
        let frequent = frequent.take_while(|&&(_, count)| count as f64 >= EACH * calls);
        let (mut hot, mut sum) = (Vec::new(), 0);
        for &(value, count) in frequent {
            hot.push(value);
            sum += count;
            if sum as f64 >= HOT * calls {
                return hot;
            }
        }
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_values_that_nearly_all_calls_have_are_hot() {
        let hot = |counts: &[(u64, u64)], others: u64| {
            let calls = others + counts.iter().map(|(_, count)| count).sum::<u64>();
            Values { counts: counts.to_vec(), calls }.hot()
        };
        assert_eq!(hot(&[(7, 95), (8, 5)], 0), [7]);
        assert_eq!(hot(&[(7, 60), (8, 35), (1, 5)], 0), [7, 8]);
        assert!(hot(&[(7, 60), (8, 20)], 20).is_empty());
        assert!(hot(&[(1, 20), (2, 20), (3, 20), (4, 20), (5, 20)], 0).is_empty());
        assert!(hot(&[], 0).is_empty());
    }
}
