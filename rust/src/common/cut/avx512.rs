//! AVX-512: a cache line of values at a time.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::lines::{AHEAD_BYTES, Kernel, LINE_BYTES, lanes};
use super::{Block, Order, Source, scalar};
use crate::common::normalise::{CHANNELS, Constant, Element, Line, Steps};
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
    fn gather(&self, source: Source<'_>, block: &Block, stage: &mut [u8]) {
        let last_row = source.start + (block.rows - 1) * source.row_bytes;
        assert!(last_row + block.columns * CHANNELS <= source.pixels.len());
        assert!(stage.len() >= block.values());
        // SAFETY: the block's last pixel is within the pixels and the stage holds the block, as was just checked;
        // the CPU has the instructions.
        unsafe {
            if block.order == Order::Interleaved {
                pack(source, block, stage);
            } else {
                gather(source, block, stage.as_mut_ptr());
            }
        }
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

    fn convert_pixels(&self, first: usize, bytes: &[u8], out: &mut [T]) {
        assert!(bytes.len() == out.len() && out.len().is_multiple_of(lanes::<T>()));
        assert!((out.as_ptr() as usize).is_multiple_of(LINE_BYTES));
        // SAFETY: length and alignment were just checked; the CPU has the instructions.
        unsafe { convert_pixels::<T, A, STREAM>(self.0, first, bytes, out) }
    }
}

// Which channels the values of a vector are of.
const ONE_CHANNEL: u8 = 0;
const SIDE_BY_SIDE: u8 = 1;
const EVERY_SECOND: u8 = 2;

#[inline]
#[target_feature(enable = "avx512f")]
fn constants<const CHANNEL: u8>(constant: &Constant, first: usize) -> __m512 {
    let lanes = match CHANNEL {
        ONE_CHANNEL => return _mm512_set1_ps(constant.channel[first]),
        SIDE_BY_SIDE => &constant.side_by_side[first],
        _ => &constant.every_second[first],
    };
    // SAFETY: the array has the bytes of the longest vector.
    unsafe { _mm512_loadu_ps(lanes.as_ptr()) }
}

/// Arithmetic on vectors.
pub trait Vectors {
    /// Constants of a vector.
    type Registers: Copy;
    // SAFETY: the CPU must have AVX-512 F.
    unsafe fn registers<const CHANNEL: u8>(&self, first: usize) -> Self::Registers;
    // SAFETY: the CPU must have AVX-512 F.
    unsafe fn values(registers: &Self::Registers, bytes: __m512) -> __m512;
}

