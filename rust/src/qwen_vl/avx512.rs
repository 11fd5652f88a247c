//! AVX-512: sixteen pixels of a patch's row at a time, from one load, one byte shuffle for each channel.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::arithmetic::{Line, PerChannel, Steps};
use super::normalize::CHANNELS;
use super::patchify::{AHEAD_BYTES, Element, Layout, MOST_PATCH_PX};
use crate::common::simd::Level;

const LANES: usize = 16;
const LINE_BYTES: usize = 64;

/// Patches at `corners` by exact steps, as many as `out` holds.
pub fn patches_by_steps<T: Element>(
    pixels: &[u8],
    layout: Layout,
    steps: &Steps,
    corners: impl Iterator<Item = usize>,
    out: &mut [T],
) {
    assert!(Level::Avx512.is_available());
    // SAFETY: the CPU has the instructions.
    unsafe { patches(pixels, layout, &Exact::new(steps), corners, out) }
}

/// Patches at `corners` by a line, as many as `out` holds.
pub fn patches_by_line<T: Element>(
    pixels: &[u8],
    layout: Layout,
    line: &Line,
    corners: impl Iterator<Item = usize>,
    out: &mut [T],
) {
    assert!(Level::Avx512.is_available());
    // SAFETY: the CPU has the instructions.
    unsafe { patches(pixels, layout, &Straight::new(line), corners, out) }
}

/// Copies past the cache. Both sides are aligned to 16 bytes and as long.
pub fn stream(source: &[u8], target: &mut [u8]) {
    assert!(Level::Avx512.is_available() && source.len() == target.len());
    let aligned =
        |to: usize| [source.as_ptr() as usize, target.as_ptr() as usize, source.len()].map(|a| a % to);
    assert_eq!(aligned(16), [0; 3]);
    // SAFETY: lengths and alignment were just checked, and the CPU has the instructions.
    unsafe {
        if aligned(LINE_BYTES) == [0; 3] {
            stream_lines(source, target)
        } else {
            stream_quarters(source, target)
        }
    }
}

#[target_feature(enable = "avx512f")]
unsafe fn stream_lines(source: &[u8], target: &mut [u8]) {
    for at in (0..source.len()).step_by(LINE_BYTES) {
        // SAFETY: both hold a whole line at `at`, aligned.
        unsafe {
            let line = _mm512_load_si512(source.as_ptr().add(at).cast());
            _mm512_stream_si512(target.as_mut_ptr().add(at).cast(), line);
        }
    }
    _mm_sfence();
}

#[target_feature(enable = "sse2")]
unsafe fn stream_quarters(source: &[u8], target: &mut [u8]) {
    for at in (0..source.len()).step_by(16) {
        // SAFETY: both hold 16 bytes at `at`, aligned.
        unsafe {
            let quarter = _mm_load_si128(source.as_ptr().add(at).cast());
            _mm_stream_si128(target.as_mut_ptr().add(at).cast(), quarter);
        }
    }
    _mm_sfence();
}

trait Channels {
    // SAFETY: the CPU must have AVX-512 F.
    unsafe fn values(&self, channel: usize, bytes: __m512) -> __m512;
}

struct Exact {
    high: [__m512; CHANNELS],
    low: [__m512; CHANNELS],
    mean: [__m512; CHANNELS],
    std: [__m512; CHANNELS],
    inverse: [__m512; CHANNELS],
}

struct Straight {
    factor: [__m512; CHANNELS],
    offset: [__m512; CHANNELS],
}

// SAFETY of the callers: the CPU must have AVX-512 F.
#[target_feature(enable = "avx512f")]
unsafe fn splat(values: PerChannel) -> [__m512; CHANNELS] {
    [_mm512_set1_ps(values[0]), _mm512_set1_ps(values[1]), _mm512_set1_ps(values[2])]
}

impl Exact {
    #[target_feature(enable = "avx512f")]
    unsafe fn new(steps: &Steps) -> Self {
        // SAFETY: the caller's CPU has AVX-512 F.
        unsafe {
            Self {
                high: splat(steps.high),
                low: splat(steps.low),
                mean: splat(steps.mean),
                std: splat(steps.std),
                inverse: splat(steps.inverse),
            }
        }
    }
}

