//! Headers, masks and palette, and what Pillow concludes from them.

use super::broken;
use crate::error::Result;

const FILE_HEADER_BYTES: usize = 14;
const CORE_HEADER_BYTES: usize = 12;

/// What a stored pixel is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// Black or white, a bit each.
    Bits,
    Grey,
    Index1,
    Index4,
    Index8,
    Bgr555,
    Bgr565,
    Bgr,
    /// Four bytes, with the places of the colours among them.
    Bytes {
        r: usize,
        g: usize,
        b: usize,
    },
}

impl Layout {
    pub(super) fn pixel_bits(self) -> usize {
        match self {
            Self::Bits | Self::Index1 => 1,
            Self::Index4 => 4,
            Self::Grey | Self::Index8 => 8,
            Self::Bgr555 | Self::Bgr565 => 16,
            Self::Bgr => 24,
            Self::Bytes { .. } => 32,
        }
    }
}

/// How the pixels lie in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Storage {
    Raw { layout: Layout, row_bytes: usize },
    Rle { nibbles: bool },
}

/// Pillow's mode of the opened image, if it is not RGB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Bilevel,
    Grey,
    Palette,
    Colour,
}

/// A bitmap, read up to its pixels.
#[derive(Debug)]
pub(super) struct Bitmap {
    pub(super) format: &'static str,
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) top_down: bool,
    pub(super) mode: Mode,
    pub(super) storage: Storage,
    /// Where the pixels start.
    pub(super) offset: usize,
    /// The colour of each index, black past the end.
    pub(super) palette: [[u8; 3]; 256],
    pub(super) palette_is_too_long: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Compression {
    None,
    Rle8,
    Rle4,
    Masks([u32; 4]),
}

struct Info {
    width: u32,
    height: u32,
    top_down: bool,
    depth_bits: u16,
    compression: Compression,
    colours: u32,
    colour_bytes: usize,
}

struct Reader<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Up to `length` bytes, as many as there are.
    fn read(&mut self, length: usize) -> &'a [u8] {
        let end = self.at.saturating_add(length).min(self.data.len());
        let bytes = &self.data[self.at..end];
        self.at = end;
        bytes
    }

    fn u32(&mut self) -> Result<u32> {
        match self.read(4).first_chunk() {
            Some(bytes) => Ok(u32::from_le_bytes(*bytes)),
            None => Err(broken("the header is truncated")),
        }
    }
}

impl Bitmap {
    /// Reads up to the palette.
    pub(super) fn open(data: &[u8]) -> Result<Self> {
        let mut reader = Reader { data, at: 0 };
        let has_file_header = data.starts_with(b"BM");
        let mut offset = 0;
        if has_file_header {
            reader.at = 10.min(data.len());
            offset = u64::from(reader.u32()?);
        }
        let header_bytes = reader.u32()?;
        let info = Info::read(&mut reader, header_bytes as usize)?;
        if offset == (FILE_HEADER_BYTES as u64) + u64::from(header_bytes) && info.depth_bits <= 8 {
            offset += info.colour_bytes as u64 * u64::from(info.colours);
        }
        let layout = info.layout()?;
        let mut bitmap = Self {
            format: if has_file_header { "BMP" } else { "DIB" },
            width: info.width as usize,
            height: info.height as usize,
            top_down: info.top_down,
            mode: if info.depth_bits <= 8 { Mode::Palette } else { Mode::Colour },
            storage: match info.compression {
                Compression::Rle8 => Storage::Rle { nibbles: false },
                Compression::Rle4 => Storage::Rle { nibbles: true },
                Compression::None | Compression::Masks(_) => {
                    Storage::Raw { layout, row_bytes: info.row_bytes() }
                }
            },
            offset: 0,
            palette: [[0; 3]; 256],
            palette_is_too_long: false,
        };
        if bitmap.mode == Mode::Palette {
            bitmap.read_palette(&mut reader, &info)?;
        }
        bitmap.offset = if offset == 0 { reader.at } else { usize::try_from(offset).unwrap_or(usize::MAX) };
        if bitmap.width == 0 || bitmap.height == 0 {
            return Err(broken("the picture is empty"));
        }
        Ok(bitmap)
    }

