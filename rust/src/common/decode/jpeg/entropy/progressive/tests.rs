//! What is taken and what is left to libjpeg. Whether the coefficients are right is seen in the pixels (tests/core).

use super::sets::{Plain, Sets};
use super::*;
use crate::common::random::Random;

fn start() -> Start {
    let mut definition = Definition { counts: [0; 17], symbols: [0; 256] };
    definition.counts[1] = 1;
    Start { dc: [definition; 4], ac: [definition; 4], restart_interval: 0, components: 1, names: [1, 2, 3] }
}

fn segment(code: u8, content: &[u8]) -> Vec<u8> {
    [&[0xff, code, 0, 2 + content.len() as u8], content].concat()
}

// A scan of the components with these names, with a byte of coded data.
fn scan(names: &[u8], first: u8, last: u8, high_and_low: u8) -> Vec<u8> {
    let members = names.iter().flat_map(|&name| [name, 0x11]);
    let content =
        [&[names.len() as u8][..], &members.collect::<Vec<_>>(), &[first, last, high_and_low]].concat();
    [segment(0xda, &content), vec![0x7f]].concat()
}

fn kinds(components: usize, parts: &[Vec<u8>]) -> Option<Vec<Kind>> {
    let (headers, end) = headers::read(&parts.concat(), &start(), components)?;
    assert_eq!(end + 2, parts.concat().len());
    Some(headers.iter().map(|header| header.kind).collect())
}

#[test]
fn scans_that_lead_to_the_last_bit_are_taken() {
    let end = || vec![0xff, 0xd9];
    let taken = kinds(
        3,
        &[
            scan(&[1, 2, 3], 0, 0, 1),
            segment(0xdd, &[0, 7]),
            scan(&[1], 1, 5, 2),
            scan(&[3], 1, 63, 0),
            vec![0xff, 0xff, 0xff],
            scan(&[2], 1, 9, 0),
            scan(&[1], 6, 63, 0),
            scan(&[1], 1, 5, 0x21),
            scan(&[1], 1, 3, 0x10),
            scan(&[1], 4, 5, 0x10),
            scan(&[1, 3], 0, 0, 0x10),
            scan(&[2], 0, 0, 0x10),
            end(),
        ],
    );
    let expected = [
        Kind::MeansFirst { shift: 1 },
        Kind::First { first: 1, last: 5, shift: 2 },
        Kind::First { first: 1, last: 63, shift: 0 },
        Kind::First { first: 1, last: 9, shift: 0 },
        Kind::First { first: 6, last: 63, shift: 0 },
        Kind::Refined { first: 1, last: 5, shift: 1 },
        Kind::Refined { first: 1, last: 3, shift: 0 },
        Kind::Refined { first: 4, last: 5, shift: 0 },
        Kind::MeansRefined { shift: 0 },
        Kind::MeansRefined { shift: 0 },
    ];
    assert_eq!(taken.as_deref(), Some(expected.as_slice()));
}

#[test]
fn others_are_not() {
    let means = || scan(&[1], 0, 0, 0);
    let rest = || scan(&[1], 1, 63, 0);
    let end = || vec![0xff, 0xd9];
    assert!(kinds(1, &[means(), rest(), end()]).is_some());
    let refused = [
        vec![means(), end()],
        vec![means(), rest()],
        vec![means(), rest(), vec![0xff]],
        vec![means(), rest(), vec![0xff, 0xe0, 0, 2], end()],
        vec![means(), rest(), segment(0xdb, &[0; 65]), end()],
        vec![means(), scan(&[1], 1, 8, 0), end()],
        vec![means(), scan(&[1], 1, 63, 1), end()],
        vec![means(), scan(&[1], 1, 63, 0x10), end()],
        vec![means(), scan(&[1], 1, 63, 2), scan(&[1], 1, 63, 0x10), end()],
        vec![means(), scan(&[1], 1, 63, 2), scan(&[1], 1, 63, 0x20), end()],
        vec![means(), scan(&[1], 1, 63, 14), end()],
        vec![means(), rest(), rest(), end()],
        vec![means(), rest(), means(), end()],
        vec![scan(&[1], 0, 63, 0), rest(), end()],
        vec![means(), scan(&[1], 1, 64, 0), end()],
        vec![means(), scan(&[1], 7, 3, 0), rest(), end()],
        vec![scan(&[2], 0, 0, 0), rest(), end()],
        vec![scan(&[], 0, 0, 0), means(), rest(), end()],
        vec![segment(0xc4, &[0, 1]), means(), rest(), end()],
        vec![segment(0xc4, &[[0x20; 1].as_slice(), &[0; 16]].concat()), means(), rest(), end()],
        vec![segment(0xc4, &[[4; 1].as_slice(), &[0; 16]].concat()), means(), rest(), end()],
        vec![segment(0xc4, &[[0; 1].as_slice(), &[1; 16]].concat()), means(), rest(), end()],
        vec![segment(0xdd, &[1]), means(), rest(), end()],
    ];
    for (number, parts) in refused.iter().enumerate() {
        assert_eq!(kinds(1, parts), None, "{number}");
    }
    let both = |first, second| {
        vec![scan(&[first, second], 0, 0, 0), scan(&[1], 1, 63, 0), scan(&[2], 1, 63, 0), end()]
    };
    assert!(kinds(2, &both(1, 2)).is_some());
    assert!(kinds(2, &both(2, 1)).is_none() && kinds(2, &both(1, 1)).is_none());
    assert!(kinds(2, &[scan(&[1, 2], 0, 0, 0), scan(&[1, 2], 1, 63, 0), end()]).is_none());
    let equal_names = Start { names: [1, 1, 1], ..start() };
    assert!(headers::read(&both(1, 2).concat(), &equal_names, 2).is_none());
}

#[test]
fn no_more_scans_than_libjpeg_may_read() {
    // 63 bands of four scans each, and four of the mean values: the limit, and one scan too many.
    let mut parts = Vec::new();
    for step in [3, 0x32, 0x21, 0x10] {
        parts.push(scan(&[1], 0, 0, step));
        parts.extend((1..64).map(|at| scan(&[1], at, at, step)));
    }
    let end = || vec![0xff, 0xd9];
    assert_eq!(kinds(1, &[parts.clone(), vec![end()]].concat()).map(|kinds| kinds.len()), Some(256));
    parts[0] = scan(&[1], 0, 0, 4);
    parts.insert(1, scan(&[1], 0, 0, 0x43));
    assert!(kinds(1, &[parts, vec![end()]].concat()).is_none());
}

#[test]
fn sets_are_the_same_in_every_translation() {
    let mut random = Random(4);
    for _ in 0..1000 {
        let (set, bits) = (random.bits() & random.bits(), random.bits());
        let members: Vec<u64> = (0..64).map(|at| 1 << at).filter(|bit| set & bit != 0).collect();
        let before = random.below(16);
        let nth = members.get(before).copied().unwrap_or(0);
        let chosen =
            members.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1).map(|(_, bit)| bit).sum::<u64>();
        assert_eq!((Plain::nth(set, before), Plain::chosen(set, bits)), (nth, chosen));
        #[cfg(target_arch = "x86_64")]
        if bmi2::is_available() {
            assert_eq!((bmi2::Bmi2::nth(set, before), bmi2::Bmi2::chosen(set, bits)), (nth, chosen));
        }
    }
}
