//! Rows as stored to RGB, as Pillow unpacks and converts them.

use super::layout::Layout;

/// The colours of a palette image. Indices past the palette are black.
pub(super) type Palette = [[u8; 3]; 256];

/// The colours of `PLTE`; what is there of a colour that is cut off counts for nothing.
pub(super) fn palette(content: &[u8]) -> Palette {
    let mut palette = [[0; 3]; 256];
    for (colour, stored) in palette.iter_mut().zip(content.as_chunks::<3>().0) {
        *colour = *stored;
    }
    palette
}

/// Converts the pixels of `row` to `rgb`, three bytes each.
pub(super) fn expand(layout: Layout, palette: &Palette, row: &[u8], rgb: &mut [u8]) {
    let pixels = rgb.as_chunks_mut::<3>().0;
    match layout {
        Layout::Grey1 => packed::<1>(row, pixels, |value| [value * 255; 3]),
        Layout::Grey2 => packed::<2>(row, pixels, |value| [value * 85; 3]),
        Layout::Grey4 => packed::<4>(row, pixels, |value| [value * 17; 3]),
        Layout::Grey8 => whole::<1>(row, pixels, |[value]| [value; 3]),
        // Pillow clips 16-bit grey where it halves the other 16-bit layouts.
        Layout::Grey16 => {
            whole::<2>(row, pixels, |[high, low]| [if high == 0 { low } else { 255 }; 3]);
        }
        Layout::Rgb8 => whole::<3>(row, pixels, |rgb| rgb),
        Layout::Rgb16 => whole::<6>(row, pixels, |[r, _, g, _, b, _]| [r, g, b]),
        Layout::Palette1 => packed::<1>(row, pixels, |index| palette[usize::from(index)]),
        Layout::Palette2 => packed::<2>(row, pixels, |index| palette[usize::from(index)]),
        Layout::Palette4 => packed::<4>(row, pixels, |index| palette[usize::from(index)]),
        Layout::Palette8 => whole::<1>(row, pixels, |[index]| palette[usize::from(index)]),
        Layout::GreyAlpha8 => whole::<2>(row, pixels, |[value, _]| [value; 3]),
        Layout::GreyAlpha16 => whole::<4>(row, pixels, |[value, ..]| [value; 3]),
        Layout::Rgba8 => whole::<4>(row, pixels, |[r, g, b, _]| [r, g, b]),
        Layout::Rgba16 => whole::<8>(row, pixels, |[r, _, g, _, b, _, _, _]| [r, g, b]),
    }
}

#[inline(always)]
fn whole<const BYTES: usize>(row: &[u8], pixels: &mut [[u8; 3]], colour: impl Fn([u8; BYTES]) -> [u8; 3]) {
    for (pixel, stored) in pixels.iter_mut().zip(row.as_chunks::<BYTES>().0) {
        *pixel = colour(*stored);
    }
}

#[inline(always)]
fn packed<const BITS: usize>(row: &[u8], pixels: &mut [[u8; 3]], colour: impl Fn(u8) -> [u8; 3]) {
    for (pixels, &byte) in pixels.chunks_mut(8 / BITS).zip(row) {
        for (index, pixel) in pixels.iter_mut().enumerate() {
            *pixel = colour(byte << (index * BITS) >> (8 - BITS));
        }
    }
}
