//! Text and profile chunks. Their content changes no pixel, but Pillow unpacks them, and refuses files in which they
//! are too large or oddly packed.

use super::broken;
use super::inflate::{Inflate, Status};
use crate::common::simd::Level;
use crate::error::Result;

/// Pillow's `MAX_TEXT_CHUNK`.
const MOST_UNPACKED_BYTES: usize = 1 << 20;
const FIRST_UNPACKED_BYTES: usize = 16 << 10;

/// A text that Pillow puts among the facts of the image.
pub(super) struct Entry<'a> {
    pub(super) keyword: &'a [u8],
    pub(super) characters: u64,
}

/// Checks an `iCCP` chunk.
pub(super) fn check_profile(content: &[u8]) -> Result<()> {
    // Without a terminator, the search yields -1, and the method is the first byte.
    let method_at = content.iter().position(|byte| *byte == 0).map_or(0, |end| end + 1);
    match content.get(method_at) {
        Some(0) => unpack(&content[method_at + 1..]).map(|_| ()),
        Some(_) => Err(broken("the compression method of the profile is unknown")),
        None => Err(broken("the profile chunk is too short")),
    }
}

/// Reads a `tEXt` chunk.
pub(super) fn plain(content: &[u8]) -> Result<Option<Entry<'_>>> {
    let (keyword, value) = split(content).unwrap_or((content, &[]));
    Ok(entry(keyword, value.len()))
}

/// Reads a `zTXt` chunk.
pub(super) fn compressed(content: &[u8]) -> Result<Option<Entry<'_>>> {
    let (keyword, packed) = split(content).unwrap_or((content, &[]));
    let packed = match packed.split_first() {
        Some((0, packed)) => packed,
        Some(_) => return Err(broken("the compression method of a text is unknown")),
        None => packed,
    };
    let value = unpack(packed)?.unwrap_or_default();
    Ok(entry(keyword, value.len()))
}

/// Reads an `iTXt` chunk.
pub(super) fn international(content: &[u8]) -> Result<Option<Entry<'_>>> {
    let Some((keyword, rest)) = split(content) else { return Ok(None) };
    let [flag, method, rest @ ..] = rest else { return Ok(None) };
    let Some((language, rest)) = split(rest) else { return Ok(None) };
    let Some((translated, value)) = split(rest) else { return Ok(None) };
    let unpacked;
    let value = match (flag, method) {
        (0, _) => value,
        (_, 0) => match unpack(value)? {
            Some(value) => {
                unpacked = value;
                &unpacked
            }
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    let valid = |bytes| std::str::from_utf8(bytes).ok();
    let (Some(_), Some(_), Some(value)) = (valid(language), valid(translated), valid(value)) else {
        return Ok(None);
    };
    Ok(Some(Entry { keyword, characters: value.chars().count() as u64 }))
}

fn entry(keyword: &[u8], value_bytes: usize) -> Option<Entry<'_>> {
    (!keyword.is_empty()).then_some(Entry { keyword, characters: value_bytes as u64 })
}

fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == 0)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

/// What Python's `zlib` makes of it with a limit; `None` if the stream is broken, which Pillow lets pass.
fn unpack(packed: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut inflate = Inflate::new(Level::Scalar);
    let mut out = Vec::new();
    let (mut taken, mut written) = (0, 0);
    let mut room = FIRST_UNPACKED_BYTES;
    loop {
        out.resize(room, 0);
        let (count, status) = inflate.run(&packed[taken..], &mut out, &mut written, room);
        taken += count;
        match status {
            Status::Broken | Status::NeedDictionary => return Ok(None),
            Status::Ok if written == room && room < MOST_UNPACKED_BYTES => room *= 2,
            Status::Ok if written == room && taken < packed.len() => {
                return Err(broken("a text or profile is too large when unpacked"));
            }
            Status::Ok | Status::End => {
                out.truncate(written);
                return Ok(Some(out));
            }
        }
    }
}
