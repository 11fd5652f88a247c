//! AVX-512 (F, BW, VBMI, VNNI): four blocks or 64 pixels a step.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::kernels::{Difference, Factors, GROUP_SAMPLES};
use super::steps::*;
use crate::common::decode::jpeg::entropy::Group;

const STEP_PIXELS: usize = 64;
const STEP_SAMPLES: usize = STEP_PIXELS / 2;
// Samples of each difference that are summed at a time: what the first level of the cache holds beside the rows.
const SUMMED: usize = 16 * STEP_SAMPLES;

#[target_feature(enable = "avx512f")]
#[inline]
fn pair(by: Pair) -> __m512i {
    _mm512_set1_epi32(i32::from(by.1) << 16 | i32::from(by.0) & 0xffff)
}

fn negative(by: Pair) -> Pair {
    (-by.0, -by.1)
}

fn check() {
    assert!(
        is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vbmi")
            && is_x86_feature_detected!("avx512vnni"),
        "the CPU lacks AVX-512"
    );
}

/// See [`super::kernels::transform`].
pub fn transform(group: &Group, factors: &Factors, out: &mut [u8], stride: usize) -> bool {
    check();
    // SAFETY: the CPU was asked.
    unsafe { transform_group(group, factors, out, stride) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")]
fn transform_group(group: &Group, factors: &Factors, out: &mut [u8], stride: usize) -> bool {
    let mut rows = [_mm512_setzero_si512(); 8];
    for (row, (values, factors)) in
        rows.iter_mut().zip(group.as_chunks::<GROUP_SAMPLES>().0.iter().zip(factors.as_chunks::<8>().0))
    {
        // SAFETY: both are whole arrays of the 64 and 16 bytes of the loads.
        let (values, factors) =
            unsafe { (_mm512_loadu_epi16(values.as_ptr()), _mm_loadu_epi16(factors.as_ptr())) };
        *row = _mm512_mullo_epi16(values, _mm512_broadcast_i32x4(factors));
    }
    let lifted = _mm512_add_epi16(rows[0], _mm512_set1_epi16(FIRST_ROW_REACH));
    let is_within = _mm512_test_epi16_mask(lifted, _mm512_set1_epi16(!(2 * FIRST_ROW_REACH - 1))) == 0;
    let columns = transposed(pass::<COLUMN_SHIFT>(rows));
    let samples = pass::<ROW_SHIFT>(columns);
    for (two_rows, out) in by_rows(samples).into_iter().zip(out.chunks_mut(2 * stride)) {
        let (first, second) = out.split_at_mut(stride);
        for (row, out) in
            [(_mm512_castsi512_si256(two_rows), first), (_mm512_extracti64x4_epi64::<1>(two_rows), second)]
        {
            let out: &mut [u8; GROUP_SAMPLES] = out.first_chunk_mut().expect("rows that were counted");
            // SAFETY: the array has the 32 bytes.
            unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), row) };
        }
    }
    is_within
}

// One-dimensional transforms of the inputs 0 to 7 in each place.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")]
#[inline]
fn pass<const SHIFT: u32>(inputs: [__m512i; 8]) -> [__m512i; 8] {
    let [in0, in1, in2, in3, in4, in5, in6, in7] = inputs;
    let (plus, minus) = (_mm512_add_epi16(in0, in4), _mm512_sub_epi16(in0, in4));
    let (seven_three, five_one) = (_mm512_add_epi16(in7, in3), _mm512_add_epi16(in5, in1));
    let zero = _mm512_setzero_si512();
    let low = half::<SHIFT>([
        _mm512_unpacklo_epi16(zero, plus),
        _mm512_unpacklo_epi16(zero, minus),
        _mm512_unpacklo_epi16(in2, in6),
        _mm512_unpacklo_epi16(seven_three, five_one),
        _mm512_unpacklo_epi16(in7, in1),
        _mm512_unpacklo_epi16(in5, in3),
    ]);
    let high = half::<SHIFT>([
        _mm512_unpackhi_epi16(zero, plus),
        _mm512_unpackhi_epi16(zero, minus),
        _mm512_unpackhi_epi16(in2, in6),
        _mm512_unpackhi_epi16(seven_three, five_one),
        _mm512_unpackhi_epi16(in7, in1),
        _mm512_unpackhi_epi16(in5, in3),
    ]);
    std::array::from_fn(|at| _mm512_packs_epi32(low[at], high[at]))
}

