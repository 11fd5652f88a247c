//! AVX2: two blocks or 32 pixels a step.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::kernels::{Difference, Factors, GROUP_SAMPLES};
use super::steps::*;
use crate::common::decode::jpeg::entropy::Group;

const PAIR_SAMPLES: usize = GROUP_SAMPLES / 2;
const STEP_PIXELS: usize = 32;
const STEP_SAMPLES: usize = STEP_PIXELS / 2;
// Samples of each difference that are summed at a time: what the first level of the cache holds beside the rows.
const SUMMED: usize = 32 * STEP_SAMPLES;

#[target_feature(enable = "avx2")]
#[inline]
fn pair(by: Pair) -> __m256i {
    _mm256_set1_epi32(i32::from(by.1) << 16 | i32::from(by.0) & 0xffff)
}

fn check() {
    assert!(is_x86_feature_detected!("avx2"), "the CPU lacks AVX2");
}

/// See [`super::kernels::transform`].
pub fn transform(group: &Group, factors: &Factors, out: &mut [u8], stride: usize) -> bool {
    check();
    // SAFETY: the CPU was asked.
    unsafe { transform_group(group, factors, out, stride) }
}

#[target_feature(enable = "avx2")]
fn transform_group(group: &Group, factors: &Factors, out: &mut [u8], stride: usize) -> bool {
    let left = transform_pair(group, factors, 0, out, stride);
    transform_pair(group, factors, PAIR_SAMPLES, out, stride) && left
}

// Two blocks of a group, whose samples are from `first` on of a row.
#[target_feature(enable = "avx2")]
fn transform_pair(group: &Group, factors: &Factors, first: usize, out: &mut [u8], stride: usize) -> bool {
    let mut rows = [_mm256_setzero_si256(); 8];
    for (row, (values, factors)) in
        rows.iter_mut().zip(group.as_chunks::<GROUP_SAMPLES>().0.iter().zip(factors.as_chunks::<8>().0))
    {
        let values: &[i16; PAIR_SAMPLES] = values[first..].first_chunk().expect("half of a row");
        // SAFETY: both are whole arrays of the 32 and 16 bytes of the loads.
        let (values, factors) =
            unsafe { (_mm256_loadu_si256(values.as_ptr().cast()), _mm_loadu_si128(factors.as_ptr().cast())) };
        *row = _mm256_mullo_epi16(values, _mm256_broadcastsi128_si256(factors));
    }
    let lifted = _mm256_add_epi16(rows[0], _mm256_set1_epi16(FIRST_ROW_REACH));
    let is_within = _mm256_testz_si256(lifted, _mm256_set1_epi16(!(2 * FIRST_ROW_REACH - 1))) == 1;
    let columns = transposed(pass::<{ COLUMN_SHIFT as i32 }>(rows));
    let samples = pass::<{ ROW_SHIFT as i32 }>(columns);
    for (two_rows, out) in by_rows(samples).into_iter().zip(out.chunks_mut(2 * stride)) {
        let (upper, lower) = out.split_at_mut(stride);
        for (row, out) in
            [(_mm256_castsi256_si128(two_rows), upper), (_mm256_extracti128_si256::<1>(two_rows), lower)]
        {
            let out: &mut [u8; PAIR_SAMPLES] =
                out[first..].first_chunk_mut().expect("rows that were counted");
            // SAFETY: the array has the 16 bytes.
            unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), row) };
        }
    }
    is_within
}

// One-dimensional transforms of the inputs 0 to 7 in each place.
#[target_feature(enable = "avx2")]
#[inline]
fn pass<const SHIFT: i32>(inputs: [__m256i; 8]) -> [__m256i; 8] {
    let [in0, in1, in2, in3, in4, in5, in6, in7] = inputs;
    let (plus, minus) = (_mm256_add_epi16(in0, in4), _mm256_sub_epi16(in0, in4));
    let (seven_three, five_one) = (_mm256_add_epi16(in7, in3), _mm256_add_epi16(in5, in1));
    let zero = _mm256_setzero_si256();
    let low = half::<SHIFT>([
        _mm256_unpacklo_epi16(zero, plus),
        _mm256_unpacklo_epi16(zero, minus),
        _mm256_unpacklo_epi16(in2, in6),
        _mm256_unpacklo_epi16(seven_three, five_one),
        _mm256_unpacklo_epi16(in7, in1),
        _mm256_unpacklo_epi16(in5, in3),
    ]);
    let high = half::<SHIFT>([
        _mm256_unpackhi_epi16(zero, plus),
        _mm256_unpackhi_epi16(zero, minus),
        _mm256_unpackhi_epi16(in2, in6),
        _mm256_unpackhi_epi16(seven_three, five_one),
        _mm256_unpackhi_epi16(in7, in1),
        _mm256_unpackhi_epi16(in5, in3),
    ]);
    std::array::from_fn(|at| _mm256_packs_epi32(low[at], high[at]))
}

