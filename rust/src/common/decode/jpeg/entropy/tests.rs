//! Against a decoder that reads bit by bit, on random bits in random codes: all that can follow comes to pass there.

use super::code::Class;
use super::*;
use crate::common::random::Random;

impl Random {
    // A code for `symbols`, which come in random order. Up to
    // `most_others` other codes are left, of which one is all ones.
    fn code(&mut self, mut symbols: Vec<u8>, most_others: usize) -> Definition {
        let mut definition = Definition { counts: [0; 17], symbols: [0; 256] };
        // Codes of a tree that grows where it may. The one of all ones is not allowed.
        let mut lengths = vec![1, 1];
        let others = 1 + if self.below(3) == 0 { self.below(most_others) } else { 0 };
        while lengths.len() < symbols.len() + others {
            let split = self.below(lengths.len());
            if lengths[split] < 16 {
                lengths[split] += 1;
                lengths.push(lengths[split]);
            }
        }
        lengths.sort_unstable();
        for length in &lengths[..symbols.len()] {
            definition.counts[*length] += 1;
        }
        for place in &mut definition.symbols[..lengths.len() - others] {
            *place = symbols.swap_remove(self.below(symbols.len()));
        }
        definition
    }

    fn layout(&mut self, blocks: usize, most_others: usize) -> Layout {
        let mut layout = Layout {
            dc: [Definition { counts: [0; 17], symbols: [0; 256] }; 4],
            ac: [Definition { counts: [0; 17], symbols: [0; 256] }; 4],
            units: 1 << 40,
            restart_interval: 0,
            blocks: blocks as u32,
            components: std::array::from_fn(|_| self.below(3) as u8),
            dc_tables: [0, 1, 1, 0],
            ac_tables: [0, 3, 1, 0],
        };
        for number in [0, 1] {
            layout.dc[number] = self.code((0..16).collect(), most_others);
        }
        for number in [0, 1, 3] {
            // Sometimes only short values, as in a photograph.
            let most = [16, 4, 3][self.below(3)];
            layout.ac[number] =
                self.code((0..=255).filter(|symbol| symbol & 15 < most).collect(), most_others);
        }
        layout
    }

    // One in `rarity` is 0xff.
    fn bytes(&mut self, len: usize, rarity: usize) -> Vec<u8> {
        (0..len).map(|_| if self.below(rarity) == 0 { 0xff } else { self.bits() as u8 }).collect()
    }
}

// By the figures of T.81, annex F.2, and what libjpeg does past the last coefficient.
struct Naive<'a> {
    layout: &'a Layout,
    bytes: &'a [u8],
    at: usize,
    means: [i32; 4],
}

impl Naive<'_> {
    fn bit(&mut self) -> Option<u32> {
        let byte = *self.bytes.get(self.at / 8)?;
        self.at += 1;
        Some(u32::from(byte) >> (7 - (self.at - 1) % 8) & 1)
    }

    fn symbol(&mut self, code: &Definition) -> Option<u8> {
        let (mut value, mut first, mut number) = (0, 0, 0);
        for length in 1..=16 {
            value = value * 2 + self.bit()?;
            let count = u32::from(code.counts[length]);
            if value < first + count {
                return Some(code.symbols[(number + value - first) as usize]);
            }
            (first, number) = ((first + count) * 2, number + count);
        }
        None
    }

    fn value(&mut self, length: u8) -> Option<i32> {
        let mut value = 0;
        for _ in 0..length {
            value = value * 2 + self.bit()? as i32;
        }
        let is_negative = length > 0 && value < 1 << (length - 1);
        Some(if is_negative { value + 1 - (1 << length) } else { value })
    }

    fn unit(&mut self) -> Option<Vec<Block>> {
        (0..self.layout.blocks as usize)
            .map(|block| self.block(self.layout.components[block].into()))
            .collect()
    }

    fn block(&mut self, component: usize) -> Option<Block> {
        let mut block = [0; 64];
        let dc = self.symbol(&self.layout.dc[usize::from(self.layout.dc_tables[component])])?;
        self.means[component] += self.value(dc)?;
        block[0] = self.means[component] as i16;
        let mut index = 1;
        while index < 64 {
            let symbol = self.symbol(&self.layout.ac[usize::from(self.layout.ac_tables[component])])?;
            match (symbol >> 4, symbol & 15) {
                (15, 0) => index += 16,
                (_, 0) => break,
                (zeros, length) => {
                    index += usize::from(zeros);
                    block[zigzag(index.min(63))] = self.value(length)? as i16;
                    index += 1;
                }
            }
        }
        Some(block)
    }
}