// Half of the places, with 32 bits.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")]
#[inline]
fn half<const SHIFT: u32>(inputs: [__m512i; 6]) -> [__m512i; 8] {
    let [plus, minus, two_six, sums, seven_one, five_three] = inputs;
    let rounding = _mm512_set1_epi32(1 << (SHIFT - 1));
    // From the upper half of the word to the bits of the fraction.
    let plus = _mm512_add_epi32(_mm512_srai_epi32::<{ 16 - FRACTION_BITS }>(plus), rounding);
    let minus = _mm512_add_epi32(_mm512_srai_epi32::<{ 16 - FRACTION_BITS }>(minus), rounding);
    let even = [
        _mm512_dpwssd_epi32(plus, two_six, pair(EVEN_OUTER)),
        _mm512_dpwssd_epi32(minus, two_six, pair(EVEN_INNER)),
        _mm512_dpwssd_epi32(minus, two_six, pair(negative(EVEN_INNER))),
        _mm512_dpwssd_epi32(plus, two_six, pair(negative(EVEN_OUTER))),
    ];
    let seven_three = _mm512_madd_epi16(sums, pair(ODD_SEVEN_THREE));
    let five_one = _mm512_madd_epi16(sums, pair(ODD_FIVE_ONE));
    let odd = [
        _mm512_dpwssd_epi32(five_one, seven_one, pair(ODD_ZERO_SEVEN)),
        _mm512_dpwssd_epi32(seven_three, five_three, pair(ODD_ONE_SIX)),
        _mm512_dpwssd_epi32(five_one, five_three, pair(ODD_TWO_FIVE)),
        _mm512_dpwssd_epi32(seven_three, seven_one, pair(ODD_THREE_FOUR)),
    ];
    std::array::from_fn(|at| {
        let value = if at < 4 {
            _mm512_add_epi32(even[at], odd[at])
        } else {
            _mm512_sub_epi32(even[7 - at], odd[7 - at])
        };
        _mm512_srai_epi32::<SHIFT>(value)
    })
}

// The 8x8 words in each 128 bits, transposed.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn transposed(rows: [__m512i; 8]) -> [__m512i; 8] {
    let words: [_; 8] = std::array::from_fn(|at| {
        let (a, b) = (rows[at / 2 * 2], rows[at / 2 * 2 + 1]);
        if at % 2 == 0 { _mm512_unpacklo_epi16(a, b) } else { _mm512_unpackhi_epi16(a, b) }
    });
    // Of two rows each, columns 0..4 are at even and columns 4..8 at odd places.
    let doubles: [_; 8] = std::array::from_fn(|at| {
        let (a, b) = (words[at / 4 * 4 + at / 2 % 2], words[at / 4 * 4 + at / 2 % 2 + 2]);
        if at % 2 == 0 { _mm512_unpacklo_epi32(a, b) } else { _mm512_unpackhi_epi32(a, b) }
    });
    // Of four rows each, two columns at a place.
    std::array::from_fn(|at| {
        let (a, b) = (doubles[at / 2], doubles[at / 2 + 4]);
        if at % 2 == 0 { _mm512_unpacklo_epi64(a, b) } else { _mm512_unpackhi_epi64(a, b) }
    })
}

// For two vectors of bytes that have two columns of each block, which bytes are the rows from `first` on, four columns at a
// time: those of blocks 0 and 1, then of blocks 2 and 3, in the first half of each 128 bits rows 0 and 1, then 2 and 3.
const fn quarters(first: usize) -> [u8; 64] {
    let mut places = [0; 64];
    let mut at = 0;
    while at < 64 {
        let (column, double) = (at % 4, at / 4);
        let (lane, within) = (double / 4, double % 4);
        let (row, block) = (first + within / 2 * 2 + lane / 2, lane % 2 * 2 + within % 2);
        places[at] = (column / 2 * 64 + block * 16 + column % 2 * 8 + row) as u8;
        at += 1;
    }
    places
}

