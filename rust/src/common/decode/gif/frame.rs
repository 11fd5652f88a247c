//! Screen, extensions and the first frame, read as leniently as Pillow reads them.

use super::broken;
use crate::error::Result;

const SCREEN_BYTES: usize = 13;

/// The part of the picture that the frame covers, in pixels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Area {
    pub(super) left: usize,
    pub(super) top: usize,
    pub(super) width: usize,
    pub(super) height: usize,
}

/// The first frame.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    /// Of the picture, not only the frame.
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) area: Area,
    pub(super) interlaced: bool,
    pub(super) transparent: Option<u8>,
    pub(super) code_bits: u8,
    /// From the first block of the compressed data to the end of the file.
    pub(super) data: &'a [u8],
    colours: Option<&'a [u8]>,
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Up to `length` bytes, as many as there are.
    fn read(&mut self, length: usize) -> &'a [u8] {
        let (bytes, rest) = self.rest.split_at(length.min(self.rest.len()));
        self.rest = rest;
        bytes
    }

    fn byte(&mut self) -> Option<u8> {
        self.read(1).first().copied()
    }

    /// The next block of an extension; `None` behind the last one.
    fn block(&mut self) -> Option<&'a [u8]> {
        let length = self.byte().filter(|length| *length > 0)?;
        Some(self.read(length.into()))
    }

    fn skip_blocks(&mut self) {
        while self.block().is_some_and(|block| !block.is_empty()) {}
    }

    fn colours(&mut self, flags: u8) -> Option<&'a [u8]> {
        (flags & 0x80 != 0).then(|| self.read(6 << (flags & 7)))
    }
}

impl<'a> Frame<'a> {
    /// Reads up to the first frame's data.
    pub(super) fn open(data: &'a [u8]) -> Result<Self> {
        let mut reader = Reader { rest: data };
        let Ok(screen) = <&[u8; SCREEN_BYTES]>::try_from(reader.read(SCREEN_BYTES)) else {
            return Err(broken("the screen descriptor is truncated"));
        };
        let global = reader.colours(screen[10]).filter(|colours| is_needed(colours));
        let mut transparent = None;
        // The first byte may not end the file; later ones that mean nothing are passed over.
        let mut introducer = reader.byte().filter(|byte| *byte != b';');
        loop {
            match introducer {
                None | Some(b';') => return Err(broken("there is no frame")),
                Some(b'!') => extension(&mut reader, &mut transparent)?,
                Some(b',') => break,
                Some(_) => {}
            }
            introducer = reader.byte();
        }
        let Ok(descriptor) = <&[u8; 9]>::try_from(reader.read(9)) else {
            return Err(broken("the frame descriptor is truncated"));
        };
        let flags = descriptor[8];
        let local = reader.colours(flags);
        let Some(code_bits) = reader.byte() else {
            return Err(broken("the frame is truncated"));
        };
        let area = Area {
            left: le16(descriptor, 0),
            top: le16(descriptor, 2),
            width: le16(descriptor, 4),
            height: le16(descriptor, 6),
        };
        let frame = Self {
            width: le16(screen, 6).max(area.left + area.width),
            height: le16(screen, 8).max(area.top + area.height),
            area,
            interlaced: flags & 0x40 != 0,
            transparent,
            code_bits,
            data: reader.rest,
            // A local table that is the grey ramp is dropped, and then the global one shows through.
            colours: local.filter(|colours| is_needed(colours)).or(global),
        };
        if frame.width == 0 || frame.height == 0 {
            return Err(broken("the picture is empty"));
        }
        Ok(frame)
    }

    /// The colour of each index: greys without a table, black past its end.
    pub(super) fn palette(&self) -> [[u8; 3]; 256] {
        match self.colours {
            None => std::array::from_fn(|index| [index as u8; 3]),
            Some(colours) => {
                let mut palette = [[0; 3]; 256];
                for (colour, stored) in palette.iter_mut().zip(colours.as_chunks::<3>().0) {
                    *colour = *stored;
                }
                palette
            }
        }
    }
}

fn extension(reader: &mut Reader, transparent: &mut Option<u8>) -> Result<()> {
    let Some(label) = reader.byte() else {
        return Err(broken("an extension is truncated"));
    };
    let block = reader.block();
    match (label, block) {
        (0xf9, Some(block)) => match *block {
            [flags, _, _, index, ..] if flags & 1 != 0 => *transparent = Some(index),
            [flags, _, _, ..] if flags & 1 == 0 => {}
            _ => return Err(broken("a graphic control extension is too short")),
        },
        // A comment ends where its blocks end; all others are searched for an end once more.
        (0xfe, None) => return Ok(()),
        (0xfe, Some(block)) => {
            if !block.is_empty() {
                reader.skip_blocks();
            }
            return Ok(());
        }
        (0xff, Some(block)) if block.starts_with(b"NETSCAPE2.0") => {
            reader.block();
        }
        _ => {}
    }
    reader.skip_blocks();
    Ok(())
}

/// Whether the colours are anything but the grey ramp.
fn is_needed(colours: &[u8]) -> bool {
    colours
        .chunks(3)
        .enumerate()
        .any(|(index, colour)| colour.iter().any(|value| usize::from(*value) != index))
}

fn le16(bytes: &[u8], at: usize) -> usize {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u16::from_le_bytes(*bytes).into())
}
