//! AVX2: sixteen pixels of a patch's row at a time, from three loads, three byte shuffles for each channel.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::arithmetic::{Line, PerChannel, Steps};
use super::normalize::CHANNELS;
use super::patchify::{AHEAD_BYTES, Element, Layout, MOST_PATCH_PX};
use crate::common::simd::Level;

const LANES: usize = 16;
const HALF_LANES: usize = LANES / 2;
const GROUP_BYTES: usize = LANES * CHANNELS;

/// Patches at `corners` by exact steps, as many as `out` holds.
pub fn patches_by_steps<T: Element>(
    pixels: &[u8],
    layout: Layout,
    steps: &Steps,
    corners: impl Iterator<Item = usize>,
    out: &mut [T],
) {
    assert!(Level::Avx2.is_available());
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
    assert!(Level::Avx2.is_available());
    // SAFETY: the CPU has the instructions.
    unsafe { patches(pixels, layout, &Straight::new(line), corners, out) }
}

/// Copies past the cache. Both sides are aligned to 16 bytes and as long.
pub fn stream(source: &[u8], target: &mut [u8]) {
    assert!(Level::Avx2.is_available() && source.len() == target.len());
    let aligned = [source.as_ptr() as usize, target.as_ptr() as usize, source.len()].map(|at| at % 16);
    assert_eq!(aligned, [0; 3]);
    // SAFETY: lengths and alignment were just checked; every x86-64 CPU has SSE2.
    unsafe { stream_quarters(source, target) }
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
    // SAFETY: the CPU must have AVX2 and FMA.
    unsafe fn values(&self, channel: usize, bytes: __m256) -> __m256;
}

struct Exact {
    high: [__m256; CHANNELS],
    low: [__m256; CHANNELS],
    mean: [__m256; CHANNELS],
    std: [__m256; CHANNELS],
    inverse: [__m256; CHANNELS],
}

struct Straight {
    factor: [__m256; CHANNELS],
    offset: [__m256; CHANNELS],
}

#[target_feature(enable = "avx2,fma")]
unsafe fn splat(values: PerChannel) -> [__m256; CHANNELS] {
    [_mm256_set1_ps(values[0]), _mm256_set1_ps(values[1]), _mm256_set1_ps(values[2])]
}

impl Exact {
    #[target_feature(enable = "avx2,fma")]
    unsafe fn new(steps: &Steps) -> Self {
        // SAFETY: the caller's CPU has AVX2 and FMA.
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
    #[target_feature(enable = "avx2,fma")]
    unsafe fn new(line: &Line) -> Self {
        // SAFETY: the caller's CPU has AVX2 and FMA.
        unsafe { Self { factor: splat(line.factor), offset: splat(line.offset) } }
    }
}

impl Channels for Exact {
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn values(&self, channel: usize, bytes: __m256) -> __m256 {
        let scaled = _mm256_fmadd_ps(bytes, self.high[channel], _mm256_mul_ps(bytes, self.low[channel]));
        let centred = _mm256_sub_ps(scaled, self.mean[channel]);
        let quotient = _mm256_mul_ps(centred, self.inverse[channel]);
        let rest = _mm256_fnmadd_ps(quotient, self.std[channel], centred);
        _mm256_fmadd_ps(rest, self.inverse[channel], quotient)
    }
}

impl Channels for Straight {
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn values(&self, channel: usize, bytes: __m256) -> __m256 {
        _mm256_fmadd_ps(bytes, self.factor[channel], self.offset[channel])
    }
}

#[target_feature(enable = "avx2,fma")]
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

#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn write<T: Element, C: Channels>(
    pixels: &[u8],
    corner: usize,
    layout: Layout,
    channels: &C,
    target: *mut T,
) {
    let Layout { width, patch_px, copies, .. } = layout;
    let plane = patch_px * patch_px;
    for left in (0..patch_px).step_by(LANES) {
        let lanes = (patch_px - left).min(LANES);
        for row in 0..patch_px {
            let start = (corner + row * width + left) * CHANNELS;
            _mm_prefetch::<_MM_HINT_T0>(pixels.as_ptr().wrapping_add(start + AHEAD_BYTES).cast());
            // A group may reach beyond its patch; only the last ones of the picture reach beyond the pixels.
            let mut tail = [0; GROUP_BYTES];
            let group = if start + GROUP_BYTES <= pixels.len() {
                &pixels[start..start + GROUP_BYTES]
            } else {
                tail[..pixels.len() - start].copy_from_slice(&pixels[start..]);
                &tail[..]
            };
            // SAFETY: the group has the bytes of 16 pixels.
            let split = unsafe { split(group.as_ptr()) };
            for (channel, bytes) in split.into_iter().enumerate() {
                let low = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
                let high = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128::<8>(bytes)));
                // SAFETY: AVX2 and FMA are there.
                let values = unsafe { [channels.values(channel, low), channels.values(channel, high)] };
                for copy in 0..copies {
                    let at = (channel * copies + copy) * plane + row * patch_px + left;
                    // SAFETY: `at + lanes` is within the patch.
                    unsafe { store(values, target.add(at), lanes) };
                }
            }
        }
    }
}

