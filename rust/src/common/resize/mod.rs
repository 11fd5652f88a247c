//! Pillow's 8-bit resize, bit for bit, in both of its pass orders; and torchvision's, on the same kernels.

mod aten;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod cache;
mod coefficients;
mod engine;
mod kernels;
mod layout;
#[cfg(target_arch = "aarch64")]
mod neon;
mod plan;
mod scalar;
mod tiles;
mod windows;

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU8, Ordering};

use crate::common::bands::Bands;
use crate::common::simd;
use crate::error::{CoreError, Result};

/// Resampling filter, by Pillow's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Filter {
    /// `Image.Resampling.LANCZOS`, support 3.
    Lanczos,
    /// `Image.Resampling.BICUBIC`, support 2, a = -0.5.
    Bicubic,
    /// `Image.Resampling.BILINEAR`, support 1.
    Bilinear,
    /// `Image.Resampling.BOX`, support 0.5.
    Box,
    /// `Image.Resampling.HAMMING`, support 1.
    Hamming,
}

/// In which order the two passes run; the 8-bit intermediate makes the results differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassOrder {
    /// Pillow up to 12: horizontal first, always.
    HorizontalFirst,
    /// Pillow 13: vertical first when that side shrinks by over twice as many pixels.
    VerticalFirstWhenTall,
}

/// Whose resize is reproduced: the two round their weights apart and order the passes by rules of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arithmetic {
    /// `Image.resize` of Pillow.
    Pillow(PassOrder),
    /// `resize` of torchvision on bytes with antialiasing: 16-bit weights, horizontal pass first.
    Aten,
}

impl Arithmetic {
    fn coefficients(self, in_size: usize, out_size: usize, filter: Filter) -> coefficients::Coefficients {
        match self {
            Self::Pillow(_) => coefficients::coefficients(in_size, out_size, filter),
            Self::Aten => aten::coefficients(in_size, out_size, filter),
        }
    }

    fn vertical_first(self, size: &Size) -> bool {
        match self {
            Self::Pillow(order) => size.vertical_first(order),
            Self::Aten => false,
        }
    }
}

/// Sizes of a resize, in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Source width.
    pub in_width: usize,
    /// Source height.
    pub in_height: usize,
    /// Result width.
    pub out_width: usize,
    /// Result height.
    pub out_height: usize,
}

impl Size {
    /// Whether the vertical pass runs first.
    pub fn vertical_first(&self, order: PassOrder) -> bool {
        if order == PassOrder::HorizontalFirst || self.in_height <= self.out_height {
            return false;
        }
        let shrink_rows = (self.in_height - self.out_height) as i128;
        let shrink_columns = self.in_width as i128 - self.out_width as i128;
        shrink_rows > 2 * shrink_columns
    }
}

// Half a gigabyte of them, for a side of ten million pixels: few rows of such keep any limit of pixels, and their
// weights would take a hundred times the memory of the picture.
const MOST_WEIGHTS: u64 = 1 << 26;

static PASS_ORDER: AtomicU8 = AtomicU8::new(1);

/// The pass order in force in this process.
pub fn pass_order() -> PassOrder {
    if PASS_ORDER.load(Ordering::Relaxed) == 0 {
        PassOrder::HorizontalFirst
    } else {
        PassOrder::VerticalFirstWhenTall
    }
}

/// Sets the pass order of this process: that of the installed Pillow.
pub fn set_pass_order(order: PassOrder) {
    PASS_ORDER.store(u8::from(order == PassOrder::VerticalFirstWhenTall), Ordering::Relaxed);
}

/// Whether a resize of so many bytes, in and out, is split over the threads of a rayon pool.
pub fn splits(bytes: usize) -> bool {
    bytes >= 2 * engine::PART_BYTES
}

/// Resizes RGB (`in_height * in_width * 3` bytes, HWC) into `out`, as Pillow does.
///
/// # Errors
/// As [`resize`].
pub fn resize_rgb(source: &[u8], size: Size, filter: Filter, order: PassOrder, out: &mut [u8]) -> Result<()> {
    resize(source, 3, size, filter, Arithmetic::Pillow(order), out)
}

/// Resizes 1, 3 or 4 interleaved channels (HWC), whose rows go on by bands: the result is never in memory as a whole.
/// Returns the seconds that the threads worked on it, in total.
///
/// # Errors
/// As [`resize`], and what finishing a band returns.
pub fn resize_by_bands(
    source: &[u8],
    channels: usize,
    size: Size,
    filter: Filter,
    arithmetic: Arithmetic,
    bands: Bands,
) -> Result<f64> {
    check(source, channels, &size, filter)?;
    bands.check()?;
    plan::resize(simd::level()?, source, channels, size, filter, arithmetic, Some(bands), &mut [])
}

/// Resizes 1, 3 or 4 interleaved channels (`in_height * in_width * channels` bytes, HWC) into `out`.
///
/// Called from a rayon pool, it splits a large image over the pool's threads.
///
/// # Errors
/// [`CoreError::InvalidArgument`] for an empty side, another number of channels, buffers of the wrong length, or
/// a forced SIMD level that the CPU lacks; [`CoreError::LimitExceeded`] for a side of many millions of pixels.
pub fn resize(
    source: &[u8],
    channels: usize,
    size: Size,
    filter: Filter,
    arithmetic: Arithmetic,
    out: &mut [u8],
) -> Result<()> {
    check(source, channels, &size, filter)?;
    if Some(out.len()) != size_bytes(size.out_width, size.out_height, channels) {
        return Err(CoreError::argument("buffer length does not match width * height * channels"));
    }
    plan::resize(simd::level()?, source, channels, size, filter, arithmetic, None, out).map(|_| ())
}

fn size_bytes(width: usize, height: usize, channels: usize) -> Option<usize> {
    width.checked_mul(height)?.checked_mul(channels)
}

fn check(source: &[u8], channels: usize, size: &Size, filter: Filter) -> Result<()> {
    let Size { in_width, in_height, out_width, out_height } = *size;
    if !matches!(channels, 1 | 3 | 4) {
        return Err(CoreError::argument(format!("cannot resize {channels} channels, only 1, 3 or 4")));
    }
    if in_width == 0 || in_height == 0 || out_width == 0 || out_height == 0 {
        return Err(CoreError::argument("cannot resize from or to an empty image"));
    }
    if Some(source.len()) != size_bytes(in_width, in_height, channels) {
        return Err(CoreError::argument("buffer length does not match width * height * channels"));
    }
    for (from, to) in [(in_width, out_width), (in_height, out_height)] {
        let value = coefficients::num_weights(from, to, filter) as u64;
        if from != to && value > MOST_WEIGHTS {
            let what = "number of weights to resize one side";
            return Err(CoreError::LimitExceeded { what, value, limit: MOST_WEIGHTS });
        }
    }
    Ok(())
}
