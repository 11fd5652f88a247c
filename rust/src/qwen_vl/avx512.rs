//! AVX-512: a cache line of values at a time.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::arithmetic::{Line, Steps};
use super::layout::{CHANNELS, Layout};
use super::lines::{AHEAD_BYTES, Kernel, LINE_BYTES, lanes};
use super::normalize::Element;
use crate::common::simd::Level;

// Pixels of a row that one load and one byte permutation take apart.
const PIXELS: usize = 16;

/// Conversion by arithmetic `A`, past the cache if `STREAM`.
pub struct Avx512<'a, A, const STREAM: bool>(&'a A);

impl<'a, A, const STREAM: bool> Avx512<'a, A, STREAM> {
    /// The kernel for some constants.
    pub fn new(arithmetic: &'a A) -> Self {
        assert!(Level::Avx512.is_available());
        Self(arithmetic)
    }
}

impl<A, const STREAM: bool> Drop for Avx512<'_, A, STREAM> {
    fn drop(&mut self) {
        if STREAM {
            // Streamed stores are not ordered by what hands the buffer to the next thread.
            // SAFETY: every x86-64 CPU has SSE.
            unsafe { _mm_sfence() };
        }
    }
}

impl<T: Element, A: Vectors, const STREAM: bool> Kernel<T> for Avx512<'_, A, STREAM> {
    fn gather(&self, pixels: &[u8], layout: Layout, corner: usize, stage: &mut [u8]) {
        let Layout { width, patch_px, .. } = layout;
        assert!((corner + (patch_px - 1) * width + patch_px) * CHANNELS <= pixels.len());
        assert!(stage.len() >= layout.patch_values());
        // SAFETY: the patch's last pixel is within the pixels and the stage holds the patch, as was just checked;
        // the CPU has the instructions.
        unsafe { gather(pixels, layout, corner, stage.as_mut_ptr()) }
    }

    fn convert(&self, channel: usize, bytes: &[u8], out: &mut [T]) {
        assert!(bytes.len() == out.len() && out.len().is_multiple_of(lanes::<T>()));
        assert!((out.as_ptr() as usize).is_multiple_of(LINE_BYTES));
        // SAFETY: length and alignment were just checked; the CPU has the instructions.
        unsafe { convert::<T, A, STREAM>(self.0, channel, bytes, out) }
    }

    fn convert_seam(&self, channels: [usize; 2], split: usize, bytes: &[u8], out: &mut [T]) {
        assert!(bytes.len() == lanes::<T>() && out.len() == lanes::<T>());
        assert!((out.as_ptr() as usize).is_multiple_of(LINE_BYTES));
        // SAFETY: length and alignment were just checked; the CPU has the instructions.
        unsafe { convert_seam::<T, A, STREAM>(self.0, channels, split, bytes, out) }
    }
}

/// Arithmetic on vectors.
pub trait Vectors {
    /// Constants of a channel.
    type Registers;
    // SAFETY: the CPU must have AVX-512 F.
    unsafe fn registers(&self, channel: usize) -> Self::Registers;
    // SAFETY: the CPU must have AVX-512 F.
    unsafe fn values(registers: &Self::Registers, bytes: __m512) -> __m512;
}

