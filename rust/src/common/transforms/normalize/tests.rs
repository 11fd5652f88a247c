use super::*;
use crate::common::random::Random;

const CLIP_MEAN: [f32; 3] = [0.481_454_66, 0.457_827_5, 0.408_210_73];
const CLIP_STD: [f32; 3] = [0.268_629_54, 0.261_302_6, 0.275_777_1];

impl Random {
    fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 24) as f32
    }
}

// The reference, value by value, without tables.
fn expected<T: Normalised>(mean: [f32; 3], std: [f32; 3], byte: u8, channel: usize) -> T {
    T::from_f32((f32::from(byte) * (1.0 / 255.0) - mean[channel]) / std[channel])
}

fn check<T: Normalised + std::fmt::Debug + PartialEq>(
    random: &mut Random,
    normaliser: &Normaliser,
    level: Level,
    len: usize,
) {
    let count = 1 + random.below(4);
    let (stride, mut out_stride) = (len + random.below(20), len + random.below(5));
    let streamer = Streamer::for_level(level).filter(|_| random.below(2) == 0);
    // Streaming needs whole cache lines: so that it happens in some, their starts are aligned then.
    let skew = if streamer.is_some() { random.below(2) } else { random.below(64) };
    if streamer.is_some() {
        out_stride = out_stride.next_multiple_of(64);
    }
    let bytes: Vec<u8> = (0..(count - 1) * stride + len).map(|_| random.bits() as u8).collect();
    let untouched = T::from_f32(77.0);
    let mut memory = vec![untouched; (count - 1) * out_stride + len + 128];
    let start = memory.as_ptr().align_offset(64) + skew;
    let out = &mut memory[start..][..(count - 1) * out_stride + len];
    let lines = Lines { bytes: &bytes, stride, len, count };
    T::normalize_lines(normaliser, level, lines, out, out_stride, streamer.as_ref());
    for (at, &value) in out.iter().enumerate() {
        let (line, column) = (at / out_stride, at % out_stride);
        let want = if column < len {
            expected(normaliser.mean, normaliser.std, bytes[line * stride + column], column % 3)
        } else {
            untouched
        };
        assert_eq!(value, want, "{level}, value {column} of line {line} of {len}");
    }
    let end = start + (count - 1) * out_stride + len;
    assert!(memory[..start].iter().chain(&memory[end..]).all(|&value| value == untouched));
}

#[test]
fn every_level_equals_the_reference_in_lines_of_every_length() {
    let mut random = Random(1);
    let clip = Normaliser::new(CLIP_MEAN, CLIP_STD);
    let mut exact = clip.clone();
    exact.fused = None;
    for level in Level::available() {
        for len in 1..300 {
            for normaliser in [&clip, &exact] {
                check::<u16>(&mut random, normaliser, level, len);
                check::<f32>(&mut random, normaliser, level, len);
            }
        }
    }
}

#[test]
fn every_byte_of_every_channel_in_every_lane() {
    let clip = Normaliser::new(CLIP_MEAN, CLIP_STD);
    let bytes: Vec<u8> = (0..256 * 96).map(|at| (at / 96) as u8).collect();
    for level in Level::available() {
        let lines = Lines { bytes: &bytes, stride: 96, len: 96, count: 256 };
        let mut bf16 = vec![0_u16; bytes.len()];
        u16::normalize_lines(&clip, level, lines, &mut bf16, 96, None);
        let mut float = vec![0_f32; bytes.len()];
        f32::normalize_lines(&clip, level, lines, &mut float, 96, None);
        for (at, &byte) in bytes.iter().enumerate() {
            assert_eq!(bf16[at], expected::<u16>(CLIP_MEAN, CLIP_STD, byte, at % 3), "{level} {at}");
            assert_eq!(float[at], expected::<f32>(CLIP_MEAN, CLIP_STD, byte, at % 3), "{level} {at}");
        }
    }
}

#[test]
fn the_constants_in_use_are_proved_and_impossible_ones_fall_back() {
    assert!(Normaliser::new(CLIP_MEAN, CLIP_STD).is_fused());
    assert!(Normaliser::new([0.5; 3], [0.5; 3]).is_fused());
    assert!(Normaliser::new([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]).is_fused());
    // A mean that is a byte's own value becomes exactly 0 in the reference, and a remainder in one multiply-add.
    let mean = [101.0 * (1.0 / 255.0), 57.0 * (1.0 / 255.0), 203.0 * (1.0 / 255.0)];
    let coarse = Normaliser::new(mean, [0.3; 3]);
    assert!(!coarse.is_fused());
    let mut random = Random(2);
    for level in Level::available() {
        check::<u16>(&mut random, &coarse, level, 99);
        check::<f32>(&mut random, &coarse, level, 99);
    }
}

#[test]
fn a_proof_holds_on_every_level_for_any_constants() {
    let mut random = Random(3);
    let mut fused = 0;
    for _ in 0..200 {
        let mean = std::array::from_fn(|_| random.unit());
        let std = std::array::from_fn(|_| 0.05 + random.unit());
        let normaliser = Normaliser::new(mean, std);
        fused += usize::from(normaliser.is_fused());
        for level in Level::available() {
            check::<u16>(&mut random, &normaliser, level, 96);
            check::<f32>(&mut random, &normaliser, level, 96);
        }
    }
    assert!(fused > 150, "only {fused} of 200 random sets of constants are fused");
}

#[test]
fn packed_lines_have_no_gaps() {
    let mut random = Random(4);
    for len in 1..300 {
        let (count, stride) = (1 + random.below(4), len + random.below(20));
        let bytes: Vec<u8> = (0..(count - 1) * stride + len).map(|_| random.bits() as u8).collect();
        let expected: Vec<u8> = bytes.chunks(stride).flat_map(|line| line[..len].to_vec()).collect();
        for level in Level::available() {
            let mut packed = vec![0; expected.len()];
            Lines { bytes: &bytes, stride, len, count }.pack(level, &mut packed);
            assert!(packed == expected, "{level}, {count} lines of {len}");
        }
    }
}

#[test]
fn a_run_may_start_anywhere_and_nearly_all_of_it_is_aligned() {
    fn check<T: Normalised + std::fmt::Debug + PartialEq>(
        random: &mut Random,
        clip: &Normaliser,
        level: Level,
    ) {
        let len = 3 * random.below(200);
        let bytes: Vec<u8> = (0..len).map(|_| random.bits() as u8).collect();
        let untouched = T::from_f32(77.0);
        for skew in 0..64 / size_of::<T>() {
            let mut memory = vec![untouched; len + 256];
            let start = memory.as_ptr().align_offset(64) + skew;
            let out = &mut memory[start..start + len];
            let head = unaligned_pixels(out);
            let aligned = out[head..].as_ptr().align_offset(64) == 0;
            assert!(head == len || (aligned && head < 3 * 64 / size_of::<T>()), "{skew} {head}");
            normalize_run(clip, level, &bytes, out, Streamer::for_level(level).as_ref());
            for (at, &byte) in bytes.iter().enumerate() {
                let want = expected(clip.mean, clip.std, byte, at % 3);
                assert_eq!(memory[start + at], want, "{level}, value {at} from {skew}");
            }
            let others = memory[..start].iter().chain(&memory[start + len..]);
            assert!(others.into_iter().all(|&value| value == untouched));
        }
    }
    let (mut random, clip) = (Random(5), Normaliser::new(CLIP_MEAN, CLIP_STD));
    for level in Level::available() {
        for _ in 0..50 {
            check::<u16>(&mut random, &clip, level);
            check::<f32>(&mut random, &clip, level);
        }
    }
}