impl Straight {
    #[target_feature(enable = "avx512f")]
    unsafe fn new(line: &Line) -> Self {
        // SAFETY: the caller's CPU has AVX-512 F.
        unsafe { Self { factor: splat(line.factor), offset: splat(line.offset) } }
    }
}

impl Channels for Exact {
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn values(&self, channel: usize, bytes: __m512) -> __m512 {
        let scaled = _mm512_fmadd_ps(bytes, self.high[channel], _mm512_mul_ps(bytes, self.low[channel]));
        let centred = _mm512_sub_ps(scaled, self.mean[channel]);
        let quotient = _mm512_mul_ps(centred, self.inverse[channel]);
        let rest = _mm512_fnmadd_ps(quotient, self.std[channel], centred);
        _mm512_fmadd_ps(rest, self.inverse[channel], quotient)
    }
}

impl Channels for Straight {
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn values(&self, channel: usize, bytes: __m512) -> __m512 {
        _mm512_fmadd_ps(bytes, self.factor[channel], self.offset[channel])
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
unsafe fn patches<T: Element, C: Channels>(
    pixels: &[u8],
    layout: Layout,
    channels: &C,
    corners: impl Iterator<Item = usize>,
    out: &mut [T],
) {
    let Layout { width, height, patch_px, .. } = layout;
    assert!(patch_px <= MOST_PATCH_PX && pixels.len() == width * height * CHANNELS);
    // In this order: where the patches end, no corner is taken.
    for (patch, corner) in out.chunks_exact_mut(layout.patch_values()).zip(corners) {
        assert!((corner + (patch_px - 1) * width + patch_px) * CHANNELS <= pixels.len());
        // SAFETY: the patch's last pixel is within the pixels, as was just checked; the target holds a patch;
        // the CPU has the instructions.
        unsafe { write(pixels, corner, layout, channels, patch.as_mut_ptr()) };
    }
}

// Where each pixel's byte of a channel goes: the low byte of a 32-bit lane.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn shuffle(channel: i32) -> __m512i {
    let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    _mm512_add_epi32(_mm512_mullo_epi32(lanes, _mm512_set1_epi32(3)), _mm512_set1_epi32(channel))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
unsafe fn write<T: Element, C: Channels>(
    pixels: &[u8],
    corner: usize,
    layout: Layout,
    channels: &C,
    target: *mut T,
) {
    const LOW_BYTES: __mmask64 = 0x1111_1111_1111_1111;
    let Layout { width, patch_px, copies, .. } = layout;
    let plane = patch_px * patch_px;
    // SAFETY: AVX-512 F is there.
    let shuffles = unsafe { [shuffle(0), shuffle(1), shuffle(2)] };
    for left in (0..patch_px).step_by(LANES) {
        let lanes = (patch_px - left).min(LANES);
        let lane_mask = (u32::MAX >> (32 - lanes)) as __mmask16;
        let byte_mask = u64::MAX >> (64 - lanes * CHANNELS);
        for row in 0..patch_px {
            let start = (corner + row * width + left) * CHANNELS;
            _mm_prefetch::<_MM_HINT_T0>(pixels.as_ptr().wrapping_add(start + AHEAD_BYTES).cast());
            // SAFETY: the mask keeps the load within the patch's row; masked lanes are not touched.
            let bytes = unsafe { _mm512_maskz_loadu_epi8(byte_mask, pixels.as_ptr().add(start).cast()) };
            for (channel, &shuffle) in shuffles.iter().enumerate() {
                let wide = _mm512_maskz_permutexvar_epi8(LOW_BYTES, shuffle, bytes);
                // SAFETY: AVX-512 F is there.
                let values = unsafe { channels.values(channel, _mm512_cvtepi32_ps(wide)) };
                for copy in 0..copies {
                    let at = (channel * copies + copy) * plane + row * patch_px + left;
                    // SAFETY: `at + lanes` is within the patch, and the mask keeps the store within that.
                    unsafe { store(values, target.add(at), lane_mask) };
                }
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn store<T: Element>(values: __m512, target: *mut T, mask: __mmask16) {
    // SAFETY: the caller's target holds the lanes of the mask.
    unsafe {
        if T::IS_BF16 {
            let bits = _mm512_castps_si512(values);
            let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
            let halves = _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(rounded));
            _mm256_mask_storeu_epi16(target.cast(), mask, halves);
        } else {
            _mm512_mask_storeu_ps(target.cast(), mask, values);
        }
    }
}
