//! Pixels to normalised values in the order that a model wants: one pass, from rows of a picture straight into the
//! output.
//!
//! A picture stands on a canvas that may be larger. The canvas is taken apart into blocks of pixels; the bytes of a block
//! are put in the order of its values, and become values by a [`Normaliser`]. Each instruction set has its kernels in a
//! file of its own, and this one chooses among them.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod lines;
#[cfg(target_arch = "aarch64")]
mod neon;
mod rows;
mod scalar;

#[cfg(test)]
mod tests;

use super::normalise::{CHANNELS, Element, Normaliser};
use super::simd::Level;
use super::streaming::Streamer;
use rows::Source;

pub use rows::Rows;

/// An output of so many bytes leaves the L2 cache before anyone reads it, so it need not go through it.
pub const PAST_CACHE_BYTES: usize = 1 << 20;
/// Bytes of a block that is put in order at a time; they are to stay in the L1 cache.
pub const STAGE_BYTES: usize = 24 << 10;

/// In which order the values of a block lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Row, column, channel.
    Interleaved,
    /// Channel, copy, row, column.
    ChannelMajor,
    /// Copy, channel, row, column.
    CopyMajor,
}

/// A rectangle of pixels whose values lie side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Rows of pixels.
    pub rows: usize,
    /// Columns of pixels.
    pub columns: usize,
    /// The order of the values.
    pub order: Order,
    /// How often the pixels are there, along time; 1 where the channels are interleaved.
    pub copies: usize,
}

impl Block {
    /// How many values it becomes.
    pub fn values(&self) -> usize {
        self.rows * self.columns * CHANNELS * self.copies
    }

    // Values of one channel that follow each other.
    fn run_values(&self) -> usize {
        let plane = self.rows * self.columns;
        if self.order == Order::ChannelMajor { plane * self.copies } else { plane }
    }

    // Values from a channel to the next, and from a copy to the next.
    fn steps(&self) -> (usize, usize) {
        let plane = self.rows * self.columns;
        match self.order {
            Order::CopyMajor => (plane, plane * CHANNELS),
            _ => (plane * self.copies, plane),
        }
    }
}

/// What the canvas shows where no picture is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Background {
    /// Pixels of this colour.
    Colour([u8; CHANNELS]),
    /// Values that are put in after normalising, by channel.
    Values([f32; CHANNELS]),
}

/// Turns blocks of one picture into values.
#[derive(Debug, Clone, Copy)]
pub struct Cutter<'a> {
    /// What bytes become.
    pub normaliser: &'a Normaliser,
    /// Which kernels.
    pub level: Level,
    /// What is around the picture.
    pub background: Background,
    /// Whether values are stored past the cache, where a level can.
    pub past_cache: bool,
}

