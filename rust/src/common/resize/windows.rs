//! Weights of one axis, laid out for kernels that take two or four taps at a time.
//!
//! Samples that follow each other along the axis are kept as groups of two or four, side by side: a quad is one
//! 32-bit lane with samples `4q` to `4q + 3` of one column, a pair one 16-bit lane
//! with samples `2p` and `2p + 1`. A window of taps is then a run of groups, with zero weights where it does not
//! cover a group.

use std::ops::Range;

use super::coefficients::Coefficients;

/// The taps of one output index.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// First group.
    pub first: usize,
    /// Number of groups, at least 1.
    pub groups: usize,
    // Index of its first weights.
    weights: usize,
}

impl Window {
    /// One past the last group.
    pub fn end(&self) -> usize {
        self.first + self.groups
    }
}

/// The windows of an axis with their weights.
#[derive(Debug)]
pub struct Windows {
    /// One window for each output index.
    pub windows: Vec<Window>,
    /// Samples of a group.
    pub group_len: usize,
    // Some lanes of weights for each group; how many and what they mean is the kernel's.
    weights: Vec<i32>,
    group_lanes: usize,
    // The first group that this or any later window uses, and one past the last that this or any earlier one does:
    // dropping zero weights makes windows start out of order.
    keep_from: Vec<usize>,
    reach: Vec<usize>,
}

impl Windows {
    /// Lays out `coefficients`; `split` turns the weights of a group, in the order of the samples, into lanes,
    /// or returns `None` if they are out of the kernel's range.
    pub fn new<const LEN: usize, const LANES: usize>(
        coefficients: &Coefficients,
        split: impl Fn([i32; LEN]) -> Option<[i32; LANES]>,
    ) -> Option<Self> {
        let mut windows = Vec::with_capacity(coefficients.bounds.len());
        let mut lanes = Vec::new();
        for index in 0..coefficients.bounds.len() {
            let (range, weights) = coefficients.window(index);
            let front = weights.iter().position(|&weight| weight != 0).unwrap_or(0);
            let back = weights.iter().rposition(|&weight| weight != 0).unwrap_or(0);
            let (start, end) = (range.start + front, range.start + back + 1);
            let (first, last) = (start / LEN, (end - 1) / LEN);
            windows.push(Window { first, groups: last - first + 1, weights: lanes.len() });
            for group in first..=last {
                lanes.extend(split(std::array::from_fn(|sample| {
                    let at = LEN * group + sample;
                    if (start..end).contains(&at) { weights[at - range.start] } else { 0 }
                }))?);
            }
        }
        let mut keep_from: Vec<_> = windows.iter().map(|window| window.first).collect();
        for index in (1..keep_from.len()).rev() {
            keep_from[index - 1] = keep_from[index - 1].min(keep_from[index]);
        }
        let mut reach: Vec<_> = windows.iter().map(Window::end).collect();
        for index in 1..reach.len() {
            reach[index] = reach[index].max(reach[index - 1]);
        }
        Some(Self { windows, group_len: LEN, weights: lanes, group_lanes: LANES, keep_from, reach })
    }

    /// The weights of a window, which must be kept in this many lanes for each group.
    pub fn lanes<const LANES: usize>(&self, window: &Window) -> &[[i32; LANES]] {
        assert!(LANES == self.group_lanes, "the weights are another kernel's");
        let lanes = &self.weights[window.weights..window.weights + window.groups * LANES];
        lanes.as_chunks().0
    }

    /// The first group that output index `index` or a later one uses.
    pub fn keep_from(&self, index: usize) -> usize {
        self.keep_from[index]
    }

    /// Groups among which are all those of the windows of some output indices.
    pub fn span(&self, indices: &Range<usize>) -> Range<usize> {
        self.keep_from[indices.start]..self.reach[indices.end - 1]
    }

    /// The most groups that must be at hand for any one window.
    pub fn most_groups(&self) -> usize {
        let spans = self.windows.iter().zip(&self.keep_from);
        spans.map(|(window, keep)| window.end() - keep).max().unwrap_or(0)
    }

    /// Memory it takes, in bytes.
    pub fn size_bytes(&self) -> usize {
        self.windows.len() * (size_of::<Window>() + 2 * size_of::<usize>()) + self.weights.len() * 4
    }
}

/// Lays out the weights of a pair for AVX2: a lane of low halves, and one with the high halves as bytes, twice.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "for AVX2"))]
pub fn pair_halves(weights: [i32; 2]) -> Option<[i32; 2]> {
    let [(high, low), (high_2, low_2)] = weights.map(split_16);
    let high = [high, high_2];
    // `pmaddubsw` saturates: 255 times the positive, or the negative, weights of a pair must fit 16 bits.
    let positive: i32 = high.iter().filter(|&&high| high > 0).sum();
    let negative: i32 = high.iter().filter(|&&high| high < 0).sum();
    if positive > 128 || negative < -128 || high.iter().any(|&high| i8::try_from(high).is_err()) {
        return None;
    }
    let bytes = high.map(|high| high as u8);
    let low = (low & 0xffff) | (low_2 << 16);
    Some([low, i32::from_le_bytes([bytes[0], bytes[1], bytes[0], bytes[1]])])
}

/// Lays out the weights of a quad for NEON: lanes of low halves for samples 0 and 1, for 2 and 3, and of high halves
/// as bytes.
#[cfg_attr(not(target_arch = "aarch64"), allow(dead_code, reason = "for NEON"))]
pub fn halves(weights: [i32; 4]) -> Option<[i32; 3]> {
    let halves = weights.map(split_16);
    let high = halves.map(|(high, _)| high);
    if high.iter().any(|&high| i8::try_from(high).is_err()) {
        return None;
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

/// Four signed bytes as a lane.
pub fn byte_lane(values: [i32; 4]) -> i32 {
    i32::from_le_bytes(values.map(|value| value as u8))
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
                holds_every_weight_once::<2>(&exact, from);
                holds_every_weight_once::<4>(&exact, from);
            }
        }
    }

    fn holds_every_weight_once<const LEN: usize>(exact: &Coefficients, from: usize) {
        let windows = Windows::new::<LEN, LEN>(exact, Some).expect("no range");
        for (index, window) in windows.windows.iter().enumerate() {
            let (range, weights) = exact.window(index);
            let lanes = windows.lanes::<LEN>(window).as_flattened();
            for (at, &weight) in (LEN * window.first..).zip(lanes) {
                let expected = at.checked_sub(range.start).and_then(|at| weights.get(at));
                assert_eq!(weight, expected.copied().unwrap_or(0));
            }
            assert_eq!(lanes.iter().sum::<i32>(), weights.iter().sum::<i32>());
            assert!(windows.keep_from(index) <= window.first);
            assert!(window.end() <= from.div_ceil(LEN));
        }
    }
}
