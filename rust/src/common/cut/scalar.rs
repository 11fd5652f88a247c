//! The reference: a table of each channel, looked up value by value.

use super::{Block, Order, Source};
use crate::common::normalise::{CHANNELS, Table};

/// Writes the values of a block.
pub fn write<T: Copy>(source: Source<'_>, block: &Block, table: &Table<T>, out: &mut [T]) {
    let Source { pixels, row_bytes, start } = source;
    let line = |row: usize| &pixels[start + row * row_bytes..][..block.columns * CHANNELS];
    if block.order == Order::Interleaved {
        for (row, out) in out.chunks_exact_mut(block.columns * CHANNELS).enumerate() {
            let (pixels, _) = line(row).as_chunks::<CHANNELS>();
            for (values, &[red, green, blue]) in out.as_chunks_mut::<CHANNELS>().0.iter_mut().zip(pixels) {
                *values =
                    [table[0][usize::from(red)], table[1][usize::from(green)], table[2][usize::from(blue)]];
            }
        }
        return;
    }
    let (channel_step, copy_step) = block.steps();
    for (channel, table) in table.iter().enumerate() {
        let plane = channel * channel_step..channel * channel_step + block.rows * block.columns;
        write_plane(source, block, channel, table, &mut out[plane.clone()]);
        (1..block.copies).for_each(|copy| out.copy_within(plane.clone(), plane.start + copy * copy_step));
    }
}

/// Writes the values of one channel of a block.
pub fn write_plane<T: Copy>(
    source: Source<'_>,
    block: &Block,
    channel: usize,
    table: &[T; 256],
    out: &mut [T],
) {
    let Source { pixels, row_bytes, start } = source;
    for (row, values) in out.chunks_exact_mut(block.columns).enumerate() {
        let line = &pixels[start + row * row_bytes..][..block.columns * CHANNELS];
        for (value, pixel) in values.iter_mut().zip(line.as_chunks::<CHANNELS>().0) {
            *value = table[usize::from(pixel[channel])];
        }
    }
}

/// Puts the rows of a block one behind the other.
#[inline(always)]
pub fn pack(source: Source<'_>, block: &Block, stage: &mut [u8]) {
    match block.columns * CHANNELS {
        16..=32 => pack_pairs::<16>(source, block, stage),
        33..=64 => pack_pairs::<32>(source, block, stage),
        65..=128 => pack_pairs::<64>(source, block, stage),
        len => {
            for (row, packed) in stage.chunks_exact_mut(len).take(block.rows).enumerate() {
                packed.copy_from_slice(&source.pixels[source.start + row * source.row_bytes..][..len]);
            }
        }
    }
}

// Each row as two parts that may overlap. Their length is known, so they are plain moves, of the widest vectors
// where this is compiled; a copy of unknown length would be a call for each row.
#[inline(always)]
fn pack_pairs<const PART: usize>(source: Source<'_>, block: &Block, stage: &mut [u8]) {
    let len = block.columns * CHANNELS;
    for (row, packed) in stage.chunks_exact_mut(len).take(block.rows).enumerate() {
        let bytes = &source.pixels[source.start + row * source.row_bytes..][..len];
        let (Some(first), Some(last)) = (bytes.first_chunk::<PART>(), bytes.last_chunk::<PART>()) else {
            return;
        };
        packed[..PART].copy_from_slice(first);
        packed[len - PART..].copy_from_slice(last);
    }
}
