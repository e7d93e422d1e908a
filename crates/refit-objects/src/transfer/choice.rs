//! The choice of the best protocol: a pure function of two lists and the converters.
//!
//! # What "best" means
//!
//! Of the protocols that both roots know, the best is the one with the least *sum of ranks*; in a
//! tie, the one that the new root prefers. A rank is the position among the *common* protocols in
//! the order of one root; protocols that the other does not know have no influence. The sum counts
//! because a rank represents the cost of a transfer for its root, and calls wait for both the
//! export and the import. In a tie the new root decides because it works with the result. It
//! follows that the choice is never dominated: if one root prefers another common protocol, the
//! other root prefers the chosen one to it.
//!
//! # Chains
//!
//! State goes through converters if there is no common protocol, or if both roots prefer the ends
//! of a chain to the best common one. The chain is the shortest one, of at most
//! [`MOST_CONVERSIONS`] conversions; among chains of the same length, the sum of ranks in the two
//! whole lists decides, and in a tie the new root. A conversion takes time while calls wait, so the
//! preference of one root alone does not justify it.

use super::protocol::{Protocol, Protocols};

/// The maximum number of conversions in a chain: each is a pass over all state while calls wait.
pub(crate) const MOST_CONVERSIONS: usize = 2;

/// Returns the best route from a root that exports to one that imports: the protocol to export in,
/// then those to convert to. `fits` says which common protocols can really be used.
pub(crate) fn choose(
    exports: &Protocols,
    imports: &Protocols,
    fits: u64,
    converters: &[(Protocol, Protocol)],
) -> Option<Vec<Protocol>> {
    let direct = best_common(exports, imports, fits);
    let worth = |ends: (Protocol, Protocol)| match direct {
        None => true,
        Some(common) => {
            exports.rank(ends.0) < exports.rank(common)
                && imports.rank(ends.1) < imports.rank(common)
        }
    };
    let chain = chains(exports, imports, converters)
        .into_iter()
        .filter(|route| worth((route[0], route[route.len() - 1])))
        .min_by_key(|route| {
            let (from, to) = (exports.rank(route[0]), imports.rank(route[route.len() - 1]));
            (route.len(), from.unwrap_or(0) + to.unwrap_or(0), to)
        });
    chain.or_else(|| direct.map(|common| vec![common]))
}

fn best_common(exports: &Protocols, imports: &Protocols, fits: u64) -> Option<Protocol> {
    let common = exports.bits() & imports.bits() & fits;
    let (from, to) = (exports.among(common), imports.among(common));
    to.iter().min_by_key(|p| (from.rank(*p).unwrap_or(0) + to.rank(*p).unwrap_or(0), to.rank(*p)))
}

