//! Groups of rows, each one pixel behind the row above it, in the lanes of one register.
//!
//! A pixel needs its left neighbour finished, which takes about ten dependent instructions; rows that run side by side
//! wait for them together. Row `r` of the group works on pixel `step - r`: the pixel above it was finished one step
//! before by lane `r - 1`, and so moving the last result by one row gives `above`, and the one before that
//! `above_left`. 128-bit registers, in VEX encoding.
#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::ops::Range;

use super::GROUP_LANES;

/// As [`super::unfilter_group`]. The CPU has AVX2.
pub(super) fn unfilter_group(pixel_bytes: usize, filtered: &[u8], above: &[u8], rows: &mut [u8]) -> bool {
    // SAFETY: the level that leads here was checked against the CPU; the functions use no pointers.
    unsafe {
        match pixel_bytes {
            1 => unfilter_pixels::<1, 1>(filtered, above, rows),
            2 => unfilter_pixels::<2, 2>(filtered, above, rows),
            3 => unfilter_pixels::<3, 4>(filtered, above, rows),
            4 => unfilter_pixels::<4, 4>(filtered, above, rows),
            6 => unfilter_pixels::<6, 8>(filtered, above, rows),
            8 => unfilter_pixels::<8, 8>(filtered, above, rows),
            _ => false,
        }
    }
}

// `LANES` is the number of lanes of a row, of which `BYTES` are used.
#[target_feature(enable = "avx2")]
fn unfilter_pixels<const BYTES: usize, const LANES: usize>(
    filtered: &[u8],
    above: &[u8],
    rows: &mut [u8],
) -> bool {
    let count = GROUP_LANES / LANES;
    let width = above.len() / BYTES;
    let fits = filtered.len() == count * (above.len() + 1) && rows.len() == count * above.len();
    if width <= count || !fits || !above.len().is_multiple_of(BYTES) {
        return false;
    }
    let filters = |row: usize| filtered[row * (above.len() + 1)];
    if (0..count).any(|row| filters(row) > 4) {
        return false;
    }
    let mut group = Group::<BYTES, LANES> {
        filtered,
        above,
        rows,
        masks: [1, 2, 3, 4].map(|filter| lanes(|lane| filters(lane / LANES) == filter)),
        left: _mm_setzero_si128(),
        above_left: _mm_setzero_si128(),
    };
    for step in 0..count - 1 {
        group.step_at_the_edge(step, 0..step + 1);
    }
    for step in count - 1..width - 1 {
        group.step(step);
    }
    for step in width - 1..width + count - 1 {
        group.step_at_the_edge(step, step + 1 - width..count);
    }
    true
}

struct Group<'a, const BYTES: usize, const LANES: usize> {
    filtered: &'a [u8],
    above: &'a [u8],
    rows: &'a mut [u8],
    /// Of the rows with filters 1 to 4.
    masks: [__m128i; 4],
    left: __m128i,
    above_left: __m128i,
}

