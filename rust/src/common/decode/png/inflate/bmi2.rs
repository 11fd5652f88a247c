//! The inner loop in BMI2, whose shifts by a variable take one instruction.
#![allow(unsafe_code)]

use super::{Inflate, Input, fast};

/// [`fast::turns`]. The CPU has BMI2.
pub(super) fn turns(
    state: &mut Inflate,
    input: &mut Input,
    out: &mut [u8],
    position: &mut usize,
    limit: usize,
    start: usize,
) {
    // SAFETY: `turns_for` names this function only where the CPU has BMI2.
    unsafe { turns_in_bmi2(state, input, out, position, limit, start) }
}

#[target_feature(enable = "bmi2")]
fn turns_in_bmi2(
    state: &mut Inflate,
    input: &mut Input,
    out: &mut [u8],
    position: &mut usize,
    limit: usize,
    start: usize,
) {
    fast::turns(state, input, out, position, limit, start);
}