// Sixteen pixels to the sixteen bytes of each channel.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn split(group: *const u8) -> [__m128i; CHANNELS] {
    // SAFETY: the caller's group has 48 bytes.
    let parts = unsafe {
        [
            _mm_loadu_si128(group.cast()),
            _mm_loadu_si128(group.add(16).cast()),
            _mm_loadu_si128(group.add(32).cast()),
        ]
    };
    std::array::from_fn(|channel| {
        let mut bytes = _mm_setzero_si128();
        for (part, &loaded) in parts.iter().enumerate() {
            let mut from = [-1_i8; LANES];
            for (lane, from) in from.iter_mut().enumerate() {
                let at = lane * CHANNELS + channel;
                if at / 16 == part {
                    *from = (at % 16) as i8;
                }
            }
            // SAFETY: an array of 16 bytes; loads need no alignment.
            let shuffle = unsafe { _mm_loadu_si128(from.as_ptr().cast()) };
            bytes = _mm_or_si128(bytes, _mm_shuffle_epi8(loaded, shuffle));
        }
        bytes
    })
}

#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store<T: Element>(values: [__m256; 2], target: *mut T, lanes: usize) {
    // SAFETY: the caller's target holds `lanes` values, and no more are written.
    unsafe {
        if T::IS_BF16 {
            let halves = bf16(values);
            if lanes == LANES {
                _mm256_storeu_si256(target.cast(), halves);
            } else if lanes.is_multiple_of(2) {
                _mm256_maskstore_epi32(target.cast(), mask(lanes / 2), halves);
            } else {
                let mut whole = [0_u16; LANES];
                _mm256_storeu_si256(whole.as_mut_ptr().cast(), halves);
                std::ptr::copy_nonoverlapping(whole.as_ptr(), target.cast(), lanes);
            }
            return;
        }
        let target: *mut f32 = target.cast();
        if lanes >= HALF_LANES {
            _mm256_storeu_ps(target, values[0]);
            if lanes == LANES {
                _mm256_storeu_ps(target.add(HALF_LANES), values[1]);
            } else if lanes > HALF_LANES {
                _mm256_maskstore_ps(target.add(HALF_LANES), mask(lanes - HALF_LANES), values[1]);
            }
        } else {
            _mm256_maskstore_ps(target, mask(lanes), values[0]);
        }
    }
}

// The first `lanes` of eight.
#[inline]
#[target_feature(enable = "avx2")]
fn mask(lanes: usize) -> __m256i {
    _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
}

// Rounds to nearest even, as adding the last kept bit and just below half of it does.
#[inline]
#[target_feature(enable = "avx2")]
fn bf16(values: [__m256; 2]) -> __m256i {
    let halves = values.map(|values| {
        let bits = _mm256_castps_si256(values);
        let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
        let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
        _mm256_srli_epi32::<16>(rounded)
    });
    // Packing works within 128-bit lanes; the permutation puts the quarters back in order.
    _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi32(halves[0], halves[1]))
}
