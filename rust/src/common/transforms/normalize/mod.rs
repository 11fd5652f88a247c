//! Normalising RGB bytes, to float32 or bfloat16, in every instruction set.
//!
//! Of each element type there is one scalar table, which the others are held to. The vector code computes
//! instead of looking up: float32 by the reference's own operations, bfloat16 by one fused multiply-add where
//! that was proved to round to the same bits for all 256 values of each channel, else by the operations.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;

use super::{normalize_scaled, normalize_table};
use crate::common::bf16::f32_to_bf16;
use crate::common::simd::Level;

/// `value * scale + offset` by channel, rounded once; then half up to bfloat16, which the proof covers too.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Affine {
    scale: [f32; 3],
    offset: [f32; 3],
}

/// The constants of a normalisation, and what follows from them.
#[derive(Debug, Clone)]
pub struct Normaliser {
    mean: [f32; 3],
    std: [f32; 3],
    float: [[f32; 256]; 3],
    bf16: [[u16; 256]; 3],
    fused: Option<Affine>,
}

impl Normaliser {
    /// Tables for these constants, and the proof of the fused form.
    pub fn new(mean: [f32; 3], std: [f32; 3]) -> Self {
        let float = normalize_table(mean, std);
        let bf16 = float.map(|channel| channel.map(f32_to_bf16));
        Self { mean, std, float, bf16, fused: prove_fused(mean, std, &bf16) }
    }

    /// What a pixel that is `scaled` before normalising becomes, such as padding.
    pub fn of_scaled(&self, scaled: f32) -> [f32; 3] {
        std::array::from_fn(|channel| normalize_scaled(scaled, self.mean[channel], self.std[channel]))
    }

    /// Whether bfloat16 takes one fused multiply-add.
    pub fn is_fused(&self) -> bool {
        self.fused.is_some()
    }
}

// The straightforward constants miss a rounding boundary for some means and deviations; a neighbour of them
// then mostly does not.
fn prove_fused(mean: [f32; 3], std: [f32; 3], expected: &[[u16; 256]; 3]) -> Option<Affine> {
    let mut affine = Affine { scale: [0.0; 3], offset: [0.0; 3] };
    for channel in 0..3 {
        let (mean, std) = (f64::from(mean[channel]), f64::from(std[channel]));
        let scales = neighbours((1.0 / (255.0 * std)) as f32);
        let offsets = neighbours((-mean / std) as f32);
        let (scale, offset) = scales
            .iter()
            .flat_map(|&scale| offsets.iter().map(move |&offset| (scale, offset)))
            .find(|&(scale, offset)| {
                (0_u8..=255).zip(&expected[channel]).all(|(value, &bits)| fused(value, scale, offset) == bits)
            })?;
        affine.scale[channel] = scale;
        affine.offset[channel] = offset;
    }
    Some(affine)
}

fn fused(value: u8, scale: f32, offset: f32) -> u16 {
    (f32::from(value).mul_add(scale, offset).to_bits().wrapping_add(0x8000) >> 16) as u16
}

fn neighbours(value: f32) -> [f32; 5] {
    let (up, down) = (value.next_up(), value.next_down());
    [value, up, down, up.next_up(), down.next_down()]
}

/// Equally long runs of RGB bytes, one below the other in an image.
#[derive(Debug, Clone, Copy)]
pub struct Lines<'a> {
    /// The bytes, from the first of the first line on.
    pub bytes: &'a [u8],
    /// Bytes from one line to the next.
    pub stride: usize,
    /// Values in a line; starts with the first channel.
    pub len: usize,
    /// How many lines.
    pub count: usize,
}

impl<'a> Lines<'a> {
    // Each line beside its place in an output with a stride of its own.
    fn zip<'o, T>(
        self,
        out: &'o mut [T],
        out_stride: usize,
    ) -> impl Iterator<Item = (&'a [u8], &'o mut [T])> {
        let Self { bytes, stride, len, count } = self;
        out.chunks_mut(out_stride.max(1)).take(count).enumerate().map(move |(line, out)| {
            let start = line * stride;
            (&bytes[start..start + len], &mut out[..len])
        })
    }
}

/// An element type that pixels are normalised to.
pub trait Normalised: bytemuck::Pod + Send + Sync {
    /// Rounds a normalised float.
    fn from_f32(value: f32) -> Self;

    /// Writes normalised `lines` into `out`, where lines are `out_stride` elements apart.
    ///
    /// # Panics
    /// If the bytes or `out` hold fewer lines.
    fn normalize_lines(
        normaliser: &Normaliser,
        level: Level,
        lines: Lines<'_>,
        out: &mut [Self],
        out_stride: usize,
    );
}

/// bfloat16 as its bits.
impl Normalised for u16 {
    fn from_f32(value: f32) -> Self {
        f32_to_bf16(value)
    }

    #[allow(unsafe_code)]
    fn normalize_lines(
        normaliser: &Normaliser,
        level: Level,
        lines: Lines<'_>,
        out: &mut [Self],
        out_stride: usize,
    ) {
        match (level, normaliser.fused) {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a level in force is one that the CPU has.
            (Level::Avx512, Some(affine)) => unsafe { avx512::fused_bf16(affine, lines, out, out_stride) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            (Level::Avx512, None) => unsafe { avx512::exact_bf16(normaliser, lines, out, out_stride) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            (Level::Avx2, Some(affine)) => unsafe {
                avx2::fused_bf16(affine, &normaliser.bf16, lines, out, out_stride);
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            (Level::Avx2, None) => unsafe { avx2::exact_bf16(normaliser, lines, out, out_stride) },
            #[cfg(target_arch = "aarch64")]
            (Level::Neon, Some(affine)) => {
                neon::fused_bf16(affine, &normaliser.bf16, lines, out, out_stride);
            }
            _ => scalar::look_up(&normaliser.bf16, lines, out, out_stride),
        }
    }
}

impl Normalised for f32 {
    fn from_f32(value: f32) -> Self {
        value
    }

    #[allow(unsafe_code)]
    fn normalize_lines(
        normaliser: &Normaliser,
        level: Level,
        lines: Lines<'_>,
        out: &mut [Self],
        out_stride: usize,
    ) {
        match level {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a level in force is one that the CPU has.
            Level::Avx512 => unsafe { avx512::exact_f32(normaliser, lines, out, out_stride) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Level::Avx2 => unsafe { avx2::exact_f32(normaliser, lines, out, out_stride) },
            #[cfg(target_arch = "aarch64")]
            Level::Neon => neon::exact_f32(normaliser, lines, out, out_stride),
            _ => scalar::look_up(&normaliser.float, lines, out, out_stride),
        }
    }
}

#[cfg(test)]
mod tests;
