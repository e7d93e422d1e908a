//! Which copies of blocks are aligned: those of entries, and the heads of loops.
//!
//! The processor fetches and decodes code in aligned pieces, so a block to which a jump leads costs
//! least at the beginning of one. Before a block that is mostly fallen into, the `nop`s would cost
//! more.

use refit_splice::Alignment;

use crate::ext_tsp::Jump;

/// Bytes to a multiple of which the first block of a function is aligned, as compilers do.
const FUNCTION: u64 = 16;
/// Bytes to a multiple of which the head of a loop is aligned: what is fetched at once.
const LOOP: u64 = 32;
/// A head of a loop is aligned if control falls into it in one of so many runs at most.
const SELDOM: u64 = 5;

/// Returns how each block of a function is aligned, in their order, which has their indices.
pub(crate) fn of(order: &[usize], counts: &[u64], jumps: &[Jump]) -> Vec<Option<Alignment>> {
    let mut at = vec![0; counts.len()];
    for (position, &block) in order.iter().enumerate() {
        at[block] = position;
    }
    let (mut falls, mut is_head) = (vec![0_u64; order.len()], vec![false; order.len()]);
    for jump in jumps.iter().filter(|jump| jump.count > 0) {
        let (from, to) = (at[jump.from], at[jump.to]);
        is_head[to] |= to <= from;
        if from + 1 == to {
            falls[to] += jump.count;
        }
    }
    let of = |(position, &block): (usize, &usize)| match position {
        0 => Some(Alignment::new(FUNCTION, 0)),
        _ if !is_head[position] => None,
        _ => (falls[position] <= counts[block] / SELDOM).then(|| Alignment::new(LOOP, 0)),
    };
    order.iter().enumerate().map(of).collect()
}

/// Returns the alignment of a copy that begins as the original does.
pub(crate) fn as_original(address: u64) -> Alignment {
    Alignment::new(Alignment::MOST, address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_and_heads_of_loops_are_aligned() {
        let jump = |from, to, count| Jump { from, to, count };
        // 0 → 2 → 1 ⟲ 1, and 3 ⟲ 3, which is fallen into as often as it runs again.
        let jumps =
            [jump(0, 2, 10), jump(2, 1, 10), jump(1, 1, 90), jump(1, 3, 10), jump(3, 3, 10)];
        let aligned = of(&[0, 2, 1, 3], &[10, 100, 10, 20], &jumps);
        let (function, head) = (Alignment::new(16, 0), Alignment::new(32, 0));
        assert_eq!(aligned, [Some(function), None, Some(head), None]);
    }
}
