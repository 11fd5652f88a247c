//! Limits that hold before memory is taken.

use crate::error::{CoreError, Result};

/// Pillow's own error limit: twice `Image.MAX_IMAGE_PIXELS` (`1024 * 1024 * 1024 // 4 // 3`).
pub const PILLOW_MAX_PIXELS: u64 = 178_956_970;

/// What one image may cost. Every field is checked from the header, before the pixels are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest encoded size, in bytes.
    pub max_input_bytes: u64,
    /// Largest decoded or resized size, in pixels.
    pub max_pixels: u64,
    /// Most patches one image may become.
    pub max_patches: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_input_bytes: 256 << 20, max_pixels: PILLOW_MAX_PIXELS, max_patches: 1 << 20 }
    }
}

impl Limits {
    /// Refuses encoded data that is too long.
    pub fn check_input_bytes(&self, len: usize) -> Result<()> {
        check("encoded size in bytes", len as u64, self.max_input_bytes)
    }

    /// Refuses an image with too many pixels.
    pub fn check_pixels(&self, width: u64, height: u64) -> Result<()> {
        check("image size in pixels", width.saturating_mul(height), self.max_pixels)
    }

    /// Refuses an image that becomes too many patches.
    pub fn check_patches(&self, patches: u64) -> Result<()> {
        check("number of patches", patches, self.max_patches)
    }
}

fn check(what: &'static str, value: u64, limit: u64) -> Result<()> {
    if value > limit { Err(CoreError::LimitExceeded { what, value, limit }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_admits_its_own_value_and_names_itself_beyond() {
        let limits = Limits { max_pixels: 12, ..Limits::default() };
        assert_eq!(limits.check_pixels(3, 4), Ok(()));
        assert_eq!(
            limits.check_pixels(13, 1),
            Err(CoreError::LimitExceeded { what: "image size in pixels", value: 13, limit: 12 })
        );
        assert!(limits.check_pixels(u64::MAX, 2).is_err());
    }
}