impl Vectors for Steps {
    type Registers = [__m512; 5];

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn registers<const CHANNEL: u8>(&self, first: usize) -> Self::Registers {
        [
            constants::<CHANNEL>(&self.high, first),
            constants::<CHANNEL>(&self.low, first),
            constants::<CHANNEL>(&self.mean, first),
            constants::<CHANNEL>(&self.inverse_high, first),
            constants::<CHANNEL>(&self.inverse_low, first),
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
    unsafe fn registers<const CHANNEL: u8>(&self, first: usize) -> Self::Registers {
        [constants::<CHANNEL>(&self.factor, first), constants::<CHANNEL>(&self.offset, first)]
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn values(&[factor, offset]: &Self::Registers, bytes: __m512) -> __m512 {
        _mm512_fmadd_ps(bytes, factor, offset)
    }
}

/// [`scalar::pack`] in the widest moves.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn pack(source: Source<'_>, block: &Block, stage: &mut [u8]) {
    scalar::pack(source, block, stage);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
unsafe fn gather(source: Source<'_>, block: &Block, stage: *mut u8) {
    // SAFETY: as the caller's; `COPIES` is that of the block, or none.
    unsafe {
        match block.copies {
            1 => gather_copies::<1>(source, block, stage),
            2 => gather_copies::<2>(source, block, stage),
            _ => gather_copies::<0>(source, block, stage),
        }
    }
}

// Row by row: what a store writes beyond its row, that of the next puts right; at the end of a plane it writes none.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
unsafe fn gather_copies<const COPIES: usize>(source: Source<'_>, block: &Block, stage: *mut u8) {
    let Source { pixels, row_bytes, start } = source;
    let &Block { rows, columns, copies, .. } = block;
    let copies = if COPIES > 0 { COPIES } else { copies };
    let (plane, (channel_step, copy_step)) = (rows * columns, block.steps());
    let froms: [_; CHANNELS] = std::array::from_fn(|channel| {
        let channel = _mm_set1_epi8(channel as i8);
        _mm512_castsi128_si512(_mm_add_epi8(
            _mm_setr_epi8(0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39, 42, 45),
            channel,
        ))
    });
    for row in 0..rows {
        let start = start + row * row_bytes;
        _mm_prefetch::<_MM_HINT_T0>(pixels.as_ptr().wrapping_add(start + AHEAD_BYTES).cast());
        for left in (0..columns).step_by(PIXELS) {
            let lanes = (columns - left).min(PIXELS);
            let at = row * columns + left;
            // SAFETY: the mask keeps the load within the block's row, and masked bytes are not touched; stores end
            // within their plane.
            unsafe {
                let group = pixels.as_ptr().add(start + left * CHANNELS);
                let bytes = _mm512_maskz_loadu_epi8(u64::MAX >> (64 - lanes * CHANNELS), group.cast());
                let planes = froms.map(|from| _mm512_castsi512_si128(_mm512_permutexvar_epi8(from, bytes)));
                for (channel, values) in planes.into_iter().enumerate() {
                    let mut target = stage.add(at + channel * channel_step);
                    for _ in 0..copies {
                        if at + PIXELS <= plane {
                            _mm_storeu_si128(target.cast(), values);
                        } else {
                            _mm_mask_storeu_epi8(target.cast(), u16::MAX >> (PIXELS - lanes), values);
                        }
                        target = target.wrapping_add(copy_step);
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
    let registers = unsafe { arithmetic.registers::<ONE_CHANNEL>(channel) };
    for at in (0..out.len()).step_by(lanes::<T>()) {
        // SAFETY: both sides hold a line at `at`, and that of the output is aligned.
        unsafe {
            let line = line::<T, A>(&registers, &registers, bytes.as_ptr().add(at));
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
    let [first, second] = unsafe {
        [arithmetic.registers::<ONE_CHANNEL>(channels[0]), arithmetic.registers::<ONE_CHANNEL>(channels[1])]
    };
    // SAFETY: both sides hold a line, and that of the output is aligned.
    unsafe {
        let first = line::<T, A>(&first, &first, bytes.as_ptr());
        let second = line::<T, A>(&second, &second, bytes.as_ptr());
        store::<STREAM>(blend::<T>(first, second, split), out.as_mut_ptr().cast());
    }
}

// Three vectors are whole pixels, so each of three has constants of its own, which stay in registers.
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn convert_pixels<T: Element, A: Vectors, const STREAM: bool>(
    arithmetic: &A,
    first: usize,
    bytes: &[u8],
    out: &mut [T],
) {
    let step = lanes::<T>();
    let firsts: [usize; CHANNELS] = std::array::from_fn(|at| (first + at * step) % CHANNELS);
    // SAFETY: the CPU has the instructions.
    let registers = firsts.map(|first| unsafe {
        if T::IS_BF16 {
            arithmetic.registers::<EVERY_SECOND>(first)
        } else {
            arithmetic.registers::<SIDE_BY_SIDE>(first)
        }
    });
    // Values at odd places begin with the next channel.
    let odds: [A::Registers; CHANNELS] = std::array::from_fn(|at| registers[(at + step) % CHANNELS]);
    let mut at = 0;
    while at < out.len() {
        for index in 0..CHANNELS {
            if at >= out.len() {
                return;
            }
            // SAFETY: both sides hold a line at `at`, and that of the output is aligned.
            unsafe {
                let values = line::<T, A>(&registers[index], &odds[index], bytes.as_ptr().add(at));
                store::<STREAM>(values, out.as_mut_ptr().add(at).cast());
            }
            at += step;
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn line<T: Element, A: Vectors>(
    even_registers: &A::Registers,
    odd_registers: &A::Registers,
    bytes: *const u8,
) -> __m512i {
    // SAFETY: the caller's bytes are those of a line.
    unsafe {
        if !T::IS_BF16 {
            let wide = _mm512_cvtepu8_epi32(_mm_loadu_si128(bytes.cast()));
            return _mm512_castps_si512(A::values(even_registers, _mm512_cvtepi32_ps(wide)));
        }
        // Bytes at even and at odd places apart: each fills the half of a value that the other leaves free.
        let pairs = _mm512_cvtepu8_epi16(_mm256_loadu_si256(bytes.cast()));
        let even = _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff));
        let even = A::values(even_registers, _mm512_cvtepi32_ps(even));
        let odd = A::values(odd_registers, _mm512_cvtepi32_ps(_mm512_srli_epi32::<16>(pairs)));
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
