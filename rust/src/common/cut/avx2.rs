//! AVX2: a cache line of values at a time, in two halves.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::lines::{AHEAD_BYTES, Kernel, LINE_BYTES, lanes};
use super::{Block, Order, Source, scalar};
use crate::common::normalise::{CHANNELS, Constant, Element, Line, Steps};
use crate::common::simd::Level;

// Pixels of a row that three loads and three byte shuffles take apart.
const PIXELS: usize = 16;
const GROUP_BYTES: usize = PIXELS * CHANNELS;

/// Conversion by arithmetic `A`, past the cache if `STREAM`.
pub struct Avx2<'a, A, const STREAM: bool>(&'a A);

impl<'a, A, const STREAM: bool> Avx2<'a, A, STREAM> {
    /// The kernel for some constants.
    pub fn new(arithmetic: &'a A) -> Self {
        assert!(Level::Avx2.is_available());
        Self(arithmetic)
    }
}

impl<A, const STREAM: bool> Drop for Avx2<'_, A, STREAM> {
    fn drop(&mut self) {
        if STREAM {
            // Streamed stores are not ordered by what hands the buffer to the next thread.
            // SAFETY: every x86-64 CPU has SSE.
            unsafe { _mm_sfence() };
        }
    }
}

impl<T: Element, A: Vectors, const STREAM: bool> Kernel<T> for Avx2<'_, A, STREAM> {
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
#[target_feature(enable = "avx2,fma")]
fn constants<const CHANNEL: u8>(constant: &Constant, first: usize) -> __m256 {
    let lanes = match CHANNEL {
        ONE_CHANNEL => return _mm256_set1_ps(constant.channel[first]),
        SIDE_BY_SIDE => &constant.side_by_side[first],
        _ => &constant.every_second[first],
    };
    // SAFETY: the array has the bytes of the longest vector.
    unsafe { _mm256_loadu_ps(lanes.as_ptr()) }
}

/// Arithmetic on vectors.
pub trait Vectors {
    /// Constants of a vector.
    type Registers: Copy;
    // SAFETY: the CPU must have AVX2 and FMA.
    unsafe fn registers<const CHANNEL: u8>(&self, first: usize) -> Self::Registers;
    // SAFETY: the CPU must have AVX2 and FMA.
    unsafe fn values(registers: &Self::Registers, bytes: __m256) -> __m256;
}

impl Vectors for Steps {
    type Registers = [__m256; 5];

    #[inline]
    #[target_feature(enable = "avx2,fma")]
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
    #[target_feature(enable = "avx2,fma")]
    unsafe fn values(
        &[high, low, mean, inverse_high, inverse_low]: &Self::Registers,
        bytes: __m256,
    ) -> __m256 {
        let scaled = _mm256_fmadd_ps(bytes, high, _mm256_mul_ps(bytes, low));
        let centred = _mm256_sub_ps(scaled, mean);
        _mm256_fmadd_ps(centred, inverse_high, _mm256_mul_ps(centred, inverse_low))
    }
}

impl Vectors for Line {
    type Registers = [__m256; 2];

    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn registers<const CHANNEL: u8>(&self, first: usize) -> Self::Registers {
        [constants::<CHANNEL>(&self.factor, first), constants::<CHANNEL>(&self.offset, first)]
    }

    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn values(&[factor, offset]: &Self::Registers, bytes: __m256) -> __m256 {
        _mm256_fmadd_ps(bytes, factor, offset)
    }
}

/// [`scalar::pack`] in the widest moves.
#[target_feature(enable = "avx2")]
fn pack(source: Source<'_>, block: &Block, stage: &mut [u8]) {
    scalar::pack(source, block, stage);
}

#[target_feature(enable = "avx2")]
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
#[target_feature(enable = "avx2")]
unsafe fn gather_copies<const COPIES: usize>(source: Source<'_>, block: &Block, stage: *mut u8) {
    let Source { pixels, row_bytes, start } = source;
    let &Block { rows, columns, copies, .. } = block;
    let copies = if COPIES > 0 { COPIES } else { copies };
    let (plane, (channel_step, copy_step)) = (rows * columns, block.steps());
    for row in 0..rows {
        let start = start + row * row_bytes;
        _mm_prefetch::<_MM_HINT_T0>(pixels.as_ptr().wrapping_add(start + AHEAD_BYTES).cast());
        for left in (0..columns).step_by(PIXELS) {
            let at = row * columns + left;
            let from = start + left * CHANNELS;
            // A group may reach beyond its block; only the last ones of the picture reach beyond the pixels.
            let mut tail = [0; GROUP_BYTES];
            let group = if from + GROUP_BYTES <= pixels.len() {
                pixels[from..].as_ptr()
            } else {
                tail[..pixels.len() - from].copy_from_slice(&pixels[from..]);
                tail.as_ptr()
            };
            // SAFETY: the group has 48 bytes; stores end within their plane.
            unsafe {
                let planes = split(group);
                for (channel, values) in planes.into_iter().enumerate() {
                    let mut target = stage.add(at + channel * channel_step);
                    for _ in 0..copies {
                        if at + PIXELS <= plane {
                            _mm_storeu_si128(target.cast(), values);
                        } else {
                            store_some(values, target, (columns - left).min(PIXELS));
                        }
                        target = target.wrapping_add(copy_step);
                    }
                }
            }
        }
    }
}

