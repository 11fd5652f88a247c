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
    /// Not decoded natively: Pillow's name, or `"unknown"`.
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
        Format::Other("unknown")
    }
}
