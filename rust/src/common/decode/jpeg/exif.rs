//! Whether Pillow can open a file that carries these EXIF data.
//!
//! While opening, Pillow looks into the EXIF data for a resolution if the file has none elsewhere. It forgives
//! whatever it finds there, but for one thing: a text or byte string that ends before its second entry raises
//! `IndexError`, and the file counts as no JPEG.

const RESOLUTION_UNIT: u16 = 0x0128;
const X_RESOLUTION: u16 = 0x011a;
const SIGNATURE: &[u8] = b"Exif\0\0";

/// Whether Pillow fails over the resolution in `exif`, the joined contents of the EXIF segments.
pub fn breaks_pillow(exif: &[u8]) -> bool {
    let exif = exif.strip_prefix(SIGNATURE).unwrap_or(exif);
    let exif = exif.strip_prefix(SIGNATURE).unwrap_or(exif);
    let Some(directory) = Directory::open(exif) else { return false };
    let [Some(_), Some((kind, value))] = directory.first_values([RESOLUTION_UNIT, X_RESOLUTION]) else {
        return false;
    };
    match kind {
        BYTES | UNDEFINED => value.len() == 1,
        TEXT => match value.strip_suffix(b"\0").unwrap_or(value) {
            [] => true,
            [only] => only.is_ascii_digit(),
            _ => false,
        },
        _ => false,
    }
}

const BYTES: u16 = 1;
const TEXT: u16 = 2;
const UNDEFINED: u16 = 7;

struct Directory<'a> {
    data: &'a [u8],
    at: usize,
    is_big_endian: bool,
}

impl<'a> Directory<'a> {
    fn open(data: &'a [u8]) -> Option<Self> {
        let head: &[u8; 8] = data.first_chunk()?;
        let is_big_endian = match &head[..4] {
            b"MM\x00\x2a" | b"MM\x2a\x00" | b"MM\x00\x2b" => true,
            b"II\x2a\x00" | b"II\x00\x2a" => false,
            _ => return None,
        };
        let mut directory = Self { data, at: 0, is_big_endian };
        directory.at = directory.u32(&head[4..])? as usize;
        Some(directory)
    }

    // The first readable value of each tag, as long as Pillow reads on: a value beyond the end stops it.
    fn first_values(mut self, tags: [u16; 2]) -> [Option<(u16, &'a [u8])>; 2] {
        let mut found = [None; 2];
        let Some(count) = self.take(2).and_then(|bytes| self.u16(bytes)) else { return found };
        let mut out_of_line_bytes = 0_u64;
        for _ in 0..count {
            let Some(entry) = self.take(12) else { break };
            let (Some(tag), Some(kind), Some(length)) =
                (self.u16(entry), self.u16(&entry[2..]), self.u32(&entry[4..]))
            else {
                break;
            };
            let slot = tags.iter().position(|wanted| *wanted == tag);
            if slot.is_some_and(|slot| found[slot].is_some()) {
                continue;
            }
            let Some(unit_bytes) = unit_bytes(kind) else { continue };
            let size = u64::from(length) * unit_bytes;
            let value = if size > 4 {
                out_of_line_bytes += size;
                if out_of_line_bytes > self.data.len() as u64 {
                    continue;
                }
                let Some(start) = self.u32(&entry[8..]) else { break };
                let Some(value) = self.data.get(start as usize..).and_then(|rest| rest.get(..size as usize))
                else {
                    break;
                };
                value
            } else {
                &entry[8..8 + size as usize]
            };
            if let (Some(slot), false) = (slot, value.is_empty()) {
                found[slot] = Some((kind, value));
            }
        }
        found
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let bytes = self.data.get(self.at..)?.get(..len)?;
        self.at += len;
        Some(bytes)
    }

    fn u16(&self, bytes: &[u8]) -> Option<u16> {
        let bytes = *bytes.first_chunk()?;
        Some(if self.is_big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }

    fn u32(&self, bytes: &[u8]) -> Option<u32> {
        let bytes = *bytes.first_chunk()?;
        Some(if self.is_big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }
}

// Of the types that Pillow knows.
fn unit_bytes(kind: u16) -> Option<u64> {
    match kind {
        1 | 2 | 6 | 7 => Some(1),
        3 | 8 => Some(2),
        4 | 9 | 11 | 13 => Some(4),
        5 | 10 | 12 | 16 => Some(8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exif(kind: u16, count: u32, value: &[u8; 4]) -> Vec<u8> {
        let mut data = b"Exif\0\0II*\0\x08\0\0\0\x02\0".to_vec();
        for (tag, kind, count, value) in
            [(RESOLUTION_UNIT, 3, 1, b"\x02\0\0\0"), (X_RESOLUTION, kind, count, value)]
        {
            data.extend(tag.to_le_bytes());
            data.extend(kind.to_le_bytes());
            data.extend(count.to_le_bytes());
            data.extend(value);
        }
        data
    }

    #[test]
    fn short_strings_break_and_nothing_else_does() {
        assert!(breaks_pillow(&exif(BYTES, 1, b"\x07\0\0\0")));
        assert!(breaks_pillow(&exif(UNDEFINED, 1, b"\0\0\0\0")));
        assert!(breaks_pillow(&exif(TEXT, 1, b"\0\0\0\0")));
        assert!(breaks_pillow(&exif(TEXT, 2, b"7\0\0\0")));
        assert!(!breaks_pillow(&exif(TEXT, 2, b"x\0\0\0")));
        assert!(!breaks_pillow(&exif(TEXT, 3, b"72\0\0")));
        assert!(!breaks_pillow(&exif(BYTES, 2, b"\x07\x01\0\0")));
        assert!(!breaks_pillow(&exif(BYTES, 0, b"\x07\0\0\0")));
        assert!(!breaks_pillow(&exif(3, 1, b"\x07\0\0\0")));
        assert!(!breaks_pillow(&exif(5, 1, b"\xff\xff\xff\xff")));
    }

    #[test]
    fn any_prefix_is_read_without_a_panic() {
        let whole = exif(BYTES, 1, b"\x07\0\0\0");
        for len in 0..whole.len() {
            assert!(!breaks_pillow(&whole[..len]));
        }
    }
}
