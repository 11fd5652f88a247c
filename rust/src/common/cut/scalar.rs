//! The reference: bytes put in order one by one, and a table for each channel.

use super::{Block, Order, Source};
use crate::common::normalise::{CHANNELS, Table};

/// Puts the bytes of a block in the order of its values.
pub fn gather(source: Source<'_>, block: &Block, stage: &mut [u8]) {
    let Source { pixels, row_bytes, start } = source;
    if block.order == Order::Interleaved {
        return pack(source, block, stage);
    }
    let (channel_step, copy_step) = block.steps();
    for row in 0..block.rows {
        let line = &pixels[start + row * row_bytes..][..block.columns * CHANNELS];
        for (column, pixel) in line.as_chunks::<CHANNELS>().0.iter().enumerate() {
            for (channel, &byte) in pixel.iter().enumerate() {
                for copy in 0..block.copies {
                    stage[channel * channel_step + copy * copy_step + row * block.columns + column] = byte;
                }
            }
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

/// The values of a block whose bytes are in order.
pub fn convert<T: Copy>(table: &Table<T>, block: &Block, stage: &[u8], out: &mut [T]) {
    if block.order == Order::Interleaved {
        for (values, pixel) in out.as_chunks_mut::<CHANNELS>().0.iter_mut().zip(stage.as_chunks().0) {
            let [red, green, blue]: &[u8; CHANNELS] = pixel;
            *values =
                [table[0][usize::from(*red)], table[1][usize::from(*green)], table[2][usize::from(*blue)]];
        }
        return;
    }
    let run = block.run_values();
    for (at, (values, bytes)) in out.chunks_exact_mut(run).zip(stage.chunks_exact(run)).enumerate() {
        convert_run(&table[at % CHANNELS], bytes, values);
    }
}

/// The values of one channel.
pub fn convert_run<T: Copy>(table: &[T; 256], bytes: &[u8], out: &mut [T]) {
    for (value, &byte) in out.iter_mut().zip(bytes) {
        *value = table[usize::from(byte)];
    }
}
