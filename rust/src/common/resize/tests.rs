//! Every level against the scalar reference.

use super::*;
use crate::common::simd::{Level, with_level};

const FILTERS: [Filter; 5] =
    [Filter::Lanczos, Filter::Bicubic, Filter::Bilinear, Filter::Box, Filter::Hamming];
const ARITHMETICS: [Arithmetic; 3] = [
    Arithmetic::Pillow(PassOrder::HorizontalFirst),
    Arithmetic::Pillow(PassOrder::VerticalFirstWhenTall),
    Arithmetic::Aten,
];

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn within(&mut self, range: std::ops::RangeInclusive<usize>) -> usize {
        range.start() + self.next() as usize % (range.end() - range.start() + 1)
    }

    fn pixels(&mut self, len: usize) -> Vec<u8> {
        let extremes = self.next().is_multiple_of(3);
        (0..len)
            .map(|_| {
                let value = (self.next() >> 32) as u8;
                if extremes { if value > 127 { 255 } else { 0 } } else { value }
            })
            .collect()
    }
}

fn resized(
    level: Level,
    source: &[u8],
    channels: usize,
    size: Size,
    filter: Filter,
    arithmetic: Arithmetic,
) -> Vec<u8> {
    let mut out = vec![0xa5; size.out_width * size.out_height * channels];
    with_level(level, || resize(source, channels, size, filter, arithmetic, &mut out))
        .expect("level")
        .expect("resize");
    out
}

fn compare(random: &mut Random, size: Size) {
    let channels = [1, 3, 4][random.within(0..=2)];
    let filter = FILTERS[random.within(0..=4)];
    let arithmetic = ARITHMETICS[random.within(0..=2)];
    let offset = random.within(0..=15);
    let padded = random.pixels(offset + size.in_width * size.in_height * channels);
    let source = &padded[offset..];
    let expected = resized(Level::Scalar, source, channels, size, filter, arithmetic);
    for level in Level::available() {
        let found = resized(level, source, channels, size, filter, arithmetic);
        if let Some(at) = (0..expected.len()).find(|&at| expected[at] != found[at]) {
            panic!(
                "{level} {size:?} x{channels} {filter:?} {arithmetic:?}: value {at}: {} instead of {}",
                found[at], expected[at]
            );
        }
    }
}

#[test]
fn levels_agree_on_random_sizes() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for most in [4, 20, 70, 300] {
        for _ in 0..if most == 300 { 150 } else { 500 } {
            let [in_width, in_height, out_width, out_height] =
                std::array::from_fn(|_| random.within(1..=most));
            compare(&mut random, Size { in_width, in_height, out_width, out_height });
        }
    }
}
