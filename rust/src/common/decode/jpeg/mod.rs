//! JPEG, through libjpeg-turbo, with Pillow's verdicts.
//!
//! Pillow reads the segments up to the first scan itself (`segments`), then hands the whole file to libjpeg in
//! blocks of 64 KiB (`source`). Warnings of libjpeg are no errors.
//!
//! Of a whole and sound file, a faster decoder of Huffman codes (`entropy`) makes the coefficients. If the picture is of a
//! common kind, faster kernels (`pixels`) make the rows of them, else libjpeg does, and all of a progressive file. Where
//! those meet trouble, all is done again without them.

mod cmyk;
mod entropy;
mod exif;
mod ffi;
mod pixels;
mod segments;
mod source;

use super::{Header, RgbImage, stays_in_cache};
use crate::common::bands::Bands;
use crate::common::limits::Limits;
use crate::common::memory::Buffer;
use crate::common::simd::{Level, level};
use crate::common::streaming::Streamer;
use crate::error::{CoreError, Result};
use entropy::Scan;
use pixels::Picture;
use source::Source;

pub(super) const DECODER: &str = "jpeg";

/// What Pillow's `open` finds: the size of the last frame header before the first scan.
pub(super) fn header(data: &[u8]) -> Result<Header> {
    let frame = segments::read(data)?;
    Ok(Header { format: "JPEG", width: frame.width, height: frame.height })
}

/// The pixels of `header`.
pub(super) fn decode(data: &[u8], header: &Header, _limits: &Limits) -> Result<RgbImage> {
    let mut image = RgbImage::unfilled(header.width, header.height, DECODER)?;
    let out = image.pixels.bytes_mut();
    decode_rows(data, header, |rows| {
        // One for each attempt: what it wrote is ordered before libjpeg writes the same pixels.
        let streamer = if stays_in_cache(out.len()) { None } else { Streamer::for_level(level()?) };
        rows.read(out, streamer.as_ref())
    })?;
    Ok(image)
}

/// The pixels of `header`, which go on by bands. A broken file may be begun twice.
pub(super) fn decode_by_bands(data: &[u8], header: &Header, bands: &Bands<'_>) -> Result<()> {
    decode_rows(data, header, |rows| {
        bands.feed(header.height, header.width * 3, |band| rows.read(band, None))
    })
}

fn decode_rows(
    data: &[u8],
    header: &Header,
    mut take: impl FnMut(&mut RgbRows<'_, '_>) -> std::result::Result<(), Stop>,
) -> Result<()> {
    let mut source = Source::whole(data)?;
    match decode_from(&mut source, header, Decoder::Faster(level()?), &mut take) {
        decoded @ (Ok(()) | Err(Stop::Error(_))) => decoded,
        // How far libjpeg reads beyond what it needs depends on how the input is cut. That decides if a file ends too
        // early or breaks behind the last row, so Pillow's own cuts must be made. The faster decoder knows no broken file
        // from such a one.
        Err(stop)
            if source.decompressor.has_replaced_entropy()
                || matches!(stop, Stop::GaveUp | Stop::Truncated | Stop::BrokenBehindRows) =>
        {
            decode_from(&mut Source::in_blocks(data)?, header, Decoder::Libjpeg, &mut take)
        }
        other => other,
    }
    .map_err(|stop| match stop {
        Stop::Truncated => CoreError::decode("JPEG", "the image file is truncated"),
        Stop::Broken | Stop::BrokenBehindRows | Stop::GaveUp => {
            CoreError::decode("JPEG", "broken data stream")
        }
        Stop::TooManyScans => {
            let limit = u64::from(source::MOST_SCANS);
            CoreError::LimitExceeded { what: "number of scans", value: limit + 1, limit }
        }
        Stop::Error(error) => error,
    })
}

/// Who decodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decoder {
    /// This crate, by this level's kernels, as far as it can; that is for files that are whole and sound.
    Faster(Level),
    /// libjpeg.
    Libjpeg,
}