impl<const BYTES: usize, const LANES: usize> Group<'_, BYTES, LANES> {
    const ROWS: usize = GROUP_LANES / LANES;

    /// One pixel of each row, none of them a row's last, so that whole lanes can be read and written.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn step(&mut self, step: usize) {
        let row_bytes = self.above.len();
        let mut halves = [0; 2];
        for row in 0..Self::ROWS {
            let at = row * (row_bytes + 1) + 1 + (step - row) * BYTES;
            put_lane::<LANES>(&mut halves, row, read::<LANES>(&self.filtered[at..at + LANES]));
        }
        let first = read::<LANES>(&self.above[step * BYTES..step * BYTES + LANES]);
        let result = self.undo(halves, first);
        self.left = result;
        let halves = unpack(result);
        for row in 0..Self::ROWS {
            let at = row * row_bytes + (step - row) * BYTES;
            let pixel = lane::<LANES>(halves, row).to_le_bytes();
            self.rows[at..at + LANES].copy_from_slice(&pixel[..LANES]);
        }
    }

    /// The same for only some of the rows, and exactly as many bytes as a pixel has.
    #[target_feature(enable = "avx2")]
    fn step_at_the_edge(&mut self, step: usize, rows: Range<usize>) {
        let row_bytes = self.above.len();
        let mut halves = [0; 2];
        for row in rows.clone() {
            let at = row * (row_bytes + 1) + 1 + (step - row) * BYTES;
            put_lane::<LANES>(&mut halves, row, read::<BYTES>(&self.filtered[at..at + BYTES]));
        }
        let first = self.above.get(step * BYTES..step * BYTES + BYTES).map_or(0, read::<BYTES>);
        let result = self.undo(halves, first);
        // Rows that have not begun have zeros left of their first pixel.
        self.left = _mm_and_si128(result, lanes(|lane| rows.contains(&(lane / LANES))));
        let halves = unpack(result);
        for row in rows {
            let at = row * row_bytes + (step - row) * BYTES;
            let pixel = lane::<LANES>(halves, row).to_le_bytes();
            self.rows[at..at + BYTES].copy_from_slice(&pixel[..BYTES]);
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn undo(&mut self, filtered: [u64; 2], first_above: u64) -> __m128i {
        let filtered = _mm_set_epi64x(filtered[1] as i64, filtered[0] as i64);
        let first_above = _mm_cvtsi64_si128(first_above as i64);
        let moved = match LANES {
            1 => _mm_slli_si128::<1>(self.left),
            2 => _mm_slli_si128::<2>(self.left),
            4 => _mm_slli_si128::<4>(self.left),
            _ => _mm_slli_si128::<8>(self.left),
        };
        let (a, b, c) = (self.left, _mm_or_si128(moved, first_above), self.above_left);
        self.above_left = b;
        // floor((a + b) / 2) out of the rounded-up average.
        let odd = _mm_and_si128(_mm_xor_si128(a, b), _mm_set1_epi8(1));
        let average = _mm_sub_epi8(_mm_avg_epu8(a, b), odd);
        let [sub, up, averaged, by_paeth] = self.masks;
        let simple = _mm_or_si128(_mm_and_si128(a, sub), _mm_and_si128(b, up));
        let other = _mm_or_si128(_mm_and_si128(average, averaged), _mm_and_si128(paeth(a, b, c), by_paeth));
        _mm_add_epi8(filtered, _mm_or_si128(simple, other))
    }
}

/// The rule of the scalar kernel in saturating bytes: the smaller neighbour where twice the way of `c` up to the
/// larger one is at most its way down to the smaller one, and so on; a way past a neighbour counts 0.
#[inline]
#[target_feature(enable = "avx2")]
fn paeth(a: __m128i, b: __m128i, c: __m128i) -> __m128i {
    let (low, high) = (_mm_min_epu8(a, b), _mm_max_epu8(a, b));
    let (up, down) = (_mm_subs_epu8(high, c), _mm_subs_epu8(c, low));
    let zero = _mm_setzero_si128();
    let take_low = _mm_cmpeq_epi8(_mm_subs_epu8(_mm_adds_epu8(up, up), down), zero);
    let take_high = _mm_cmpeq_epi8(_mm_subs_epu8(_mm_adds_epu8(down, down), up), zero);
    _mm_blendv_epi8(_mm_blendv_epi8(c, low, take_low), high, take_high)
}

/// All bits of the lanes that `chosen` chooses.
#[inline]
#[target_feature(enable = "avx2")]
fn lanes(chosen: impl Fn(usize) -> bool) -> __m128i {
    let mut halves = [0; 2];
    for lane in (0..GROUP_LANES).filter(|lane| chosen(*lane)) {
        halves[lane / 8] |= 0xff << (lane % 8 * 8);
    }
    let halves: [u64; 2] = halves;
    _mm_set_epi64x(halves[1] as i64, halves[0] as i64)
}

#[inline]
#[target_feature(enable = "avx2")]
fn unpack(vector: __m128i) -> [u64; 2] {
    [_mm_cvtsi128_si64(vector) as u64, _mm_extract_epi64::<1>(vector) as u64]
}

#[inline(always)]
fn put_lane<const LANES: usize>(halves: &mut [u64; 2], row: usize, pixel: u64) {
    halves[row * LANES / 8] |= pixel << (row * LANES % 8 * 8);
}

#[inline(always)]
fn lane<const LANES: usize>(halves: [u64; 2], row: usize) -> u64 {
    halves[row * LANES / 8] >> (row * LANES % 8 * 8)
}

#[inline(always)]
fn read<const BYTES: usize>(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..BYTES].copy_from_slice(&bytes[..BYTES]);
    u64::from_le_bytes(word)
}
