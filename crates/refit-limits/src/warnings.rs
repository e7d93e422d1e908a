//! What nobody has been told yet of limits that were not kept: what is kept of it does not grow with the number of programs.

/// Distinct programs and reasons that are kept; a line that tells of more is not read.
const MOST: usize = 4;

/// In what a limit was not kept, or was kept badly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Warnings {
    /// Programs that were not served although they should have been, those that came first.
    pub unserved: Vec<Unserved>,
    /// Further ones that were not, under other names or for other reasons.
    pub others: u64,
    /// Pages that were lost: the disk did not give them back.
    pub lost: u64,
    /// For a while the store took no more pages, and more was in memory than might be.
    pub full: bool,
    /// How often the reclaimer has met a fault of its own, and has limited nothing for as long.
    pub failures: u64,
}

/// Programs of one name that were not served for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unserved {
    /// Their name, as the kernel has it.
    pub name: String,
    /// Why not.
    pub why: String,
    /// How many they were.
    pub count: u64,
}

impl Warnings {
    /// A program is not served.
    pub(crate) fn unserved(&mut self, name: String, why: String) {
        let same = |one: &&mut Unserved| one.name == name && one.why == why;
        if let Some(known) = self.unserved.iter_mut().find(same) {
            known.count += 1;
        } else if self.unserved.len() < MOST {
            self.unserved.push(Unserved { name, why, count: 1 });
        } else {
            self.others += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_kept_by_name_and_all_are_counted() {
        let mut warnings = Warnings::default();
        for number in 0..100 {
            warnings.unserved(format!("program{}", number % 10), "so".to_owned());
        }
        warnings.unserved("program0".to_owned(), "otherwise".to_owned());
        let counts: Vec<u64> = warnings.unserved.iter().map(|one| one.count).collect();
        assert_eq!((counts, warnings.others), (vec![10; MOST], 61));
    }
}
