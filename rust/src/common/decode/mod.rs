//! Encoded bytes to RGB, pixel for pixel as `Image.open(...).convert("RGB")` of Pillow.
//!
//! One submodule a format, all of the same shape: `header` reads as much as Pillow's `open` does (its verdict
//! included) and takes no memory for pixels; `decode` makes the pixels of a header that was let through.

mod bmp;
mod codec;
mod gif;
mod jpeg;
mod png;
mod sniff;
mod webp;

pub use sniff::{Format, sniff};

use super::bands::Bands;
use super::dims::scaled_dims;
use super::limits::{Limits, PILLOW_MAX_PIXELS};
use super::memory::Buffer;
use super::resize::{self, Filter};
use crate::error::{CoreError, Result};

/// What the first bytes of a file say about its picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Name of the format as Pillow spells it.
    pub format: &'static str,
    /// Width in pixels, at least 1.
    pub width: usize,
    /// Height in pixels, at least 1.
    pub height: usize,
}

// A larger image leaves the L2 cache before the next step reads it.
const MOST_CACHED_BYTES: usize = 1 << 20;

// Whether the next step finds so many bytes of pixels in the cache.
fn stays_in_cache(len: usize) -> bool {
    len <= MOST_CACHED_BYTES
}

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

impl RgbImage {
    /// An image with unspecified pixels, for a decoder that writes all of them.
    ///
    /// # Errors
    /// [`CoreError::Internal`] if the system has no memory left.
    pub fn unfilled(width: usize, height: usize, decoder: &'static str) -> Result<Self> {
        let len = width
            .checked_mul(height)
            .and_then(|pixels| pixels.checked_mul(3))
            .ok_or_else(|| CoreError::argument("the image would not fit into memory"))?;
        let pixels = if stays_in_cache(len) { Buffer::take_off_line(len) } else { Buffer::take(len) }?;
        Ok(Self { width, height, pixels, decoder })
    }
}

/// Reads the header only: format and size.
///
/// # Errors
/// [`CoreError::Decode`] where Pillow cannot open the file, [`CoreError::UnsupportedFormat`] where only Pillow
/// could tell.
pub fn probe(data: &[u8]) -> Result<Header> {
    header(sniff(data), data)
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
    let picture = Picture::open(data, limits)?;
    admit(picture.header.width, picture.header.height)?;
    picture.decode()
}

/// An encoded picture whose header was read and is within the limits.
#[derive(Debug)]
pub struct Picture<'a> {
    /// The header.
    pub header: Header,
    data: &'a [u8],
    format: Format,
    limits: Limits,
}

impl<'a> Picture<'a> {
    /// Reads the header. Takes no memory for pixels.
    ///
    /// # Errors
    /// As [`decode`].
    pub fn open(data: &'a [u8], limits: &Limits) -> Result<Self> {
        limits.check_input_bytes(data.len())?;
        let format = sniff(data);
        let header = header(format, data)?;
        let limits = Limits { max_pixels: limits.max_pixels.min(PILLOW_MAX_PIXELS), ..*limits };
        limits.check_pixels(header.width as u64, header.height as u64)?;
        Ok(Self { header, data, format, limits })
    }

    /// Makes the pixels.
    ///
    /// # Errors
    /// As [`decode`].
    pub fn decode(&self) -> Result<RgbImage> {
        let Self { header, data, format, limits } = self;
        match *format {
            Format::Bmp | Format::Dib => bmp::decode(data, header, limits),
            Format::Gif => gif::decode(data, header, limits),
            Format::Jpeg => jpeg::decode(data, header, limits),
            Format::Png => png::decode(data, header, limits),
            Format::WebP => webp::decode(data, header, limits),
            Format::Other(format) => Err(CoreError::UnsupportedFormat { format }),
        }
    }

    /// Whether the decoder makes rows one after the other, so that [`Self::decode_by_bands`] works.
    pub fn comes_by_rows(&self) -> bool {
        self.format == Format::Jpeg
    }

    /// Makes the pixels, which go on by bands; they are never in memory as a whole. Returns the name of the decoder.
    ///
    /// # Errors
    /// As [`decode`], and what finishing a band returns.
    pub fn decode_by_bands(&self, bands: &Bands<'_>) -> Result<&'static str> {
        if !self.comes_by_rows() {
            return Err(CoreError::Internal(format!("{} does not come by rows", self.header.format)));
        }
        jpeg::decode_by_bands(self.data, &self.header, bands).map(|()| jpeg::DECODER)
    }
}

fn header(format: Format, data: &[u8]) -> Result<Header> {
    match format {
        Format::Bmp | Format::Dib => bmp::header(data),
        Format::Gif => gif::header(data),
        Format::Jpeg => jpeg::header(data),
        Format::Png => png::header(data),
        Format::WebP => webp::header(data),
        Format::Other(format) => Err(CoreError::UnsupportedFormat { format }),
    }
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
