//! The horizontal pass: rows are transposed a tile at a time, so that what runs is the vertical kernel.
#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::ops::Range;

use super::super::kernels::{CHUNK_QUADS, Chunk, Rows};
use super::super::tiles::{COLUMN_BYTES, Tiles, span};
use super::super::windows::Window;
use super::transpose::transpose;
use super::{check, weighted};

/// Resamples a chunk of rows along x, for output pixels `pixels`, into quads of rows.
pub fn horizontal(
    tiles: &Tiles,
    channels: usize,
    source: &Rows,
    first_row: usize,
    pixels: Range<usize>,
    scratch: &mut [u8],
    chunk: Chunk,
) {
    check();
    assert!(chunk.quads.len() >= CHUNK_QUADS * chunk.stride && pixels.end <= tiles.windows.windows.len());
    assert!((pixels.len().next_multiple_of(4)) * channels * 4 <= chunk.stride);
    let pass = Pass { tiles, source, first_row };
    // SAFETY: AVX2 was checked.
    unsafe {
        match channels {
            1 => pass.run::<1>(pixels, scratch, chunk),
            4 => pass.run::<4>(pixels, scratch, chunk),
            _ => pass.run::<3>(pixels, scratch, chunk),
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
    fn run<const CHANNELS: usize>(&self, pixels: Range<usize>, scratch: &mut [u8], mut chunk: Chunk) {
        let Tiles { windows: table, tile_pixels, .. } = self.tiles;
        // Cleared once: what a last group of fewer than four pixels leaves here goes where nobody looks.
        let mut sums = [[_mm256_setzero_si256(); 2]; 16];
        for (tile, windows) in table.windows[pixels].chunks(*tile_pixels).enumerate() {
            let (first, end) = span(windows);
            transpose::<CHANNELS>(self.source, self.first_row, first, end, scratch);
            for (group, four) in windows.chunks(4).enumerate() {
                for (window, sums) in four.iter().zip(sums.chunks_exact_mut(CHANNELS)) {
                    let column = (window.first - first) * CHANNELS * COLUMN_BYTES;
                    let used = window.quads * CHANNELS * COLUMN_BYTES;
                    pixel::<CHANNELS>(window, table.lanes(window), &scratch[column..column + used], sums);
                }
                let value = (tile * tile_pixels + 4 * group) * CHANNELS;
                for (index, four) in sums[..4 * CHANNELS].chunks_exact(4).enumerate() {
                    store_four(four, &mut chunk, value + 4 * index);
                }
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn pixel<const CHANNELS: usize>(
    window: &Window,
    lanes: &[[i32; 3]],
    columns: &[u8],
    sums: &mut [[__m256i; 2]],
) {
    assert!(columns.len() >= lanes.len() * CHANNELS * COLUMN_BYTES);
    // Of known lengths the loops over quads are unrolled.
    match lanes.len() {
        2 => pixel_of::<CHANNELS>(window, &lanes[..2], columns, sums),
        3 => pixel_of::<CHANNELS>(window, &lanes[..3], columns, sums),
        4 => pixel_of::<CHANNELS>(window, &lanes[..4], columns, sums),
        _ => pixel_of::<CHANNELS>(window, lanes, columns, sums),
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn pixel_of<const CHANNELS: usize>(
    window: &Window,
    lanes: &[[i32; 3]],
    columns: &[u8],
    sums: &mut [[__m256i; 2]],
) {
    let columns = columns.as_ptr();
    // SAFETY: `pixel` has checked the columns.
    unsafe {
        match (window.skips_front, window.skips_back) {
            (false, false) => channels::<CHANNELS, false, false>(columns, lanes, sums),
            (false, true) => channels::<CHANNELS, false, true>(columns, lanes, sums),
            (true, false) => channels::<CHANNELS, true, false>(columns, lanes, sums),
            (true, true) => channels::<CHANNELS, true, true>(columns, lanes, sums),
        }
    }
}

/// # Safety
/// `columns` must begin `lanes.len() * CHANNELS` readable columns.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn channels<const CHANNELS: usize, const FRONT: bool, const BACK: bool>(
    columns: *const u8,
    lanes: &[[i32; 3]],
    sums: &mut [[__m256i; 2]],
) {
    for (channel, sums) in sums[..CHANNELS].iter_mut().enumerate() {
        // SAFETY: by the caller; the channels' columns alternate.
        *sums = unsafe {
            weighted::<FRONT, BACK>(columns.add(channel * COLUMN_BYTES), CHANNELS * COLUMN_BYTES, lanes)
        };
    }
}

// The sums of 16 rows for four output values become four lanes of four quads.
#[inline]
#[target_feature(enable = "avx2")]
fn store_four(four: &[[__m256i; 2]], chunk: &mut Chunk, value: usize) {
    let (a, b, c, d) = (four[0], four[1], four[2], four[3]);
    let halves = [
        _mm256_packus_epi16(_mm256_packs_epi32(a[0], b[0]), _mm256_packs_epi32(c[0], d[0])),
        _mm256_packus_epi16(_mm256_packs_epi32(a[1], b[1]), _mm256_packs_epi32(c[1], d[1])),
    ];
    let stride = chunk.stride;
    for (half, bytes) in halves.into_iter().enumerate() {
        let at = 2 * half * stride + 4 * value;
        assert!(at + stride + 16 <= chunk.quads.len());
        // SAFETY: both stores end before the end of `quads`.
        unsafe {
            let to = chunk.quads.as_mut_ptr().add(at);
            _mm_storeu_si128(to.cast(), _mm256_castsi256_si128(bytes));
            _mm_storeu_si128(to.add(stride).cast(), _mm256_extracti128_si256::<1>(bytes));
        }
    }
}
