//! Pixels to normalised patches: one pass, straight into the output.
//!
//! Patches stand in the order `(rows / merge, columns / merge, merge, merge)`, so that those of one token are
//! neighbours. Inside, values stand as `(channel, time, row, column)`; a still picture is the same at all times.

use rayon::prelude::*;

use super::arithmetic::Arithmetic;
use super::layout::{CHANNELS, Layout};
use super::normalize::{Element, Normaliser};
#[cfg(target_arch = "x86_64")]
use super::{avx2::Avx2, avx512::Avx512, lines};
#[cfg(target_arch = "aarch64")]
use super::{lines, neon::Neon};
use crate::common::simd::{self, Level};
use crate::common::threads;
use crate::error::{CoreError, Result};
use crate::tensor::Transport;

// Larger outputs leave the L2 cache before anyone reads them, so they need not go through it.
const STREAM_BYTES: usize = 1 << 20;
// A picture is split over threads only if each gets this much to write.
const PART_BYTES: usize = 1 << 20;

/// Writes `[rows * columns, CHANNELS * copies * patch_px * patch_px]` normalised values of `pixels` (HWC) into
/// `out`, in native byte order. That is all of an output of `all_bytes`, or a band of it.
///
/// # Errors
/// [`CoreError::InvalidArgument`] if a length or a side is wrong, or `transport` is `Uint8`.
pub fn patchify(
    normaliser: &Normaliser,
    pixels: &[u8],
    layout: Layout,
    transport: Transport,
    all_bytes: usize,
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
    match transport {
        Transport::Bf16 => write::<u16>(normaliser, pixels, layout, all_bytes, out),
        Transport::Float32 => write::<f32>(normaliser, pixels, layout, all_bytes, out),
        Transport::Uint8 => Err(CoreError::argument("uint8 pixels are not patches; choose bf16 or float32")),
    }
}

fn write<T: Element>(
    normaliser: &Normaliser,
    pixels: &[u8],
    layout: Layout,
    all_bytes: usize,
    out: &mut [u8],
) -> Result<()> {
    let level = simd::level()?;
    let out_bytes = out.len();
    let out: &mut [T] = bytemuck::try_cast_slice_mut(out)
        .map_err(|_| CoreError::argument("the output is not aligned to its element type"))?;
    let band_values = layout.columns() * layout.merge * layout.patch_values();
    if band_values == 0 {
        return Ok(());
    }
    let stream = all_bytes >= STREAM_BYTES;
    let write_band =
        |(band, out): (usize, &mut [T])| write_band(normaliser, level, pixels, layout, band, stream, out);
    if threads::spread() > 1 && out_bytes > PART_BYTES {
        let bands = (PART_BYTES / (band_values * size_of::<T>())).max(1);
        out.par_chunks_exact_mut(band_values).enumerate().with_min_len(bands).for_each(write_band);
    } else {
        out.chunks_exact_mut(band_values).enumerate().for_each(write_band);
    }
    Ok(())
}

fn write_band<T: Element>(
    normaliser: &Normaliser,
    level: Level,
    pixels: &[u8],
    layout: Layout,
    band: usize,
    stream: bool,
    out: &mut [T],
) {
    let table = T::table(normaliser);
    // Only x86-64 has kernels with stores past the cache.
    #[cfg(not(target_arch = "x86_64"))]
    let _ = stream;
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if lines::fits::<T>(layout) {
        let Arithmetic { steps, bf16_line, bf16_steps } = &normaliser.arithmetic;
        // The kernel for the first arithmetic that holds.
        macro_rules! write_by {
            ($kernel:ty) => {{
                if let Some(line) = bf16_line.as_ref().filter(|_| T::IS_BF16) {
                    return lines::write(&<$kernel>::new(line), table, pixels, layout, band, out);
                }
                if let Some(steps) = if T::IS_BF16 { bf16_steps } else { steps } {
                    return lines::write(&<$kernel>::new(steps), table, pixels, layout, band, out);
                }
            }};
        }
        match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 if stream => write_by!(Avx512<_, true>),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => write_by!(Avx512<_, false>),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 if stream => write_by!(Avx2<_, true>),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => write_by!(Avx2<_, false>),
            #[cfg(target_arch = "aarch64")]
            Level::Neon => write_by!(Neon<_>),
            _ => {}
        }
    }
    scalar_band(pixels, layout, table, band, out);
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

#[cfg(test)]
mod tests {
    use super::super::parameters::{Backend, QwenVlParameters};
    use super::*;

    fn noise(len: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_u32;
        let step = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..len).map(step).collect()
    }

    fn patches(
        normaliser: &Normaliser,
        level: Level,
        layout: Layout,
        transport: Transport,
        skew: usize,
    ) -> Vec<u8> {
        let pixels = noise(layout.width * layout.height * CHANNELS);
        let element = transport.dtype().size_bytes();
        let len = layout.values() * element;
        // As a vector of `u128`, so that the start is aligned and the skew decides.
        let mut memory = vec![0x5555_5555_u128; len / 16 + 5];
        let memory: &mut [u8] = bytemuck::cast_slice_mut(&mut memory);
        let out = &mut memory[skew * element..skew * element + len];
        let made = simd::with_level(level, || patchify(normaliser, &pixels, layout, transport, len, out));
        made.expect("the level is available").expect("the layout is valid");
        let written = out.to_vec();
        let untouched = |bytes: &[u8]| bytes.iter().all(|byte| matches!(byte, 0 | 0x55));
        assert!(
            untouched(&memory[..skew * element]) && untouched(&memory[skew * element + len..]),
            "{layout:?}"
        );
        written
    }

    #[test]
    fn every_level_writes_what_the_table_says_and_nothing_else() {
        let pil = QwenVlParameters { backend: Backend::Pil, ..QwenVlParameters::default() };
        let table = QwenVlParameters { image_std: [1e-36, 1.0, 1e36], ..pil.clone() };
        for parameters in [QwenVlParameters::default(), pil, table] {
            let normaliser = Normaliser::new(&parameters);
            for patch_px in (1..=20).chain([28, 31, 32, 33, 64, 65]) {
                for (merge, copies) in [(2, 1), (1, 2), (2, 3)] {
                    let side = patch_px * merge;
                    let layout = Layout { width: 3 * side, height: 2 * side, patch_px, merge, copies };
                    for transport in [Transport::Bf16, Transport::Float32] {
                        let expected = patches(&normaliser, Level::Scalar, layout, transport, 0);
                        for level in Level::available() {
                            for skew in [0, 1, 13] {
                                let found = patches(&normaliser, level, layout, transport, skew);
                                assert!(found == expected, "{level} {layout:?} {transport:?}");
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn streamed_and_split_pictures_are_the_same() {
        let normaliser = Normaliser::new(&QwenVlParameters::default());
        for (patch_px, copies) in [(14, 2), (16, 2), (14, 1), (7, 1), (28, 3)] {
            let layout = Layout { width: 28 * 32, height: 28 * 24, patch_px, merge: 2, copies };
            for transport in [Transport::Bf16, Transport::Float32] {
                assert!(layout.values() * transport.dtype().size_bytes() > STREAM_BYTES);
                let expected = patches(&normaliser, Level::Scalar, layout, transport, 0);
                for level in Level::available() {
                    for skew in [0, 1, 13] {
                        assert!(patches(&normaliser, level, layout, transport, skew) == expected, "{level}");
                    }
                    let split = crate::common::threads::pool()
                        .install(|| patches(&normaliser, level, layout, transport, 0));
                    assert!(split == expected, "{level} in the pool");
                }
            }
        }
    }
}
