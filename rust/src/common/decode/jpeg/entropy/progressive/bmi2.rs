//! The decoding in BMI2, which shifts by a variable and finds and counts bits in one instruction each.
#![allow(unsafe_code)]

use std::arch::x86_64::_pdep_u64;

use super::sets::Sets;
use super::{Component, Scan, passes};

/// Whether the CPU has it.
pub fn is_available() -> bool {
    is_x86_feature_detected!("bmi1") && is_x86_feature_detected!("bmi2") && is_x86_feature_detected!("popcnt")
}

/// [`passes::row`]. The CPU has BMI2.
pub fn row(scan: &mut Scan<'_>, components: &mut [Component], row: usize, units_across: usize) -> Option<()> {
    // SAFETY: `decode_for` names this function only where the CPU has it.
    unsafe { row_in_bmi2(scan, components, row, units_across) }
}

#[target_feature(enable = "bmi1,bmi2,popcnt")]
fn row_in_bmi2(
    scan: &mut Scan<'_>,
    components: &mut [Component],
    row: usize,
    units_across: usize,
) -> Option<()> {
    passes::row::<Bmi2>(scan, components, row, units_across)
}

// Only for `row_in_bmi2`.
pub struct Bmi2;

impl Sets for Bmi2 {
    #[inline(always)]
    fn nth(set: u64, before: usize) -> u64 {
        // SAFETY: only reached where the CPU has BMI2.
        unsafe { _pdep_u64(1 << before, set) }
    }

    #[inline(always)]
    fn chosen(set: u64, bits: u64) -> u64 {
        // SAFETY: as above.
        unsafe { _pdep_u64(bits, set) }
    }
}
