//! The segments before the first scan, read and judged as Pillow's `JpegImageFile._open` does.
//!
//! Pillow refuses files here that libjpeg would decode: a short application segment raises `IndexError` or
//! `struct.error` in a parser of something that has nothing to do with the pixels.

use super::exif;
use crate::error::{CoreError, Result};

/// The frame header in force at the first scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Width in pixels.
    pub width: usize,
    /// Height in pixels.
    pub height: usize,
}

/// Reads up to the first scan.
///
/// # Errors
/// [`CoreError::Decode`] where Pillow cannot open the file, or could not load what it opened.
pub fn read(data: &[u8]) -> Result<Frame> {
    let mut reader = Reader { data, at: 3 };
    let mut state = State::default();
    // The third byte of the signature is the first of the first marker.
    let mut byte = 0xff;
    loop {
        if byte == 0xff {
            let Some(code) = reader.byte() else { break };
            match code {
                0xda => {
                    reader.segment()?;
                    return state.finish();
                }
                0xff => continue,
                0x00 | 0xc8 | 0xd0..=0xd9 | 0xf0..=0xfd => {}
                0xc0..=0xfe => state.segment(code, reader.segment()?)?,
                _ => return Err(refuse("no marker found")),
            }
        }
        let Some(next) = reader.byte() else { break };
        byte = next;
    }
    Err(refuse("the file ends before its first scan"))
}

fn refuse(reason: &str) -> CoreError {
    CoreError::decode("JPEG", reason)
}

struct Reader<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let byte = self.data.get(self.at).copied()?;
        self.at += 1;
        Some(byte)
    }

    // A segment's content; a length under 2 is one without content.
    fn segment(&mut self) -> Result<&'a [u8]> {
        let rest = self.data.get(self.at..).unwrap_or_default();
        let length = u16_at(rest, 0).ok_or_else(|| refuse("a segment has no length"))?;
        let end = usize::from(length).max(2);
        let content = rest.get(2..end).ok_or_else(|| refuse("a segment is truncated"))?;
        self.at += end;
        Ok(content)
    }
}

#[derive(Default)]
struct State<'a> {
    frame: Option<Frame>,
    // Of the profile's parts since the last frame header, the one that sorts first.
    first_profile_part: Option<&'a [u8]>,
    has_resolution: bool,
    exif_parts: Vec<&'a [u8]>,
}

impl<'a> State<'a> {
    fn segment(&mut self, code: u8, content: &'a [u8]) -> Result<()> {
        match code {
            0xc4 | 0xcc | 0xdc | 0xdd | 0xdf | 0xfe => Ok(()),
            0xdb => quantization(content),
            0xe0..=0xef => self.application(code, content),
            _ => self.frame_header(content),
        }
    }

    fn finish(self) -> Result<Frame> {
        let frame = self.frame.ok_or_else(|| refuse("a scan without a frame"))?;
        if frame.width == 0 || frame.height == 0 {
            return Err(refuse("a side is 0"));
        }
        if !self.has_resolution && exif::breaks_pillow(&self.exif_parts.concat()) {
            return Err(refuse("a short resolution in the EXIF data"));
        }
        Ok(frame)
    }

    fn frame_header(&mut self, content: &[u8]) -> Result<()> {
        let [bits, rest @ ..] = content else { return Err(refuse("a short frame header")) };
        let (Some(height), Some(width)) = (u16_at(rest, 0), u16_at(rest, 2)) else {
            return Err(refuse("a short frame header"));
        };
        if *bits != 8 {
            return Err(refuse("samples of other than 8 bits"));
        }
        let Some((components, tables)) = rest.get(4..).and_then(<[u8]>::split_first) else {
            return Err(refuse("a short frame header"));
        };
        if !matches!(components, 1 | 3 | 4) {
            return Err(refuse("other than 1, 3 or 4 components"));
        }
        if self.first_profile_part.take().is_some_and(|part| part.len() < 14) {
            return Err(refuse("a short profile segment"));
        }
        if tables.len() % 3 != 0 {
            return Err(refuse("a short frame header"));
        }
        self.frame = Some(Frame { width: usize::from(width), height: usize::from(height) });
        Ok(())
    }

