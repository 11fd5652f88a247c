//! The horizontal pass: one `vpermb` brings four taps to each of 16 output values.
#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::ops::Range;

use super::super::coefficients::Coefficients;
use super::super::layout::{CHUNK_QUADS, Chunk, Rows};
use super::{VECTOR_BYTES, check, combine_all, narrow_lanes, planes, weighted_few};

/// Output values of a block: the 32-bit lanes of a vector.
const LANES: usize = 16;

type Bytes = [u8; VECTOR_BYTES];
type Planes = [[i32; LANES]; 3];

/// Weights and byte positions, for blocks of 16 output values.
#[derive(Debug)]
pub struct Blocks {
    /// Groups of four taps, the same for every block.
    groups: usize,
    /// Distance in bytes from one group of a row to the next.
    group_bytes: usize,
    /// Shortest row whose end no load passes.
    row_bytes: usize,
    starts: Vec<usize>,
    positions: Vec<Bytes>,
    weights: Vec<Planes>,
}

impl Blocks {
    /// Memory it takes, in bytes.
    pub fn size_bytes(&self) -> usize {
        self.starts.len() * (size_of::<usize>() + size_of::<Bytes>())
            + self.weights.len() * size_of::<Planes>()
    }
}

/// Lays out the weights for rows of `row_bytes`.
///
/// `None` if a block's taps lie too far apart for one load of 64 bytes to hold one group of each lane (images
/// that shrink by more than about 3), or the row is too short for such a load.
pub fn blocks(coefficients: &Coefficients, channels: usize, row_bytes: usize) -> Option<Blocks> {
    let windows: Vec<_> = (0..coefficients.bounds.len()).map(|index| trimmed(coefficients, index)).collect();
    let groups = windows.iter().map(|(_, weights)| weights.len().div_ceil(4)).max()?;
    let group_bytes = 4 * channels;
    // The last load of a row must not pass its end; nor does any tap then, once windows keep this far from it.
    let last_start = row_bytes.checked_sub(VECTOR_BYTES + (groups - 1) * group_bytes)?;
    let last_first = (row_bytes / channels).checked_sub(4 * groups)?;
    let count = (windows.len() * channels).div_ceil(LANES);
    let mut table = Blocks {
        groups,
        group_bytes,
        row_bytes,
        starts: Vec::with_capacity(count),
        positions: Vec::with_capacity(count),
        weights: Vec::with_capacity(count * groups),
    };
    for block in 0..count {
        let lanes: [_; LANES] = std::array::from_fn(|lane| {
            let value = (block * LANES + lane).min(windows.len() * channels - 1);
            let (first, weights) = &windows[value / channels];
            let moved = (*first).min(last_first);
            (moved * channels + value % channels, first - moved, *weights)
        });
        let start = lanes.iter().map(|lane| lane.0).min()?.min(last_start);
        let mut positions = [0; VECTOR_BYTES];
        for (lane, positions) in lanes.iter().zip(positions.chunks_exact_mut(4)) {
            for (sample, position) in positions.iter_mut().enumerate() {
                let at = lane.0 - start + sample * channels;
                if at >= VECTOR_BYTES {
                    return None;
                }
                *position = at as u8;
            }
        }
        table.starts.push(start);
        table.positions.push(positions);
        for group in 0..groups {
            let mut weights = [[0; LANES]; 3];
            for (index, (_, skipped, taps)) in lanes.iter().enumerate() {
                let of = |tap: usize| {
                    tap.checked_sub(*skipped).and_then(|tap| taps.get(tap)).copied().unwrap_or(0)
                };
                let lane = planes(std::array::from_fn(|tap| of(4 * group + tap)))?;
                for (weights, plane) in weights.iter_mut().zip(lane) {
                    weights[index] = plane;
                }
            }
            table.weights.push(weights);
        }
    }
    Some(table)
}

// First source index and weights, without the zeros at both ends.
fn trimmed(coefficients: &Coefficients, index: usize) -> (usize, &[i32]) {
    let (range, weights) = coefficients.window(index);
    let used = coefficients.used_by(index);
    (used.start, &weights[used.start - range.start..used.end - range.start])
}

/// Resamples a chunk of rows along x, for output pixels `pixels`, into quads of rows.
pub fn horizontal(
    table: &Blocks,
    channels: usize,
    source: &Rows,
    first_row: usize,
    pixels: Range<usize>,
    chunk: Chunk,
) {
    check();
    let values = pixels.start * channels..pixels.end * channels;
    assert!(values.start % LANES == 0, "strips begin with a whole block");
    assert!(source.row_bytes >= table.row_bytes, "the weights are for longer rows");
    let blocks = values.start / LANES..values.end.div_ceil(LANES);
    assert!(chunk.groups.len() >= CHUNK_QUADS * chunk.stride && blocks.len() * VECTOR_BYTES <= chunk.stride);
    let rows: [&[u8]; 4 * CHUNK_QUADS] = std::array::from_fn(|row| source.tail_from(first_row + row));
    let next = std::array::from_fn(|row| source.tail_from(first_row + 4 * CHUNK_QUADS + row).as_ptr());
    let chunks = Chunks { rows, next };
    // SAFETY: the instructions were checked; each row has the bytes that the table was made for, and `chunk`
    // has room for all blocks.
    unsafe {
        match table.groups {
            1 => few::<1>(table, blocks, &chunks, chunk),
            2 => few::<2>(table, blocks, &chunks, chunk),
            3 => few::<3>(table, blocks, &chunks, chunk),
            4 => few::<4>(table, blocks, &chunks, chunk),
            _ => many(table, blocks, &chunks, chunk),
        }
    }
}

