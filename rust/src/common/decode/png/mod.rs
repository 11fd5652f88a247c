//! PNG and APNG (first image), with Pillow's verdicts.
//!
//! The good path inflates and unfilters band by band, in memory that stays in cache. A stream that is not
//! in perfect order is decoded again in the exact steps of Pillow, because its verdict depends on them.

mod blocks;
mod chunks;
mod expand;
mod inflate;
mod layout;
mod rows;
mod text;
mod unfilter;

use super::codec::check_row_bits;
use super::{Header, RgbImage};
use crate::common::limits::Limits;
use crate::common::memory::Buffer;
use crate::common::simd::{self, Level};
use crate::error::{CoreError, Result};

use blocks::Blocks;
use chunks::{Extent, Stream, Transparency};
use expand::Palette;
use inflate::{Inflate, Status, WINDOW_BYTES};
use layout::{Layout, Mode};
use rows::{Area, Rows};

/// Bytes inflated before they are unfiltered.
const BAND_BYTES: usize = 192 << 10;
// The inflater's fast loop needs some room behind the band.
const SLACK_BYTES: usize = 512;

fn broken(reason: impl Into<String>) -> CoreError {
    CoreError::decode("PNG", reason)
}

/// What Pillow's `open` finds.
pub(super) fn header(data: &[u8]) -> Result<Header> {
    let stream = Stream::open(data)?;
    Ok(Header { format: "PNG", width: stream.size.0 as usize, height: stream.size.1 as usize })
}

/// The pixels of `header`. `limits.max_pixels` is at most Pillow's own limit.
pub(super) fn decode(data: &[u8], header: &Header, limits: &Limits) -> Result<RgbImage> {
    limits.check_pixels(header.width as u64, header.height as u64)?;
    let stream = Stream::open(data)?;
    let (Some(layout), Some(tile)) = (stream.layout, stream.tile) else {
        return Err(broken("there is no image data"));
    };
    let picture = Picture::new(&stream, layout, header, tile.extent)?;
    let animated = stream.is_animated();
    let mut image = RgbImage::unfilled(header.width, header.height, "png")?;
    let blocks = Blocks::new(stream, &tile);
    let end = match picture.decode_sound(blocks.clone(), &mut image)? {
        Some(end) => end,
        None => picture.decode_as_pillow(blocks, &mut image)?,
    };
    picture.colour_greys(&mut image);
    let stream = end.stream.finish(end.left, animated)?;
    check_transparency(stream.transparency, layout.mode(), picture.has_palette)?;
    Ok(image)
}

struct Picture {
    layout: Layout,
    palette: Palette,
    has_palette: bool,
    interlaced: bool,
    area: Area,
    covers_all: bool,
    level: Level,
}

impl Picture {
    fn new(stream: &Stream, layout: Layout, header: &Header, extent: Extent) -> Result<Self> {
        let area = match extent {
            Extent::Absent => Area { left: 0, top: 0, width: header.width, height: header.height },
            Extent::Rectangle([left, top, right, bottom]) => {
                if right <= left
                    || bottom <= top
                    || right > header.width as u64
                    || bottom > header.height as u64
                {
                    return Err(broken("an animation frame lies outside the picture"));
                }
                let [left, top, right, bottom] = [left, top, right, bottom].map(|side| side as usize);
                Area { left, top, width: right - left, height: bottom - top }
            }
            Extent::Text => return Err(broken("the extent of the first frame is a text")),
        };
        check_row_bits(area.width, layout.pixel_bits(), "PNG")?;
        let content = stream.palette.unwrap_or_default();
        if content.len() * 8 / 24 > 256 {
            return Err(broken("the palette has more than 256 colours"));
        }
        // Only a file with two headers has a palette without being a palette image.
        if stream.palette.is_some() && !matches!(layout.mode(), Mode::Palette | Mode::Grey | Mode::GreyAlpha)
        {
            return Err(broken("the palette does not fit the kind of picture"));
        }
        Ok(Self {
            layout,
            palette: expand::palette(content),
            has_palette: stream.palette.is_some(),
            interlaced: stream.interlaced,
            covers_all: (area.width, area.height) == (header.width, header.height),
            area,
            level: simd::level()?,
        })
    }

    // Pillow hangs a palette on a grey image after decoding, which makes its values indices.
    fn colour_greys(&self, image: &mut RgbImage) {
        if self.has_palette && self.layout.mode() != Mode::Palette {
            for pixel in image.pixels.bytes_mut().as_chunks_mut::<3>().0 {
                *pixel = self.palette[usize::from(pixel[0])];
            }
        }
    }

    fn rows<'a>(&'a self, image: &'a mut RgbImage) -> Rows<'a> {
        let width = image.width;
        let pixels = image.pixels.bytes_mut();
        Rows::new(self.layout, &self.palette, self.area, self.interlaced, pixels, width, self.level)
    }