    fn read_palette(&mut self, reader: &mut Reader, info: &Info) -> Result<()> {
        if !(1..=65_536).contains(&info.colours) {
            return Err(broken("the number of colours is impossible"));
        }
        let count = info.colours as usize;
        let content = reader.read(info.colour_bytes * count);
        let value = |index: usize| if count == 2 { index * 255 } else { index } as u8;
        let mut colours = content.chunks(info.colour_bytes);
        let is_grey = (0..count)
            .all(|index| colours.next().is_some_and(|colour| colour.get(..3) == Some(&[value(index); 3])));
        if is_grey {
            // Pillow then reads the pixels as whole bytes, or as bits, whatever their depth in the file.
            let (mode, layout) =
                if count <= 2 { (Mode::Bilevel, Layout::Bits) } else { (Mode::Grey, Layout::Grey) };
            self.mode = mode;
            if let Storage::Raw { layout: stored, .. } = &mut self.storage {
                *stored = layout;
            }
            return Ok(());
        }
        self.palette_is_too_long = content.len() / info.colour_bytes > 256;
        for (colour, stored) in self.palette.iter_mut().zip(content.chunks_exact(info.colour_bytes)) {
            *colour = [stored[2], stored[1], stored[0]];
        }
        Ok(())
    }
}

impl Info {
    fn read(reader: &mut Reader, header_bytes: usize) -> Result<Self> {
        // The length is checked before the kind, as in Pillow.
        let wanted = header_bytes.saturating_sub(4);
        let header = reader.read(wanted);
        if header.len() < wanted {
            return Err(broken("the header is truncated"));
        }
        if header_bytes == CORE_HEADER_BYTES {
            let depth_bits = le16(header, 6);
            return Ok(Self {
                width: le16(header, 0).into(),
                height: le16(header, 2).into(),
                top_down: false,
                depth_bits,
                compression: Compression::None,
                colours: 1_u32.checked_shl(depth_bits.into()).unwrap_or(0),
                colour_bytes: 3,
            });
        }
        if !matches!(header_bytes, 40 | 52 | 56 | 64 | 108 | 124) {
            return Err(broken("the kind of header is unknown"));
        }
        let top_down = header[7] == 0xff;
        let height = le32(header, 4);
        let depth_bits = le16(header, 10);
        let compression = match le32(header, 12) {
            0 => Compression::None,
            1 => Compression::Rle8,
            2 => Compression::Rle4,
            3 => Compression::Masks(masks(reader, header)?),
            _ => return Err(broken("the compression is unknown")),
        };
        Ok(Self {
            width: le32(header, 0),
            height: if top_down { height.wrapping_neg() } else { height },
            top_down,
            depth_bits,
            compression,
            colours: match le32(header, 28) {
                0 => 1_u32.checked_shl(depth_bits.into()).unwrap_or(0),
                colours => colours,
            },
            colour_bytes: 4,
        })
    }

    fn layout(&self) -> Result<Layout> {
        let by_depth = match self.depth_bits {
            1 => Layout::Index1,
            4 => Layout::Index4,
            8 => Layout::Index8,
            16 => Layout::Bgr555,
            24 => Layout::Bgr,
            32 => Layout::Bytes { r: 2, g: 1, b: 0 },
            _ => return Err(broken("the pixel depth is unknown")),
        };
        let Compression::Masks([r, g, b, alpha]) = self.compression else { return Ok(by_depth) };
        Ok(match (self.depth_bits, [r, g, b], alpha) {
            (32, [0xff_0000, 0xff00, 0xff], 0 | 0xff00_0000) | (32, [0, 0, 0], 0) => {
                Layout::Bytes { r: 2, g: 1, b: 0 }
            }
            (32, [0xff00_0000, 0xff_0000, 0xff00], 0 | 0xff) => Layout::Bytes { r: 3, g: 2, b: 1 },
            (32, [0xff00_0000, 0xff00, 0xff], 0 | 0xff_0000) => Layout::Bytes { r: 3, g: 1, b: 0 },
            (32, [0xff, 0xff00, 0xff_0000], 0xff00_0000) => Layout::Bytes { r: 0, g: 1, b: 2 },
            (24, [0xff_0000, 0xff00, 0xff], _) => Layout::Bgr,
            (16, [0xf800, 0x07e0, 0x001f], _) => Layout::Bgr565,
            (16, [0x7c00, 0x03e0, 0x001f], _) => Layout::Bgr555,
            _ => return Err(broken("the layout of the bit masks is unknown")),
        })
    }

    fn row_bytes(&self) -> usize {
        ((self.width as usize * usize::from(self.depth_bits) + 31) >> 3) & !3
    }
}

// Red, green, blue, alpha. The shortest header has no room for them; then three follow it.
fn masks(reader: &mut Reader, header: &[u8]) -> Result<[u32; 4]> {
    if header.len() >= 48 {
        let alpha = if header.len() >= 52 { le32(header, 48) } else { 0 };
        return Ok([le32(header, 36), le32(header, 40), le32(header, 44), alpha]);
    }
    Ok([reader.u32()?, reader.u32()?, reader.u32()?, 0])
}

fn le16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u16::from_le_bytes(*bytes))
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}
