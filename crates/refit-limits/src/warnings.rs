//! Failures to enforce limits that were not reported to a user yet. The memory for them does not
//! grow with the number of programs.

/// The largest number of distinct programs and reasons; nobody reads a line with more.
const MAX_REASONS: usize = 4;

/// The ways in which a limit was not enforced, or was enforced badly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Warnings {
    /// Programs that were not served although they should have been; the first ones.
    pub unserved: Vec<Unserved>,
    /// The number of further ones, under other names or for other reasons.
    pub others: u64,
    /// Pages that were lost: the disk did not give them back.
    pub lost: u64,
    /// Whether the store took no more pages for a while, so that more was resident than the limit
    /// permits.
    pub full: bool,
    /// The number of failures of the reclaimer itself, during each of which nothing was limited.
    pub failures: u64,
}

/// Programs of one name that were not served for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unserved {
    /// Their name, as the kernel reports it.
    pub name: String,
    /// The reason.
    pub why: String,
    /// The number of programs.
    pub count: u64,
}

impl Warnings {
    /// Notes that a program is not served.
    pub(crate) fn add_unserved(&mut self, name: String, why: String) {
        let same = |one: &&mut Unserved| one.name == name && one.why == why;
        if let Some(known) = self.unserved.iter_mut().find(same) {
            known.count += 1;
        } else if self.unserved.len() < MAX_REASONS {
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
            warnings.add_unserved(format!("program{}", number % 10), "so".to_owned());
        }
        warnings.add_unserved("program0".to_owned(), "otherwise".to_owned());
        let counts: Vec<u64> = warnings.unserved.iter().map(|one| one.count).collect();
        assert_eq!((counts, warnings.others), (vec![10; MAX_REASONS], 61));
    }
}