// Half of the places, with 32 bits.
#[target_feature(enable = "avx2")]
#[inline]
fn half<const SHIFT: i32>(inputs: [__m256i; 6]) -> [__m256i; 8] {
    let [plus, minus, two_six, sums, seven_one, five_three] = inputs;
    let rounding = _mm256_set1_epi32(1 << (SHIFT - 1));
    // From the upper half of the word to the bits of the fraction.
    let plus = _mm256_add_epi32(_mm256_srai_epi32::<{ 16 - FRACTION_BITS as i32 }>(plus), rounding);
    let minus = _mm256_add_epi32(_mm256_srai_epi32::<{ 16 - FRACTION_BITS as i32 }>(minus), rounding);
    let outer = _mm256_madd_epi16(two_six, pair(EVEN_OUTER));
    let inner = _mm256_madd_epi16(two_six, pair(EVEN_INNER));
    let even = [
        _mm256_add_epi32(plus, outer),
        _mm256_add_epi32(minus, inner),
        _mm256_sub_epi32(minus, inner),
        _mm256_sub_epi32(plus, outer),
    ];
    let seven_three = _mm256_madd_epi16(sums, pair(ODD_SEVEN_THREE));
    let five_one = _mm256_madd_epi16(sums, pair(ODD_FIVE_ONE));
    let odd = [
        _mm256_add_epi32(_mm256_madd_epi16(seven_one, pair(ODD_ZERO_SEVEN)), five_one),
        _mm256_add_epi32(_mm256_madd_epi16(five_three, pair(ODD_ONE_SIX)), seven_three),
        _mm256_add_epi32(_mm256_madd_epi16(five_three, pair(ODD_TWO_FIVE)), five_one),
        _mm256_add_epi32(_mm256_madd_epi16(seven_one, pair(ODD_THREE_FOUR)), seven_three),
    ];
    std::array::from_fn(|at| {
        let value = if at < 4 {
            _mm256_add_epi32(even[at], odd[at])
        } else {
            _mm256_sub_epi32(even[7 - at], odd[7 - at])
        };
        _mm256_srai_epi32::<SHIFT>(value)
    })
}

// The 8x8 words in each 128 bits, transposed.
#[target_feature(enable = "avx2")]
#[inline]
fn transposed(rows: [__m256i; 8]) -> [__m256i; 8] {
    let words: [_; 8] = std::array::from_fn(|at| {
        let (a, b) = (rows[at / 2 * 2], rows[at / 2 * 2 + 1]);
        if at % 2 == 0 { _mm256_unpacklo_epi16(a, b) } else { _mm256_unpackhi_epi16(a, b) }
    });
    // Of two rows each, columns 0..4 are at even and columns 4..8 at odd places.
    let doubles: [_; 8] = std::array::from_fn(|at| {
        let (a, b) = (words[at / 4 * 4 + at / 2 % 2], words[at / 4 * 4 + at / 2 % 2 + 2]);
        if at % 2 == 0 { _mm256_unpacklo_epi32(a, b) } else { _mm256_unpackhi_epi32(a, b) }
    });
    // Of four rows each, two columns at a place.
    std::array::from_fn(|at| {
        let (a, b) = (doubles[at / 2], doubles[at / 2 + 4]);
        if at % 2 == 0 { _mm256_unpacklo_epi64(a, b) } else { _mm256_unpackhi_epi64(a, b) }
    })
}

// Columns of words to rows of bytes: two rows of both blocks in each vector.
#[target_feature(enable = "avx2")]
#[inline]
fn by_rows(columns: [__m256i; 8]) -> [__m256i; 4] {
    let middle = _mm256_set1_epi8(-128);
    // Columns 0 and 4, 1 and 5, 2 and 6, 3 and 7.
    let bytes: [_; 4] =
        std::array::from_fn(|at| _mm256_xor_si256(_mm256_packs_epi16(columns[at], columns[at + 4]), middle));
    let left = (_mm256_unpacklo_epi8(bytes[0], bytes[2]), _mm256_unpacklo_epi8(bytes[1], bytes[3]));
    let right = (_mm256_unpackhi_epi8(bytes[0], bytes[2]), _mm256_unpackhi_epi8(bytes[1], bytes[3]));
    let upper = (_mm256_unpacklo_epi8(left.0, left.1), _mm256_unpacklo_epi8(right.0, right.1));
    let lower = (_mm256_unpackhi_epi8(left.0, left.1), _mm256_unpackhi_epi8(right.0, right.1));
    [
        _mm256_unpacklo_epi32(upper.0, upper.1),
        _mm256_unpackhi_epi32(upper.0, upper.1),
        _mm256_unpacklo_epi32(lower.0, lower.1),
        _mm256_unpackhi_epi32(lower.0, lower.1),
    ]
    .map(|rows| _mm256_permute4x64_epi64::<0b11_01_10_00>(rows))
}

