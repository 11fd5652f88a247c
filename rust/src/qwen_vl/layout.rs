//! How a resized picture is cut into patches and tokens.

use crate::error::{CoreError, Result};

/// Channels of a picture.
pub const CHANNELS: usize = 3;

/// How a resized picture is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Width in pixels, a multiple of `patch_px * merge`.
    pub width: usize,
    /// Height in pixels, a multiple of `patch_px * merge`.
    pub height: usize,
    /// Side of a patch, in pixels.
    pub patch_px: usize,
    /// Patches that merge into a token, along each side.
    pub merge: usize,
    /// Copies along time.
    pub copies: usize,
}

impl Layout {
    /// Refuses sides that are no whole tokens.
    ///
    /// # Errors
    /// [`CoreError::InvalidArgument`] that names the sides.
    pub fn check(&self) -> Result<()> {
        let Self { width, height, patch_px, merge, .. } = *self;
        let factor_px = patch_px * merge;
        if width.is_multiple_of(factor_px) && height.is_multiple_of(factor_px) {
            return Ok(());
        }
        Err(CoreError::argument(format!(
            "{width} x {height} pixels are no whole number of {factor_px} x {factor_px} tokens; resize first"
        )))
    }

    /// Rows of patches.
    pub fn rows(&self) -> usize {
        self.height / self.patch_px
    }

    /// Columns of patches.
    pub fn columns(&self) -> usize {
        self.width / self.patch_px
    }

    /// Values of one patch.
    pub fn patch_values(&self) -> usize {
        CHANNELS * self.copies * self.patch_px * self.patch_px
    }

    /// Values of all patches.
    pub fn values(&self) -> usize {
        self.rows() * self.columns() * self.patch_values()
    }

    /// Rows of tokens: the bands that can be cut side by side.
    pub fn bands(&self) -> usize {
        self.rows() / self.merge
    }

    /// Pixel offset of the upper left corner of each patch of a band, in the order of the output.
    pub fn corners(&self, band: usize) -> impl Iterator<Item = usize> + use<> {
        let Self { width, patch_px, merge, .. } = *self;
        let top = band * merge * patch_px;
        (0..self.columns() / merge).flat_map(move |token| {
            (0..merge * merge).map(move |inner| {
                let (row, column) = (inner / merge, token * merge + inner % merge);
                (top + row * patch_px) * width + column * patch_px
            })
        })
    }
}
