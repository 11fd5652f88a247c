//! Pixels that lie in the file as they are.

use super::broken;
use super::header::{Bitmap, Layout};
use crate::common::decode::RgbImage;
use crate::common::decode::codec::check_row_bits;
use crate::error::Result;

pub(super) fn decode(
    data: &[u8],
    bitmap: &Bitmap,
    layout: Layout,
    row_bytes: usize,
    image: &mut RgbImage,
) -> Result<()> {
    check_row_bits(bitmap.width, layout.pixel_bits(), "BMP")?;
    let used_bytes = (bitmap.width * layout.pixel_bits()).div_ceil(8);
    // Where Pillow reads grey indices as bytes, a row may hold fewer than it takes.
    if row_bytes < used_bytes {
        return Err(broken("a row is shorter than its pixels"));
    }
    let stored = data.get(bitmap.offset..).unwrap_or_default();
    if stored.len() < (bitmap.height - 1) * row_bytes + used_bytes {
        return Err(broken("the pixels are truncated"));
    }
    let width_bytes = bitmap.width * 3;
    let rows = image.pixels.bytes_mut().chunks_exact_mut(width_bytes);
    for (row, stored) in in_file_order(rows, bitmap.top_down).zip(stored.chunks(row_bytes)) {
        unpack(layout, &bitmap.palette, &stored[..used_bytes], row.as_chunks_mut::<3>().0);
    }
    Ok(())
}

/// The rows of a picture in the order of the file.
pub(super) fn in_file_order<T>(
    rows: impl DoubleEndedIterator<Item = T>,
    top_down: bool,
) -> impl Iterator<Item = T> {
    let (forwards, backwards) = if top_down { (Some(rows), None) } else { (None, Some(rows.rev())) };
    forwards.into_iter().flatten().chain(backwards.into_iter().flatten())
}

fn unpack(layout: Layout, palette: &[[u8; 3]; 256], stored: &[u8], pixels: &mut [[u8; 3]]) {
    match layout {
        Layout::Bits => packed::<1>(stored, pixels, |bit| [bit * 255; 3]),
        Layout::Grey => whole::<1>(stored, pixels, |[value]| [value; 3]),
        Layout::Index1 => packed::<1>(stored, pixels, |index| palette[usize::from(index)]),
        Layout::Index4 => packed::<4>(stored, pixels, |index| palette[usize::from(index)]),
        Layout::Index8 => whole::<1>(stored, pixels, |[index]| palette[usize::from(index)]),
        Layout::Bgr555 => whole::<2>(stored, pixels, |bytes| {
            let value = u16::from_le_bytes(bytes);
            [scaled::<5>(value >> 10), scaled::<5>(value >> 5), scaled::<5>(value)]
        }),
        Layout::Bgr565 => whole::<2>(stored, pixels, |bytes| {
            let value = u16::from_le_bytes(bytes);
            [scaled::<5>(value >> 11), scaled::<6>(value >> 5), scaled::<5>(value)]
        }),
        Layout::Bgr => whole::<3>(stored, pixels, |[b, g, r]| [r, g, b]),
        Layout::Bytes { r: 2, g: 1, b: 0 } => whole::<4>(stored, pixels, |[b, g, r, _]| [r, g, b]),
        Layout::Bytes { r, g, b } => whole::<4>(stored, pixels, |bytes| [bytes[r], bytes[g], bytes[b]]),
    }
}

#[inline(always)]
fn scaled<const BITS: u32>(value: u16) -> u8 {
    let most = (1 << BITS) - 1;
    ((value & most) * 255 / most) as u8
}

#[inline(always)]
fn whole<const BYTES: usize>(stored: &[u8], pixels: &mut [[u8; 3]], colour: impl Fn([u8; BYTES]) -> [u8; 3]) {
    for (pixel, stored) in pixels.iter_mut().zip(stored.as_chunks::<BYTES>().0) {
        *pixel = colour(*stored);
    }
}

#[inline(always)]
fn packed<const BITS: usize>(stored: &[u8], pixels: &mut [[u8; 3]], colour: impl Fn(u8) -> [u8; 3]) {
    for (pixels, &byte) in pixels.chunks_mut(8 / BITS).zip(stored) {
        for (index, pixel) in pixels.iter_mut().enumerate() {
            *pixel = colour(byte << (index * BITS) >> (8 - BITS));
        }
    }
}
