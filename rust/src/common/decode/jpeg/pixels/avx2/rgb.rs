//! Upsampling and conversion, 32 pixels at a time.

use std::arch::x86_64::*;

use super::super::kernels::Difference;
use super::super::steps::*;
use super::{check, pair};

const STEP_PIXELS: usize = 32;
const STEP_SAMPLES: usize = STEP_PIXELS / 2;
// Samples of each difference that are summed at a time: what the first level of the cache holds beside the rows.
const SUMMED: usize = 32 * STEP_SAMPLES;

/// See [`super::super::kernels::rgb_row`], which has counted the samples.
pub fn rgb_row(
    subsampling: Subsampling,
    luminance: &[u8],
    differences: [Difference<'_>; 2],
    rgb: &mut [u8],
    past_cache: bool,
) {
    check();
    // SAFETY: the CPU was asked.
    unsafe { row(subsampling, luminance, differences, rgb, past_cache) }
}

#[target_feature(enable = "avx2")]
fn row(
    subsampling: Subsampling,
    luminance: &[u8],
    differences: [Difference<'_>; 2],
    rgb: &mut [u8],
    past_cache: bool,
) {
    match subsampling {
        Subsampling::None => full_row(luminance, differences, rgb, past_cache),
        Subsampling::Across => halved_row::<false>(luminance, differences, rgb, past_cache),
        Subsampling::Both => halved_row::<true>(luminance, differences, rgb, past_cache),
    }
}

#[target_feature(enable = "avx2")]
fn full_row(luminance: &[u8], differences: [Difference<'_>; 2], rgb: &mut [u8], past_cache: bool) {
    let middle = _mm256_set1_epi16(128);
    for (step, rgb) in rgb.chunks_mut(3 * STEP_PIXELS).enumerate() {
        let at = step * STEP_PIXELS;
        let differences = differences.map(|rows| {
            let [even, odd] = even_and_odd(load(&rows.near[at + 1..]));
            [_mm256_sub_epi16(even, middle), _mm256_sub_epi16(odd, middle)]
        });
        store(even_and_odd(load(&luminance[at..])), differences, rgb, past_cache);
    }
}

#[target_feature(enable = "avx2")]
fn halved_row<const BOTH: bool>(
    luminance: &[u8],
    differences: [Difference<'_>; 2],
    rgb: &mut [u8],
    past_cache: bool,
) {
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
            store(even_and_odd(load(&luminance[2 * (first + at)..])), differences, rgb, past_cache);
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
fn store(luminance: [__m256i; 2], [blue, red]: [[__m256i; 2]; 2], rgb: &mut [u8], past_cache: bool) {
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
        return store_all(vectors, rgb, past_cache);
    }
    let mut pixels = [0; 3 * STEP_PIXELS];
    store_all(vectors, &mut pixels, false);
    rgb.copy_from_slice(&pixels[..rgb.len()]);
}

// The first half of each vector is of the first 16 pixels.
#[target_feature(enable = "avx2")]
#[inline]
fn store_all(vectors: [__m256i; 3], rgb: &mut [u8; 3 * STEP_PIXELS], past_cache: bool) {
    let ordered = [
        _mm256_permute2x128_si256::<0x20>(vectors[0], vectors[1]),
        _mm256_blend_epi32::<0b1111_0000>(vectors[2], vectors[0]),
        _mm256_permute2x128_si256::<0x31>(vectors[1], vectors[2]),
    ];
    let is_aligned = (rgb.as_ptr() as usize).is_multiple_of(size_of::<__m256i>());
    for (vector, rgb) in ordered.into_iter().zip(rgb.as_chunks_mut::<STEP_PIXELS>().0) {
        if past_cache && is_aligned {
            // SAFETY: the array has the 32 bytes, and all three start at a multiple of 32 if the first does.
            unsafe { _mm256_stream_si256(rgb.as_mut_ptr().cast(), vector) };
        } else {
            // SAFETY: the array has the 32 bytes.
            unsafe { _mm256_storeu_si256(rgb.as_mut_ptr().cast(), vector) };
        }
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
