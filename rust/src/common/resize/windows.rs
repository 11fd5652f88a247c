//! Weights of one axis, laid out for kernels that take four taps at a time.
//!
//! Samples that follow each other along the axis are kept as quads: one 32-bit lane holds samples `4q` to
//! `4q + 3` of one column, in the byte order of [`SLOTS`]. A window of taps is then a run of quads, with zero
//! weights where it does not cover a quad.

use super::coefficients::Coefficients;

/// Which sample of a quad each byte of a lane holds. Even bytes hold samples 0 and 1, odd bytes 2 and 3, so
/// that AVX2 widens a pair of neighbours by one mask or one shift, and can leave out a pair that has no weight.
/// The order is its own inverse.
pub const SLOTS: [usize; 4] = [0, 2, 1, 3];

/// The taps of one output index.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "NEON looks at the weights instead"))]
pub struct Window {
    /// First quad.
    pub first: usize,
    /// Number of quads, at least 1.
    pub quads: usize,
    /// Index of its first weights.
    pub weights: usize,
    /// Whether samples 0 and 1 of the first quad have no weight.
    pub skips_front: bool,
    /// Whether samples 2 and 3 of the last of several quads have no weight.
    pub skips_back: bool,
}

/// The windows of an axis with their weights.
#[derive(Debug)]
pub struct Windows {
    /// One window for each output index.
    pub windows: Vec<Window>,
    /// Three lanes of weights for each quad; their meaning is the kernel's.
    pub weights: Vec<[i32; 3]>,
    // The first quad that this or any later window uses: dropping zero weights makes windows start out of order.
    keep_from: Vec<usize>,
}

impl Windows {
    /// Lays out `coefficients`; `split` turns the weights of a quad, in the order of the samples, into lanes,
    /// or returns `None` if they are out of the kernel's range.
    pub fn new(coefficients: &Coefficients, split: impl Fn([i32; 4]) -> Option<[i32; 3]>) -> Option<Self> {
        let mut windows = Vec::with_capacity(coefficients.bounds.len());
        let mut lanes = Vec::new();
        for index in 0..coefficients.bounds.len() {
            let (range, weights) = coefficients.window(index);
            let front = weights.iter().position(|&weight| weight != 0).unwrap_or(0);
            let back = weights.iter().rposition(|&weight| weight != 0).unwrap_or(0);
            let (start, end) = (range.start + front, range.start + back + 1);
            let (first, last) = (start / 4, (end - 1) / 4);
            let offset = lanes.len();
            for quad in first..=last {
                let of = |sample: usize| {
                    let at = 4 * quad + sample;
                    if (start..end).contains(&at) { weights[at - range.start] } else { 0 }
                };
                lanes.push(split([of(0), of(1), of(2), of(3)])?);
            }
            windows.push(Window {
                first,
                quads: last - first + 1,
                weights: offset,
                skips_front: start % 4 >= 2,
                skips_back: last > first && (end - 1) % 4 < 2,
            });
        }
        let mut keep_from: Vec<_> = windows.iter().map(|window| window.first).collect();
        for index in (1..keep_from.len()).rev() {
            keep_from[index - 1] = keep_from[index - 1].min(keep_from[index]);
        }
        Some(Self { windows, weights: lanes, keep_from })
    }

    /// The weights of a window.
    pub fn lanes(&self, window: &Window) -> &[[i32; 3]] {
        &self.weights[window.weights..window.weights + window.quads]
    }

    /// The first quad that output index `index` or a later one uses.
    pub fn keep_from(&self, index: usize) -> usize {
        self.keep_from[index]
    }

    /// The most quads that must be at hand for any one window.
    pub fn most_quads(&self) -> usize {
        let spans = self.windows.iter().zip(&self.keep_from);
        spans.map(|(window, keep)| window.first + window.quads - keep).max().unwrap_or(0)
    }

    /// Memory it takes, in bytes.
    pub fn size_bytes(&self) -> usize {
        self.windows.len() * (size_of::<Window>() + size_of::<usize>()) + self.weights.len() * 12
    }
}

/// Lays out the weights of a quad for kernels with 16-bit multiplications: lanes of low halves for samples 0 and 1,
/// for 2 and 3, and of high halves as bytes.
pub fn halves(weights: [i32; 4]) -> Option<[i32; 3]> {
    let halves = weights.map(split_16);
    let high = halves.map(|(high, _)| high);
    // `pmaddubsw` saturates: 255 times the positive, or the negative, weights of a pair must fit 16 bits.
    for pair in [[high[0], high[2]], [high[1], high[3]]] {
        let positive: i32 = pair.iter().filter(|&&high| high > 0).sum();
        let negative: i32 = pair.iter().filter(|&&high| high < 0).sum();
        if positive > 128 || negative < -128 || pair.iter().any(|&high| i8::try_from(high).is_err()) {
            return None;
        }
    }
    let pair = |first: usize| (halves[first].1 & 0xffff) | (halves[first + 1].1 << 16);
    Some([pair(0), pair(2), byte_lane(high)])
}

/// Splits a weight as `high * 2^16 + low` with both signed.
pub fn split_16(weight: i32) -> (i32, i32) {
    let low = i32::from(weight as i16);
    ((weight - low) >> 16, low)
}

/// Splits a weight into three signed bytes, the most significant first.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "for AVX-512"))]
pub fn split_8(weight: i32) -> [i32; 3] {
    let low = i32::from(weight as i8);
    let rest = (weight - low) >> 8;
    let middle = i32::from(rest as i8);
    [(rest - middle) >> 8, middle, low]
}

/// Four signed bytes as a lane, from the order of the samples into that of [`SLOTS`].
pub fn byte_lane(values: [i32; 4]) -> i32 {
    i32::from_le_bytes(SLOTS.map(|sample| values[sample] as u8))
}

#[cfg(test)]
mod tests {
    use super::super::Filter;
    use super::super::coefficients::coefficients;
    use super::*;

    #[test]
    fn splits_add_up() {
        for weight in (-(1 << 23)..1 << 23).step_by(997).chain([-1, 0, 1, 127, 128, 32_767, 32_768, -32_769])
        {
            let (high, low) = split_16(weight);
            assert_eq!((high << 16) + low, weight);
            let [high, middle, low] = split_8(weight);
            assert_eq!((high << 16) + (middle << 8) + low, weight);
        }
    }

    #[test]
    fn windows_hold_every_weight_once() {
        for (from, to) in [(100, 37), (37, 100), (7, 1), (1, 9), (64, 128), (1000, 999)] {
            for filter in [Filter::Lanczos, Filter::Bicubic, Filter::Bilinear, Filter::Box, Filter::Hamming] {
                let exact = coefficients(from, to, filter);
                let windows =
                    Windows::new(&exact, |weights| Some([weights[0], weights[1], weights[2] + weights[3]]))
                        .expect("no range");
                for (index, window) in windows.windows.iter().enumerate() {
                    let (_, weights) = exact.window(index);
                    let lanes = windows.lanes(window);
                    assert_eq!(lanes.iter().flatten().sum::<i32>(), weights.iter().sum::<i32>());
                    assert!(!window.skips_front || lanes[0][..2] == [0, 0]);
                    assert!(!window.skips_back || lanes[lanes.len() - 1][2] == 0);
                    assert!(windows.keep_from(index) <= window.first);
                    assert!(window.first + window.quads <= from.div_ceil(4));
                }
            }
        }
    }
}
