//! Values written by whole cache lines.
//!
//! The bytes of a block are first put in the order of the output, copies included; that takes as many bytes as
//! the output has values and stays in the L1 cache. Then they are converted straight through, and every store is
//! an aligned line, whatever the sides of a block: such a store can go past the cache, and its memory need not be
//! read first. One block is gathered ahead, so that no load waits for the stores of its own block.

use super::{Block, Source};
use crate::common::normalise::{CHANNELS, Element, Table};

/// The rows of a block are too far apart for the CPU to foresee, so the kernels ask for what lies this far on.
#[cfg(target_arch = "x86_64")]
pub const AHEAD_BYTES: usize = 256;
/// Bytes of a cache line.
pub const LINE_BYTES: usize = 64;
// Room for what the block before has left over, which is less than a line of the shortest values.
const FRONT: usize = 64;

/// What an instruction set has to do. `out` always starts at a whole line, and is whole lines.
pub trait Kernel<T: Element> {
    /// Puts the bytes of a block in the order of its values: a run for each plane, or pixel after pixel.
    fn gather(&self, source: Source<'_>, block: &Block, stage: &mut [u8]);
    /// Converts bytes of one channel.
    fn convert(&self, channel: usize, bytes: &[u8], out: &mut [T]);
    /// Converts a line's bytes, of which the first `split` are of one channel and the others of the next.
    fn convert_seam(&self, channels: [usize; 2], split: usize, bytes: &[u8], out: &mut [T]);
    /// Converts bytes of all channels side by side, from channel `first` on.
    fn convert_pixels(&self, first: usize, bytes: &[u8], out: &mut [T]);
}

/// Values that a cache line holds.
pub const fn lanes<T>() -> usize {
    LINE_BYTES / size_of::<T>()
}

// Values of `out` before its first whole line.
fn head_len<T>(out: &[T]) -> usize {
    // An output that is not aligned to its values never gets here.
    out.as_ptr().align_offset(LINE_BYTES).min(lanes::<T>() - 1).min(out.len())
}

/// Writes blocks of planes into `out`, which has room for a whole number of them; `gather` puts the next one's bytes in
/// order. What is not a whole line, at either end, comes from `table`. No line may meet three planes.
pub fn write_planar<T: Element>(
    kernel: &impl Kernel<T>,
    table: &Table<T>,
    block: &Block,
    mut gather: impl FnMut(&mut [u8]),
    out: &mut [T],
) {
    let (values, run) = (block.values(), block.run_values());
    let end = FRONT + values;
    let mut blocks = out.len() / values;
    if blocks == 0 {
        return;
    }
    let mut stage = vec![0; end];
    let mut next = if blocks > 1 { stage.clone() } else { Vec::new() };
    gather(&mut stage[FRONT..]);
    let head = head_len(out);
    let (head_out, mut out) = out.split_at_mut(head);
    from_table(&table[0], &stage[FRONT..FRONT + head], head_out);
    let mut from = FRONT + head;
    loop {
        blocks -= 1;
        if blocks > 0 {
            gather(&mut next[FRONT..]);
        }
        // Where the block before has left something over, it is of the last channel.
        let (mut channel, mut edge) = if from < FRONT { (CHANNELS - 1, FRONT) } else { (0, FRONT + run) };
        loop {
            let whole = (edge - from) / lanes::<T>() * lanes::<T>();
            let lines;
            (lines, out) = out.split_at_mut(whole);
            kernel.convert(channel, &stage[from..from + whole], lines);
            from += whole;
            if edge == end {
                break;
            }
            let following = (channel + 1) % CHANNELS;
            if from < edge {
                let line;
                (line, out) = out.split_at_mut(lanes::<T>());
                let bytes = &stage[from..from + lanes::<T>()];
                kernel.convert_seam([channel, following], edge - from, bytes, line);
                from += lanes::<T>();
            }
            (channel, edge) = (following, edge + run);
        }
        if blocks == 0 {
            return from_table(&table[CHANNELS - 1], &stage[from..end], out);
        }
        next[..FRONT].copy_from_slice(&stage[end - FRONT..end]);
        from -= values;
        std::mem::swap(&mut stage, &mut next);
    }
}

/// As [`write_planar`], for blocks whose channels lie side by side.
pub fn write_pixels<T: Element>(
    kernel: &impl Kernel<T>,
    table: &Table<T>,
    block: &Block,
    mut gather: impl FnMut(&mut [u8]),
    out: &mut [T],
) {
    let values = block.values();
    let end = FRONT + values;
    let mut blocks = out.len() / values;
    let mut stage = vec![0; end];
    let mut next = if blocks > 1 { stage.clone() } else { Vec::new() };
    let mut rest = out;
    let mut from = FRONT;
    let mut at_first_line = false;
    while blocks > 0 {
        blocks -= 1;
        gather(&mut stage[FRONT..]);
        if !at_first_line {
            let head = head_len(rest).min(end - from);
            let (head_out, out) = rest.split_at_mut(head);
            pixels_from_table(table, first_channel(from), &stage[from..from + head], head_out);
            (from, rest) = (from + head, out);
            at_first_line = head_len(rest) == 0;
        }
        if at_first_line {
            let whole = (end - from) / lanes::<T>() * lanes::<T>();
            let (lines, out) = rest.split_at_mut(whole);
            if whole > 0 {
                kernel.convert_pixels(first_channel(from), &stage[from..from + whole], lines);
            }
            (from, rest) = (from + whole, out);
        }
        if blocks > 0 {
            next[..FRONT].copy_from_slice(&stage[end - FRONT..end]);
            from -= values;
            std::mem::swap(&mut stage, &mut next);
        }
    }
    pixels_from_table(table, first_channel(from), &stage[from.min(end)..end], rest);
}

// The channel of a byte of the stage: that of place `FRONT` is the first one.
fn first_channel(at: usize) -> usize {
    (at + CHANNELS * FRONT - FRONT) % CHANNELS
}

/// Writes one run of each channel into a place of its own; `stage` holds the bytes, a run after the other.
pub fn write_runs<T: Element>(
    kernel: &impl Kernel<T>,
    table: &Table<T>,
    stage: &[u8],
    out: [&mut [T]; CHANNELS],
) {
    for (channel, (bytes, out)) in stage.chunks_exact(stage.len() / CHANNELS).zip(out).enumerate() {
        let head = head_len(out);
        let whole = (out.len() - head) / lanes::<T>() * lanes::<T>();
        let (head_out, out) = out.split_at_mut(head);
        let (lines, tail_out) = out.split_at_mut(whole);
        from_table(&table[channel], &bytes[..head], head_out);
        if whole > 0 {
            kernel.convert(channel, &bytes[head..head + whole], lines);
        }
        from_table(&table[channel], &bytes[head + whole..], tail_out);
    }
}

fn from_table<T: Copy>(table: &[T; 256], bytes: &[u8], out: &mut [T]) {
    for (value, &byte) in out.iter_mut().zip(bytes) {
        *value = table[usize::from(byte)];
    }
}

fn pixels_from_table<T: Copy>(table: &Table<T>, first: usize, bytes: &[u8], out: &mut [T]) {
    for (at, (value, &byte)) in out.iter_mut().zip(bytes).enumerate() {
        *value = table[(first + at) % CHANNELS][usize::from(byte)];
    }
}
