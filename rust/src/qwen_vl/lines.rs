//! A band of patches, written by whole cache lines.
//!
//! The bytes of a patch are first put in the order of the output, copies included; that takes as many bytes as
//! the output has values and stays in the L1 cache. Then they are converted straight through, and every store is
//! an aligned line, whatever the sides of a patch: such a store can go past the cache, and its memory need not be
//! read first. One patch is gathered ahead, so that no load waits for the stores of its own patch.

use super::layout::{CHANNELS, Layout};
use super::normalize::Element;

/// The rows of a patch are too far apart for the CPU to foresee, so the kernels ask for what lies this far on.
#[cfg(target_arch = "x86_64")]
pub const AHEAD_BYTES: usize = 256;
/// Bytes of a cache line.
pub const LINE_BYTES: usize = 64;
// Room for what the patch before has left over, which is less than a line of the shortest values.
const FRONT: usize = 64;

/// What an instruction set has to do. `out` always starts at a whole line.
pub trait Kernel<T: Element> {
    /// Puts the bytes of the patch at `corner` in the order of the output.
    fn gather(&self, pixels: &[u8], layout: Layout, corner: usize, stage: &mut [u8]);
    /// Converts bytes of one channel to whole lines.
    fn convert(&self, channel: usize, bytes: &[u8], out: &mut [T]);
    /// Converts a line's bytes, of which the first `split` are of one channel and the others of the next.
    fn convert_seam(&self, channels: [usize; 2], split: usize, bytes: &[u8], out: &mut [T]);
}

/// Values that a cache line holds.
pub const fn lanes<T>() -> usize {
    LINE_BYTES / size_of::<T>()
}

/// Whether [`write`] can do it: no line meets three channels.
pub fn fits<T>(layout: Layout) -> bool {
    layout.patch_values() / CHANNELS >= lanes::<T>()
}

/// Writes the patches of `band` into `out`; what is not a whole line, at either end, comes from `table`.
pub fn write<T: Element>(
    kernel: &impl Kernel<T>,
    table: &[[T; 256]; CHANNELS],
    pixels: &[u8],
    layout: Layout,
    band: usize,
    out: &mut [T],
) {
    let patch_values = layout.patch_values();
    let (channel_values, end) = (patch_values / CHANNELS, FRONT + patch_values);
    let mut stage = vec![0; end];
    let mut next = stage.clone();
    let mut corners = layout.corners(band).take(out.len() / patch_values);
    let Some(first) = corners.next() else { return };
    kernel.gather(pixels, layout, first, &mut stage[FRONT..]);
    let head = out.as_ptr().align_offset(LINE_BYTES).min(lanes::<T>() - 1);
    let (head_out, mut out) = out.split_at_mut(head);
    from_table(&table[0], &stage[FRONT..FRONT + head], head_out);
    let mut from = FRONT + head;
    loop {
        let ahead = corners.next();
        if let Some(corner) = ahead {
            kernel.gather(pixels, layout, corner, &mut next[FRONT..]);
        }
        // Where the patch before has left something over, it is of the last channel.
        let (mut channel, mut edge) =
            if from < FRONT { (CHANNELS - 1, FRONT) } else { (0, FRONT + channel_values) };
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
            (channel, edge) = (following, edge + channel_values);
        }
        if ahead.is_none() {
            return from_table(&table[CHANNELS - 1], &stage[from..end], out);
        }
        next[..FRONT].copy_from_slice(&stage[end - FRONT..end]);
        from -= patch_values;
        std::mem::swap(&mut stage, &mut next);
    }
}

fn from_table<T: Copy>(table: &[T; 256], bytes: &[u8], out: &mut [T]) {
    for (value, &byte) in out.iter_mut().zip(bytes) {
        *value = table[usize::from(byte)];
    }
}
