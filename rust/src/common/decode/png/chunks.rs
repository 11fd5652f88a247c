//! The chunk stream as Pillow walks it: what it checks, what it passes over, what it remembers.
//!
//! Up to the image data every chunk is checked, its checksum too; behind the data only what the chunks hold.
//! Text chunks write into the same dictionary as the rest, so one whose keyword is `interlace` or `transparency`
//! changes how Pillow decodes. It is all kept.

use libdeflater::Crc;

use super::broken;
use super::layout::{Layout, Mode};
use super::text;
use crate::error::Result;

const MOST_TEXT_BYTES: u64 = 64 << 20;

/// Where a chunk's data starts, and how long it says it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chunk {
    pub(super) name: [u8; 4],
    pub(super) at: usize,
    pub(super) length: usize,
}

/// What became of a chunk.
pub(super) enum Call<'a> {
    /// It was read.
    Read(&'a [u8]),
    /// Image data starts, or the file ends.
    Stop,
    /// It means nothing to Pillow.
    Unknown,
}

/// The value under `transparency`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transparency {
    Absent,
    /// One grey value or palette index.
    Key,
    Colour([u16; 3]),
    /// An alpha value for each palette entry.
    Alphas,
    Text,
}

/// The value under `bbox`: the part of the picture that the image data covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    Absent,
    /// Left, top, right, bottom.
    Rectangle([u64; 4]),
    Text,
}

/// Where the image data starts, and what it covers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tile {
    pub(super) at: usize,
    pub(super) length: usize,
    pub(super) extent: Extent,
}

/// A PNG file, read up to some chunk.
#[derive(Debug, Clone)]
pub(super) struct Stream<'a> {
    data: &'a [u8],
    pub(super) at: usize,
    pushed: Option<Chunk>,
    pub(super) size: (u32, u32),
    pub(super) layout: Option<Layout>,
    pub(super) interlaced: bool,
    pub(super) palette: Option<&'a [u8]>,
    pub(super) transparency: Transparency,
    pub(super) tile: Option<Tile>,
    extent: Extent,
    frames: Option<u32>,
    default_image: bool,
    sequence: Option<u32>,
    text_bytes: u64,
}

impl<'a> Stream<'a> {
    /// Reads up to the image data.
    pub(super) fn open(data: &'a [u8]) -> Result<Self> {
        let mut stream = Self {
            data,
            at: 8.min(data.len()),
            pushed: None,
            size: (0, 0),
            layout: None,
            interlaced: false,
            palette: None,
            transparency: Transparency::Absent,
            tile: None,
            extent: Extent::Absent,
            frames: None,
            default_image: false,
            sequence: None,
            text_bytes: 0,
        };
        loop {
            let chunk = stream.next()?;
            let content = match stream.call(chunk)? {
                Call::Read(content) => content,
                Call::Stop => break,
                Call::Unknown => stream.read_exact(chunk.length)?,
            };
            stream.check_sum(chunk.name, content)?;
        }
        if stream.layout.is_none() || stream.size.0 == 0 || stream.size.1 == 0 {
            return Err(broken("there is no usable header"));
        }
        Ok(stream)
    }

