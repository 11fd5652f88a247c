//! The five filters of PNG, undone a row at a time.

/// Undoes `filter` on `filtered` into `row`; `above` is the row before, already undone. `false` for an unknown filter.
///
/// `pixel_bytes` is the distance to the left neighbour: 1, 2, 3, 4, 6 or 8.
pub(in super::super) fn unfilter(
    filter: u8,
    pixel_bytes: usize,
    filtered: &[u8],
    above: &[u8],
    row: &mut [u8],
) -> bool {
    match pixel_bytes {
        1 => unfilter_pixels::<1>(filter, filtered, above, row),
        2 => unfilter_pixels::<2>(filter, filtered, above, row),
        3 => unfilter_pixels::<3>(filter, filtered, above, row),
        4 => unfilter_pixels::<4>(filter, filtered, above, row),
        6 => unfilter_pixels::<6>(filter, filtered, above, row),
        _ => unfilter_pixels::<8>(filter, filtered, above, row),
    }
}

fn unfilter_pixels<const BYTES: usize>(filter: u8, filtered: &[u8], above: &[u8], row: &mut [u8]) -> bool {
    match filter {
        0 => row.copy_from_slice(filtered),
        1 => each::<BYTES>(filtered, above, row, |left, _, _| left),
        2 => {
            for ((value, &filtered), &above) in row.iter_mut().zip(filtered).zip(above) {
                *value = filtered.wrapping_add(above);
            }
        }
        3 => each::<BYTES>(filtered, above, row, |left, above, _| {
            ((u16::from(left) + u16::from(above)) / 2) as u8
        }),
        4 => each::<BYTES>(filtered, above, row, paeth),
        _ => return false,
    }
    true
}

#[inline(always)]
fn each<const BYTES: usize>(
    filtered: &[u8],
    above: &[u8],
    row: &mut [u8],
    predict: impl Fn(u8, u8, u8) -> u8,
) {
    let mut left = [0; BYTES];
    let mut above_left = [0; BYTES];
    let (pixels, _) = row.as_chunks_mut::<BYTES>();
    for ((pixel, filtered), above) in
        pixels.iter_mut().zip(filtered.as_chunks::<BYTES>().0).zip(above.as_chunks::<BYTES>().0)
    {
        for channel in 0..BYTES {
            left[channel] =
                filtered[channel].wrapping_add(predict(left[channel], above[channel], above_left[channel]));
        }
        *pixel = left;
        above_left = *above;
    }
}

/// The neighbour nearest to `left + above - above_left`, found without comparing distances: it is the larger (or
/// smaller) neighbour where the estimate lies beyond it, and else `above_left`. Selects, where the
/// definition would branch on noise.
#[inline(always)]
fn paeth(left: u8, above: u8, above_left: u8) -> u8 {
    let (a, b, c) = (i16::from(left), i16::from(above), i16::from(above_left));
    let threshold = 3 * c - (a + b);
    let (low, high) = (a.min(b), a.max(b));
    let inner = if high <= threshold { low } else { c };
    let nearest = if threshold <= low { high } else { inner };
    nearest as u8
}

#[cfg(test)]
mod tests {
    use super::paeth;

    fn paeth_by_definition(left: u8, above: u8, above_left: u8) -> u8 {
        let (a, b, c) = (i16::from(left), i16::from(above), i16::from(above_left));
        let (by_left, by_above) = ((b - c).abs(), (a - c).abs());
        let by_above_left = (a + b - 2 * c).abs();
        if by_left <= by_above && by_left <= by_above_left {
            left
        } else if by_above <= by_above_left {
            above
        } else {
            above_left
        }
    }

    #[test]
    fn the_nearest_neighbour_is_the_one_of_the_definition() {
        for (left, above) in (0..=255).flat_map(|left| (0..=255).map(move |above| (left, above))) {
            for above_left in 0..=255 {
                let expected = paeth_by_definition(left, above, above_left);
                assert_eq!(paeth(left, above, above_left), expected, "{left} {above} {above_left}");
            }
        }
    }
}
