//! Pixels to normalised patches: one pass, straight into the output, every byte of which is written.

use rayon::prelude::*;

use crate::common::simd::{self, Level};
use crate::common::streaming::Streamer;
use crate::common::threads;
use crate::common::transforms::normalize::{Lines, Normalised, Normaliser, normalize_run};
use crate::error::{CoreError, Result};
use crate::tensor::Transport;

// The reference pads after scaling, with -1/255 in place of `value * (1/255)`.
const PADDING_SCALED: f32 = -1.0 / 255.0;
// Less than this is not worth a thread's while.
const SMALLEST_PIECE_BYTES: usize = 512 << 10;
// From here on an output is streamed past the cache. It would not stay in one core's cache anyway, and the next
// step (the copy into the object store, say) reads it once.
const SMALLEST_STREAMED_BYTES: usize = 2 << 20;
// A patch is staged in the innermost cache: its lines are short, and a run of all their bytes becomes values in
// whole cache lines.
const LARGEST_STAGED_BYTES: usize = 24 << 10;

/// `(rows, columns)` of Inkling's grid: one extra column, also where the width is whole patches.
pub fn grid(width: usize, height: usize, patch_px: usize) -> (usize, usize) {
    (height.div_ceil(patch_px), (width / patch_px).saturating_add(1))
}

/// RGB pixels of an image, or of one band of it.
#[derive(Debug, Clone, Copy)]
pub struct Pixels<'a> {
    /// `height * width * 3` bytes, HWC.
    pub bytes: &'a [u8],
    /// Width in pixels.
    pub width: usize,
    /// Height in pixels.
    pub height: usize,
}