// Sorts the places by diagonals, every other one backwards.
fn zigzag(index: usize) -> usize {
    let mut places: Vec<(usize, usize)> = (0..64).map(|place| (place / 8, place % 8)).collect();
    places.sort_by_key(|&(row, column)| (row + column, if (row + column) % 2 == 0 { column } else { row }));
    let (row, column) = places[index];
    row * 8 + column
}

fn stuffed(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().flat_map(|&byte| if byte == 0xff { vec![0xff, 0] } else { vec![byte] }).collect()
}

fn decode(scan: &mut Scan<'_>) -> (Step, Vec<Block>) {
    let mut unit = vec![[0; 64]; scan.blocks()];
    let step = scan.decode(unit.iter_mut().collect::<Vec<_>>().as_mut_slice());
    (step, unit)
}

// To blocks that lie in groups.
fn decode_grouped(scan: &mut Scan<'_>, first: usize) -> (Step, Vec<Block>) {
    let lane = |number: usize| (first + number) % GROUP_BLOCKS;
    let mut groups = vec![[0; 256]; scan.blocks()];
    let slots: Vec<_> = (0..scan.blocks()).rev().map(|group| Slot { group, lane: lane(group) }).collect();
    let step = scan.decode(&mut GroupUnit { groups: &mut groups, slots: &slots });
    let blocks = slots.iter().map(|slot| {
        let group = &groups[slot.group];
        let strangers = group.chunks(8).enumerate().filter(|(at, _)| at % GROUP_BLOCKS != slot.lane);
        assert!(strangers.into_iter().all(|(_, values)| values.iter().all(|&value| value == 0)));
        std::array::from_fn(|at| group[(at / 8 * GROUP_BLOCKS + slot.lane) * 8 + at % 8])
    });
    (step, blocks.collect())
}

#[test]
fn random_bits_become_what_they_stand_for() {
    let mut random = Random(3);
    let mut units = 0;
    for round in 0..300 {
        let blocks = 1 + random.below(10);
        let layout = random.layout(blocks, 1 + round % 2 * 4);
        // Now and then more than there is in plain at a time.
        let plain =
            random.bytes(if round % 10 == 0 { 70_000 } else { 3 + round * 17 }, [9, 300][round / 2 % 2]);
        let raw = [stuffed(&plain), b"\xff\xd9".to_vec()].concat();
        let mut naive = Naive { layout: &layout, bytes: &plain, at: 0, means: [0; 4] };
        let mut scan = Scan::new(&raw, &layout).expect("sound codes");
        let mut grouped = Scan::new(&raw, &layout).expect("sound codes");
        while let Some(unit) = naive.unit() {
            assert_eq!(decode(&mut scan), (Step::Done, unit.clone()), "round {round}, unit {units}");
            assert_eq!(
                decode_grouped(&mut grouped, units),
                (Step::Done, unit),
                "round {round}, unit {units}"
            );
            units += 1;
        }
        // No code, or no bits.
        assert_eq!(decode(&mut scan).0, Step::GaveUp);
        assert_eq!(decode(&mut scan).0, Step::GaveUp);
    }
    assert!(units > 3000, "{units}");
}

// Segments of `units` units each, and what they stand for.
fn segments(random: &mut Random, layout: &Layout, units: &[usize]) -> (Vec<Vec<u8>>, Vec<Vec<Block>>) {
    let mut blocks = Vec::new();
    let segments = units.iter().map(|&units| {
        let (mut plain, mut end, mut means) = (Vec::new(), 0, [0; 4]);
        for _ in 0..units {
            loop {
                let mut more = [&plain[..end / 8], &random.bytes(800, 60)].concat();
                if end % 8 > 0 {
                    let kept = !(0xff_u8 >> (end % 8));
                    more[end / 8] = plain[end / 8] & kept | more[end / 8] & !kept;
                }
                let mut naive = Naive { layout, bytes: &more, at: end, means };
                if let Some(unit) = naive.unit() {
                    (end, means) = (naive.at, naive.means);
                    plain = more[..end.div_ceil(8)].to_vec();
                    blocks.push(unit);
                    break;
                }
            }
        }
        stuffed(&plain)
    });
    (segments.collect(), blocks)
}

