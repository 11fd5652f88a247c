//! Every instruction set against the scalar kernels, and those against the formulas of the standard.

use super::kernels::*;
use super::steps::*;
use super::*;
use crate::common::random::Random;

fn levels() -> impl Iterator<Item = Level> {
    Level::available().filter(|&level| level != Level::Scalar)
}

// From a few small coefficients, as in a photograph, to all that 16 bits hold.
fn group(random: &mut Random) -> Group {
    let (rarity, bits) = (1 + random.below(20), 1 + random.below(16));
    std::array::from_fn(|_| if random.below(rarity) == 0 { (random.bits() as i16) >> (16 - bits) } else { 0 })
}

#[test]
fn transforms_are_those_of_the_scalar_code() {
    let mut random = Random(31);
    let mut counts = [0; 2];
    for number in 0..20_000 {
        let group = group(&mut random);
        let most = [1, 3, 100, 255, 65_535][random.below(5)];
        let factors = std::array::from_fn(|_| (1 + random.below(most)) as u16 as i16);
        let stride = GROUP_SAMPLES + random.below(40);
        let start = random.below(40);
        let mut expected = vec![7; start + 8 * stride];
        let is_within = transform(Level::Scalar, &group, &factors, &mut expected[start..], stride);
        counts[usize::from(is_within)] += 1;
        for level in levels() {
            let mut out = vec![7; start + 8 * stride];
            assert_eq!(
                transform(level, &group, &factors, &mut out[start..], stride),
                is_within,
                "{number} {level}"
            );
            assert_eq!(out, expected, "{number} {level}");
        }
    }
    assert!(counts[0] > 1000 && counts[1] > 1000);
}

#[test]
fn the_first_row_alone_is_held_to_its_reach() {
    let within = -FIRST_ROW_REACH..FIRST_ROW_REACH;
    for value in [-FIRST_ROW_REACH - 1, -FIRST_ROW_REACH, FIRST_ROW_REACH - 1, FIRST_ROW_REACH] {
        for place in 0..2 * GROUP_SAMPLES {
            let mut group: Group = [0; 64 * GROUP_BLOCKS];
            group[place] = value;
            for level in Level::available() {
                let mut out = [0; 8 * GROUP_SAMPLES];
                assert_eq!(
                    transform(level, &group, &[1; 64], &mut out, GROUP_SAMPLES),
                    place >= GROUP_SAMPLES || within.contains(&value),
                    "{level} {value} in {place}"
                );
            }
        }
    }
}

// The transform as ITU-T T.81, A.3.3, defines it.
fn ideal(block: &[[i16; 8]; 8], row: usize, column: usize) -> f64 {
    let cosine = |at: usize, frequency: usize| {
        let angle = (2 * at + 1) as f64 * frequency as f64 * std::f64::consts::PI / 16.0;
        if frequency == 0 { 0.5_f64.sqrt() } else { angle.cos() }
    };
    let mut sum = 0.0;
    for (down, values) in block.iter().enumerate() {
        for (across, &value) in values.iter().enumerate() {
            sum += f64::from(value) * cosine(row, down) * cosine(column, across);
        }
    }
    sum / 4.0 + 128.0
}

#[test]
fn the_scalar_transform_is_the_defined_one_rounded() {
    let mut random = Random(32);
    for _ in 0..200 {
        let mut group: Group = [0; 64 * GROUP_BLOCKS];
        for _ in 0..40 {
            group[random.below(256)] = random.below(60) as i16 - 30;
        }
        let mut out = [0; 8 * GROUP_SAMPLES];
        assert!(transform(Level::Scalar, &group, &[2; 64], &mut out, GROUP_SAMPLES));
        for (at, &sample) in out.iter().enumerate() {
            let (row, lane, column) = (at / 32, at / 8 % 4, at % 8);
            let block: [[i16; 8]; 8] = std::array::from_fn(|row| {
                std::array::from_fn(|column| 2 * group[row * 32 + lane * 8 + column])
            });
            let exact = ideal(&block, row, column).clamp(0.0, 255.0);
            assert!((f64::from(sample) - exact).abs() < 0.6, "{at}: {sample} for {exact}");
        }
    }
}

