//! Upsampling and conversion, 64 pixels at a time.

use std::arch::x86_64::*;

use super::super::kernels::Difference;
use super::super::steps::*;
use super::{check, pair};

const STEP_PIXELS: usize = 64;
const STEP_SAMPLES: usize = STEP_PIXELS / 2;
// Samples of each difference that are summed at a time: what the first level of the cache holds beside the rows.
const SUMMED: usize = 16 * STEP_SAMPLES;

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

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")]
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

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")]
fn full_row(luminance: &[u8], differences: [Difference<'_>; 2], rgb: &mut [u8], past_cache: bool) {
    let to_rgb = ToRgb::new(past_cache);
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
fn halved_row<const BOTH: bool>(
    luminance: &[u8],
    differences: [Difference<'_>; 2],
    rgb: &mut [u8],
    past_cache: bool,
) {
    let to_rgb = ToRgb::new(past_cache);
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

// The conversion: its constants, in registers, and whether whole cache lines are stored past the cache.
struct ToRgb {
    past_cache: bool,
    places: [__m512i; 3],
}

impl ToRgb {
    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    fn new(past_cache: bool) -> Self {
        let (places, _) = PLACES.as_chunks::<STEP_PIXELS>();
        let load = |at: usize| {
            // SAFETY: there are three arrays of 64 bytes.
            unsafe { _mm512_loadu_epi8(places[at].as_ptr().cast()) }
        };
        Self { past_cache, places: std::array::from_fn(load) }
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
            let is_line = (rgb.as_ptr() as usize).is_multiple_of(size_of::<__m512i>());
            for (vector, rgb) in vectors.into_iter().zip(rgb.as_chunks_mut::<STEP_PIXELS>().0) {
                if self.past_cache && is_line {
                    // SAFETY: the array has the 64 bytes, and all three start at a multiple of 64 if the first does.
                    unsafe { _mm512_stream_si512(rgb.as_mut_ptr().cast(), vector) };
                } else {
                    // SAFETY: the array has the 64 bytes.
                    unsafe { _mm512_storeu_epi8(rgb.as_mut_ptr().cast(), vector) };
                }
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