    /// Decodes a picture whose data is complete, sound and nothing more; `None` if it is anything else.
    fn decode_sound<'a>(&self, mut blocks: Blocks<'a>, image: &mut RgbImage) -> Result<Option<Blocks<'a>>> {
        if !self.covers_all {
            return Ok(None);
        }
        let mut rows = self.rows(image);
        let mut left = Rows::total_bytes(self.layout, self.area, self.interlaced);
        let longest_row_bytes = self.layout.row_bytes(self.area.width) + 1;
        let mut window = Window::new(longest_row_bytes.max(BAND_BYTES.min(left)))?;
        let mut inflate = Inflate::new(self.level);
        let mut input: &[u8] = &[];
        loop {
            if window.filled == window.capacity() {
                window.slide();
            }
            let limit = window.capacity().min(window.taken + left);
            let (used, status) = inflate.run(input, window.buffer.bytes_mut(), &mut window.filled, limit);
            input = &input[used..];
            loop {
                let waiting = &window.buffer.bytes()[window.taken..window.filled];
                match rows.push_some(waiting) {
                    Ok(0) => break,
                    Ok(bytes) => {
                        window.taken += bytes;
                        left -= bytes;
                    }
                    Err(_) => return Ok(None),
                }
            }
            match status {
                Status::End if rows.is_complete() => return Ok(Some(blocks)),
                Status::Ok if input.is_empty() => match blocks.next_chunk() {
                    Some(chunk) => input = chunk,
                    None => return Ok(None),
                },
                Status::Ok if !rows.is_complete() => {}
                _ => return Ok(None),
            }
        }
    }

    /// Decodes row by row and block by block, and stops where Pillow stops.
    fn decode_as_pillow<'a>(&self, mut blocks: Blocks<'a>, image: &mut RgbImage) -> Result<Blocks<'a>> {
        // What the data does not reach has value 0 before the conversion.
        let mut blank = [0; 3];
        expand::expand(self.layout, &self.palette, &[0; 8], &mut blank);
        image.pixels.bytes_mut().as_chunks_mut().0.fill(blank);
        let mut rows = self.rows(image);
        let mut window = Window::new(self.layout.row_bytes(self.area.width) + 1)?;
        let mut inflate = Inflate::new(self.level);
        loop {
            let mut block = blocks.next()?;
            if block.is_empty() {
                return Err(broken("the image data is truncated"));
            }
            while !block.is_empty() {
                let bytes = rows.next_bytes() + 1;
                window.slide_unless_room(bytes);
                let limit = window.taken + bytes;
                let (used, status) = inflate.run(block, window.buffer.bytes_mut(), &mut window.filled, limit);
                block = &block[used..];
                if status == Status::Broken {
                    return Err(broken("the compressed image data is broken"));
                }
                if window.filled < limit {
                    break;
                }
                rows.push(&window.buffer.bytes()[window.taken..limit])?;
                window.taken = limit;
                if rows.is_complete() || status == Status::End {
                    return Ok(blocks);
                }
            }
        }
    }
}

/// Inflated bytes: those that later ones may repeat, and those that are not yet taken as rows.
struct Window {
    buffer: Buffer,
    filled: usize,
    taken: usize,
}

impl Window {
    fn new(band_bytes: usize) -> Result<Self> {
        Ok(Self { buffer: Buffer::take(WINDOW_BYTES + band_bytes + SLACK_BYTES)?, filled: 0, taken: 0 })
    }

    fn capacity(&self) -> usize {
        self.buffer.len() - SLACK_BYTES
    }

    fn slide(&mut self) {
        let keep_from = self.taken.min(self.filled.saturating_sub(WINDOW_BYTES));
        self.buffer.bytes_mut().copy_within(keep_from..self.filled, 0);
        self.filled -= keep_from;
        self.taken -= keep_from;
    }

    fn slide_unless_room(&mut self, bytes: usize) {
        if self.taken + bytes > self.capacity() {
            self.slide();
        }
    }
}

/// Pillow carries the transparency over to the converted image, though nobody asked, and may fail in it.
fn check_transparency(transparency: Transparency, mode: Mode, has_palette: bool) -> Result<()> {
    let carried = match (mode, transparency) {
        (Mode::Grey | Mode::Palette, Transparency::Text) => false,
        (Mode::Palette, Transparency::Key) => has_palette,
        (Mode::Palette, Transparency::Colour(colour)) => {
            has_palette && colour.iter().all(|value| *value <= 255)
        }
        (Mode::Grey, Transparency::Colour(_)) => false,
        _ => true,
    };
    if carried { Ok(()) } else { Err(broken("the transparency does not fit the kind of picture")) }
}
