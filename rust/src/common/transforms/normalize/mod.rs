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
use crate::common::streaming::Streamer;

/// `value * scale + offset` by channel, rounded once; then half up to bfloat16, which the proof covers too.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(target_arch = "x86_64", allow(dead_code, reason = "NEON reads the three values"))]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "x86-64 reads the lanes"))]
struct Affine {
    scale: [f32; 3],
    offset: [f32; 3],
    // Of every second value, as the kernels that take even and odd values apart load them.
    scale_lanes: Lanes,
    offset_lanes: Lanes,
}

/// One vector for each channel that its first lane may hold.
type Lanes = [[f32; 16]; 3];

// `step` values lie from lane to lane; vector `first` has channel `first` in lane 0.
fn lanes(values: [f32; 3], step: usize) -> Lanes {
    std::array::from_fn(|first| std::array::from_fn(|lane| values[(first + lane * step) % 3]))
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
    let (mut scale_by_channel, mut offset_by_channel) = ([0.0; 3], [0.0; 3]);
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
        scale_by_channel[channel] = scale;
        offset_by_channel[channel] = offset;
    }
    Some(Affine {
        scale: scale_by_channel,
        offset: offset_by_channel,
        scale_lanes: lanes(scale_by_channel, 2),
        offset_lanes: lanes(offset_by_channel, 2),
    })
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
    /// Writes the lines without gaps.
    ///
    /// # Panics
    /// If the bytes or `packed` hold fewer lines.
    #[allow(unsafe_code)]
    pub fn pack(self, level: Level, packed: &mut [u8]) {
        match level {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a level in force is one that the CPU has.
            Level::Avx512 => unsafe { avx512::pack(self, packed) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Level::Avx2 => unsafe { avx2::pack(self, packed) },
            _ => self.pack_blocks(packed),
        }
    }

    #[inline(always)]
    fn pack_blocks(self, packed: &mut [u8]) {
        match self.len {
            16..=32 => self.pack_pairs::<16>(packed),
            33..=64 => self.pack_pairs::<32>(packed),
            65..=128 => self.pack_pairs::<64>(packed),
            _ => self.zip(packed, self.len).for_each(|(bytes, packed)| packed.copy_from_slice(bytes)),
        }
    }

    // Each line as two blocks that may overlap. Their length is known, so they are plain moves, of the widest vectors
    // where this is compiled; a copy of unknown length would be a call for each line.
    #[inline(always)]
    fn pack_pairs<const BLOCK: usize>(self, packed: &mut [u8]) {
        let Self { bytes, stride, len, count } = self;
        for (line, packed) in packed.chunks_exact_mut(len).take(count).enumerate() {
            let bytes = &bytes[line * stride..][..len];
            let (Some(first), Some(last)) = (bytes.first_chunk::<BLOCK>(), bytes.last_chunk::<BLOCK>())
            else {
                return;
            };
            packed[..BLOCK].copy_from_slice(first);
            packed[len - BLOCK..].copy_from_slice(last);
        }
    }

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

    /// Writes normalised `lines` into `out`, where lines are `out_stride` elements apart. With a `streamer`, what
    /// lies in whole cache lines goes past the cache.
    ///
    /// # Panics
    /// If the bytes or `out` hold fewer lines.
    fn normalize_lines(
        normaliser: &Normaliser,
        level: Level,
        lines: Lines<'_>,
        out: &mut [Self],
        out_stride: usize,
        streamer: Option<&Streamer>,
    );
}

/// Writes normalised `bytes`, which start with the first channel, into as many elements. With a `streamer`, all but the
/// ends of `out` goes past the cache, wherever it starts.
///
/// # Panics
/// If the lengths differ.
pub fn normalize_run<T: Normalised>(
    normaliser: &Normaliser,
    level: Level,
    bytes: &[u8],
    out: &mut [T],
    streamer: Option<&Streamer>,
) {
    let head = if streamer.is_some() { unaligned_pixels(out) } else { 0 };
    let (head_bytes, bytes) = bytes.split_at(head);
    let (head_out, out) = out.split_at_mut(head);
    for (bytes, out) in [(head_bytes, head_out), (bytes, out)] {
        assert_eq!(bytes.len(), out.len(), "each byte becomes a value");
        if !bytes.is_empty() {
            let len = bytes.len();
            let line = Lines { bytes, stride: len, len, count: 1 };
            T::normalize_lines(normaliser, level, line, out, len, streamer);
        }
    }
}

// Elements of whole pixels before the first cache line that a pixel starts with.
fn unaligned_pixels<T>(out: &[T]) -> usize {
    const LINE_BYTES: usize = 64;
    let line = LINE_BYTES / size_of::<T>();
    let first = out.as_ptr().align_offset(LINE_BYTES);
    // A line is no whole number of pixels, so one of three lines in a row will do.
    let head = (0..3).map(|lines| first.saturating_add(lines * line)).find(|head| head.is_multiple_of(3));
    head.unwrap_or(0).min(out.len())
}

/// bfloat16 as its bits.
impl Normalised for u16 {
    fn from_f32(value: f32) -> Self {
        f32_to_bf16(value)
    }

    #[allow(unsafe_code)]
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables, reason = "only x86-64 has streamers"))]
    fn normalize_lines(
        normaliser: &Normaliser,
        level: Level,
        lines: Lines<'_>,
        out: &mut [Self],
        out_stride: usize,
        streamer: Option<&Streamer>,
    ) {
        let past_cache = streamer.is_some();
        match (level, &normaliser.fused) {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a level in force is one that the CPU has.
            (Level::Avx512, Some(affine)) => unsafe {
                avx512::fused_bf16(affine, lines, out, out_stride, past_cache)
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            (Level::Avx512, None) => unsafe {
                avx512::exact_bf16(normaliser, lines, out, out_stride, past_cache)
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            (Level::Avx2, Some(affine)) => unsafe {
                avx2::fused_bf16(affine, &normaliser.bf16, lines, out, out_stride, past_cache);
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            (Level::Avx2, None) => unsafe {
                avx2::exact_bf16(normaliser, lines, out, out_stride, past_cache)
            },
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
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables, reason = "only x86-64 has streamers"))]
    fn normalize_lines(
        normaliser: &Normaliser,
        level: Level,
        lines: Lines<'_>,
        out: &mut [Self],
        out_stride: usize,
        streamer: Option<&Streamer>,
    ) {
        let past_cache = streamer.is_some();
        match level {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a level in force is one that the CPU has.
            Level::Avx512 => unsafe { avx512::exact_f32(normaliser, lines, out, out_stride, past_cache) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Level::Avx2 => unsafe { avx2::exact_f32(normaliser, lines, out, out_stride, past_cache) },
            #[cfg(target_arch = "aarch64")]
            Level::Neon => neon::exact_f32(normaliser, lines, out, out_stride),
            _ => scalar::look_up(&normaliser.float, lines, out, out_stride),
        }
    }
}

#[cfg(test)]
mod tests;
