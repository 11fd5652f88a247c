//! The horizontal pass: rows are transposed a tile at a time, so that what runs is the vertical kernel.
#![allow(unsafe_code)]

use std::arch::aarch64::*;
use std::ops::Range;

use super::super::layout::{CHUNK_QUADS, Chunk, Rows};
use super::super::tiles::Tiles;
use super::{COLUMN_BYTES, VECTOR_BYTES, load, weighted};

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
    assert!(chunk.groups.len() >= CHUNK_QUADS * chunk.stride && pixels.end <= tiles.windows.windows().len());
    assert!(pixels.len() * channels * 4 <= chunk.stride);
    // SAFETY: aarch64 has NEON.
    unsafe {
        match channels {
            1 => run::<1>(tiles, source, first_row, pixels, scratch, chunk),
            4 => run::<4>(tiles, source, first_row, pixels, scratch, chunk),
            _ => run::<3>(tiles, source, first_row, pixels, scratch, chunk),
        }
    }
}

#[target_feature(enable = "neon")]
fn run<const CHANNELS: usize>(
    tiles: &Tiles,
    source: &Rows,
    first_row: usize,
    pixels: Range<usize>,
    scratch: &mut [u8],
    chunk: Chunk,
) {
    let table = &tiles.windows;
    for (tile, windows) in table.windows()[pixels.clone()].chunks(tiles.tile_pixels).enumerate() {
        let start = pixels.start + tile * tiles.tile_pixels;
        let Range { start: first, end } = table.span(&(start..start + windows.len()));
        transpose::<CHANNELS>(source, first_row, first, end, scratch);
        for (index, window) in windows.iter().enumerate() {
            let (lanes, stride) = (window.lanes(table.weights()), CHANNELS * COLUMN_BYTES);
            let column = (window.first() - first) * stride;
            let columns = &scratch[column..column + window.groups() * stride];
            for channel in 0..CHANNELS {
                // SAFETY: each channel's run of columns, CHANNELS apart, lies within `columns`.
                let values = unsafe { weighted(columns.as_ptr().add(channel * COLUMN_BYTES), stride, lanes) };
                let mut rows = [0_u8; VECTOR_BYTES];
                // SAFETY: the array has 16 bytes.
                unsafe { vst1q_u8(rows.as_mut_ptr(), values) };
                let value = (tile * tiles.tile_pixels + index) * CHANNELS + channel;
                for (quad, rows) in rows.chunks_exact(4).enumerate() {
                    let at = quad * chunk.stride + 4 * value;
                    chunk.groups[at..at + 4].copy_from_slice(rows);
                }
            }
        }
    }
}

// Source pixels `4 * first .. 4 * end` of every row of the chunk become columns.
#[target_feature(enable = "neon")]
fn transpose<const CHANNELS: usize>(
    source: &Rows,
    first_row: usize,
    first: usize,
    end: usize,
    columns: &mut [u8],
) {
    let mut order = [0xff_u8; VECTOR_BYTES];
    for (byte, order) in order[..4 * CHANNELS].iter_mut().enumerate() {
        *order = (byte % 4 * CHANNELS + byte / 4) as u8;
    }
    let order = load(&order);
    for place in 0..4 * CHUNK_QUADS {
        let row = source.tail_from(first_row + place);
        for quad in first..end {
            let offset = quad * 4 * CHANNELS;
            let pixels = vqtbl1q_u8(load(row.get(offset..).unwrap_or(&[])), order);
            let mut bytes = [0_u8; VECTOR_BYTES];
            // SAFETY: the array has 16 bytes.
            unsafe { vst1q_u8(bytes.as_mut_ptr(), pixels) };
            for channel in 0..CHANNELS {
                let at = ((quad - first) * CHANNELS + channel) * COLUMN_BYTES + 4 * place;
                columns[at..at + 4].copy_from_slice(&bytes[4 * channel..4 * channel + 4]);
            }
        }
    }
}
