//! Pixels to normalised patches: one pass, straight into the output, every byte of which is written.

use rayon::prelude::*;

use crate::common::simd::{self, Level};
use crate::common::transforms::normalize::{Lines, Normalised, Normaliser};
use crate::error::{CoreError, Result};
use crate::tensor::Transport;

// The reference pads after scaling, with -1/255 in place of `value * (1/255)`.
const PADDING_SCALED: f32 = -1.0 / 255.0;
// Less than this is not worth a thread's while.
const SMALLEST_PIECE_BYTES: usize = 512 << 10;

/// `(rows, columns)` of Inkling's grid: one extra column, also where the width is whole patches.
pub fn grid(width: usize, height: usize, patch_px: usize) -> (usize, usize) {
    (height.div_ceil(patch_px), (width / patch_px).saturating_add(1))
}

/// Writes `[rows * columns, patch_px, patch_px, 3]` normalised values of `pixels` into `out`.
///
/// # Errors
/// [`CoreError::InvalidArgument`] if a buffer has the wrong length or `transport` is `Uint8`.
pub fn patchify(
    normaliser: &Normaliser,
    pixels: &[u8],
    width: usize,
    height: usize,
    patch_px: usize,
    transport: Transport,
    out: &mut [u8],
) -> Result<()> {
    if Some(pixels.len()) != width.checked_mul(height).and_then(|pixels| pixels.checked_mul(3)) {
        return Err(CoreError::argument(format!(
            "{} bytes are not {width} x {height} RGB pixels",
            pixels.len()
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
    let image = Image { pixels, width, height, patch_px, columns, level: simd::level()? };
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
    pixels: &'a [u8],
    width: usize,
    height: usize,
    patch_px: usize,
    columns: usize,
    level: Level,
}

impl Image<'_> {
    fn write<T: Normalised>(&self, normaliser: &Normaliser, out: &mut [T]) {
        let padding = normaliser.of_scaled(PADDING_SCALED).map(T::from_f32);
        let row_len = self.columns * self.patch_px * self.patch_px * 3;
        let rows = SMALLEST_PIECE_BYTES.div_ceil(row_len * size_of::<T>());
        if out.len() <= rows * row_len {
            for (row, out) in out.chunks_exact_mut(row_len).enumerate() {
                self.write_row(normaliser, padding, row, out);
            }
            return;
        }
        out.par_chunks_exact_mut(row_len)
            .enumerate()
            .with_min_len(rows)
            .for_each(|(row, out)| self.write_row(normaliser, padding, row, out));
    }

    fn write_row<T: Normalised>(&self, normaliser: &Normaliser, padding: [T; 3], row: usize, out: &mut [T]) {
        let Self { pixels, width, height, patch_px, level, .. } = *self;
        let (run, stride) = (patch_px * 3, width * 3);
        let top = row * patch_px;
        let count = patch_px.min(height - top);
        for (column, patch) in out.chunks_exact_mut(run * patch_px).enumerate() {
            let left = column * patch_px;
            let len = patch_px.min(width - left) * 3;
            if len > 0 {
                let bytes = &pixels[top * stride + left * 3..];
                T::normalize_lines(normaliser, level, Lines { bytes, stride, len, count }, patch, run);
            }
            let (inside, below) = patch.split_at_mut(run * count);
            if len < run {
                inside.chunks_exact_mut(run).for_each(|line| fill(&mut line[len..], padding));
            }
            fill(below, padding);
        }
    }
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