/// Why a decode ended early.
enum Stop {
    /// The file ended.
    Truncated,
    /// libjpeg gave up.
    Broken,
    /// libjpeg gave up when all rows were there.
    BrokenBehindRows,
    /// The file is not for this crate's decoder.
    GaveUp,
    /// The file asks for more passes over the picture than any encoder makes.
    TooManyScans,
    /// Something that is not the file's fault.
    Error(CoreError),
}

impl From<CoreError> for Stop {
    fn from(error: CoreError) -> Self {
        Self::Error(error)
    }
}

fn decode_from(
    source: &mut Source<'_>,
    header: &Header,
    decoder: Decoder,
    take: impl FnOnce(&mut RgbRows<'_, '_>) -> std::result::Result<(), Stop>,
) -> std::result::Result<(), Stop> {
    source.run(ffi::Decompressor::read_header)?;
    if source.decompressor.is_arithmetic() {
        // libjpeg's arithmetic decoder cannot wait for input, so Pillow fails at the end of a block.
        source.cut_into_blocks();
    }
    let (width, height, components) = source.decompressor.size();
    if (width, height) != (header.width, header.height) {
        return Err(Stop::Broken);
    }
    if let Decoder::Faster(level) = decoder
        && let Some((start, data)) = source.decompressor.progression()
        && let Some(frame) = source.decompressor.frame()
        && let Some(mut picture) = Picture::progressive(data, &start, &frame, level)?
    {
        return decode_picture(&mut picture, data, take);
    }
    source.run(ffi::Decompressor::start)?;
    if let Decoder::Faster(level) = decoder
        && let Some(scan) = source.decompressor.scan()
    {
        match picture(source, scan, level)? {
            Ok(mut picture) => return decode_picture(&mut picture, source.decompressor.coded(), take),
            Err(scan) => source.decompressor.replace_entropy(scan),
        }
    }
    take(&mut RgbRows::Libjpeg(LibjpegRows { source, width, components, unconverted: None }))?;
    finish(source)
}

// All of the picture that was made of `data`.
fn decode_picture<'a>(
    picture: &mut Picture<'a>,
    data: &'a [u8],
    take: impl FnOnce(&mut RgbRows<'_, 'a>) -> std::result::Result<(), Stop>,
) -> std::result::Result<(), Stop> {
    take(&mut RgbRows::Picture(picture))?;
    let behind = picture.end().and_then(|end| data.get(end..)).unwrap_or_default();
    // The marker that ends the file, or libjpeg is to say what becomes of it.
    let code = behind.iter().find(|&&byte| byte != 0xff);
    if code == Some(&0xd9) { Ok(()) } else { Err(Stop::GaveUp) }
}

// The picture of a scan, or the scan if libjpeg is to make the pixels.
fn picture<'a>(
    source: &Source<'a>,
    scan: Scan<'a>,
    level: Level,
) -> Result<std::result::Result<Picture<'a>, Scan<'a>>> {
    match source.decompressor.frame() {
        Some(frame) => Picture::new(scan, &frame, level),
        None => Ok(Err(scan)),
    }
}