// Columns of words to rows of bytes: two rows of all blocks in each vector.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
#[inline]
fn by_rows(columns: [__m512i; 8]) -> [__m512i; 4] {
    const UPPER: [u8; 64] = quarters(0);
    const LOWER: [u8; 64] = quarters(4);
    let middle = _mm512_set1_epi8(-128);
    let bytes: [_; 4] = std::array::from_fn(|at| {
        _mm512_xor_si512(_mm512_packs_epi16(columns[2 * at], columns[2 * at + 1]), middle)
    });
    // SAFETY: both are arrays of the 64 bytes.
    let (upper, lower) =
        unsafe { (_mm512_loadu_epi8(UPPER.as_ptr().cast()), _mm512_loadu_epi8(LOWER.as_ptr().cast())) };
    let [left_upper, left_lower] =
        [upper, lower].map(|rows| _mm512_permutex2var_epi8(bytes[0], rows, bytes[1]));
    let [right_upper, right_lower] =
        [upper, lower].map(|rows| _mm512_permutex2var_epi8(bytes[2], rows, bytes[3]));
    [
        _mm512_unpacklo_epi32(left_upper, right_upper),
        _mm512_unpackhi_epi32(left_upper, right_upper),
        _mm512_unpacklo_epi32(left_lower, right_lower),
        _mm512_unpackhi_epi32(left_lower, right_lower),
    ]
}

