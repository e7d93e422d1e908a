//! Dumps, during which all processors waited while their buffers were written (Kohr 1994, §3.2).

use crate::block::Dump;

/// The dumps of a trace.
#[derive(Clone, Debug, Default)]
pub struct Dumps {
    /// Begin, end, and the ticks of all earlier dumps; sorted by begin, without overlaps.
    all: Vec<(u64, u64, u64)>,
}

impl Dumps {
    /// Creates the set from dumps in the order of their begin.
    pub fn new(dumps: &[Dump]) -> Dumps {
        let mut all: Vec<(u64, u64, u64)> = Vec::with_capacity(dumps.len());
        for dump in dumps {
            let (last, sum) =
                all.last().map_or((0, 0), |last| (last.1, last.2 + (last.1 - last.0)));
            let begin = dump.begin.max(last);
            if dump.end > begin {
                all.push((begin, dump.end, sum));
            }
        }
        Dumps { all }
    }

    /// Returns how many ticks between `begin` and `end` are in dumps.
    pub fn within(&self, begin: u64, end: u64) -> u64 {
        self.until(end).saturating_sub(self.until(begin))
    }

    fn until(&self, time: u64) -> u64 {
        let after = self.all.partition_point(|dump| dump.0 <= time);
        let Some((begin, end, before)) = self.all[..after].last() else { return 0 };
        before + (time.min(*end) - begin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_dumps_count_once() {
        let dump = |begin, end| Dump { number: 0, begin, end };
        let dumps = Dumps::new(&[dump(10, 20), dump(15, 30), dump(16, 18), dump(50, 60)]);
        for (begin, end, ticks) in
            [(0, 100, 30), (0, 10, 0), (12, 17, 5), (25, 55, 10), (60, 70, 0), (9, 3, 0)]
        {
            assert_eq!(dumps.within(begin, end), ticks, "{begin}..{end}");
        }
    }
}
