//! The horizontal pass: rows are transposed a tile at a time, so that what runs is the vertical kernel.
#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::ops::Range;

use super::super::layout::{CHUNK_ROWS, Chunk, Rows};
use super::super::tiles::Tiles;
use super::super::windows::Ends;
use super::transpose::transpose;
use super::{COLUMN_BYTES, check, weighted};

/// Resamples a chunk of rows along x, for output pixels `pixels`, into groups of `GROUP` rows: 2 or 4.
pub fn horizontal<const GROUP: usize>(
    tiles: &Tiles,
    channels: usize,
    source: &Rows,
    first_row: usize,
    pixels: Range<usize>,
    scratch: &mut [u8],
    chunk: Chunk,
) {
    check();
    assert!(chunk.groups.len() >= CHUNK_ROWS / GROUP * chunk.stride);
    assert!(pixels.len().next_multiple_of(8) * channels * GROUP <= chunk.stride);
    let pass = Pass { tiles, source, first_row };
    // SAFETY: AVX2 was checked.
    unsafe {
        match channels {
            1 => pass.run::<GROUP, 1>(pixels, scratch, chunk),
            4 => pass.run::<GROUP, 4>(pixels, scratch, chunk),
            _ => pass.run::<GROUP, 3>(pixels, scratch, chunk),
        }
    }
}

struct Pass<'a> {
    tiles: &'a Tiles,
    source: &'a Rows<'a>,
    first_row: usize,
}

impl Pass<'_> {
    #[target_feature(enable = "avx2")]
    fn run<const GROUP: usize, const CHANNELS: usize>(
        &self,
        pixels: Range<usize>,
        scratch: &mut [u8],
        mut chunk: Chunk,
    ) {
        let Tiles { windows: table, tile_pixels, .. } = self.tiles;
        let stride = CHANNELS * COLUMN_BYTES;
        // Cleared once: what a last run of fewer than eight pixels leaves here goes where nobody looks.
        let mut words = [_mm256_setzero_si256(); 32];
        for start in pixels.clone().step_by(*tile_pixels) {
            let tile = start..pixels.end.min(start + tile_pixels);
            let Range { start: first, end } = table.span(&tile);
            transpose::<CHANNELS>(self.source, self.first_row, first..end, table.phase(), scratch);
            assert!(scratch.len() >= (end - first) * stride);
            let mut ahead = if tile.end < pixels.end {
                Ahead::new::<CHANNELS>(self.source, self.first_row, &(first..end), end, tile.len())
            } else {
                let next = table.span(&(pixels.start..pixels.start + 1)).start;
                Ahead::new::<CHANNELS>(
                    self.source,
                    self.first_row + CHUNK_ROWS,
                    &(first..end),
                    next,
                    tile.len(),
                )
            };
            // Where the columns would begin if they were of all pixels.
            let columns = scratch.as_ptr().wrapping_sub(first * stride);
            let mut weights = table.weights_from::<2>(tile.start);
            let windows = &table.windows()[tile];
            for (eight, windows) in windows.chunks(8).enumerate() {
                ahead.next_eight();
                for (window, words) in windows.iter().zip(words.as_chunks_mut::<CHANNELS>().0) {
                    ahead.fetch_two_rows();
                    let columns = columns.wrapping_add(window.first() * stride);
                    // SAFETY: the span of the tile's windows begins at `first` and lies within the scratch memory;
                    // the weights of the windows follow each other.
                    unsafe {
                        let (lanes, rest) = weights.split_at_unchecked(window.groups());
                        pixel(lanes, window.ends(), columns, words);
                        weights = rest;
                    }
                }
                let value = (start - pixels.start + 8 * eight) * CHANNELS;
                for (index, words) in words[..8 * CHANNELS].as_chunks().0.iter().enumerate() {
                    store_eight::<GROUP>(words, &mut chunk, value + 8 * index);
                }
            }
        }
    }
}

// Fetches what the next tile will be transposed from while the sums of this one, which need no memory, are made: two
// rows for each pixel, so all rows of a chunk for eight, and never so many that a load must wait for them.
struct Ahead {
    eight: *const u8,
    row: *const u8,
    row_bytes: usize,
    // Bytes of a row for eight pixels; 0 to fetch nothing.
    step: usize,
}

impl Ahead {
    // Of fewer bytes for eight pixels, the processor's own guesses are in time.
    const FEWEST_BYTES: usize = 32;

    // The next tile begins with pair `next`, and is as long as that of `pairs`, for so many pixels.
    fn new<const CHANNELS: usize>(
        source: &Rows,
        first_row: usize,
        pairs: &Range<usize>,
        next: usize,
        pixels: usize,
    ) -> Self {
        let pair_bytes = 2 * CHANNELS;
        let step = pairs.len() * pair_bytes / pixels.div_ceil(8);
        let eight = source.tail_from(first_row).as_ptr().wrapping_add(next * pair_bytes).wrapping_sub(step);
        let step = if step < Self::FEWEST_BYTES { 0 } else { step };
        Self { eight, row: eight, row_bytes: source.row_bytes, step }
    }

