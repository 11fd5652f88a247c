//! JPEG, through libjpeg-turbo, with Pillow's verdicts.
//!
//! Pillow reads the segments up to the first scan itself (`segments`), then hands the whole file to libjpeg in
//! blocks of 64 KiB (`source`). Warnings of libjpeg are no errors.

mod cmyk;
mod exif;
mod ffi;
mod segments;
mod source;

use super::{Header, RgbImage};
use crate::common::limits::Limits;
use crate::common::memory::Buffer;
use crate::error::{CoreError, Result};
use source::Source;

/// What Pillow's `open` finds: the size of the last frame header before the first scan.
pub(super) fn header(data: &[u8]) -> Result<Header> {
    let frame = segments::read(data)?;
    Ok(Header { format: "JPEG", width: frame.width, height: frame.height })
}

/// The pixels of `header`.
pub(super) fn decode(data: &[u8], header: &Header, _limits: &Limits) -> Result<RgbImage> {
    let mut image = RgbImage::unfilled(header.width, header.height, "jpeg")?;
    let out = image.pixels.bytes_mut();
    match decode_into(&mut Source::whole(data)?, header, out) {
        // How far libjpeg reads ahead of what it needs depends on how the input is cut. Only for a file that ends
        // too early does that decide, and then Pillow's own cuts must be made.
        Err(Stop::Truncated) => decode_into(&mut Source::in_blocks(data)?, header, out),
        other => other,
    }
    .map_err(|stop| match stop {
        Stop::Truncated => CoreError::decode("JPEG", "the image file is truncated"),
        Stop::Broken => CoreError::decode("JPEG", "broken data stream"),
        Stop::TooManyScans => {
            let limit = u64::from(source::MOST_SCANS);
            CoreError::LimitExceeded { what: "number of scans", value: limit + 1, limit }
        }
        Stop::Error(error) => error,
    })?;
    Ok(image)
}

/// Why a decode ended early.
enum Stop {
    /// The file ended.
    Truncated,
    /// libjpeg gave up.
    Broken,
    /// The file asks for more passes over the picture than any encoder makes.
    TooManyScans,
    /// Something that is not the file's fault.
    Error(CoreError),
}

fn decode_into(source: &mut Source<'_>, header: &Header, out: &mut [u8]) -> std::result::Result<(), Stop> {
    source.run(ffi::Decompressor::read_header)?;
    if source.decompressor.is_arithmetic() {
        // libjpeg's arithmetic decoder cannot wait for input, so Pillow fails at the end of a block.
        source.cut_into_blocks();
    }
    let (width, height, components) = source.decompressor.size();
    if (width, height) != (header.width, header.height) {
        return Err(Stop::Broken);
    }
    source.run(ffi::Decompressor::start)?;
    if components == 3 {
        read_rows(source, out, width * 3)?;
    } else {
        read_converted(source, header, components, out)?;
    }
    finish(source)
}

fn finish(source: &mut Source<'_>) -> std::result::Result<(), Stop> {
    match source.decompressor.finish() {
        ffi::Status::Broken => Err(Stop::Broken),
        ffi::Status::TooManyScans => Err(Stop::TooManyScans),
        // All rows are there: Pillow does not wait for the end marker.
        ffi::Status::Done | ffi::Status::Suspended => Ok(()),
    }
}

fn read_rows(source: &mut Source<'_>, out: &mut [u8], row_bytes: usize) -> std::result::Result<(), Stop> {
    if source.decompressor.row_bytes() != row_bytes {
        return Err(Stop::Broken);
    }
    let mut done = 0;
    source.run(|decompressor| decompressor.read_rows(out, &mut done))
}

// Pictures of one or four components come in bands that stay in the cache until they are RGB.
fn read_converted(
    source: &mut Source<'_>,
    header: &Header,
    components: usize,
    out: &mut [u8],
) -> std::result::Result<(), Stop> {
    const BAND_ROWS: usize = 16;
    let row_bytes = header.width * components;
    let mut band = Buffer::take(row_bytes * BAND_ROWS).map_err(Stop::Error)?;
    for rgb in out.chunks_mut(header.width * 3 * BAND_ROWS) {
        let rows = rgb.len() / (header.width * 3);
        let band = &mut band.bytes_mut()[..rows * row_bytes];
        read_rows(source, band, row_bytes)?;
        match components {
            1 => cmyk::grey_to_rgb(band, rgb),
            4 => cmyk::inverted_cmyk_to_rgb(band, rgb),
            _ => return Err(Stop::Broken),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{decode, image_decode_rgb, probe};
    use super::*;

    // 8x8 grey: one block whose only coefficient is a zero difference, so that every pixel is 128.
    fn grey() -> Vec<u8> {
        let mut data = b"\xff\xd8\xff\xdb\x00\x43\x00".to_vec();
        data.extend([1; 64]);
        data.extend(b"\xff\xc0\x00\x0b\x08\x00\x08\x00\x08\x01\x01\x11\x00");
        for class in [0x00, 0x10] {
            data.extend([0xff, 0xc4, 0, 20, class, 1]);
            data.extend([0; 16]);
        }
        data.extend(b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00\x3f\xff\xd9");
        data
    }

    #[test]
    fn a_grey_block() {
        let image = image_decode_rgb(&grey()).expect("a whole file");
        assert_eq!((image.width, image.height, image.decoder), (8, 8, "jpeg"));
        assert_eq!(image.pixels.bytes(), [128; 192]);
    }

    #[test]
    fn every_prefix_has_a_verdict() {
        let data = grey();
        for len in 0..data.len() - 2 {
            assert!(
                matches!(image_decode_rgb(&data[..len]), Err(error) if !matches!(error, CoreError::Internal(_)))
            );
        }
    }

    #[test]
    fn limits_hold_from_the_header() {
        let mut data = grey();
        let header = probe(&data).expect("a header");
        assert_eq!(header, Header { format: "JPEG", width: 8, height: 8 });
        let limits = Limits { max_pixels: 63, ..Limits::default() };
        let refused = decode(&data, &limits, |_, _| Ok(()));
        assert_eq!(
            refused.map(|_| ()),
            Err(CoreError::LimitExceeded { what: "image size in pixels", value: 64, limit: 63 })
        );
        let refused = decode(&data, &Limits::default(), |width, height| {
            Err(CoreError::argument(format!("{width} {height}")))
        });
        assert_eq!(refused.map(|_| ()), Err(CoreError::argument("8 8")));
        let frame = data.windows(2).position(|pair| pair == b"\xff\xc0").expect("a frame header");
        data[frame + 5..frame + 9].fill(0xff);
        let generous = Limits { max_pixels: u64::MAX, ..Limits::default() };
        assert!(matches!(decode(&data, &generous, |_, _| Ok(())), Err(CoreError::LimitExceeded { .. })));
    }
}