/// Writes `[rows * columns, patch_px, patch_px, 3]` normalised values of `pixels` into `out`, which is all of an output
/// of `all_bytes`, or a band.
///
/// # Errors
/// [`CoreError::InvalidArgument`] if a buffer has the wrong length or `transport` is `Uint8`.
pub fn patchify(
    normaliser: &Normaliser,
    pixels: Pixels<'_>,
    patch_px: usize,
    transport: Transport,
    all_bytes: usize,
    out: &mut [u8],
) -> Result<()> {
    let Pixels { bytes, width, height } = pixels;
    if Some(bytes.len()) != width.checked_mul(height).and_then(|pixels| pixels.checked_mul(3)) {
        return Err(CoreError::argument(format!(
            "{} bytes are not {width} x {height} RGB pixels",
            bytes.len()
        )));
    }
    let (rows, columns) = grid(width, height, patch_px);
    let values = [rows, columns, patch_px, patch_px, 3].iter().fold(1, |a: usize, &b| a.saturating_mul(b));
    if out.len() != values.saturating_mul(transport.dtype().size_bytes()) {
        return Err(CoreError::argument(format!(
            "{} bytes of output do not hold {values} values",
            out.len()
        )));
    }
    let is_streamed = all_bytes >= SMALLEST_STREAMED_BYTES;
    let image = Image { pixels, patch_px, columns, is_streamed, level: simd::level()? };
    match transport {
        Transport::Bf16 => {
            let out = bytemuck::try_cast_slice_mut::<_, u16>(out)
                .map_err(|_| CoreError::argument("the output is not aligned to 2 bytes"))?;
            image.write(normaliser, out);
        }
        Transport::Float32 => {
            let out = bytemuck::try_cast_slice_mut::<_, f32>(out)
                .map_err(|_| CoreError::argument("the output is not aligned to 4 bytes"))?;
            image.write(normaliser, out);
        }
        Transport::Uint8 => {
            return Err(CoreError::argument("uint8 pixels are not patches; choose bf16 or float32"));
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Image<'a> {
    pixels: Pixels<'a>,
    patch_px: usize,
    columns: usize,
    is_streamed: bool,
    level: Level,
}

impl Image<'_> {
    fn write<T: Normalised>(&self, normaliser: &Normaliser, out: &mut [T]) {
        let padding = normaliser.of_scaled(PADDING_SCALED).map(T::from_f32);
        let row_len = self.columns * self.patch_px * self.patch_px * 3;
        let rows = SMALLEST_PIECE_BYTES.div_ceil(row_len * size_of::<T>());
        let stage = || Stage::new(self);
        let write = |stage: &mut Stage<T>, row: usize, out: &mut [T]| {
            for (column, out) in out.chunks_exact_mut(self.patch_len()).enumerate() {
                self.write_patch(normaliser, padding, (row, column), stage, out);
            }
        };
        if out.len() <= rows * row_len || threads::spread() == 1 {
            let mut stage = stage();
            out.chunks_exact_mut(row_len).enumerate().for_each(|(row, out)| write(&mut stage, row, out));
            return;
        }
        out.par_chunks_exact_mut(row_len)
            .enumerate()
            .with_min_len(rows)
            .for_each_init(stage, |stage, (row, out)| write(stage, row, out));
    }

    fn patch_len(&self) -> usize {
        self.patch_px * self.patch_px * 3
    }

    fn write_patch<T: Normalised>(
        &self,
        normaliser: &Normaliser,
        padding: [T; 3],
        (row, column): (usize, usize),
        stage: &mut Stage<T>,
        patch: &mut [T],
    ) {
        let Self { pixels: Pixels { bytes, width, height }, patch_px, level, .. } = *self;
        let (run, stride) = (patch_px * 3, width * 3);
        let (top, left) = (row * patch_px, column * patch_px);
        let count = patch_px.min(height - top);
        let len = patch_px.min(width - left) * 3;
        let bytes = if len > 0 { &bytes[top * stride + left * 3..] } else { &[] };
        let lines = Lines { bytes, stride, len, count };
        let streamer = stage.streamer.as_ref();
        if lines.len * lines.count == patch.len() && !stage.packed.is_empty() {
            lines.pack(level, &mut stage.packed);
            normalize_run(normaliser, level, &stage.packed, patch, streamer);
            return;
        }
        match streamer.zip(stage.padded.as_deref_mut()) {
            None => write_padded(normaliser, level, padding, lines, run, patch),
            Some((streamer, padded)) => {
                write_padded(normaliser, level, padding, lines, run, padded);
                streamer.copy(bytemuck::cast_slice(padded), bytemuck::cast_slice_mut(patch));
            }
        }
    }
}

// Where the lines of a patch come together. Made once for many patches.
struct Stage<T> {
    // The bytes of a whole patch, or none if that is too large.
    packed: Vec<u8>,
    // The values of a patch with padding, before they are streamed.
    padded: Option<Vec<T>>,
    streamer: Option<Streamer>,
}

impl<T: Normalised> Stage<T> {
    fn new(image: &Image<'_>) -> Self {
        let len = image.patch_len();
        let fits = len * size_of::<T>() <= LARGEST_STAGED_BYTES;
        let streamer = Streamer::for_level(image.level).filter(|_| image.is_streamed && fits);
        Self {
            packed: vec![0; if fits { len } else { 0 }],
            padded: streamer.is_some().then(|| vec![T::zeroed(); len]),
            streamer,
        }
    }
}

// A patch whose lines may be shorter or fewer than it has room for.
fn write_padded<T: Normalised>(
    normaliser: &Normaliser,
    level: Level,
    padding: [T; 3],
    lines: Lines<'_>,
    run: usize,
    patch: &mut [T],
) {
    let Lines { len, count, .. } = lines;
    if len > 0 {
        T::normalize_lines(normaliser, level, lines, patch, run, None);
    }
    let (inside, below) = patch.split_at_mut(run * count);
    if len < run {
        inside.chunks_exact_mut(run).for_each(|line| fill(&mut line[len..], padding));
    }
    fill(below, padding);
}

// Doubles what is filled already, so that it runs at the speed of a copy.
fn fill<T: Copy>(out: &mut [T], padding: [T; 3]) {
    if out.is_empty() {
        return;
    }
    out[..3].copy_from_slice(&padding);
    let mut filled = 3;
    while filled < out.len() {
        let len = filled.min(out.len() - filled);
        out.copy_within(..len, filled);
        filled += len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::simd::with_level;

    // Patch by patch and value by value, from the definition.
    fn expected(pixels: &[u8], width: usize, height: usize, patch_px: usize) -> Vec<f32> {
        let (mean, std) = ([0.48_f32, 0.45, 0.4], [0.26_f32, 0.27, 0.28]);
        let (rows, columns) = grid(width, height, patch_px);
        let mut values = Vec::new();
        for patch in 0..rows * columns {
            for inside in 0..patch_px * patch_px {
                let y = patch / columns * patch_px + inside / patch_px;
                let x = patch % columns * patch_px + inside % patch_px;
                for channel in 0..3 {
                    let scaled = if y < height && x < width {
                        f32::from(pixels[(y * width + x) * 3 + channel]) * (1.0 / 255.0)
                    } else {
                        PADDING_SCALED
                    };
                    values.push((scaled - mean[channel]) / std[channel]);
                }
            }
        }
        values
    }

    #[test]
    fn every_byte_of_the_output_is_written_at_every_level() {
        let normaliser = Normaliser::new([0.48, 0.45, 0.4], [0.26, 0.27, 0.28]);
        // The last is large enough to be split over threads and streamed, from an unaligned start too.
        for (width, height, patch_px) in
            [(1, 1, 1), (7, 5, 3), (40, 40, 40), (41, 39, 14), (30, 200, 64), (96, 97, 96), (901, 1003, 40)]
        {
            let pixels: Vec<u8> = (0..width * height * 3)
                .map(|at: usize| (at.wrapping_mul(2_654_435_761) >> 9) as u8)
                .collect();
            let float = expected(&pixels, width, height, patch_px);
            let bf16: Vec<u16> = float.iter().map(|&value| u16::from_f32(value)).collect();
            for level in Level::available() {
                let write = |transport, out: &mut [u8]| {
                    with_level(level, || {
                        let (image, all_bytes) = (Pixels { bytes: &pixels, width, height }, out.len());
                        patchify(&normaliser, image, patch_px, transport, all_bytes, out)
                    })
                    .expect("level")
                    .expect("sizes");
                };
                let mut out = vec![0xaa55_u16; bf16.len() + 1];
                write(Transport::Bf16, bytemuck::cast_slice_mut(&mut out[1..]));
                assert!(out[1..] == bf16, "{level} {width} x {height} / {patch_px}");
                let mut out = vec![f32::NAN; float.len() + 1];
                write(Transport::Float32, bytemuck::cast_slice_mut(&mut out[1..]));
                assert!(out[1..] == float, "{level} {width} x {height} / {patch_px}");
            }
        }
    }
}
