//! The order of functions: call-chain clustering (Ottoni and Maher, Optimizing Function Placement
//! for Large-Scale Data-Center Applications, CGO 2017).
//!
//! Each function, the hottest first, is appended to the cluster of its most frequent caller, unless
//! the result would be too large, or much less hot for its size than that cluster. Clusters come in
//! the order of their heat.

use std::collections::BTreeMap;

/// Size in bytes from which on nothing is appended to a cluster: a large page.
const LARGEST: u64 = 1 << 21;
/// Factor by which a cluster may become less hot.
const COOLER: f64 = 8.0;

/// A function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its size in bytes.
    pub size: u64,
    /// Number of instructions that ran in it.
    pub runs: u64,
}

/// Calls of a function by another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls {
    /// Index of the caller.
    pub from: usize,
    /// Index of the function that is called.
    pub to: usize,
    /// Their number.
    pub count: u64,
}

#[derive(Clone, Debug)]
struct Cluster {
    functions: Vec<usize>,
    size: u64,
    runs: u64,
}

impl Cluster {
    fn heat(&self) -> f64 {
        self.runs as f64 / self.size.max(1) as f64
    }
}

/// Returns the order of functions.
pub fn order(nodes: &[Node], calls: &[Calls]) -> Vec<usize> {
    let mut callers = BTreeMap::<usize, Calls>::new();
    for one in calls.iter().filter(|one| one.from != one.to) {
        let best = callers.entry(one.to).or_insert(*one);
        if one.count > best.count {
            *best = *one;
        }
    }
    let mut clusters: Vec<Option<Cluster>> = (0..)
        .zip(nodes)
        .map(|(index, node)| {
            Some(Cluster { functions: vec![index], size: node.size, runs: node.runs })
        })
        .collect();
    let mut of: Vec<usize> = (0..nodes.len()).collect();
    let mut hottest = of.clone();
    let heat = |index: usize| nodes[index].runs as f64 / nodes[index].size.max(1) as f64;
    hottest.sort_by(|&one, &other| heat(other).total_cmp(&heat(one)));
    for function in hottest {
        let Some(calls) = callers.get(&function).filter(|calls| calls.count > 0) else { continue };
        let (from, to) = (of[calls.from], of[function]);
        let (Some(caller), Some(own)) = (&clusters[from], &clusters[to]) else { continue };
        let size = caller.size + own.size;
        let heat = (caller.runs + own.runs) as f64 / size.max(1) as f64;
        // Only what begins with the function can follow a call of it.
        let begins = own.functions.first() == Some(&function);
        if from == to || size > LARGEST || heat * COOLER < caller.heat() || !begins {
            continue;
        }
        let Some(own) = clusters[to].take() else { continue };
        own.functions.iter().for_each(|&one| of[one] = from);
        if let Some(caller) = &mut clusters[from] {
            caller.functions.extend(own.functions);
            caller.size = size;
            caller.runs += own.runs;
        }
    }
    let mut all: Vec<Cluster> = clusters.into_iter().flatten().collect();
    all.sort_by(|one, other| other.heat().total_cmp(&one.heat()));
    all.into_iter().flat_map(|cluster| cluster.functions).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_follows_its_most_frequent_caller() {
        let nodes = [(100, 10), (100, 1000), (100, 500), (100, 1)];
        let nodes = nodes.map(|(size, runs)| Node { size, runs });
        let calls = [(0, 2, 1), (1, 2, 50), (0, 3, 1), (1, 1, 9)];
        let calls = calls.map(|(from, to, count)| Calls { from, to, count });
        assert_eq!(order(&nodes, &calls), [1, 2, 0, 3]);
    }
}