/// See [`super::kernels::rgb_row`], which has counted the samples.
pub fn rgb_row(subsampling: Subsampling, luminance: &[u8], differences: [Difference<'_>; 2], rgb: &mut [u8]) {
    check();
    // SAFETY: the CPU was asked.
    unsafe { row(subsampling, luminance, differences, rgb) }
}

#[target_feature(enable = "avx2")]
fn row(subsampling: Subsampling, luminance: &[u8], differences: [Difference<'_>; 2], rgb: &mut [u8]) {
    match subsampling {
        Subsampling::None => full_row(luminance, differences, rgb),
        Subsampling::Across => halved_row::<false>(luminance, differences, rgb),
        Subsampling::Both => halved_row::<true>(luminance, differences, rgb),
    }
}

#[target_feature(enable = "avx2")]
fn full_row(luminance: &[u8], differences: [Difference<'_>; 2], rgb: &mut [u8]) {
    let middle = _mm256_set1_epi16(128);
    for (step, rgb) in rgb.chunks_mut(3 * STEP_PIXELS).enumerate() {
        let at = step * STEP_PIXELS;
        let differences = differences.map(|rows| {
            let [even, odd] = even_and_odd(load(&rows.near[at + 1..]));
            [_mm256_sub_epi16(even, middle), _mm256_sub_epi16(odd, middle)]
        });
        store(even_and_odd(load(&luminance[at..])), differences, rgb);
    }
}

#[target_feature(enable = "avx2")]
fn halved_row<const BOTH: bool>(luminance: &[u8], differences: [Difference<'_>; 2], rgb: &mut [u8]) {
    let mut sums = [[0; SUMMED + STEP_SAMPLES]; 2];
    for (part, rgb) in rgb.chunks_mut(2 * 3 * SUMMED).enumerate() {
        let first = part * SUMMED;
        let steps = rgb.len().div_ceil(3 * STEP_PIXELS);
        for (sums, rows) in sums.iter_mut().zip(differences) {
            // One more, for the neighbours on the right.
            for (step, sums) in sums.as_chunks_mut::<STEP_SAMPLES>().0.iter_mut().take(steps + 1).enumerate()
            {
                let at = first + step * STEP_SAMPLES;
                let near = load_words(&rows.near[at..]);
                let sum = if BOTH {
                    let far = load_words(&rows.far[at..]);
                    _mm256_add_epi16(_mm256_add_epi16(near, near), _mm256_add_epi16(near, far))
                } else {
                    near
                };
                // SAFETY: the array has the 32 bytes.
                unsafe { _mm256_storeu_si256(sums.as_mut_ptr().cast(), sum) };
            }
        }
        for (step, rgb) in rgb.chunks_mut(3 * STEP_PIXELS).enumerate() {
            let at = step * STEP_SAMPLES;
            let differences = sums.each_ref().map(|sums| upsampled::<BOTH>(&sums[at..]));
            store(even_and_odd(load(&luminance[2 * (first + at)..])), differences, rgb);
        }
    }
}

// The differences of even and odd pixels, given the sums from one before the first on.
#[target_feature(enable = "avx2")]
#[inline]
fn upsampled<const BOTH: bool>(sums: &[i16]) -> [__m256i; 2] {
    let by = if BOTH { Upsampling::BOTH } else { Upsampling::ACROSS };
    let sums: &[i16; STEP_SAMPLES + 2] = sums.first_chunk().expect("a step and its neighbours");
    let load = |at| {
        // SAFETY: the array has two words more than the 32 bytes that are read from its words 0, 1 and 2 on.
        unsafe { _mm256_loadu_si256(sums.as_ptr().add(at).cast()) }
    };
    let (left, middle, right) = (load(0), load(1), load(2));
    let middle = _mm256_add_epi16(_mm256_add_epi16(middle, middle), middle);
    let even = _mm256_add_epi16(_mm256_add_epi16(middle, _mm256_set1_epi16(by.left)), left);
    let odd = _mm256_add_epi16(_mm256_add_epi16(middle, _mm256_set1_epi16(by.right)), right);
    const { assert!(Upsampling::BOTH.shift == 4 && Upsampling::ACROSS.shift == 2) };
    if BOTH {
        [even, odd].map(|sum| _mm256_srai_epi16::<4>(sum))
    } else {
        [even, odd].map(|sum| _mm256_srai_epi16::<2>(sum))
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn load(bytes: &[u8]) -> __m256i {
    let bytes: &[u8; STEP_PIXELS] = bytes.first_chunk().expect("samples that were counted");
    // SAFETY: the array has the 32 bytes.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn load_words(bytes: &[u8]) -> __m256i {
    let bytes: &[u8; STEP_SAMPLES] = bytes.first_chunk().expect("samples that were counted");
    // SAFETY: the array has the 16 bytes.
    _mm256_cvtepu8_epi16(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
}

#[target_feature(enable = "avx2")]
#[inline]
fn even_and_odd(bytes: __m256i) -> [__m256i; 2] {
    [_mm256_and_si256(bytes, _mm256_set1_epi16(0xff)), _mm256_srli_epi16::<8>(bytes)]
}

// For each 16 bytes of 16 pixels in a row: where each colour is, once even and odd pixels are packed together; -128 where
// another colour goes.
const PLACES: [[[i8; 16]; 3]; 3] = {
    let mut places = [[[-128; 16]; 3]; 3];
    let mut at = 0;
    while at < 48 {
        let (pixel, colour) = (at / 3, at % 3);
        places[at / 16][colour][at % 16] = (pixel % 2 * 8 + pixel / 2) as i8;
        at += 1;
    }
    places
};

// Stores up to 32 pixels, given their luminance and the blue and red difference, of even and odd pixels each.
#[target_feature(enable = "avx2")]
#[inline]
fn store(luminance: [__m256i; 2], [blue, red]: [[__m256i; 2]; 2], rgb: &mut [u8]) {
    let [even, odd]: [_; 2] = std::array::from_fn(|at| colours(luminance[at], blue[at], red[at]));
    let colours: [_; 3] = std::array::from_fn(|at| _mm256_packus_epi16(even[at], odd[at]));
    let vectors: [_; 3] = std::array::from_fn(|at| {
        let placed: [_; 3] = std::array::from_fn(|colour| {
            // SAFETY: the array has the 16 bytes.
            let places = unsafe { _mm_loadu_si128(PLACES[at][colour].as_ptr().cast()) };
            _mm256_shuffle_epi8(colours[colour], _mm256_broadcastsi128_si256(places))
        });
        _mm256_or_si256(_mm256_or_si256(placed[0], placed[1]), placed[2])
    });
    if let Some(rgb) = rgb.first_chunk_mut() {
        return store_all(vectors, rgb);
    }
    let mut pixels = [0; 3 * STEP_PIXELS];
    store_all(vectors, &mut pixels);
    rgb.copy_from_slice(&pixels[..rgb.len()]);
}

// The first half of each vector is of the first 16 pixels.
#[target_feature(enable = "avx2")]
#[inline]
fn store_all(vectors: [__m256i; 3], rgb: &mut [u8; 3 * STEP_PIXELS]) {
    let ordered = [
        _mm256_permute2x128_si256::<0x20>(vectors[0], vectors[1]),
        _mm256_blend_epi32::<0b1111_0000>(vectors[2], vectors[0]),
        _mm256_permute2x128_si256::<0x31>(vectors[1], vectors[2]),
    ];
    for (vector, rgb) in ordered.into_iter().zip(rgb.as_chunks_mut::<STEP_PIXELS>().0) {
        // SAFETY: the array has the 32 bytes.
        unsafe { _mm256_storeu_si256(rgb.as_mut_ptr().cast(), vector) };
    }
}

// Red, green and blue of 16 pixels, not yet cut to a byte.
#[target_feature(enable = "avx2")]
#[inline]
fn colours(luminance: __m256i, blue: __m256i, red: __m256i) -> [__m256i; 3] {
    let half = _mm256_set1_epi32(HALF);
    let green = [_mm256_unpacklo_epi16(blue, red), _mm256_unpackhi_epi16(blue, red)]
        .map(|both| _mm256_srai_epi32::<15>(_mm256_add_epi32(_mm256_madd_epi16(both, pair(GREEN)), half)));
    let green = _mm256_sub_epi16(_mm256_packs_epi32(green[0], green[1]), red);
    let of_red = _mm256_add_epi16(_mm256_mulhrs_epi16(red, _mm256_set1_epi16(RED)), red);
    let of_blue = _mm256_mulhrs_epi16(blue, _mm256_set1_epi16(BLUE));
    let of_blue = _mm256_add_epi16(of_blue, _mm256_add_epi16(blue, blue));
    [of_red, green, of_blue].map(|part| _mm256_add_epi16(luminance, part))
}
