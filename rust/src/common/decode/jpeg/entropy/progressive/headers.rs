//! What lies between the scans: their headers and the codes for them.

use std::ops::Range;

use super::{MOST_COMPONENTS, Start};
use crate::common::decode::jpeg::entropy::code::Definition;
use crate::common::decode::jpeg::source::MOST_SCANS;

/// What a scan adds to its coefficients. `shift` is how many bits are still missing after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The mean values without their last bits.
    MeansFirst { shift: u32 },
    /// A bit of the mean values.
    MeansRefined { shift: u32 },
    /// Other coefficients from `first` to `last` without their last bits.
    First { first: u8, last: u8, shift: u32 },
    /// A bit of those.
    Refined { first: u8, last: u8, shift: u32 },
}

/// A scan.
#[derive(Debug)]
pub struct Header {
    pub kind: Kind,
    pub components: Vec<Member>,
    pub restart_interval: u32,
    /// Where its coded bytes are; a marker follows.
    pub coded: Range<usize>,
}

/// What a scan says of a component.
#[derive(Debug)]
pub struct Member {
    pub component: usize,
    pub definition: Definition,
}

// A coefficient of which no scan has told.
const UNKNOWN: u8 = 255;
// libjpeg smooths the picture if it does not know all of these to the last bit.
const WANTED: usize = 10;
// libjpeg takes no more.
const MOST_SHIFT: u8 = 13;

/// The scans that `data` begins with, from the marker of the first on, and where the end of the picture is. `None` unless all
/// that matters becomes known to the last bit, step by step.
pub fn read(data: &[u8], start: &Start, components: usize) -> Option<(Vec<Header>, usize)> {
    let names = start.names.get(..components)?;
    if (1..names.len()).any(|at| names[..at].contains(&names[at])) {
        return None;
    }
    let mut dc = start.dc;
    let mut ac = start.ac;
    let mut restart_interval = start.restart_interval;
    let mut missing = [[UNKNOWN; 64]; MOST_COMPONENTS];
    let mut headers = Vec::new();
    let mut at = 0;
    loop {
        let rest = data.get(at..)?;
        at += rest.iter().position(|&byte| byte != 0xff).filter(|&fill| fill > 0)?;
        let code = *data.get(at)?;
        if code == 0xd9 {
            let all_known = missing[..components].iter().all(|missing| missing[..WANTED] == [0; WANTED]);
            return all_known.then_some((headers, at - 1));
        }
        at += 1;
        let length = usize::from(u16::from_be_bytes(*data.get(at..)?.first_chunk()?));
        let content = data.get(at + 2..at + length)?;
        at += length;
        match (code, content) {
            (0xc4, _) => codes(content, &mut dc, &mut ac)?,
            (0xdd, &[high, low]) => restart_interval = u16::from_be_bytes([high, low]).into(),
            (0xda, _) if headers.len() < usize::from(MOST_SCANS) => {
                let coded = at..at + coded_length(data.get(at..)?)?;
                at = coded.end;
                let mut header = header(content, names, &mut missing, [&dc, &ac])?;
                (header.restart_interval, header.coded) = (restart_interval, coded);
                headers.push(header);
            }
            _ => return None,
        }
    }
}

// Definitions of codes, as many as there are.
fn codes(mut content: &[u8], dc: &mut [Definition; 4], ac: &mut [Definition; 4]) -> Option<()> {
    while let Some((&[class_and_number, counts @ ..], rest)) = content.split_first_chunk::<17>() {
        let tables = match class_and_number >> 4 {
            0 => &mut *dc,
            1 => &mut *ac,
            _ => return None,
        };
        let table = tables.get_mut(usize::from(class_and_number & 15))?;
        let count = counts.iter().map(|&count| usize::from(count)).sum();
        let (symbols, rest) = rest.split_at_checked(count)?;
        *table = Definition { counts: [0; 17], symbols: [0; 256] };
        table.counts[1..].copy_from_slice(&counts);
        table.symbols.get_mut(..count)?.copy_from_slice(symbols);
        content = rest;
    }
    content.is_empty().then_some(())
}

// The header of a scan, without what lies around it; its coefficients' missing bits become what they are after it.
fn header(
    content: &[u8],
    names: &[u8],
    missing: &mut [[u8; 64]; MOST_COMPONENTS],
    [dc, ac]: [&[Definition; 4]; 2],
) -> Option<Header> {
    let (&count, rest) = content.split_first()?;
    let (given, range) = rest.split_at_checked(2 * usize::from(count))?;
    let &[first, last, high_and_low] = range else { return None };
    let (high, low) = (high_and_low >> 4, high_and_low & 15);
    let are_means = first == 0;
    let is_sound = if are_means { last == 0 } else { count == 1 && first <= last && last < 64 };
    if count == 0 || !is_sound || low > MOST_SHIFT || high != 0 && high != low + 1 {
        return None;
    }
    let mut components = Vec::with_capacity(given.len() / 2);
    for &[name, tables] in given.as_chunks::<2>().0 {
        let component = names.iter().position(|&other| other == name)?;
        // libjpeg refuses some orders but this one.
        if components.last().is_some_and(|before: &Member| before.component >= component) {
            return None;
        }
        let before = if high == 0 { UNKNOWN } else { high };
        for missing in &mut missing[component][usize::from(first)..=usize::from(last)] {
            if *missing != before {
                return None;
            }
            *missing = low;
        }
        let (codes, number) = if are_means { (dc, tables >> 4) } else { (ac, tables & 15) };
        let definition = *codes.get(usize::from(number))?;
        components.push(Member { component, definition });
    }
    let shift = low.into();
    let kind = match (are_means, high) {
        (true, 0) => Kind::MeansFirst { shift },
        (true, _) => Kind::MeansRefined { shift },
        (false, 0) => Kind::First { first, last, shift },
        (false, _) => Kind::Refined { first, last, shift },
    };
    Some(Header { kind, components, restart_interval: 0, coded: 0..0 })
}

// Bytes up to the next marker that is no restart.
fn coded_length(data: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += first_ff(data.get(at..)?)?;
        match *data.get(at + 1)? {
            0 | 0xd0..=0xd7 => at += 2,
            _ => return Some(at),
        }
    }
}

fn first_ff(data: &[u8]) -> Option<usize> {
    const STEP_BYTES: usize = 32;
    let without = |step: &[u8; STEP_BYTES]| !step.iter().fold(false, |found, &byte| found | (byte == 0xff));
    let steps = data.as_chunks::<STEP_BYTES>().0.iter().take_while(|step| without(step)).count();
    let at = steps * STEP_BYTES;
    data[at..].iter().position(|&byte| byte == 0xff).map(|further| at + further)
}
