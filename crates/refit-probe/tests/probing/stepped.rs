//! The program of `unwound.cc`, which steps through itself.

use super::victim::Victim;

/// Steps through the program; returns its result, and the numbers of its steps in generated code
/// and of those at which its stack was not found.
pub(crate) fn steps(victim: &mut Victim) -> (String, u64, u64) {
    let line = victim.ask("step 1");
    let (sum, rest) = line.split_once(": ").expect("a result");
    let numbers: Vec<u64> = rest.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [elsewhere, wrong] = numbers[..] else { panic!("{line}") };
    (sum.to_owned(), elsewhere, wrong)
}
