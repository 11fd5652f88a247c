//! Muse's sizes: the whole tokens around the ideal grid whose aspect is closest.

use crate::error::{CoreError, Result};

// The whole grids around the ideal one, in the order in which CPython's set of such pairs hands them out, since ties go
// to the first: open addressing in 8 slots by the hash of a tuple (CPython 3.8 and newer, 64 bits).
fn candidates(ideal_rows: f64, ideal_columns: f64) -> Vec<(u64, u64)> {
    let sides = |ideal: f64| [ideal.floor() as u64, ideal.ceil() as u64];
    let mut slots: [Option<(u64, u64)>; 8] = [None; 8];
    for rows in sides(ideal_rows) {
        for columns in sides(ideal_columns) {
            let hash = tuple_hash(rows, columns);
            let (mut at, mut perturb) = (hash & 7, hash);
            while slots[at as usize].is_some_and(|taken| taken != (rows, columns)) {
                perturb >>= 5;
                at = at.wrapping_mul(5).wrapping_add(1).wrapping_add(perturb) & 7;
            }
            slots[at as usize] = Some((rows, columns));
        }
    }
    slots.into_iter().flatten().collect()
}

fn tuple_hash(first: u64, second: u64) -> u64 {
    const PRIMES: [u64; 3] =
        [11_400_714_785_074_694_791, 14_029_467_366_897_019_727, 2_870_177_450_012_600_261];
    let mixed = [first, second].into_iter().fold(PRIMES[2], |mixed, lane| {
        mixed.wrapping_add(lane.wrapping_mul(PRIMES[1])).rotate_left(31).wrapping_mul(PRIMES[0])
    });
    let hash = mixed.wrapping_add(2 ^ PRIMES[2] ^ 3_527_539);
    if hash == u64::MAX { 1_546_275_796 } else { hash }
}

fn closest(grids: impl Iterator<Item = (u64, u64)>, aspect: f64) -> Option<(u64, u64)> {
    let distortion = |(rows, columns): (u64, u64)| (rows as f64 / columns as f64 - aspect).abs();
    grids.fold(None, |best, grid| match best {
        Some(known) if distortion(grid) >= distortion(known) => best,
        _ => Some(grid),
    })
}

/// `(rows, columns)` of the tokens of a Muse Glimmer image, each of `token_px` pixels a side.
///
/// As the size rule of SGLang's processor for it, in doubles.
pub fn muse_glimmer((width, height): (usize, usize), token_px: usize, most_tokens: usize) -> (usize, usize) {
    let (mut rows, mut columns) = (height as f64 / token_px as f64, width as f64 / token_px as f64);
    let ratio = columns / rows;
    if rows * columns > most_tokens as f64 {
        rows = (most_tokens as f64 / ratio).powf(0.5);
        columns = rows * ratio;
    }
    let fits =
        |&(rows, columns): &(u64, u64)| rows >= 1 && columns >= 1 && rows * columns <= most_tokens as u64;
    let found = closest(candidates(rows, columns).into_iter().filter(fits), height as f64 / width as f64);
    let rounded = |side: f64| (side.round_ties_even() as u64).max(1);
    let (rows, columns) = found.unwrap_or((rounded(rows), rounded(columns)));
    (rows as usize, columns as usize)
}

/// `(rows, columns)` of the tokens of a Muse Spark image, between `fewest_tokens` and `most_tokens`.
///
/// As the size rule of SGLang's processor for it, in doubles.
///
/// # Errors
/// [`CoreError::InvalidArgument`] if no grid has so many tokens.
pub fn muse_spark(
    (width, height): (usize, usize),
    token_px: usize,
    fewest_tokens: usize,
    most_tokens: usize,
) -> Result<(usize, usize)> {
    let (mut rows, mut columns) = (height as f64 / token_px as f64, width as f64 / token_px as f64);
    let (aspect, count) = (columns / rows, rows * columns);
    let bound = if count > most_tokens as f64 { most_tokens } else { fewest_tokens };
    if count > most_tokens as f64 || count < fewest_tokens as f64 {
        rows = (bound as f64 / aspect).sqrt();
        columns = rows * aspect;
    }
    let (fewest, most) = (fewest_tokens as u64, most_tokens as u64);
    let fits = |&(rows, columns): &(u64, u64)| {
        rows >= 1 && columns >= 1 && (fewest..=most).contains(&(rows * columns))
    };
    if let Some((rows, columns)) =
        closest(candidates(rows, columns).into_iter().filter(fits), height as f64 / width as f64)
    {
        return Ok((rows as usize, columns as usize));
    }
    let mut best: Option<(f64, (u64, u64))> = None;
    for row_count in 1..=most {
        let (low, high) = (fewest.div_ceil(row_count).max(1), most / row_count);
        if low > high {
            continue;
        }
        let column_count = (columns.round_ties_even() as u64).max(low).min(high);
        let distance = (row_count as f64 - rows).powi(2) + (column_count as f64 - columns).powi(2);
        if best.is_none_or(|(known, _)| distance < known) {
            best = Some((distance, (row_count, column_count)));
        }
    }
    best.map(|(_, (rows, columns))| (rows as usize, columns as usize)).ok_or_else(|| {
        CoreError::argument(format!("no grid has {fewest_tokens} to {most_tokens} tokens; widen the range"))
    })
}