// The rows of this chunk, and where those of the next begin.
struct Chunks<'a> {
    rows: [&'a [u8]; 4 * CHUNK_QUADS],
    next: [*const u8; 4 * CHUNK_QUADS],
}

impl Chunks<'_> {
    // Asks for what the next chunk will read, once for each cache line: 16 rows are too many for the CPU to foresee.
    #[inline]
    #[allow(unused_unsafe, reason = "the intrinsic is unsafe in older compilers only")]
    fn prefetch(&self, start: usize, line: &mut usize) {
        if start / 64 != *line {
            *line = start / 64;
            for row in self.next {
                // SAFETY: a prefetch of any address is harmless.
                unsafe { _mm_prefetch::<_MM_HINT_T1>(row.wrapping_add(start).cast()) };
            }
        }
    }
}

/// # Safety
/// Rows must be as long as the table says, and `chunk` have room for all blocks.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx512vbmi")]
unsafe fn few<const GROUPS: usize>(table: &Blocks, blocks: Range<usize>, source: &Chunks, chunk: Chunk) {
    let order = row_order();
    let mut line = usize::MAX;
    for (index, block) in blocks.enumerate() {
        let start = table.starts[block];
        source.prefetch(start, &mut line);
        let positions = load(&table.positions[block]);
        let planes = &table.weights[block * GROUPS..(block + 1) * GROUPS];
        let mut weights = [[_mm512_setzero_si512(); GROUPS]; 3];
        for (plane, weights) in weights.iter_mut().enumerate() {
            for (weights, planes) in weights.iter_mut().zip(planes) {
                *weights = load(&planes[plane]);
            }
        }
        for (quad, rows) in source.rows.chunks_exact(4).enumerate() {
            let mut sums = [_mm512_setzero_si512(); 4];
            for (row, sum) in rows.iter().zip(&mut sums) {
                let mut samples = [_mm512_setzero_si512(); GROUPS];
                for (group, samples) in samples.iter_mut().enumerate() {
                    // SAFETY: by the caller.
                    let bytes = unsafe {
                        _mm512_loadu_si512(row.as_ptr().add(start + group * table.group_bytes).cast())
                    };
                    *samples = _mm512_permutexvar_epi8(positions, bytes);
                }
                *sum = weighted_few(&samples, &weights);
            }
            let bytes = _mm512_shuffle_epi8(narrow_lanes(sums), order);
            // SAFETY: by the caller.
            unsafe {
                let to = chunk.groups.as_mut_ptr().add(quad * chunk.stride + index * VECTOR_BYTES);
                _mm512_storeu_si512(to.cast(), bytes);
            }
        }
    }
}

/// # Safety
/// As [`few`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx512vbmi")]
unsafe fn many(table: &Blocks, blocks: Range<usize>, source: &Chunks, chunk: Chunk) {
    let order = row_order();
    let mut line = usize::MAX;
    for (index, block) in blocks.enumerate() {
        let start = table.starts[block];
        source.prefetch(start, &mut line);
        let positions = load(&table.positions[block]);
        let planes = &table.weights[block * table.groups..(block + 1) * table.groups];
        for quad in 0..CHUNK_QUADS {
            let mut sums = [[_mm512_setzero_si512(); 3]; 4];
            for (group, planes) in planes.iter().enumerate() {
                let weights = [load(&planes[0]), load(&planes[1]), load(&planes[2])];
                for (row, sums) in source.rows[4 * quad..4 * quad + 4].iter().zip(&mut sums) {
                    // SAFETY: by the caller.
                    let bytes = unsafe {
                        _mm512_loadu_si512(row.as_ptr().add(start + group * table.group_bytes).cast())
                    };
                    let samples = _mm512_permutexvar_epi8(positions, bytes);
                    for (sum, weights) in sums.iter_mut().zip(weights) {
                        *sum = _mm512_dpbusd_epi32(*sum, samples, weights);
                    }
                }
            }
            let bytes = _mm512_shuffle_epi8(narrow_lanes(combine_all(sums)), order);
            // SAFETY: by the caller.
            unsafe {
                let to = chunk.groups.as_mut_ptr().add(quad * chunk.stride + index * VECTOR_BYTES);
                _mm512_storeu_si512(to.cast(), bytes);
            }
        }
    }
}

// Brings the bytes of four rows, one 32-bit lane each, to lanes of quads.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn row_order() -> __m512i {
    let mut order = [0_u8; VECTOR_BYTES];
    for (byte, order) in order.iter_mut().enumerate() {
        *order = (byte % 4 * 4 + byte % 16 / 4) as u8;
    }
    load(&order)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load<T>(values: &T) -> __m512i {
    const { assert!(size_of::<T>() == VECTOR_BYTES) };
    // SAFETY: `values` has as many bytes as the vector.
    unsafe { _mm512_loadu_si512(std::ptr::from_ref(values).cast()) }
}