    #[inline]
    fn next_eight(&mut self) {
        self.eight = self.eight.wrapping_add(self.step);
        self.row = self.eight;
    }

    #[inline]
    fn fetch_two_rows(&mut self) {
        if self.step > 0 {
            let second = self.row.wrapping_add(self.row_bytes);
            // SAFETY: a prefetch of any address is without effect on the program.
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(self.row.cast());
                _mm_prefetch::<_MM_HINT_T0>(second.cast());
            }
            self.row = second.wrapping_add(self.row_bytes);
        }
    }
}

/// # Safety
/// `columns` must begin `lanes.len()` readable groups of a column for each channel; the rest as for [`weighted`].
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn pixel<const CHANNELS: usize>(
    lanes: &[[i32; 2]],
    ends: Ends,
    columns: *const u8,
    words: &mut [__m256i; CHANNELS],
) {
    let stride = CHANNELS * COLUMN_BYTES;
    // SAFETY: by the caller.
    unsafe {
        if CHANNELS == 4 {
            // The sums of four columns would not fit the registers.
            words[..2].copy_from_slice(&weighted::<2>(columns, stride, lanes, ends));
            words[2..].copy_from_slice(&weighted::<2>(columns.add(2 * COLUMN_BYTES), stride, lanes, ends));
        } else {
            *words = weighted(columns, stride, lanes, ends);
        }
    }
}

// The words of 16 rows for eight output values become eight lanes of each group.
#[inline]
#[target_feature(enable = "avx2")]
fn store_eight<const GROUP: usize>(words: &[__m256i; 8], chunk: &mut Chunk, value: usize) {
    let (stride, at) = (chunk.stride, GROUP * value);
    assert!((CHUNK_ROWS / GROUP - 1) * stride + at + 8 * GROUP <= chunk.groups.len());
    // Bytes of two values each, for eight rows in both halves: lanes of two rows, or of four.
    if GROUP == 2 {
        let fourths: [__m256i; 4] = std::array::from_fn(|at| _mm256_packus_epi16(words[at], words[at + 4]));
        for (two, lanes) in transpose_halves(fourths).into_iter().enumerate() {
            // SAFETY: of the eight groups of the chunk, the last has room for 16 bytes here.
            unsafe { store_halves(lanes, chunk.groups.as_mut_ptr().add(two * stride + at), 4 * stride) };
        }
    } else {
        let twos: [__m256i; 4] =
            std::array::from_fn(|at| _mm256_packus_epi16(words[2 * at], words[2 * at + 1]));
        for (half, twos) in twos.chunks_exact(2).enumerate() {
            let evens = _mm256_shuffle_epi32::<0b11_01_10_00>(twos[0]);
            let odds = _mm256_shuffle_epi32::<0b11_01_10_00>(twos[1]);
            let quads = [_mm256_unpacklo_epi64(evens, odds), _mm256_unpackhi_epi64(evens, odds)];
            for (quad, lanes) in quads.into_iter().enumerate() {
                let at = quad * stride + at + 16 * half;
                // SAFETY: of the four groups of the chunk, the last has room for 32 bytes here.
                unsafe { store_halves(lanes, chunk.groups.as_mut_ptr().add(at), 2 * stride) };
            }
        }
    }
}

/// # Safety
/// 16 bytes must be writable at `to`, and `distance` behind it.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store_halves(lanes: __m256i, to: *mut u8, distance: usize) {
    // SAFETY: by the caller.
    unsafe {
        _mm_storeu_si128(to.cast(), _mm256_castsi256_si128(lanes));
        _mm_storeu_si128(to.add(distance).cast(), _mm256_extracti128_si256::<1>(lanes));
    }
}

// Each half has four lanes of 16 bits for a value, then those for the value four on: they become eight values of a lane.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose_halves([a, b, c, d]: [__m256i; 4]) -> [__m256i; 4] {
    let (ab, cd) = (_mm256_unpacklo_epi16(a, b), _mm256_unpacklo_epi16(c, d));
    let (ef, gh) = (_mm256_unpackhi_epi16(a, b), _mm256_unpackhi_epi16(c, d));
    let low = [_mm256_unpacklo_epi32(ab, cd), _mm256_unpackhi_epi32(ab, cd)];
    let high = [_mm256_unpacklo_epi32(ef, gh), _mm256_unpackhi_epi32(ef, gh)];
    [
        _mm256_unpacklo_epi64(low[0], high[0]),
        _mm256_unpackhi_epi64(low[0], high[0]),
        _mm256_unpacklo_epi64(low[1], high[1]),
        _mm256_unpackhi_epi64(low[1], high[1]),
    ]
}