    fn application(&mut self, code: u8, content: &'a [u8]) -> Result<()> {
        let is_short = match code {
            0xe0 if content.starts_with(b"JFIF") => {
                // The unit: none, inch or centimetre.
                self.has_resolution |= content.len() >= 12 && matches!(content[7], 1 | 2);
                content.len() < 7
            }
            0xe1 if content.starts_with(b"Exif\0\0") => {
                self.exif_parts.push(if self.exif_parts.is_empty() { content } else { &content[6..] });
                false
            }
            0xe2 if content.starts_with(b"FPXR\0") => false,
            0xe2 if content.starts_with(b"ICC_PROFILE\0") => {
                let first = self.first_profile_part.get_or_insert(content);
                *first = (*first).min(content);
                false
            }
            0xed if content.starts_with(b"Photoshop 3.0\0") => photoshop_name_is_missing(content),
            0xee if content.starts_with(b"Adobe") => content.len() < 7,
            _ => false,
        };
        if is_short { Err(refuse("a short application segment")) } else { Ok(()) }
    }
}

fn quantization(mut content: &[u8]) -> Result<()> {
    while let Some(&kind) = content.first() {
        let entry_bytes = if kind < 16 { 1 } else { 2 };
        content = content.get(1 + 64 * entry_bytes..).ok_or_else(|| refuse("a short quantization table"))?;
    }
    Ok(())
}

// Pillow forgives an image resource that ends early, except where the length of its name should be.
fn photoshop_name_is_missing(content: &[u8]) -> bool {
    let mut at = 14;
    while content.get(at..).is_some_and(|rest| rest.starts_with(b"8BIM")) {
        let Some(code) = u16_at(content, at + 4) else { return false };
        let Some(&name_len) = content.get(at + 6) else { return true };
        at += 7 + usize::from(name_len);
        at += at & 1;
        let Some(size) =
            content.get(at..).and_then(<[u8]>::first_chunk).map(|size| u32::from_be_bytes(*size))
        else {
            return false;
        };
        at += 4;
        let end = at.saturating_add(size as usize);
        let resource = content.get(at..end.min(content.len())).unwrap_or_default();
        if code == 0x03ed && resource.len() < 14 {
            return false;
        }
        at = end;
        at += at & 1;
    }
    false
}

fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    data.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: &[u8] = b"\xff\xc0\x00\x0b\x08\x00\x30\x00\x40\x01\x01\x11\x00";
    const SCAN: &[u8] = b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00";

    fn file(parts: &[&[u8]]) -> Vec<u8> {
        [&[b"\xff\xd8".as_slice()], parts].concat().concat()
    }

    #[test]
    fn the_last_frame_before_the_scan_counts() {
        let frame = Frame { width: 64, height: 48 };
        assert_eq!(read(&file(&[FRAME, SCAN])), Ok(frame));
        let mut other = FRAME.to_vec();
        other[8] = 0x41;
        assert_eq!(read(&file(&[FRAME, &other, SCAN])), Ok(Frame { width: 65, ..frame }));
        assert_eq!(read(&file(&[b"\xff\xff\xff\x00\xff\xd9", FRAME, b"ab", SCAN, FRAME])), Ok(frame));
    }

    #[test]
    fn every_prefix_is_refused_without_a_panic() {
        let whole = file(&[FRAME, b"\xff\xed\x00\x1aPhotoshop 3.0\x008BIM\x03\xed\x00\x00\x00\x00", SCAN]);
        assert!(read(&whole).is_ok());
        for len in 0..whole.len() {
            assert!(read(&whole[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn what_pillow_stumbles_over_is_refused() {
        let before: [&[u8]; 6] = [
            b"\xff\x01",
            b"\xff\xe0\x00\x06JFIF",
            b"\xff\xee\x00\x07Adobe",
            b"\xff\xe2\x00\x0eICC_PROFILE\0",
            b"\xff\xed\x00\x16Photoshop 3.0\x008BIM\x03\xed",
            b"\xff\xdb\x00\x03\x00",
        ];
        for segment in before {
            assert!(read(&file(&[segment, FRAME, SCAN])).is_err(), "{segment:?}");
        }
        for (at, byte) in [(4, 12), (9, 2), (5, 0xff), (3, 0x0c)] {
            let mut frame = FRAME.to_vec();
            frame[at] = byte;
            let refused = read(&file(&[&frame, SCAN])).is_err();
            assert_eq!(refused, at != 5, "byte {at}");
        }
        for at in [5, 7] {
            let mut flat = FRAME.to_vec();
            flat[at..at + 2].fill(0);
            assert!(read(&file(&[&flat, SCAN])).is_err());
        }
    }
}
