//! Building blocks for model families: normalise, pad, cut into patches.

use crate::error::{CoreError, Result};

/// `(rows, columns)` of the grid of `patch_px` patches that covers `height` by `width` pixels.
///
/// # Errors
/// [`CoreError::InvalidArgument`] if `patch_px` is 0.
pub fn patch_grid(height: usize, width: usize, patch_px: usize) -> Result<(usize, usize)> {
    if patch_px == 0 {
        return Err(CoreError::argument("the patch size must be at least 1 pixel"));
    }
    Ok((height.div_ceil(patch_px), width.div_ceil(patch_px)))
}

/// `(pixel / 255 - mean) / std` for HWC bytes, in f32, in one pass. 255 enters as its reciprocal, as in the
/// reference: `pixel * (1 / 255)`.
///
/// # Errors
/// [`CoreError::InvalidArgument`] if the lengths differ or are no multiple of 3.
pub fn normalize_rgb_f32(rgb: &[u8], mean: [f32; 3], std: [f32; 3], out: &mut [f32]) -> Result<()> {
    if rgb.len() != out.len() || !rgb.len().is_multiple_of(3) {
        return Err(CoreError::argument("normalize_rgb_f32 needs equally long HWC buffers of 3 channels"));
    }
    let table = normalize_table(mean, std);
    for (pixel, values) in rgb.chunks_exact(3).zip(out.chunks_exact_mut(3)) {
        for ((value, &byte), channel) in values.iter_mut().zip(pixel).zip(&table) {
            *value = channel[usize::from(byte)];
        }
    }
    Ok(())
}

/// The normalised value of every byte in every channel.
pub fn normalize_table(mean: [f32; 3], std: [f32; 3]) -> [[f32; 256]; 3] {
    std::array::from_fn(|channel| {
        std::array::from_fn(|byte| normalize_scaled(byte as f32 * (1.0 / 255.0), mean[channel], std[channel]))
    })
}

/// `(scaled - mean) / std` for a value already scaled to `0..=1`.
pub fn normalize_scaled(scaled: f32, mean: f32, std: f32) -> f32 {
    (scaled - mean) / std
}

/// Pads an HWC image on the right and at the bottom with `fill` to whole patches: `(padded, height, width)`.
///
/// # Errors
/// [`CoreError::InvalidArgument`] if the length is not `height * width * channels` or `patch_px` is 0.
pub fn pad_to_grid<T: Copy>(
    image: &[T],
    height: usize,
    width: usize,
    channels: usize,
    patch_px: usize,
    fill: T,
) -> Result<(Vec<T>, usize, usize)> {
    let (rows, columns) = patch_grid(height, width, patch_px)?;
    check_len(image.len(), height, width, channels)?;
    let (padded_height, padded_width) = (rows.saturating_mul(patch_px), columns.saturating_mul(patch_px));
    let mut padded = reserve(padded_height.saturating_mul(padded_width).saturating_mul(channels))?;
    padded.resize(padded_height * padded_width * channels, fill);
    if width > 0 && channels > 0 {
        for (source, target) in
            image.chunks_exact(width * channels).zip(padded.chunks_exact_mut(padded_width * channels))
        {
            target[..source.len()].copy_from_slice(source);
        }
    }
    Ok((padded, padded_height, padded_width))
}

/// Cuts an HWC image of whole patches into `[patches, patch_px, patch_px, channels]`, row by row.
///
/// # Errors
/// [`CoreError::InvalidArgument`] if a side is not a multiple of `patch_px`, or the length is wrong.
pub fn extract_patches_hwc<T: Copy>(
    image: &[T],
    height: usize,
    width: usize,
    channels: usize,
    patch_px: usize,
) -> Result<Vec<T>> {
    let (rows, columns) = patch_grid(height, width, patch_px)?;
    check_len(image.len(), height, width, channels)?;
    if !height.is_multiple_of(patch_px) || !width.is_multiple_of(patch_px) {
        return Err(CoreError::argument(format!(
            "{height} x {width} pixels are no whole number of {patch_px}-pixel patches; pad_to_grid first"
        )));
    }
    let run = patch_px * channels;
    let mut patches = reserve(image.len())?;
    for row in 0..rows {
        for column in 0..columns {
            for line in 0..patch_px {
                let start = ((row * patch_px + line) * width + column * patch_px) * channels;
                patches.extend_from_slice(&image[start..start + run]);
            }
        }
    }
    Ok(patches)
}

fn reserve<T>(len: usize) -> Result<Vec<T>> {
    let mut values = Vec::new();
    values.try_reserve_exact(len).map_err(|_| {
        CoreError::argument("the padded image would not fit into memory; choose smaller patches")
    })?;
    Ok(values)
}

fn check_len(len: usize, height: usize, width: usize, channels: usize) -> Result<()> {
    if height.checked_mul(width).and_then(|pixels| pixels.checked_mul(channels)) == Some(len) {
        return Ok(());
    }
    Err(CoreError::argument(format!("{len} values are not {height} x {width} pixels of {channels} channels")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_and_cutting_keep_every_value_in_its_place() {
        let image: Vec<u8> = (0..3 * 5).collect();
        let (padded, height, width) = pad_to_grid(&image, 3, 5, 1, 2, 99).expect("valid");
        assert_eq!((height, width), (4, 6));
        let patches = extract_patches_hwc(&padded, height, width, 1, 2).expect("valid");
        assert_eq!(patches[..8], [0, 1, 5, 6, 2, 3, 7, 8]);
        assert_eq!(patches[12..], [10, 11, 99, 99, 12, 13, 99, 99, 14, 99, 99, 99]);
        assert!(extract_patches_hwc(&image, 3, 5, 1, 2).is_err());
        assert!(patch_grid(1, 1, 0).is_err());
    }

    #[test]
    fn normalising_divides_in_single_precision() {
        let mut out = [0.0; 3];
        normalize_rgb_f32(&[0, 127, 255], [0.5; 3], [0.5; 3], &mut out).expect("valid");
        assert_eq!(out.map(f32::to_bits), [(-1.0_f32).to_bits(), 0xbb80_8000, 1.0_f32.to_bits()]);
    }
}
