//! GIF, its first frame on its screen, as Pillow composes it.

mod frame;
mod lzw;

use super::{Header, RgbImage};
use crate::common::limits::Limits;
use crate::common::memory::Buffer;
use crate::error::{CoreError, Result};

use frame::Frame;

/// What Pillow's `open` finds. A frame that reaches over the screen enlarges the picture.
pub(super) fn header(data: &[u8]) -> Result<Header> {
    let frame = Frame::open(data)?;
    Ok(Header { format: "GIF", width: frame.width, height: frame.height })
}

/// The pixels of `header`. `limits.max_pixels` is at most Pillow's own limit.
pub(super) fn decode(data: &[u8], header: &Header, limits: &Limits) -> Result<RgbImage> {
    limits.check_pixels(header.width as u64, header.height as u64)?;
    let frame = Frame::open(data)?;
    let area = frame.area;
    if area.width == 0 || area.height == 0 {
        return Err(broken("the frame is empty"));
    }
    let mut indices = Buffer::take(area.width * area.height)?;
    lzw::decode(frame.data, frame.code_bits, indices.bytes_mut())?;
    let mut image = RgbImage::unfilled(header.width, header.height, "gif")?;
    let palette = frame.palette();
    let pixels = image.pixels.bytes_mut().as_chunks_mut::<3>().0;
    if (area.width, area.height) != (header.width, header.height) {
        // Under the frame, Pillow lays the transparent index, as if it were a colour.
        pixels.fill(palette[usize::from(frame.transparent.unwrap_or(0))]);
    }
    let mut stored_rows = indices.bytes().chunks_exact(area.width);
    let passes: &[(usize, usize)] =
        if frame.interlaced { &[(0, 8), (4, 8), (2, 4), (1, 2)] } else { &[(0, 1)] };
    for &(first_row, step) in passes {
        for (row, stored) in (first_row..area.height).step_by(step).zip(&mut stored_rows) {
            let start = (area.top + row) * header.width + area.left;
            for (pixel, &index) in pixels[start..start + area.width].iter_mut().zip(stored) {
                *pixel = palette[usize::from(index)];
            }
        }
    }
    Ok(image)
}

fn broken(reason: impl Into<String>) -> CoreError {
    CoreError::decode("GIF", reason)
}