/// See [`super::kernels::rgb_row`], which has counted the samples.
pub fn rgb_row(subsampling: Subsampling, luminance: &[u8], differences: [Difference<'_>; 2], rgb: &mut [u8]) {
    check();
    // SAFETY: the CPU was asked.
    unsafe { row(subsampling, luminance, differences, rgb) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")]
fn row(subsampling: Subsampling, luminance: &[u8], differences: [Difference<'_>; 2], rgb: &mut [u8]) {
    match subsampling {
        Subsampling::None => full_row(luminance, differences, rgb),
        Subsampling::Across => halved_row::<false>(luminance, differences, rgb),
        Subsampling::Both => halved_row::<true>(luminance, differences, rgb),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")]
fn full_row(luminance: &[u8], differences: [Difference<'_>; 2], rgb: &mut [u8]) {
    let to_rgb = ToRgb::new();
    let middle = _mm512_set1_epi16(128);
    for (step, rgb) in rgb.chunks_mut(3 * STEP_PIXELS).enumerate() {
        let at = step * STEP_PIXELS;
        let differences = differences.map(|rows| {
            let [even, odd] = even_and_odd(load(&rows.near[at + 1..]));
            [_mm512_sub_epi16(even, middle), _mm512_sub_epi16(odd, middle)]
        });
        to_rgb.store(even_and_odd(load(&luminance[at..])), differences, rgb);
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")]
fn halved_row<const BOTH: bool>(luminance: &[u8], differences: [Difference<'_>; 2], rgb: &mut [u8]) {
    let to_rgb = ToRgb::new();
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
                    _mm512_add_epi16(_mm512_add_epi16(near, near), _mm512_add_epi16(near, far))
                } else {
                    near
                };
                // SAFETY: the array has the 64 bytes.
                unsafe { _mm512_storeu_epi16(sums.as_mut_ptr(), sum) };
            }
        }
        for (step, rgb) in rgb.chunks_mut(3 * STEP_PIXELS).enumerate() {
            let at = step * STEP_SAMPLES;
            let differences = sums.each_ref().map(|sums| upsampled::<BOTH>(&sums[at..]));
            to_rgb.store(even_and_odd(load(&luminance[2 * (first + at)..])), differences, rgb);
        }
    }
}

// The differences of even and odd pixels, given the sums from one before the first on.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn upsampled<const BOTH: bool>(sums: &[i16]) -> [__m512i; 2] {
    let by = if BOTH { Upsampling::BOTH } else { Upsampling::ACROSS };
    let sums: &[i16; STEP_SAMPLES + 2] = sums.first_chunk().expect("a step and its neighbours");
    // SAFETY: the array has two words more than the 64 bytes that are read from its words 0, 1 and 2 on.
    let [left, middle, right] = [0, 1, 2].map(|at| unsafe { _mm512_loadu_epi16(sums.as_ptr().add(at)) });
    let middle = _mm512_add_epi16(_mm512_add_epi16(middle, middle), middle);
    let even = _mm512_add_epi16(_mm512_add_epi16(middle, _mm512_set1_epi16(by.left)), left);
    let odd = _mm512_add_epi16(_mm512_add_epi16(middle, _mm512_set1_epi16(by.right)), right);
    if BOTH {
        [
            _mm512_srai_epi16::<{ Upsampling::BOTH.shift }>(even),
            _mm512_srai_epi16::<{ Upsampling::BOTH.shift }>(odd),
        ]
    } else {
        [
            _mm512_srai_epi16::<{ Upsampling::ACROSS.shift }>(even),
            _mm512_srai_epi16::<{ Upsampling::ACROSS.shift }>(odd),
        ]
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn load(bytes: &[u8]) -> __m512i {
    let bytes: &[u8; STEP_PIXELS] = bytes.first_chunk().expect("samples that were counted");
    // SAFETY: the array has the 64 bytes.
    unsafe { _mm512_loadu_epi8(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn load_words(bytes: &[u8]) -> __m512i {
    let bytes: &[u8; STEP_SAMPLES] = bytes.first_chunk().expect("samples that were counted");
    // SAFETY: the array has the 32 bytes.
    _mm512_cvtepu8_epi16(unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) })
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn even_and_odd(bytes: __m512i) -> [__m512i; 2] {
    [_mm512_and_si512(bytes, _mm512_set1_epi16(0xff)), _mm512_srli_epi16::<8>(bytes)]
}

// Where the colours of pixels are, once even and odd pixels are packed together: `colours` of each pixel by turns, green 64
// places further.
const PLACES: [u8; 3 * STEP_PIXELS] = {
    let mut places = [0; 3 * STEP_PIXELS];
    let mut at = 0;
    while at < places.len() {
        let (pixel, colour) = (at / 3, at % 3);
        let within = pixel % 16;
        places[at] = (pixel / 16 * 16 + within % 2 * 8 + within / 2 + if colour == 1 { 64 } else { 0 }) as u8;
        at += 1;
    }
    places
};

// Constants of the conversion, in registers.
struct ToRgb {
    places: [__m512i; 3],
}

impl ToRgb {
    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    fn new() -> Self {
        let (places, _) = PLACES.as_chunks::<STEP_PIXELS>();
        // SAFETY: there are three arrays of 64 bytes.
        Self { places: std::array::from_fn(|at| unsafe { _mm512_loadu_epi8(places[at].as_ptr().cast()) }) }
    }

    // Stores up to 64 pixels, given their luminance and the blue and red difference, of even and odd pixels each.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")]
    #[inline]
    fn store(&self, luminance: [__m512i; 2], [blue, red]: [[__m512i; 2]; 2], rgb: &mut [u8]) {
        let [even, odd]: [_; 2] = std::array::from_fn(|at| colours(luminance[at], blue[at], red[at]));
        let [red, green, blue]: [_; 3] = std::array::from_fn(|at| _mm512_packus_epi16(even[at], odd[at]));
        let vectors: [_; 3] = std::array::from_fn(|at| {
            let places = self.places[at];
            let red_green = _mm512_permutex2var_epi8(red, places, green);
            // A vector starts with red, with green, with blue.
            let blues = [0x4924_9249_2492_4924, 0x2492_4924_9249_2492, 0x9249_2492_4924_9249][at];
            _mm512_mask_permutexvar_epi8(red_green, blues, places, blue)
        });
        if let Some(rgb) = rgb.first_chunk_mut::<{ 3 * STEP_PIXELS }>() {
            for (vector, rgb) in vectors.into_iter().zip(rgb.as_chunks_mut::<STEP_PIXELS>().0) {
                // SAFETY: the array has the 64 bytes.
                unsafe { _mm512_storeu_epi8(rgb.as_mut_ptr().cast(), vector) };
            }
            return;
        }
        for (vector, rgb) in vectors.into_iter().zip(rgb.chunks_mut(STEP_PIXELS)) {
            let present = u64::MAX >> (STEP_PIXELS - rgb.len());
            // SAFETY: only as many bytes as there are are written.
            unsafe { _mm512_mask_storeu_epi8(rgb.as_mut_ptr().cast(), present, vector) };
        }
    }
}

// Red, green and blue of 32 pixels, not yet cut to a byte.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
#[inline]
fn colours(luminance: __m512i, blue: __m512i, red: __m512i) -> [__m512i; 3] {
    let half = _mm512_set1_epi32(HALF);
    let green = [_mm512_unpacklo_epi16(blue, red), _mm512_unpackhi_epi16(blue, red)]
        .map(|both| _mm512_srai_epi32::<15>(_mm512_dpwssd_epi32(half, both, pair(GREEN))));
    let green = _mm512_sub_epi16(_mm512_packs_epi32(green[0], green[1]), red);
    let of_red = _mm512_add_epi16(_mm512_mulhrs_epi16(red, _mm512_set1_epi16(RED)), red);
    let of_blue = _mm512_mulhrs_epi16(blue, _mm512_set1_epi16(BLUE));
    let of_blue = _mm512_add_epi16(of_blue, _mm512_add_epi16(blue, blue));
    [of_red, green, of_blue].map(|part| _mm512_add_epi16(luminance, part))
}