// Sixteen pixels to the sixteen bytes of each channel.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn split(group: *const u8) -> [__m128i; CHANNELS] {
    // SAFETY: the caller's group has 48 bytes; loads need no alignment.
    unsafe {
        let parts = [
            _mm_loadu_si128(group.cast()),
            _mm_loadu_si128(group.add(16).cast()),
            _mm_loadu_si128(group.add(32).cast()),
        ];
        let mut planes = [_mm_setzero_si128(); CHANNELS];
        for (plane, shuffles) in planes.iter_mut().zip(&SHUFFLES) {
            for (&part, shuffle) in parts.iter().zip(shuffles) {
                let shuffled = _mm_shuffle_epi8(part, _mm_loadu_si128(shuffle.as_ptr().cast()));
                *plane = _mm_or_si128(*plane, shuffled);
            }
        }
        planes
    }
}

// Where the 16 bytes of each channel come from, in each 16 of 48 bytes.
const SHUFFLES: [[[i8; PIXELS]; 3]; CHANNELS] = {
    let mut shuffles = [[[-1; PIXELS]; 3]; CHANNELS];
    let mut at = 0;
    while at < GROUP_BYTES {
        shuffles[at % CHANNELS][at / 16][at / CHANNELS] = (at % 16) as i8;
        at += 1;
    }
    shuffles
};

// The first `lanes` bytes; eight or more as two overlapping halves, which do not go through memory.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store_some(values: __m128i, target: *mut u8, lanes: usize) {
    let halves =
        [_mm_cvtsi128_si64(values), _mm_extract_epi64::<1>(values)].map(|half| u128::from(half as u64));
    let bytes = halves[0] | halves[1] << 64;
    // SAFETY: the caller's target holds `lanes` bytes, and they are no more than 16.
    unsafe {
        if lanes >= 8 {
            target.cast::<u64>().write_unaligned(bytes as u64);
            target.add(lanes - 8).cast::<u64>().write_unaligned((bytes >> (8 * (lanes - 8))) as u64);
        } else {
            target.copy_from_nonoverlapping(bytes.to_le_bytes().as_ptr(), lanes);
        }
    }
}

#[target_feature(enable = "avx2,fma")]
unsafe fn convert<T: Element, A: Vectors, const STREAM: bool>(
    arithmetic: &A,
    channel: usize,
    bytes: &[u8],
    out: &mut [T],
) {
    // SAFETY: the CPU has the instructions.
    let registers = unsafe { arithmetic.registers::<ONE_CHANNEL>(channel) };
    for at in (0..out.len()).step_by(lanes::<T>() / 2) {
        // SAFETY: both sides hold half a line at `at`, and that of the output is aligned.
        unsafe {
            let half = half_line::<T, A>(&registers, &registers, bytes.as_ptr().add(at));
            store::<STREAM>(half, out.as_mut_ptr().add(at).cast());
        }
    }
}

#[target_feature(enable = "avx2,fma")]
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
    for at in [0, lanes::<T>() / 2] {
        // SAFETY: both sides hold half a line at `at`, and that of the output is aligned.
        unsafe {
            let bytes = bytes.as_ptr().add(at);
            let (first, second) =
                (half_line::<T, A>(&first, &first, bytes), half_line::<T, A>(&second, &second, bytes));
            let blended = blend::<T>(first, second, split as i32 - at as i32);
            store::<STREAM>(blended, out.as_mut_ptr().add(at).cast());
        }
    }
}

// Three vectors are whole pixels, so each of three has constants of its own, which stay in registers.
#[target_feature(enable = "avx2,fma")]
unsafe fn convert_pixels<T: Element, A: Vectors, const STREAM: bool>(
    arithmetic: &A,
    first: usize,
    bytes: &[u8],
    out: &mut [T],
) {
    let step = lanes::<T>() / 2;
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
            // SAFETY: both sides hold half a line at `at`, and that of the output is aligned.
            unsafe {
                let values = half_line::<T, A>(&registers[index], &odds[index], bytes.as_ptr().add(at));
                store::<STREAM>(values, out.as_mut_ptr().add(at).cast());
            }
            at += step;
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn half_line<T: Element, A: Vectors>(
    even_registers: &A::Registers,
    odd_registers: &A::Registers,
    bytes: *const u8,
) -> __m256i {
    // SAFETY: the caller's bytes are those of half a line.
    unsafe {
        if !T::IS_BF16 {
            let wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64(bytes.cast()));
            return _mm256_castps_si256(A::values(even_registers, _mm256_cvtepi32_ps(wide)));
        }
        // Bytes at even and at odd places apart: each fills the half of a value that the other leaves free.
        let pairs = _mm256_cvtepu8_epi16(_mm_loadu_si128(bytes.cast()));
        let even = _mm256_and_si256(pairs, _mm256_set1_epi32(0xffff));
        let even = A::values(even_registers, _mm256_cvtepi32_ps(even));
        let odd = A::values(odd_registers, _mm256_cvtepi32_ps(_mm256_srli_epi32::<16>(pairs)));
        let half_unit = _mm256_set1_epi32(0x8000);
        let even = _mm256_add_epi32(_mm256_castps_si256(even), half_unit);
        let odd = _mm256_add_epi32(_mm256_castps_si256(odd), half_unit);
        _mm256_blend_epi16::<0b1010_1010>(_mm256_srli_epi32::<16>(even), odd)
    }
}

// The first `split` values of `first`, the others of `second`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn blend<T: Element>(first: __m256i, second: __m256i, split: i32) -> __m256i {
    let firsts = if T::IS_BF16 {
        let lanes = _mm256_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        _mm256_cmpgt_epi16(_mm256_set1_epi16(split as i16), lanes)
    } else {
        _mm256_cmpgt_epi32(_mm256_set1_epi32(split), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
    };
    _mm256_blendv_epi8(second, first, firsts)
}

#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store<const STREAM: bool>(half: __m256i, out: *mut __m256i) {
    // SAFETY: the caller's half of a line is aligned.
    unsafe {
        if STREAM {
            _mm256_stream_si256(out, half);
        } else {
            _mm256_store_si256(out, half);
        }
    }
}
