//! WEBP.

use super::{Header, RgbImage};
use crate::common::limits::Limits;
use crate::error::{CoreError, Result};

/// What Pillow's `open` finds.
pub(super) fn header(data: &[u8]) -> Result<Header> {
    let _ = data;
    Err(CoreError::UnsupportedFormat { format: "WEBP" })
}

/// The pixels of `header`. `limits.max_pixels` is at most Pillow's own limit.
pub(super) fn decode(data: &[u8], header: &Header, limits: &Limits) -> Result<RgbImage> {
    let _ = (data, header, limits);
    Err(CoreError::UnsupportedFormat { format: "WEBP" })
}
