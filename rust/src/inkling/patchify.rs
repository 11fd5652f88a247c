//! Pixels to normalised patches: one pass, straight into the output.

use crate::common::bf16::f32_to_bf16;
use crate::common::transforms::{normalize_scaled, normalize_table};
use crate::error::{CoreError, Result};
use crate::tensor::Transport;

// The reference pads after scaling, with -1/255 in place of `value * (1/255)`.
const PADDING_SCALED: f32 = -1.0 / 255.0;

/// Normalised value of every byte in every channel, and of padding.
pub struct Normaliser {
    float: [[f32; 256]; 3],
    bf16: [[u16; 256]; 3],
    padding: [f32; 3],
}

impl Normaliser {
    /// Tables for these constants.
    pub fn new(mean: [f32; 3], std: [f32; 3]) -> Self {
        let float = normalize_table(mean, std);
        let bf16 = float.map(|channel| channel.map(f32_to_bf16));
        let padding = std::array::from_fn(|c| normalize_scaled(PADDING_SCALED, mean[c], std[c]));
        Self { float, bf16, padding }
    }
}

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
    if pixels.len() != width * height * 3 {
        return Err(CoreError::argument(format!(
            "{} bytes are not {width} x {height} RGB pixels",
            pixels.len()
        )));
    }
    let (rows, columns) = grid(width, height, patch_px);
    let values = rows * columns * patch_px * patch_px * 3;
    if out.len() != values * transport.dtype().size_bytes() {
        return Err(CoreError::argument(format!(
            "{} bytes of output do not hold {values} values",
            out.len()
        )));
    }
    let layout = Layout { width, height, patch_px, columns };
    match transport {
        Transport::Bf16 => {
            let out = bytemuck::try_cast_slice_mut(out)
                .map_err(|_| CoreError::argument("the output is not aligned to 2 bytes"))?;
            write(pixels, layout, &normaliser.bf16, normaliser.padding.map(f32_to_bf16), out);
        }
        Transport::Float32 => {
            let out = bytemuck::try_cast_slice_mut(out)
                .map_err(|_| CoreError::argument("the output is not aligned to 4 bytes"))?;
            write(pixels, layout, &normaliser.float, normaliser.padding, out);
        }
        Transport::Uint8 => {
            return Err(CoreError::argument("uint8 pixels are not patches; choose bf16 or float32"));
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Layout {
    width: usize,
    height: usize,
    patch_px: usize,
    columns: usize,
}

fn write<T: Copy>(pixels: &[u8], layout: Layout, table: &[[T; 256]; 3], padding: [T; 3], out: &mut [T]) {
    let Layout { width, height, patch_px, columns } = layout;
    let run = patch_px * 3;
    for (patch, values) in out.chunks_exact_mut(run * patch_px).enumerate() {
        let (top, left) = (patch / columns * patch_px, patch % columns * patch_px);
        for (line, values) in values.chunks_exact_mut(run).enumerate() {
            let y = top + line;
            let inside = if y < height { width.saturating_sub(left).min(patch_px) } else { 0 };
            let (real, pad) = values.split_at_mut(inside * 3);
            if inside > 0 {
                let start = (y * width + left) * 3;
                for (values, bytes) in real.chunks_exact_mut(3).zip(pixels[start..].chunks_exact(3)) {
                    for ((value, &byte), channel) in values.iter_mut().zip(bytes).zip(table) {
                        *value = channel[usize::from(byte)];
                    }
                }
            }
            for values in pad.chunks_exact_mut(3) {
                values.copy_from_slice(&padding);
            }
        }
    }
}