#[test]
fn rows_are_those_of_the_scalar_code() {
    let mut random = Random(33);
    for number in 0..3000 {
        let pixels = 1 + random.below([40, 300, 2500][number % 3]);
        let start = random.below(64);
        let mut samples = || -> Vec<u8> {
            let range = [256, 256, 3][random.below(3)];
            (0..pixels + start + 2 + SLACK_SAMPLES).map(|_| random.below(range) as u8).collect()
        };
        let rows = [samples(), samples(), samples(), samples(), samples()];
        let [luminance, rows @ ..] = rows.each_ref().map(|row| &row[start..]);
        let differences = [(0, 1), (2, 3)].map(|(near, far)| Difference { near: rows[near], far: rows[far] });
        // From a cache line, or off it.
        let skew = random.below(2) * random.below(64);
        for subsampling in [Subsampling::None, Subsampling::Across, Subsampling::Both] {
            let row = |level, streamer: Option<Streamer>| {
                let mut rgb = vec![7; 64 + skew + pixels * 3 + 1];
                let at = rgb.as_ptr().align_offset(64) + skew;
                let out = &mut rgb[at..][..pixels * 3];
                rgb_row(level, subsampling, luminance, differences, out, streamer.as_ref());
                drop(streamer);
                assert!(rgb[..at].iter().chain(&rgb[at + pixels * 3..]).all(|&byte| byte == 7));
                rgb[at..][..pixels * 3].to_vec()
            };
            let expected = row(Level::Scalar, None);
            for level in levels() {
                for streamer in [None, Streamer::for_level(level)] {
                    let rgb = row(level, streamer);
                    assert!(
                        rgb == expected,
                        "{number}: {level} {subsampling:?} {pixels} from {start}, {skew}"
                    );
                }
            }
        }
    }
}

// By the definition of JFIF with 16 bits of fraction, as libjpeg rounds.
#[test]
fn every_colour_is_converted() {
    const ONE: f64 = 65_536.0;
    let fixed = |factor: f64| (factor * ONE + 0.5) as i32;
    for blue in 0..=255 {
        for red in 0..=255 {
            let (b, r) = (blue - 128, red - 128);
            let parts = [
                (fixed(1.402) * r + 32_768) >> 16,
                (-fixed(0.344_14) * b - fixed(0.714_14) * r + 32_768) >> 16,
                (fixed(1.772) * b + 32_768) >> 16,
            ];
            let near = |value: i32| vec![value as u8; 2 + 256 + SLACK_SAMPLES];
            let (blues, reds) = (near(blue), near(red));
            let differences = [&blues, &reds].map(|row| Difference { near: row, far: row });
            let luminance: Vec<u8> = (0..256 + SLACK_SAMPLES).map(|at| at as u8).collect();
            let mut rgb = [0; 256 * 3];
            rgb_row(Level::Scalar, Subsampling::None, &luminance, differences, &mut rgb, None);
            for (y, rgb) in rgb.as_chunks::<3>().0.iter().enumerate() {
                assert_eq!(*rgb, parts.map(|part| (y as i32 + part).clamp(0, 255) as u8), "{y} {blue} {red}");
            }
        }
    }
}

#[test]
fn common_samplings_are_taken() {
    let frame = |components, samplings| Frame {
        width_px: 9,
        height_px: 9,
        components,
        samplings,
        factors: [[1; 64]; MOST_COMPONENTS],
    };
    let kind = |components, samplings| {
        frame(components, samplings).sampling().map(|(kind, blocks)| (kind, blocks.len()))
    };
    assert_eq!(kind(1, [[2, 2], [0, 0], [0, 0]]), Some((Subsampling::None, 1)));
    for (samplings, expected) in [
        ([[1, 1], [1, 1], [1, 1]], Some(Subsampling::None)),
        ([[2, 1], [2, 1], [2, 1]], Some(Subsampling::None)),
        ([[2, 1], [1, 1], [1, 1]], Some(Subsampling::Across)),
        ([[2, 2], [1, 2], [1, 2]], Some(Subsampling::Across)),
        ([[2, 2], [1, 1], [1, 1]], Some(Subsampling::Both)),
        ([[1, 2], [1, 1], [1, 1]], None),
        ([[4, 1], [1, 1], [1, 1]], None),
        ([[2, 2], [1, 1], [1, 2]], None),
        ([[1, 1], [2, 2], [2, 2]], None),
        ([[2, 2], [0, 0], [0, 0]], None),
    ] {
        assert_eq!(kind(3, samplings), expected.map(|kind| (kind, 3)), "{samplings:?}");
    }
    assert_eq!(kind(4, [[1, 1], [1, 1], [1, 1]]), None);
}
