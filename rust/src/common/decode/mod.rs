//! Encoded bytes to RGB, pixel for pixel as `Image.open(...).convert("RGB")` of Pillow.

use super::dims::scaled_dims;
use super::limits::Limits;
use super::memory::Buffer;
use super::resize::{self, Filter};
use crate::error::{CoreError, Result};

/// A decoded image: `height * width * 3` bytes, HWC.
#[derive(Debug)]
pub struct RgbImage {
    /// Width in pixels.
    pub width: usize,
    /// Height in pixels.
    pub height: usize,
    /// The pixels.
    pub pixels: Buffer,
    /// Which decoder made them.
    pub decoder: &'static str,
}

/// Decodes `data`; `admit` sees the size from the header first and may refuse before memory is taken.
///
/// # Errors
/// [`CoreError::Decode`] where Pillow refuses the file, [`CoreError::UnsupportedFormat`] where only Pillow may
/// read it, [`CoreError::LimitExceeded`], or what `admit` returns.
pub fn decode(
    data: &[u8],
    limits: &Limits,
    admit: impl FnOnce(usize, usize) -> Result<()>,
) -> Result<RgbImage> {
    let _ = (data, limits, admit);
    Err(CoreError::UnsupportedFormat { format: "unknown" })
}

/// [`decode`] with the default limits.
///
/// # Errors
/// As [`decode`].
pub fn image_decode_rgb(data: &[u8]) -> Result<RgbImage> {
    decode(data, &Limits::default(), |_, _| Ok(()))
}

/// Decodes and rescales as Inkling does: `(rgb, height, width)`.
///
/// # Errors
/// As [`decode`].
pub fn decode_rescale(
    data: &[u8],
    rescale_frac: Option<f64>,
    rescale_cap: Option<i64>,
) -> Result<(Buffer, usize, usize)> {
    let image = image_decode_rgb(data)?;
    let (width, height) = scaled_dims(image.width, image.height, rescale_frac, rescale_cap);
    if (width, height) == (image.width, image.height) {
        return Ok((image.pixels, height, width));
    }
    let mut out = Buffer::take(width * height * 3)?;
    let size =
        resize::Size { in_width: image.width, in_height: image.height, out_width: width, out_height: height };
    resize::resize_rgb(image.pixels.bytes(), size, Filter::Lanczos, resize::pass_order(), out.bytes_mut())?;
    Ok((out, height, width))
}
