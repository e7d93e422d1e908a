//! The processors that programs see.

/// The processors of an instance, and those that its programs see instead; by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// The processors of the instance, in ascending order.
    pub own: Vec<usize>,
    /// The processors that its programs see.
    pub all: Vec<usize>,
}

impl Shown {
    /// Adds [`all`](Self::all) to a CPU mask of the kernel's form if it holds exactly the
    /// instance's processors. Other masks were chosen by the program, and stay as they are.
    pub(super) fn extend(&self, mask: &mut [u8]) {
        let has = |one: usize| mask.get(one / 8).is_some_and(|byte| byte >> (one % 8) & 1 == 1);
        if (0..8 * mask.len()).filter(|&one| has(one)).eq(self.own.iter().copied()) {
            for &one in &self.all {
                if let Some(byte) = mask.get_mut(one / 8) {
                    *byte |= 1 << (one % 8);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_instances_own_mask_is_extended() {
        let shown = Shown { own: vec![1, 9], all: vec![0, 1, 9, 100] };
        let extended = |mut mask: [u8; 2]| {
            shown.extend(&mut mask);
            mask
        };
        assert_eq!(extended([0b10, 0b10]), [0b11, 0b10]);
        // Others were chosen.
        let others = [[0b10, 0], [0b11, 0b10], [0, 0]];
        assert_eq!(others.map(extended), others);
    }
}
