//! What Pillow's decoders have in common.

use crate::error::{CoreError, Result};

/// Pillow counts the bits of a row in a C `int`, and has no memory for a row beyond.
pub(super) fn check_row_bits(width_px: usize, pixel_bits: usize, format: &'static str) -> Result<()> {
    if width_px > i32::MAX as usize / pixel_bits - 7 {
        return Err(CoreError::decode(format, "a row has too many bits"));
    }
    Ok(())
}
