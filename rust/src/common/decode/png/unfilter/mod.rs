//! The five filters of PNG, undone: a row at a time in [`scalar`], or several rows at once where that is quicker.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod scalar;

pub(super) use scalar::unfilter;

use crate::common::simd::Level;

/// Lanes of a group of rows: each row has as many as a pixel needs bytes.
const GROUP_LANES: usize = 16;

/// How many rows [`unfilter_group`] takes at once; none at this level.
pub(super) fn group_rows(level: Level, pixel_bytes: usize) -> Option<usize> {
    match level {
        Level::Avx2 | Level::Avx512 => Some(GROUP_LANES / pixel_bytes.next_power_of_two()),
        Level::Scalar | Level::Neon => None,
    }
}

/// Whether the rows of `filters` are better undone as a group. Filters that look to the left wait for each pixel,
/// alone as in a group; the others run through their row.
pub(super) fn prefers_group(filters: impl ExactSizeIterator<Item = u8>) -> bool {
    let rows = filters.len();
    3 * filters.filter(|filter| *filter >= 3).count() > rows
}

/// Undoes the filters of [`group_rows`] rows. `filtered` holds them with their filter bytes, `rows` takes them
/// without, `above` is the row before. `false` for an unknown filter or rows too short for a group.
pub(super) fn unfilter_group(
    level: Level,
    pixel_bytes: usize,
    filtered: &[u8],
    above: &[u8],
    rows: &mut [u8],
) -> bool {
    #[cfg(target_arch = "x86_64")]
    if matches!(level, Level::Avx2 | Level::Avx512) {
        return avx2::unfilter_group(pixel_bytes, filtered, above, rows);
    }
    let _ = (level, pixel_bytes, filtered, above, rows);
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(length: usize, mut state: u32) -> Vec<u8> {
        (0..length)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect()
    }

    #[test]
    fn a_group_gives_what_its_rows_give_one_by_one() {
        let mut compared = 0;
        for level in Level::available() {
            for pixel_bytes in [1, 2, 3, 4, 6, 8] {
                let Some(count) = group_rows(level, pixel_bytes) else { continue };
                for width in [count + 1, count + 2, 40, 101] {
                    let bytes = width * pixel_bytes;
                    for seed in 0..12 {
                        let mut filtered = noise(count * (bytes + 1), seed * 977 + width as u32);
                        for row in 0..count {
                            let filter = if seed < 5 { seed as u8 } else { filtered[row * 7] % 5 };
                            filtered[row * (bytes + 1)] = filter;
                        }
                        let above = noise(bytes, seed + 1);
                        let mut rows = vec![0; count * bytes];
                        assert!(unfilter_group(level, pixel_bytes, &filtered, &above, &mut rows));
                        let mut expected = vec![0; count * bytes];
                        let mut before = above.clone();
                        for (row, filtered) in
                            expected.chunks_exact_mut(bytes).zip(filtered.chunks_exact(bytes + 1))
                        {
                            assert!(unfilter(filtered[0], pixel_bytes, &filtered[1..], &before, row));
                            before.copy_from_slice(row);
                        }
                        assert_eq!(rows, expected, "{level:?} {pixel_bytes} {width} {seed}");
                        compared += 1;
                    }
                }
            }
        }
        assert!(compared > 0 || !Level::Avx2.is_available());
    }

    #[test]
    fn a_group_refuses_what_it_cannot_do() {
        for level in Level::available() {
            let Some(count) = group_rows(level, 3) else { continue };
            let mut rows = vec![0; count * 30];
            let mut filtered = vec![0; count * 31];
            assert!(unfilter_group(level, 3, &filtered, &[0; 30], &mut rows));
            filtered[31] = 5;
            assert!(!unfilter_group(level, 3, &filtered, &[0; 30], &mut rows));
            assert!(!unfilter_group(level, 3, &filtered[..count * 10], &[0; 9], &mut rows[..count * 9]));
        }
    }
}
