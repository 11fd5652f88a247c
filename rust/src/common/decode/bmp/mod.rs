//! BMP, and DIB, which is BMP without its file header, with Pillow's peculiarities.

mod header;
mod raw;
mod rle;

use super::{Header, RgbImage};
use crate::common::limits::Limits;
use crate::error::{CoreError, Result};

use header::{Bitmap, Storage};

/// What Pillow's `open` finds.
pub(super) fn header(data: &[u8]) -> Result<Header> {
    let bitmap = Bitmap::open(data)?;
    Ok(Header { format: bitmap.format, width: bitmap.width, height: bitmap.height })
}

/// The pixels of `header`. `limits.max_pixels` is at most Pillow's own limit.
pub(super) fn decode(data: &[u8], header: &Header, limits: &Limits) -> Result<RgbImage> {
    limits.check_pixels(header.width as u64, header.height as u64)?;
    let bitmap = Bitmap::open(data)?;
    if bitmap.palette_is_too_long {
        return Err(broken("the palette has more than 256 colours"));
    }
    let mut image = RgbImage::unfilled(header.width, header.height, "bmp")?;
    match bitmap.storage {
        Storage::Raw { layout, row_bytes } => raw::decode(data, &bitmap, layout, row_bytes, &mut image)?,
        Storage::Rle { nibbles } => rle::decode(data, &bitmap, nibbles, &mut image)?,
    }
    Ok(image)
}

fn broken(reason: impl Into<String>) -> CoreError {
    CoreError::decode("BMP", reason)
}
