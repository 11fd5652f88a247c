//! Pixels to normalised patches: one pass, straight into the output.
//!
//! Patches stand in the order `(rows / merge, columns / merge, merge, merge)`, so that those of one token are
//! neighbours. Inside, values stand as `(channel, time, row, column)`; a still picture is the same at all times.

use super::normalize::{CHANNELS, Normaliser};
use crate::common::simd::{self, Level};
use crate::error::{CoreError, Result};
use crate::tensor::Transport;

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

/// Writes `[rows * columns, CHANNELS * copies * patch_px * patch_px]` normalised values of `pixels` (HWC) into
/// `out`, in native byte order.
///
/// # Errors
/// [`CoreError::InvalidArgument`] if a length or a side is wrong, or `transport` is `Uint8`.
pub fn patchify(
    normaliser: &Normaliser,
    pixels: &[u8],
    layout: Layout,
    transport: Transport,
    out: &mut [u8],
) -> Result<()> {
    let Layout { width, height, .. } = layout;
    if pixels.len() != width * height * CHANNELS {
        return Err(CoreError::argument(format!(
            "{} bytes are not {width} x {height} RGB pixels",
            pixels.len()
        )));
    }
    layout.check()?;
    let values = layout.values();
    if out.len() != values * transport.dtype().size_bytes() {
        return Err(CoreError::argument(format!(
            "{} bytes of output do not hold {values} values",
            out.len()
        )));
    }
    let misaligned = |_| CoreError::argument("the output is not aligned to its element type");
    let level = simd::level()?;
    match transport {
        Transport::Bf16 => {
            let out = bytemuck::try_cast_slice_mut(out).map_err(misaligned)?;
            write(pixels, layout, &normaliser.bf16, level, out);
        }
        Transport::Float32 => {
            let out = bytemuck::try_cast_slice_mut(out).map_err(misaligned)?;
            write(pixels, layout, &normaliser.float, level, out);
        }
        Transport::Uint8 => {
            return Err(CoreError::argument("uint8 pixels are not patches; choose bf16 or float32"));
        }
    }
    Ok(())
}

fn write<T: Copy>(pixels: &[u8], layout: Layout, table: &[[T; 256]; CHANNELS], level: Level, out: &mut [T]) {
    let _ = level;
    let band_values = layout.columns() * layout.merge * layout.patch_values();
    for (band, out) in out.chunks_exact_mut(band_values.max(1)).enumerate() {
        scalar_band(pixels, layout, table, band, out);
    }
}

/// The reference: one band by table, one value at a time.
pub fn scalar_band<T: Copy>(
    pixels: &[u8],
    layout: Layout,
    table: &[[T; 256]; CHANNELS],
    band: usize,
    out: &mut [T],
) {
    let Layout { width, patch_px, copies, .. } = layout;
    let plane = patch_px * patch_px;
    for (corner, patch) in layout.corners(band).zip(out.chunks_exact_mut(layout.patch_values())) {
        for (channel, times) in patch.chunks_exact_mut(copies * plane).enumerate() {
            let (first, rest) = times.split_at_mut(plane);
            for (line, values) in first.chunks_exact_mut(patch_px).enumerate() {
                let start = (corner + line * width) * CHANNELS + channel;
                for (value, &byte) in values.iter_mut().zip(pixels[start..].iter().step_by(CHANNELS)) {
                    *value = table[channel][usize::from(byte)];
                }
            }
            for copy in rest.chunks_exact_mut(plane) {
                copy.copy_from_slice(first);
            }
        }
    }
}