    /// The header of the next chunk.
    pub(super) fn next(&mut self) -> Result<Chunk> {
        if let Some(chunk) = self.pushed.take() {
            self.at = chunk.at;
            return Ok(chunk);
        }
        let header = self.read(8);
        let Some((length, name)) = header.split_first_chunk() else {
            return Err(broken("the file ends where a chunk should start"));
        };
        match <[u8; 4]>::try_from(name) {
            Ok(name) if name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_') => {
                Ok(Chunk { name, at: self.at, length: u32::from_be_bytes(*length) as usize })
            }
            _ => Err(broken("a chunk has no valid name")),
        }
    }

    /// Lets [`Self::next`] return `chunk` once more.
    pub(super) fn push(&mut self, chunk: Chunk) {
        self.pushed = Some(chunk);
    }

    /// Up to `length` bytes, as many as there are.
    pub(super) fn read(&mut self, length: usize) -> &'a [u8] {
        let end = self.at.saturating_add(length).min(self.data.len());
        let bytes = &self.data[self.at..end];
        self.at = end;
        bytes
    }

    pub(super) fn read_exact(&mut self, length: usize) -> Result<&'a [u8]> {
        let bytes = self.read(length);
        if bytes.len() == length { Ok(bytes) } else { Err(broken("a chunk is truncated")) }
    }

    fn check_sum(&mut self, name: [u8; 4], content: &[u8]) -> Result<()> {
        let stored = self.read(4);
        let mut crc = Crc::new();
        crc.update(&name);
        crc.update(content);
        if stored == crc.sum().to_be_bytes() {
            return Ok(());
        }
        Err(broken("a chunk before the image data has a wrong checksum"))
    }

    /// Pillow's handler of the chunk.
    pub(super) fn call(&mut self, chunk: Chunk) -> Result<Call<'a>> {
        match &chunk.name {
            b"IHDR" => self.header(chunk.length),
            b"IDAT" => Ok(self.image_data(chunk.at, chunk.length)),
            b"fdAT" => self.frame_data(chunk),
            b"IEND" => Ok(Call::Stop),
            b"PLTE" => {
                let content = self.read_exact(chunk.length)?;
                if self.layout.map(Layout::mode) == Some(Mode::Palette) {
                    self.palette = Some(content);
                }
                Ok(Call::Read(content))
            }
            b"tRNS" => self.transparency(chunk.length),
            b"gAMA" => self.read_at_least(chunk.length, 4),
            b"cHRM" => self.read_at_least(chunk.length, 32),
            b"sRGB" => self.read_at_least(chunk.length, 1),
            b"pHYs" => self.read_at_least(chunk.length, 9),
            b"eXIf" => self.read_at_least(chunk.length, 0),
            b"iCCP" => {
                let content = self.read_exact(chunk.length)?;
                text::check_profile(content)?;
                Ok(Call::Read(content))
            }
            b"tEXt" => self.text(chunk.length, text::plain),
            b"zTXt" => self.text(chunk.length, text::compressed),
            b"iTXt" => self.text(chunk.length, text::international),
            b"acTL" => self.animation(chunk.length),
            b"fcTL" => self.frame(chunk.length),
            _ => Ok(Call::Unknown),
        }
    }

    fn read_at_least(&mut self, length: usize, least: usize) -> Result<Call<'a>> {
        let content = self.read_exact(length)?;
        if length < least { Err(broken("a chunk is too short")) } else { Ok(Call::Read(content)) }
    }

    fn header(&mut self, length: usize) -> Result<Call<'a>> {
        let content = self.read_exact(length)?;
        let (Some(width), Some(height), Some(&[depth_bits, colour_type, _, filter, interlace])) = (
            content.first_chunk().map(|bytes| u32::from_be_bytes(*bytes)),
            content.get(4..).and_then(<[u8]>::first_chunk).map(|bytes| u32::from_be_bytes(*bytes)),
            content.get(8..).and_then(<[u8]>::first_chunk::<5>),
        ) else {
            return Err(broken("the header is too short"));
        };
        self.size = (width, height);
        self.layout = Layout::new(depth_bits, colour_type).or(self.layout);
        self.interlaced |= interlace != 0;
        if filter != 0 {
            return Err(broken("the filter method is unknown"));
        }
        Ok(Call::Read(content))
    }

    fn image_data(&mut self, at: usize, length: usize) -> Call<'a> {
        if self.extent == Extent::Absent && self.frames.is_some() {
            self.default_image = true;
        }
        if self.layout.is_none() {
            return Call::Unknown;
        }
        self.tile = Some(Tile { at, length, extent: self.extent });
        Call::Stop
    }

    fn frame_data(&mut self, chunk: Chunk) -> Result<Call<'a>> {
        if chunk.length < 4 {
            return Err(broken("animation data is too short"));
        }
        let number = be32(self.read_exact(4)?, 0);
        self.count_frame(number, false)?;
        Ok(self.image_data(chunk.at + 4, chunk.length - 4))
    }

    fn count_frame(&mut self, number: u32, may_be_first: bool) -> Result<()> {
        let follows = match self.sequence {
            None => may_be_first && number == 0,
            Some(last) => last.checked_add(1) == Some(number),
        };
        self.sequence = Some(number);
        if follows { Ok(()) } else { Err(broken("animation frames are out of sequence")) }
    }

    fn transparency(&mut self, length: usize) -> Result<Call<'a>> {
        let content = self.read_exact(length)?;
        let Some(mode) = self.layout.map(Layout::mode) else { return Ok(Call::Read(content)) };
        match mode {
            Mode::Palette => {
                self.transparency =
                    if is_single_key(content) { Transparency::Key } else { Transparency::Alphas };
            }
            Mode::Bilevel | Mode::Grey | Mode::Grey16 | Mode::Rgb => {
                if length < if mode == Mode::Rgb { 6 } else { 2 } {
                    return Err(broken("the transparency chunk is too short"));
                }
                self.transparency = if mode == Mode::Rgb {
                    Transparency::Colour([0, 2, 4].map(|at| be16(content, at)))
                } else {
                    Transparency::Key
                };
            }
            Mode::GreyAlpha | Mode::Rgba => {}
        }
        Ok(Call::Read(content))
    }

    fn text(
        &mut self,
        length: usize,
        read: fn(&[u8]) -> Result<Option<text::Entry<'_>>>,
    ) -> Result<Call<'a>> {
        let content = self.read_exact(length)?;
        if let Some(entry) = read(content)? {
            match entry.keyword {
                b"interlace" => self.interlaced = entry.characters > 0,
                b"transparency" => self.transparency = Transparency::Text,
                b"bbox" => self.extent = Extent::Text,
                b"default_image" => self.default_image = entry.characters > 0,
                _ => {}
            }
            self.text_bytes += entry.characters;
            if self.text_bytes > MOST_TEXT_BYTES {
                return Err(broken("the text chunks hold too much"));
            }
        }
        Ok(Call::Read(content))
    }

    fn animation(&mut self, length: usize) -> Result<Call<'a>> {
        let call = self.read_at_least(length, 8)?;
        let Call::Read(content) = call else { return Ok(call) };
        // A second one takes the first one back.
        self.frames = match (self.frames, be32(content, 0)) {
            (None, count @ 1..=0x8000_0000) => Some(count),
            _ => None,
        };
        Ok(call)
    }

    fn frame(&mut self, length: usize) -> Result<Call<'a>> {
        let call = self.read_at_least(length, 26)?;
        let Call::Read(content) = call else { return Ok(call) };
        self.count_frame(be32(content, 0), true)?;
        let [width, height, left, top] = [4, 8, 12, 16].map(|at| u64::from(be32(content, at)));
        let (right, bottom) = (left + width, top + height);
        if right > self.size.0.into() || bottom > self.size.1.into() {
            return Err(broken("an animation frame lies outside the picture"));
        }
        self.extent = Extent::Rectangle([left, top, right, bottom]);
        Ok(call)
    }

    /// Whether Pillow counts more than one frame, given what it knew at the image data.
    pub(super) fn is_animated(&self) -> bool {
        self.frames.is_some_and(|frames| u64::from(frames) + u64::from(self.default_image) > 1)
    }

    /// Reads what follows the image data. `left` is how much of the current data chunk is unread.
    pub(super) fn finish(mut self, left: usize, animated: bool) -> Result<Self> {
        self.read(left);
        loop {
            self.read(4);
            let Ok(chunk) = self.next() else { return Ok(self) };
            if &chunk.name == b"IEND" || (&chunk.name == b"fcTL" && animated) {
                return Ok(self);
            }
            match self.call(chunk)? {
                Call::Read(_) => {}
                Call::Stop => {
                    let length = chunk.length - if &chunk.name == b"fdAT" { 4 } else { 0 };
                    self.read_exact(length)?;
                }
                Call::Unknown => {
                    self.read_exact(chunk.length)?;
                }
            }
        }
    }
}

/// Whether the alpha values are all 255 but for one 0, in which case Pillow keeps the index of that one. As in
/// its pattern, a line feed may follow.
fn is_single_key(alphas: &[u8]) -> bool {
    let opaque = |alphas: &[u8]| alphas.iter().take_while(|alpha| **alpha == 255).count();
    let from_zero = &alphas[opaque(alphas)..];
    let Some((0, behind)) = from_zero.split_first() else { return false };
    matches!(behind[opaque(behind)..], [] | [b'\n'])
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u16::from_be_bytes(*bytes))
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_be_bytes(*bytes))
}
