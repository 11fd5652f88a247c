//! The two kernels, in every instruction set: coefficients to samples, samples to RGB.

#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use super::{scalar, steps::Subsampling};
use crate::common::decode::jpeg::entropy::{GROUP_BLOCKS, Group};
use crate::common::simd::Level;
use crate::common::streaming::Streamer;

/// Samples that a group has in each of its eight rows.
pub const GROUP_SAMPLES: usize = 8 * GROUP_BLOCKS;
/// Readable samples that [`rgb_row`] wants behind those it needs.
pub const SLACK_SAMPLES: usize = 128;

/// Factors of the coefficients, in rows.
pub type Factors = [i16; 64];

/// The rows of a colour difference that a row of pixels is made of. Both start one sample before the first pixel.
#[derive(Debug, Clone, Copy)]
pub struct Difference<'a> {
    /// The row that the pixels lie in.
    pub near: &'a [u8],
    /// The row next to it that is as near to the pixels as any. Only for [`Subsampling::Both`].
    pub far: &'a [u8],
}

/// Whether the kernels of `level` are faster than libjpeg-turbo. Built without its vector code it makes other pixels of
/// coefficients that no encoder makes; then all levels use the kernels, so that they do the same.
pub fn are_worth_it(level: Level) -> bool {
    matches!(level, Level::Avx2 | Level::Avx512) || !cfg!(jpeg_simd)
}

/// Turns the coefficients of a group into eight rows of [`GROUP_SAMPLES`] samples, `stride` apart in `out`, by the
/// arithmetic of libjpeg-turbo's accurate integer transform in its vector form, which wraps and saturates where no encoder
/// leads. Returns false if a first row is beyond what that form takes the same way whatever stands below it; then the
/// samples are arbitrary.
///
/// # Panics
/// If `out` does not hold the rows.
pub fn transform(level: Level, group: &Group, factors: &Factors, out: &mut [u8], stride: usize) -> bool {
    assert!(stride >= GROUP_SAMPLES && out.len() >= 7 * stride + GROUP_SAMPLES, "eight rows are written");
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => avx512::transform(group, factors, out, stride),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => avx2::transform(group, factors, out, stride),
        _ => scalar::transform(group, factors, out, stride),
    }
}

/// Makes a row of RGB pixels of their luminance and the two colour differences, blue and red: as libjpeg upsamples
/// ("fancy") and converts. With a `streamer`, past the cache if the row starts with a cache line.
///
/// # Panics
/// If the samples are not there, or not [`SLACK_SAMPLES`] more.
#[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables, reason = "only x86-64 has streamers"))]
pub fn rgb_row(
    level: Level,
    subsampling: Subsampling,
    luminance: &[u8],
    differences: [Difference<'_>; 2],
    rgb: &mut [u8],
    streamer: Option<&Streamer>,
) {
    let pixels = rgb.len() / 3;
    let samples = 2 + match subsampling {
        Subsampling::None => pixels,
        Subsampling::Across | Subsampling::Both => pixels.div_ceil(2),
    };
    assert!(luminance.len() >= pixels + SLACK_SAMPLES, "each pixel has its luminance");
    for Difference { near, far } in differences {
        let is_whole = |row: &[u8]| row.len() >= samples + SLACK_SAMPLES;
        assert!(is_whole(near) && (subsampling != Subsampling::Both || is_whole(far)), "so with colour");
    }
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => avx512::rgb_row(subsampling, luminance, differences, rgb, streamer.is_some()),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => avx2::rgb_row(subsampling, luminance, differences, rgb, streamer.is_some()),
        _ => scalar::rgb_row(subsampling, luminance, differences, rgb),
    }
}
