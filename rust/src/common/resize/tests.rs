//! Every level against the scalar reference.

use std::sync::Mutex;

use super::*;
use crate::common::bands::Finish;
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
    compare_on(&padded[offset..], channels, size, filter, arithmetic);
}

fn compare_on(source: &[u8], channels: usize, size: Size, filter: Filter, arithmetic: Arithmetic) {
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

// Bands whose finishing is a copy, so that they must add up to the whole result.
fn resized_by_bands(level: Level, source: &[u8], size: Size, arithmetic: Arithmetic, rows: usize) -> Vec<u8> {
    let row_bytes = size.out_width * 3;
    let out = Mutex::new(vec![0xa5; size.out_height * row_bytes]);
    let finish = |first_row: usize, pixels: &[u8]| {
        out.lock().expect("sound")[first_row * row_bytes..][..pixels.len()].copy_from_slice(pixels);
        Ok(())
    };
    let bands = Bands { rows, finish: &finish };
    let worked_s = with_level(level, || resize_by_bands(source, 3, size, Filter::Lanczos, arithmetic, bands));
    assert!(worked_s.expect("level").expect("resize") >= 0.0);
    out.into_inner().expect("sound")
}

#[test]
fn bands_add_up_to_the_whole() {
    let mut random = Random(0xd1b5_4a32_d192_ed03);
    let threads = [1, 3].map(|threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build());
    let mut sizes: Vec<[usize; 4]> =
        (0..60).map(|_| std::array::from_fn(|_| random.within(1..=130))).collect();
    // One row or column; one pass only; several strips; several threads; the vertical pass first.
    sizes.extend([[90, 1, 64, 1], [1, 90, 1, 64], [300, 77, 300, 50], [300, 77, 200, 77], [40, 40, 40, 40]]);
    sizes.extend([
        [700, 60, 4000, 90],
        [1200, 900, 1100, 1000],
        [900, 1300, 900, 1201],
        [1100, 1000, 1000, 1000],
    ]);
    sizes.extend([[60, 2000, 50, 300]]);
    for [in_width, in_height, out_width, out_height] in sizes {
        let size = Size { in_width, in_height, out_width, out_height };
        let source = random.pixels(in_width * in_height * 3);
        for arithmetic in ARITHMETICS {
            let expected = resized(Level::Scalar, &source, 3, size, Filter::Lanczos, arithmetic);
            for level in Level::available() {
                let rows = [1, 7, 28, 40, 3000][random.within(0..=4)];
                for pool in threads.iter().flatten() {
                    let found = pool.install(|| resized_by_bands(level, &source, size, arithmetic, rows));
                    assert!(found == expected, "{level} {size:?} {arithmetic:?}, bands of {rows} rows");
                }
            }
        }
    }
}

#[test]
fn bands_without_rows_are_refused_and_errors_come_back() {
    let size = Size { in_width: 9, in_height: 9, out_width: 5, out_height: 5 };
    let resize = |rows: usize, finish: &Finish<'_>| {
        let bands = Bands { rows, finish };
        resize_by_bands(&[7; 243], 3, size, Filter::Bicubic, Arithmetic::Aten, bands).map(|_| ())
    };
    assert!(matches!(resize(0, &|_, _| Ok(())), Err(CoreError::InvalidArgument(_))));
    let broken = || Err(CoreError::argument("broken"));
    assert_eq!(resize(2, &|first, _| if first == 4 { broken() } else { Ok(()) }), broken());
}

// Neighbours that differ by 1 have means that end in a half; black and white ones reach the bounds of every sum; steps
// and slopes lie where one of the weights' parts carries into the other.
#[test]
fn levels_agree_where_sums_round_and_overshoot() {
    let patterns: [fn(usize, usize) -> u8; 6] = [
        |x, y| 127 + (x + y) as u8 % 2,
        |x, y| if (x + y) % 2 == 0 { 0 } else { 255 },
        |x, _| if x / 3 % 2 == 0 { 0 } else { 255 },
        |x, y| if (x / 2 + y / 3) % 2 == 0 { 254 } else { 255 },
        |x, y| (x + 2 * y) as u8,
        |_, _| 255,
    ];
    for (index, pattern) in patterns.into_iter().enumerate() {
        for (from, to) in [(96, 48), (48, 96), (96, 24), (96, 32), (75, 50), (60, 61), (97, 48)] {
            let channels = [1, 3, 4][(index + from + to) % 3];
            let pixels = |height: usize, width: usize| -> Vec<u8> {
                (0..height * width * channels)
                    .map(|at| pattern(at / channels % width, at / channels / width))
                    .collect()
            };
            for filter in FILTERS {
                for arithmetic in ARITHMETICS {
                    let size = Size { in_width: from, in_height: from, out_width: to, out_height: to };
                    compare_on(&pixels(from, from), channels, size, filter, arithmetic);
                    let wide = Size { out_height: from, ..size };
                    compare_on(&pixels(from, from), channels, wide, filter, arithmetic);
                    let tall = Size { in_width: 40, out_width: 40, ..size };
                    compare_on(&pixels(from, 40), channels, tall, filter, arithmetic);
                }
            }
        }
    }
}