impl Vectors for Steps {
    type Registers = [__m512; 5];

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn registers(&self, channel: usize) -> Self::Registers {
        [
            _mm512_set1_ps(self.high[channel]),
            _mm512_set1_ps(self.low[channel]),
            _mm512_set1_ps(self.mean[channel]),
            _mm512_set1_ps(self.inverse_high[channel]),
            _mm512_set1_ps(self.inverse_low[channel]),
        ]
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn values(
        &[high, low, mean, inverse_high, inverse_low]: &Self::Registers,
        bytes: __m512,
    ) -> __m512 {
        let scaled = _mm512_fmadd_ps(bytes, high, _mm512_mul_ps(bytes, low));
        let centred = _mm512_sub_ps(scaled, mean);
        _mm512_fmadd_ps(centred, inverse_high, _mm512_mul_ps(centred, inverse_low))
    }
}

impl Vectors for Line {
    type Registers = [__m512; 2];

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn registers(&self, channel: usize) -> Self::Registers {
        [_mm512_set1_ps(self.factor[channel]), _mm512_set1_ps(self.offset[channel])]
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn values(&[factor, offset]: &Self::Registers, bytes: __m512) -> __m512 {
        _mm512_fmadd_ps(bytes, factor, offset)
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
unsafe fn gather(pixels: &[u8], layout: Layout, corner: usize, stage: *mut u8) {
    // SAFETY: as the caller's; `COPIES` is that of the layout, or none.
    unsafe {
        match layout.copies {
            1 => gather_copies::<1>(pixels, layout, corner, stage),
            2 => gather_copies::<2>(pixels, layout, corner, stage),
            _ => gather_copies::<0>(pixels, layout, corner, stage),
        }
    }
}

// Row by row: what a store writes beyond its row, that of the next puts right; at the end of a plane it writes none.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
unsafe fn gather_copies<const COPIES: usize>(pixels: &[u8], layout: Layout, corner: usize, stage: *mut u8) {
    let Layout { width, patch_px, copies, .. } = layout;
    let copies = if COPIES > 0 { COPIES } else { copies };
    let plane = patch_px * patch_px;
    let froms: [_; CHANNELS] = std::array::from_fn(|channel| {
        let channel = _mm_set1_epi8(channel as i8);
        _mm512_castsi128_si512(_mm_add_epi8(
            _mm_setr_epi8(0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39, 42, 45),
            channel,
        ))
    });
    for row in 0..patch_px {
        let start = (corner + row * width) * CHANNELS;
        _mm_prefetch::<_MM_HINT_T0>(pixels.as_ptr().wrapping_add(start + AHEAD_BYTES).cast());
        for left in (0..patch_px).step_by(PIXELS) {
            let lanes = (patch_px - left).min(PIXELS);
            let at = row * patch_px + left;
            // SAFETY: the mask keeps the load within the patch's row, and masked bytes are not touched; stores end
            // within their plane.
            unsafe {
                let group = pixels.as_ptr().add(start + left * CHANNELS);
                let bytes = _mm512_maskz_loadu_epi8(u64::MAX >> (64 - lanes * CHANNELS), group.cast());
                let planes = froms.map(|from| _mm512_castsi512_si128(_mm512_permutexvar_epi8(from, bytes)));
                let mut target = stage.add(at);
                for values in planes {
                    for _ in 0..copies {
                        if at + PIXELS <= plane {
                            _mm_storeu_si128(target.cast(), values);
                        } else {
                            _mm_mask_storeu_epi8(target.cast(), u16::MAX >> (PIXELS - lanes), values);
                        }
                        target = target.wrapping_add(plane);
                    }
                }
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn convert<T: Element, A: Vectors, const STREAM: bool>(
    arithmetic: &A,
    channel: usize,
    bytes: &[u8],
    out: &mut [T],
) {
    // SAFETY: the CPU has the instructions.
    let registers = unsafe { arithmetic.registers(channel) };
    for at in (0..out.len()).step_by(lanes::<T>()) {
        // SAFETY: both sides hold a line at `at`, and that of the output is aligned.
        unsafe {
            let line = line::<T, A>(&registers, bytes.as_ptr().add(at));
            store::<STREAM>(line, out.as_mut_ptr().add(at).cast());
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn convert_seam<T: Element, A: Vectors, const STREAM: bool>(
    arithmetic: &A,
    channels: [usize; 2],
    split: usize,
    bytes: &[u8],
    out: &mut [T],
) {
    // SAFETY: the CPU has the instructions.
    let [first, second] = unsafe { [arithmetic.registers(channels[0]), arithmetic.registers(channels[1])] };
    // SAFETY: both sides hold a line, and that of the output is aligned.
    unsafe {
        let first = line::<T, A>(&first, bytes.as_ptr());
        let second = line::<T, A>(&second, bytes.as_ptr());
        store::<STREAM>(blend::<T>(first, second, split), out.as_mut_ptr().cast());
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn line<T: Element, A: Vectors>(registers: &A::Registers, bytes: *const u8) -> __m512i {
    // SAFETY: the caller's bytes are those of a line.
    unsafe {
        if !T::IS_BF16 {
            let wide = _mm512_cvtepu8_epi32(_mm_loadu_si128(bytes.cast()));
            return _mm512_castps_si512(A::values(registers, _mm512_cvtepi32_ps(wide)));
        }
        // Bytes at even and at odd places apart: each fills the half of a value that the other leaves free.
        let pairs = _mm512_cvtepu8_epi16(_mm256_loadu_si256(bytes.cast()));
        let even = _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff));
        let even = A::values(registers, _mm512_cvtepi32_ps(even));
        let odd = A::values(registers, _mm512_cvtepi32_ps(_mm512_srli_epi32::<16>(pairs)));
        let half_unit = _mm512_set1_epi32(0x8000);
        let even = _mm512_add_epi32(_mm512_castps_si512(even), half_unit);
        let odd = _mm512_add_epi32(_mm512_castps_si512(odd), half_unit);
        _mm512_mask_blend_epi16(0xaaaa_aaaa, _mm512_srli_epi32::<16>(even), odd)
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn blend<T: Element>(first: __m512i, second: __m512i, split: usize) -> __m512i {
    let second_lanes = u32::MAX << split;
    if T::IS_BF16 {
        _mm512_mask_blend_epi16(second_lanes, first, second)
    } else {
        _mm512_mask_blend_epi32(second_lanes as __mmask16, first, second)
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn store<const STREAM: bool>(line: __m512i, out: *mut __m512i) {
    // SAFETY: the caller's line is aligned.
    unsafe {
        if STREAM {
            _mm512_stream_si512(out, line);
        } else {
            _mm512_store_si512(out, line);
        }
    }
}
