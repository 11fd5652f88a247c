//! Sets of up to 64 coefficients, as bits.

/// What some CPUs do with a set of bits in one instruction.
pub trait Sets {
    /// The one that `before` others of the set come before, alone; 0 if there is none.
    fn nth(set: u64, before: usize) -> u64;

    /// Those of the set whose turn it is where `bits` has ones, from its lowest bit on.
    fn chosen(set: u64, bits: u64) -> u64;
}

/// Step by step.
pub struct Plain;

impl Sets for Plain {
    #[inline(always)]
    fn nth(mut set: u64, before: usize) -> u64 {
        for _ in 0..before {
            set &= set.wrapping_sub(1);
        }
        set & set.wrapping_neg()
    }

    #[inline(always)]
    fn chosen(mut set: u64, mut bits: u64) -> u64 {
        let mut chosen = 0;
        while set != 0 {
            chosen |= (set & set.wrapping_neg()) * (bits & 1);
            set &= set - 1;
            bits >>= 1;
        }
        chosen
    }
}