fn steps(raw: &[u8], layout: &Layout) -> (Vec<Vec<Block>>, Step) {
    let mut scan = Scan::new(raw, layout).expect("sound codes");
    let mut units = Vec::new();
    loop {
        match decode(&mut scan) {
            (Step::Done, unit) => units.push(unit),
            (Step::Last(end), unit) => {
                units.push(unit);
                return (units, Step::Last(end));
            }
            (Step::GaveUp, _) => return (units, Step::GaveUp),
        }
    }
}

#[test]
fn restarts_are_followed_and_the_end_is_found() {
    let mut random = Random(8);
    for round in 0..60 {
        let blocks = 1 + round % 3;
        let mut layout = random.layout(blocks, 1);
        let interval = 1 + random.below(4);
        let whole = random.below(20);
        let last = 1 + random.below(interval);
        let counts = [vec![interval; whole], vec![last]].concat();
        layout.units = counts.iter().sum::<usize>() as u64;
        layout.restart_interval = interval as u32;
        let (segments, expected) = segments(&mut random, &layout, &counts);
        let joined = |change: &dyn Fn(usize, Vec<u8>) -> Vec<u8>, end: &[u8]| {
            let mut raw = Vec::new();
            for (number, segment) in segments.iter().enumerate() {
                raw.extend(segment);
                if number + 1 < segments.len() {
                    raw.extend(change(number, vec![0xff, 0xd0 + (number % 8) as u8]));
                }
            }
            let len = raw.len();
            raw.extend(end);
            (raw, len)
        };
        let same = |_: usize, marker: Vec<u8>| marker;
        for end in [b"\xff\xd9".as_slice(), b"\xff\xff\xff\xd9", b"\xff\xdad", b"\xff\xd9\0\0\0\0"] {
            let (raw, len) = joined(&same, end);
            assert_eq!(steps(&raw, &layout), (expected.clone(), Step::Last(len)), "round {round}");
        }
        // What libjpeg skips after the last unit.
        let (raw, len) = joined(&same, b"ab\xff\0c\xff\xd9");
        assert_eq!(steps(&raw, &layout).1, Step::Last(len + 5));
        for end in [b"".as_slice(), b"\xff", b"\xff\xff", b"\xff\xff\0\xff\xd9", b"abc"] {
            let (raw, _) = joined(&same, end);
            assert_eq!(steps(&raw, &layout).1, Step::GaveUp, "{end:?}");
        }
        if segments.len() < 2 {
            continue;
        }
        let wrong = random.below(segments.len() - 1);
        let changes: [&dyn Fn(Vec<u8>) -> Vec<u8>; 5] = [
            &|marker| vec![0xff, (marker[1] + 1) & 7 | 0xd0],
            &|_| vec![0xff, 0xd9],
            &|_| vec![],
            &|marker| [vec![0x55], marker].concat(),
            &|marker| [vec![0xff], marker].concat(),
        ];
        for change in changes {
            let here = |number: usize, marker: Vec<u8>| if number == wrong { change(marker) } else { marker };
            let (raw, _) = joined(&here, b"\xff\xd9");
            let (found, step) = steps(&raw, &layout);
            assert_eq!((step, found.len()), (Step::GaveUp, (wrong + 1) * interval));
            assert_eq!(found, expected[..found.len()]);
        }
    }
}

#[test]
fn what_is_no_code_is_refused() {
    let code = |counts: &[(usize, u8)]| {
        let mut definition = Definition { counts: [0; 17], symbols: [0; 256] };
        for &(length, count) in counts {
            definition.counts[length] = count;
        }
        Table::new(&definition, Class::Ac).is_some()
    };
    assert!(
        code(&[]) && code(&[(1, 1)]) && code(&[(2, 3)]) && code(&[(1, 1), (16, 255)]) && code(&[(9, 255)])
    );
    // All ones, more than there are, more than 256 symbols.
    assert!(!code(&[(1, 2)]) && !code(&[(2, 4)]) && !code(&[(1, 1), (2, 2)]) && !code(&[(16, 255), (15, 2)]));
    assert!(!code(&[(8, 255), (9, 1), (10, 1)]));

    let mut layout = Random(1).layout(2, 1);
    assert!(Scan::new(b"", &layout).is_some());
    let spoil: [&dyn Fn(&mut Layout); 4] = [
        &|layout| layout.blocks = 11,
        &|layout| layout.components[0] = 4,
        &|layout| layout.dc_tables = [4; 4],
        &|layout| layout.ac[usize::from(layout.ac_tables[usize::from(layout.components[0])])].counts[1] = 2,
    ];
    let sound = layout;
    for spoil in spoil {
        layout = sound;
        spoil(&mut layout);
        assert!(Scan::new(b"", &layout).is_none());
    }
}
