//! Which format a file has, by its first bytes, in the order in which Pillow asks its plugins.

/// A format, as far as the first bytes tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Windows bitmap with its file header.
    Bmp,
    /// Windows bitmap without a file header.
    Dib,
    /// GIF.
    Gif,
    /// JPEG, and MPO, which is several of them.
    Jpeg,
    /// PNG, and APNG.
    Png,
    /// WebP.
    WebP,
    /// Not decoded natively: Pillow's name of the first format that would take it, or `"unknown"` where the first
    /// bytes cannot tell (TGA and a few more have no signature).
    Other(&'static str),
}

/// The format of `data`.
pub fn sniff(data: &[u8]) -> Format {
    let at = |offset: usize, magic: &[u8]| data.get(offset..).is_some_and(|rest| rest.starts_with(magic));
    let leading_u32 = data.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    if at(0, b"BM") {
        Format::Bmp
    } else if matches!(leading_u32, Some(12 | 40 | 52 | 56 | 64 | 108 | 124)) {
        Format::Dib
    } else if at(0, b"GIF87a") || at(0, b"GIF89a") {
        Format::Gif
    } else if at(0, b"\xff\xd8\xff") {
        Format::Jpeg
    } else if at(0, b"\x89PNG\r\n\x1a\n") {
        Format::Png
    } else if at(0, b"RIFF") && at(8, b"WEBP") && (at(12, b"VP8 ") || at(12, b"VP8X") || at(12, b"VP8L")) {
        Format::WebP
    } else {
        let known = OTHERS.iter().find(|(_, offset, magic)| at(*offset, magic));
        Format::Other(known.map_or("unknown", |(name, _, _)| name))
    }
}

// Name, offset and signature; the more specific first where one is the start of another.
const OTHERS: &[(&str, usize, &[u8])] = &[
    ("XVTHUMB", 0, b"P7 332"),
    ("PPM", 0, b"P1"),
    ("PPM", 0, b"P2"),
    ("PPM", 0, b"P3"),
    ("PPM", 0, b"P4"),
    ("PPM", 0, b"P5"),
    ("PPM", 0, b"P6"),
    ("PPM", 0, b"Pf"),
    ("PPM", 0, b"Py"),
    ("AVIF", 4, b"ftypavif"),
    ("AVIF", 4, b"ftypavis"),
    ("HEIC", 4, b"ftyphei"),
    ("HEIC", 4, b"ftyphev"),
    ("JPEG2000", 0, b"\xff\x4f\xff\x51"),
    ("JPEG2000", 0, b"\x00\x00\x00\x0cjP  \x0d\x0a\x87\x0a"),
    ("TIFF", 0, b"II\x2a\x00"),
    ("TIFF", 0, b"MM\x00\x2a"),
    ("TIFF", 0, b"II\x00\x2a"),
    ("TIFF", 0, b"MM\x2a\x00"),
    ("TIFF", 0, b"II\x2b\x00"),
    ("TIFF", 0, b"MM\x00\x2b"),
    ("ICO", 0, b"\x00\x00\x01\x00"),
    ("CUR", 0, b"\x00\x00\x02\x00"),
    ("ICNS", 0, b"icns"),
    ("QOI", 0, b"qoif"),
    ("PSD", 0, b"8BPS"),
    ("DDS", 0, b"DDS "),
    ("BLP", 0, b"BLP1"),
    ("BLP", 0, b"BLP2"),
    ("FTEX", 0, b"FTEX"),
    ("FITS", 0, b"SIMPLE"),
    ("SGI", 0, b"\x01\xda"),
    ("SUN", 0, b"\x59\xa6\x6a\x95"),
    ("EPS", 0, b"%!PS"),
    ("EPS", 0, b"\xc5\xd0\xd3\xc6"),
    ("WMF", 0, b"\xd7\xcd\xc6\x9a\x00\x00"),
    ("XPM", 0, b"/* XPM */"),
    ("XBM", 0, b"#define"),
    ("MSP", 0, b"DanM"),
    ("MSP", 0, b"LinS"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signature_is_reached() {
        for (name, offset, magic) in OTHERS {
            let mut data = vec![0xee; *offset];
            data.extend_from_slice(magic);
            assert_eq!(sniff(&data), Format::Other(name), "{name}");
            data.pop();
            assert_ne!(sniff(&data), Format::Other(name), "{name}");
        }
    }

    #[test]
    fn native_formats_and_what_is_none() {
        assert_eq!(sniff(b"BM"), Format::Bmp);
        assert_eq!(sniff(b"\x28\0\0\0"), Format::Dib);
        assert_eq!(sniff(b"GIF89a"), Format::Gif);
        assert_eq!(sniff(b"\xff\xd8\xff"), Format::Jpeg);
        assert_eq!(sniff(b"\x89PNG\r\n\x1a\n"), Format::Png);
        assert_eq!(sniff(b"RIFF....WEBPVP8L"), Format::WebP);
        for data in [&b""[..], b"\xff", b"\0\xff\xd8\xff", b"\x89PNG\r\n\x1a", b"RIFF....WEBPVP9 ", b"<svg>"]
        {
            assert_eq!(sniff(data), Format::Other("unknown"), "{data:?}");
        }
    }
}
