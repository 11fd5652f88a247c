//! Run-length encoded pixels, with the freedoms of Pillow's decoder.

use super::broken;
use super::header::{Bitmap, Mode};
use super::raw::in_file_order;
use crate::common::decode::RgbImage;
use crate::common::memory::Buffer;
use crate::error::Result;

/// Decodes runs of bytes, or of `nibbles`.
///
/// # Errors
/// Unless exactly as many values come out as there are pixels, or more.
pub(super) fn decode(data: &[u8], bitmap: &Bitmap, nibbles: bool, image: &mut RgbImage) -> Result<()> {
    if bitmap.mode == Mode::Colour {
        return Err(broken("run-length encoding is for palettes only"));
    }
    let mut values = Buffer::take(bitmap.width * bitmap.height)?;
    let mut runs = Runs { data, at: bitmap.offset, values: values.bytes_mut(), filled: 0 };
    runs.decode(bitmap.width, nibbles);
    if runs.filled < runs.values.len() {
        return Err(broken("the pixels are truncated"));
    }
    let colour = |value: u8| match bitmap.mode {
        Mode::Bilevel => [if value == 0 { 0 } else { 255 }; 3],
        Mode::Grey => [value; 3],
        Mode::Palette | Mode::Colour => bitmap.palette[usize::from(value)],
    };
    let rows = image.pixels.bytes_mut().chunks_exact_mut(bitmap.width * 3);
    let stored = values.bytes().chunks_exact(bitmap.width);
    for (row, stored) in in_file_order(rows, bitmap.top_down).zip(stored) {
        for (pixel, &value) in row.as_chunks_mut::<3>().0.iter_mut().zip(stored) {
            *pixel = colour(value);
        }
    }
    Ok(())
}

struct Runs<'a> {
    data: &'a [u8],
    at: usize,
    values: &'a mut [u8],
    filled: usize,
}

impl<'a> Runs<'a> {
    /// Up to `length` bytes, as many as there are.
    fn read(&mut self, length: usize) -> &'a [u8] {
        let rest = self.data.get(self.at..).unwrap_or_default();
        let bytes = &rest[..length.min(rest.len())];
        self.at += bytes.len();
        bytes
    }

    fn push(&mut self, count: usize, value: impl Fn(usize) -> u8) {
        let room = &mut self.values[self.filled..];
        let count = count.min(room.len());
        for (index, place) in room[..count].iter_mut().enumerate() {
            *place = value(index);
        }
        self.filled += count;
    }

    fn decode(&mut self, width: usize, nibbles: bool) {
        let mut x = 0;
        while self.filled < self.values.len() {
            let &[count, value] = self.read(2) else { return };
            match (count, value) {
                (1.., value) => {
                    let count = usize::from(count).min(width.saturating_sub(x));
                    let pair = if nibbles { [value >> 4, value & 15] } else { [value; 2] };
                    self.push(count, |index| pair[index % 2]);
                    x += count;
                }
                (0, 0) => {
                    self.push((width - self.filled % width) % width, |_| 0);
                    x = 0;
                }
                (0, 1) => return,
                (0, 2) => {
                    let &[right, up] = self.read(2) else { return };
                    self.push(usize::from(right) + usize::from(up) * width, |_| 0);
                    x = self.filled % width;
                }
                (0, count) => {
                    let wanted = usize::from(count).min(self.values.len() - self.filled);
                    let bytes = if nibbles { wanted.div_ceil(2) } else { wanted };
                    let stored = self.read(bytes);
                    if nibbles {
                        let values = wanted.min(stored.len() * 2);
                        self.push(values, |index| stored[index / 2] >> (4 - index % 2 * 4) & 15);
                    } else {
                        self.push(stored.len(), |index| stored[index]);
                    }
                    if stored.len() < bytes || self.filled == self.values.len() {
                        return;
                    }
                    x += usize::from(count);
                    // The next command starts at an even place in the file.
                    self.at += self.at % 2;
                }
            }
        }
    }
}