/// Returns all routes with at least one conversion that visit no protocol twice.
fn chains(
    exports: &Protocols,
    imports: &Protocols,
    converters: &[(Protocol, Protocol)],
) -> Vec<Vec<Protocol>> {
    let mut found = Vec::new();
    let mut open: Vec<Vec<Protocol>> = exports.iter().map(|p| vec![p]).collect();
    for _ in 0..MOST_CONVERSIONS {
        let further = |route: &Vec<Protocol>| {
            let last = route[route.len() - 1];
            let next = converters.iter().filter(move |(from, _)| *from == last).map(|(_, to)| *to);
            let next = next.filter(|to| !route.contains(to));
            next.map(|to| route.iter().copied().chain([to]).collect())
                .collect::<Vec<Vec<Protocol>>>()
        };
        open = open.iter().flat_map(further).collect();
        let ends = |route: &&Vec<Protocol>| imports.bits() & route[route.len() - 1].bit() != 0;
        found.extend(open.iter().filter(ends).cloned());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(numbers: &[u8]) -> Protocols {
        Protocols::only(numbers.iter().map(|n| Protocol(*n)))
    }

    fn chosen(from: &[u8], to: &[u8], converters: &[(u8, u8)]) -> Option<Vec<u8>> {
        let converters: Vec<_> =
            converters.iter().map(|(a, b)| (Protocol(*a), Protocol(*b))).collect();
        let route = choose(&list(from), &list(to), u64::MAX, &converters)?;
        Some(route.into_iter().map(|p| p.0).collect())
    }

    #[test]
    fn the_least_sum_of_ranks_wins_and_the_new_root_breaks_a_tie() {
        assert_eq!(chosen(&[2, 1, 0], &[1, 0], &[]), Some(vec![1])); // Hui 2000, §4.4.4
        assert_eq!(chosen(&[1, 2, 0], &[2, 1, 0], &[]), Some(vec![2]), "a tie");
        assert_eq!(chosen(&[1, 2, 3], &[3, 2, 1], &[]), Some(vec![3]), "a tie of three");
        assert_eq!(chosen(&[1, 2, 3], &[2, 3, 1], &[]), Some(vec![2]));
    }

    #[test]
    fn what_the_other_does_not_know_has_no_say() {
        assert_eq!(chosen(&[9, 8, 7, 1, 2], &[2, 1], &[]), chosen(&[1, 2], &[2, 1], &[]));
    }

    #[test]
    fn a_chain_is_found_where_nothing_is_in_common_and_the_shortest_first() {
        assert_eq!(chosen(&[1], &[2], &[]), None);
        assert_eq!(chosen(&[1], &[2], &[(1, 2)]), Some(vec![1, 2]));
        assert_eq!(chosen(&[1], &[3], &[(1, 2), (2, 3)]), Some(vec![1, 2, 3]));
        assert_eq!(chosen(&[1, 4], &[3], &[(1, 2), (2, 3), (4, 3)]), Some(vec![4, 3]));
        assert_eq!(chosen(&[1], &[4], &[(1, 2), (2, 3), (3, 4)]), None, "three are too many");
        assert_eq!(chosen(&[1], &[3], &[(1, 2), (2, 1)]), None, "a circle ends");
    }

    #[test]
    fn a_chain_wins_over_a_common_protocol_only_if_both_like_it_better() {
        assert_eq!(chosen(&[1, 0], &[2, 0], &[(1, 2)]), Some(vec![1, 2]));
        assert_eq!(chosen(&[0, 1], &[2, 0], &[(1, 2)]), Some(vec![0]));
        assert_eq!(chosen(&[1, 0], &[0, 2], &[(1, 2)]), Some(vec![0]));
    }

    fn lists() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(0..64_u8, 0..12)
    }

    proptest! {
        /// No root can be made better off without making the other worse off, and the choice is
        /// feasible.
        #[test]
        fn the_choice_is_never_dominated(
            from in lists(),
            to in lists(),
            edges in proptest::collection::vec((0..64_u8, 0..64_u8), 0..20),
        ) {
            let (exports, imports) = (list(&from), list(&to));
            let direct = chosen(&from, &to, &[]);
            prop_assert_eq!(direct.is_some(), exports.bits() & imports.bits() != 0);
            if let Some(direct) = direct {
                prop_assert_eq!(direct.len(), 1);
                let chosen = Protocol(direct[0]);
                let (f, t) = (exports.rank(chosen), imports.rank(chosen));
                prop_assert!(f.is_some() && t.is_some());
                for other in exports.iter().filter(|p| imports.rank(*p).is_some() && *p != chosen) {
                    prop_assert!(exports.rank(other) > f || imports.rank(other) > t);
                }
            }
            if let Some(route) = chosen(&from, &to, &edges) {
                prop_assert!(exports.rank(Protocol(route[0])).is_some());
                prop_assert!(imports.rank(Protocol(route[route.len() - 1])).is_some());
                prop_assert!(route.windows(2).all(|pair| edges.contains(&(pair[0], pair[1]))));
            }
        }
    }
}