impl Cutter<'_> {
    /// Writes the blocks whose upper left corners, `(column, row)` of the canvas, are given, one after the other.
    ///
    /// # Panics
    /// If `out` has not the size of that many blocks.
    pub fn blocks<T: Element>(
        &self,
        rows: Rows<'_>,
        block: Block,
        corners: impl Iterator<Item = (usize, usize)> + Clone,
        out: &mut [T],
    ) {
        let Background::Values(values) = self.background else {
            return self.stretch(rows, block, corners, out);
        };
        // Blocks that are all picture are written in one go, those at its border one by one.
        let values = values.map(T::from_f32);
        let mut around = Vec::new();
        let (mut corners, mut out) = (corners, out);
        loop {
            let inside = |&(x, y): &(usize, usize)| rows.covers(x, y, block.columns, block.rows);
            let count = corners.clone().take_while(inside).count();
            let (stretch, rest) = out.split_at_mut(count * block.values());
            self.stretch(rows, block, corners.clone().take(count), stretch);
            let Some((x, y)) = corners.nth(count) else {
                assert!(rest.is_empty(), "the output has room for more blocks");
                return;
            };
            let (border, rest) = rest.split_at_mut(block.values());
            around.resize(block.values(), T::zeroed());
            if rows.meets(x, y, block.columns, block.rows) {
                Self { past_cache: false, ..*self }.stretch(
                    rows,
                    block,
                    std::iter::once((x, y)),
                    &mut around,
                );
            }
            rows.put_around(x, y, &block, values, &mut around);
            match self.streamer() {
                Some(streamer) => {
                    streamer.copy(bytemuck::cast_slice(&around), bytemuck::cast_slice_mut(border))
                }
                None => border.copy_from_slice(&around),
            }
            out = rest;
        }
    }

    /// Writes the rectangle of `columns` by `rows` pixels with its corner at `(x, y)` of the canvas, each channel to a
    /// place of its own.
    ///
    /// # Panics
    /// If a place has not room for `columns * rows` values.
    pub fn planes<T: Element>(
        &self,
        rows: Rows<'_>,
        (x, y): (usize, usize),
        (columns, height): (usize, usize),
        mut out: [&mut [T]; CHANNELS],
    ) {
        let step = (STAGE_BYTES / (columns * CHANNELS)).clamp(1, height.max(1));
        let mut stage = vec![0; step * columns * CHANNELS];
        for first in (0..height).step_by(step) {
            let count = step.min(height - first);
            let block = Block { rows: count, columns, order: Order::ChannelMajor, copies: 1 };
            let stage = &mut stage[..block.values()];
            let places = out.each_mut().map(|plane| &mut plane[first * columns..][..count * columns]);
            self.runs(rows, (x, y + first), &block, stage, places);
            if let Background::Values(values) = self.background {
                for (channel, plane) in out.iter_mut().enumerate() {
                    let plane = &mut plane[first * columns..][..count * columns];
                    rows.put_around_plane(x, y + first, columns, T::from_f32(values[channel]), plane);
                }
            }
        }
    }

    fn streamer(&self) -> Option<Streamer> {
        Streamer::for_level(self.level).filter(|_| self.past_cache)
    }

    // What the canvas shows where a value will be put in afterwards does not matter.
    fn colour(&self) -> [u8; CHANNELS] {
        match self.background {
            Background::Colour(colour) => colour,
            Background::Values(_) => [0; CHANNELS],
        }
    }

    fn stretch<T: Element>(
        &self,
        rows: Rows<'_>,
        block: Block,
        mut corners: impl Iterator<Item = (usize, usize)>,
        out: &mut [T],
    ) {
        if out.is_empty() {
            return;
        }
        let table = T::table(self.normaliser);
        let (colour, mut patch) = (self.colour(), Vec::new());
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        {
            let is_planar = block.order != Order::Interleaved;
            macro_rules! write_by {
                ($kernel:expr) => {{
                    let kernel = $kernel;
                    let gather = |stage: &mut [u8]| {
                        let Some((x, y)) = corners.next() else { return };
                        let source = rows.source(x, y, &block, colour, &mut patch);
                        lines::Kernel::<T>::gather(&kernel, source, &block, stage);
                    };
                    if is_planar {
                        return lines::write_planar(&kernel, table, &block, gather, out);
                    }
                    return lines::write_pixels(&kernel, table, &block, gather, out);
                }};
            }
            if !is_planar || block.run_values() >= lines::lanes::<T>() {
                with_kernel!(self, T, write_by);
            }
        }
        for ((x, y), values) in corners.zip(out.chunks_exact_mut(block.values())) {
            scalar::write(rows.source(x, y, &block, colour, &mut patch), &block, table, values);
        }
    }

    fn runs<T: Element>(
        &self,
        rows: Rows<'_>,
        (x, y): (usize, usize),
        block: &Block,
        stage: &mut [u8],
        out: [&mut [T]; CHANNELS],
    ) {
        let table = T::table(self.normaliser);
        let mut patch = Vec::new();
        let source = rows.source(x, y, block, self.colour(), &mut patch);
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        {
            macro_rules! write_by {
                ($kernel:expr) => {{
                    let kernel = $kernel;
                    lines::Kernel::<T>::gather(&kernel, source, block, stage);
                    return lines::write_runs(&kernel, table, stage, out);
                }};
            }
            with_kernel!(self, T, write_by);
        }
        for (channel, out) in out.into_iter().enumerate() {
            scalar::write_plane(source, block, channel, &table[channel], out);
        }
    }
}

// Hands `$write` the kernel for the level and the first arithmetic that holds, if there is one.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! with_kernel {
    ($cutter:expr, $element:ty, $write:ident) => {{
        let Normaliser { steps, bf16_line, bf16_steps, .. } = $cutter.normaliser;
        let (line, steps) = match (<$element>::HAS_KERNELS, <$element>::IS_BF16) {
            (false, _) => (&None, &None),
            (true, false) => (&None, steps),
            (true, true) => (bf16_line, bf16_steps),
        };
        match ($cutter.level, line, steps) {
            #[cfg(target_arch = "x86_64")]
            (Level::Avx512, Some(line), _) if $cutter.past_cache => {
                $write!(avx512::Avx512::<_, true>::new(line))
            }
            #[cfg(target_arch = "x86_64")]
            (Level::Avx512, Some(line), _) => $write!(avx512::Avx512::<_, false>::new(line)),
            #[cfg(target_arch = "x86_64")]
            (Level::Avx512, _, Some(steps)) if $cutter.past_cache => {
                $write!(avx512::Avx512::<_, true>::new(steps))
            }
            #[cfg(target_arch = "x86_64")]
            (Level::Avx512, _, Some(steps)) => $write!(avx512::Avx512::<_, false>::new(steps)),
            #[cfg(target_arch = "x86_64")]
            (Level::Avx2, Some(line), _) if $cutter.past_cache => $write!(avx2::Avx2::<_, true>::new(line)),
            #[cfg(target_arch = "x86_64")]
            (Level::Avx2, Some(line), _) => $write!(avx2::Avx2::<_, false>::new(line)),
            #[cfg(target_arch = "x86_64")]
            (Level::Avx2, _, Some(steps)) if $cutter.past_cache => $write!(avx2::Avx2::<_, true>::new(steps)),
            #[cfg(target_arch = "x86_64")]
            (Level::Avx2, _, Some(steps)) => $write!(avx2::Avx2::<_, false>::new(steps)),
            #[cfg(target_arch = "aarch64")]
            (Level::Neon, Some(line), _) => $write!(neon::Neon::new(line)),
            #[cfg(target_arch = "aarch64")]
            (Level::Neon, _, Some(steps)) => $write!(neon::Neon::new(steps)),
            _ => {}
        }
    }};
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use with_kernel;