fn finish(source: &mut Source<'_>) -> std::result::Result<(), Stop> {
    match source.decompressor.finish() {
        ffi::Status::Broken => Err(Stop::BrokenBehindRows),
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

// The rows of a picture, in order.
enum RgbRows<'s, 'a> {
    Picture(&'s mut Picture<'a>),
    Libjpeg(LibjpegRows<'s, 'a>),
}

impl RgbRows<'_, '_> {
    // Fills `rgb` with the next rows. With a streamer, past the cache where this crate makes them.
    fn read(&mut self, rgb: &mut [u8], streamer: Option<&Streamer>) -> std::result::Result<(), Stop> {
        match self {
            Self::Picture(picture) => picture.read(rgb, streamer).ok_or(Stop::GaveUp),
            Self::Libjpeg(rows) => rows.read(rgb),
        }
    }
}

struct LibjpegRows<'s, 'a> {
    source: &'s mut Source<'a>,
    width: usize,
    components: usize,
    unconverted: Option<Buffer>,
}

impl LibjpegRows<'_, '_> {
    fn read(&mut self, rgb: &mut [u8]) -> std::result::Result<(), Stop> {
        let Self { source, width, components, unconverted } = self;
        if *components == 3 {
            return read_rows(source, rgb, *width * 3);
        }
        // Pictures of one or four components come in parts that stay in the cache until they are RGB.
        const PART_ROWS: usize = 16;
        let row_bytes = *width * *components;
        let part = match unconverted {
            Some(part) => part,
            None => unconverted.insert(Buffer::take(row_bytes * PART_ROWS)?),
        };
        for rgb in rgb.chunks_mut(*width * 3 * PART_ROWS) {
            let rows = rgb.len() / (*width * 3);
            let part = &mut part.bytes_mut()[..rows * row_bytes];
            read_rows(source, part, row_bytes)?;
            match components {
                1 => cmyk::grey_to_rgb(part, rgb),
                4 => cmyk::inverted_cmyk_to_rgb(part, rgb),
                _ => return Err(Stop::Broken),
            }
        }
        Ok(())
    }
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

    // Whether the crate's own decoding makes the pixels, or libjpeg of the crate's coefficients.
    fn is_faster(data: &[u8], level: Level) -> bool {
        let mut source = Source::whole(data).expect("memory");
        let header = header(data).expect("a header");
        let mut rgb = vec![0; header.width * header.height * 3];
        let decoded =
            decode_from(&mut source, &header, Decoder::Faster(level), |rows| rows.read(&mut rgb, None));
        let has_left_scan_alone = source.decompressor.coded().len() > 2;
        decoded.is_ok() && (source.decompressor.has_replaced_entropy() || has_left_scan_alone)
    }

    // The same in two scans, the second of which has all coefficients up to `last` but the first.
    fn progressive(last: u8) -> Vec<u8> {
        let mut data = grey();
        let at =
            |data: &[u8], code: u8| data.windows(2).position(|pair| pair == [0xff, code]).expect("a marker");
        let (frame, scan) = (at(&data, 0xc0), at(&data, 0xda));
        data[frame + 1] = 0xc2;
        data.truncate(scan);
        for range in [[0, 0], [1, last]] {
            data.extend([0xff, 0xda, 0, 8, 1, 1, 0, range[0], range[1], 0, 0x7f]);
        }
        data.extend(b"\xff\xd9");
        data
    }

    #[test]
    fn sound_files_take_the_fast_path() {
        let data = grey();
        assert!(Level::available().all(|level| is_faster(&data, level)));
        let without_end = &data[..data.len() - 2];
        assert!(Level::available().all(|level| !is_faster(without_end, level)));
        assert!(image_decode_rgb(without_end).is_err());
    }

    #[test]
    fn sound_progressive_files_take_the_fast_path_where_kernels_are_faster() {
        for level in Level::available() {
            let has_kernels = matches!(level, Level::Avx2 | Level::Avx512) || !cfg!(jpeg_simd);
            assert_eq!(is_faster(&progressive(63), level), has_kernels, "{level:?}");
            assert_eq!(is_faster(&progressive(9), level), has_kernels, "{level:?}");
            // libjpeg smooths a picture of which it knows less.
            assert!(!is_faster(&progressive(8), level), "{level:?}");
        }
        let photo = include_bytes!("../../../../../tests/data/photos/coffee_progressive.jpg");
        assert!(Level::available().any(|level| is_faster(photo, level)) || !Level::Avx2.is_available());
        for last in [8, 9, 63] {
            assert_eq!(
                image_decode_rgb(&progressive(last)).expect("a whole file").pixels.bytes(),
                [128; 192]
            );
        }
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
