//! WebP, through libwebp, with the verdicts of Pillow, which reads every file as an animation.
//!
//! Of an animation Pillow shows the first frame on a transparent black canvas. Nothing is ever blended into a first
//! frame and `convert("RGB")` drops alpha, so decoding to RGB gives the same values as decoding to RGBA, with
//! less to move.

mod ffi;

use super::{Header, RgbImage};
use crate::common::limits::Limits;
use crate::error::{CoreError, Result};

/// What Pillow's `open` finds: the size of the canvas.
pub(super) fn header(data: &[u8]) -> Result<Header> {
    let demuxer =
        ffi::Demuxer::new(data).ok_or_else(|| refuse("the container or its first chunk is broken"))?;
    let (width, height) = demuxer.canvas();
    if width == 0 || height == 0 {
        return Err(refuse("a side is 0"));
    }
    Ok(Header { format: "WEBP", width, height })
}

/// The pixels of `header`.
pub(super) fn decode(data: &[u8], header: &Header, _limits: &Limits) -> Result<RgbImage> {
    let frame = ffi::Demuxer::new(data)
        .and_then(|demuxer| demuxer.first_frame())
        .ok_or_else(|| refuse("there is no frame"))?;
    let mut image = RgbImage::unfilled(header.width, header.height, "webp")?;
    let out = image.pixels.bytes_mut();
    let stride = header.width * 3;
    let is_full = frame.width == header.width && frame.height == header.height;
    if !is_full {
        out.fill(0);
    }
    let rows = frame.y.saturating_mul(stride)..frame.y.saturating_add(frame.height).saturating_mul(stride);
    let decoded = frame.x.saturating_add(frame.width) <= header.width
        && out.get_mut(rows).is_some_and(|rows| {
            ffi::decode_rgb(frame.fragment, &mut rows[frame.x * 3..], stride, frame.width, frame.height)
        });
    if decoded { Ok(image) } else { Err(refuse("the first frame is broken")) }
}

fn refuse(reason: &str) -> CoreError {
    CoreError::decode("WEBP", reason)
}
