//! Weights of one axis, laid out for kernels that take two or four taps at a time.
//!
//! Samples that follow each other along the axis are kept as groups of two or four, side by side: a quad is one
//! 32-bit lane with samples `4q` to `4q + 3` of one column, a pair one 16-bit lane
//! with samples `2p` and `2p + 1`. A window of taps is then a run of groups, with zero weights where it does not
//! cover a group. All groups may begin some samples earlier (the phase) if more of them then fit the windows: images
//! that shrink to a half have all windows begin at odd samples.

use std::ops::Range;

use super::coefficients::Coefficients;

/// The taps of one output index.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    // Of 32 bits, for many windows are read anew for every few rows.
    first: u32,
    groups: u32,
    // Index of the first group's weights.
    weights: u32,
    ends: Ends,
}

/// How the first and the last pair of a window go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// Not at all.
    Apart,
    /// One takes no first sample and the other no second one: a pair can be made of what they do take. Both weigh too
    /// little for high halves.
    Light,
    /// The same, but the first one has a high half.
    FirstHeavy,
    /// The same, but the last one has a high half.
    LastHeavy,
}

impl Window {
    /// First group.
    #[inline]
    pub fn first(&self) -> usize {
        self.first as usize
    }

    /// Number of groups, at least 1.
    #[inline]
    pub fn groups(&self) -> usize {
        self.groups as usize
    }

    /// One past the last group.
    #[inline]
    pub fn end(&self) -> usize {
        self.first() + self.groups()
    }

    /// How its first and its last pair go together; known of tables that [`pairs`] made.
    #[inline]
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "for AVX2"))]
    pub fn ends(&self) -> Ends {
        self.ends
    }

    /// Its part of the weights of all windows.
    #[inline]
    pub fn lanes<'a, const LANES: usize>(&self, weights: &'a [[i32; LANES]]) -> &'a [[i32; LANES]] {
        &weights[self.weights as usize..][..self.groups()]
    }
}

/// The windows of an axis with their weights.
#[derive(Debug)]
pub struct Windows {
    windows: Vec<Window>,
    group_len: usize,
    phase: usize,
    // Some lanes of weights for each group; how many and what they mean is the kernel's.
    weights: Vec<i32>,
    group_lanes: usize,
    // The first group that this or any later window uses, and one past the last that this or any earlier one does:
    // dropping zero weights makes windows start out of order.
    keep_from: Vec<usize>,
    reach: Vec<usize>,
}

impl Windows {
    /// Lays out `coefficients` with one of the phases that the kernel can do; `split` turns the weights of a group, in the order of the samples, into lanes,
    /// or returns `None` if they are out of the kernel's range.
    pub fn new<const LEN: usize, const LANES: usize>(
        coefficients: &Coefficients,
        phases: Range<usize>,
        split: impl Fn([i32; LEN]) -> Option<[i32; LANES]>,
    ) -> Option<Self> {
        let groups = |phase: usize| {
            let windows = (0..coefficients.bounds.len()).map(|index| coefficients.used_by(index));
            windows.map(|used| (used.end - 1 + phase) / LEN - (used.start + phase) / LEN).sum::<usize>()
        };
        let phase = phases.min_by_key(|&phase| groups(phase))?;
        let mut windows = Vec::with_capacity(coefficients.bounds.len());
        let mut lanes = Vec::new();
        for index in 0..coefficients.bounds.len() {
            let (range, weights) = coefficients.window(index);
            let Range { start, end } = coefficients.used_by(index);
            let (first, last) = ((start + phase) / LEN, (end - 1 + phase) / LEN);
            windows.push(Window {
                first: u32::try_from(first).ok()?,
                groups: u32::try_from(last - first + 1).ok()?,
                weights: u32::try_from(lanes.len() / LANES).ok()?,
                ends: Ends::Apart,
            });
            for group in first..=last {
                lanes.extend(split(std::array::from_fn(|sample| {
                    let at = (LEN * group + sample).checked_sub(phase + range.start);
                    at.and_then(|at| weights.get(at)).copied().unwrap_or(0)
                }))?);
            }
        }
        let mut keep_from: Vec<_> = windows.iter().map(Window::first).collect();
        for index in (1..keep_from.len()).rev() {
            keep_from[index - 1] = keep_from[index - 1].min(keep_from[index]);
        }
        let mut reach: Vec<_> = windows.iter().map(Window::end).collect();
        for index in 1..reach.len() {
            reach[index] = reach[index].max(reach[index - 1]);
        }
        Some(Self { windows, group_len: LEN, phase, weights: lanes, group_lanes: LANES, keep_from, reach })
    }

    /// One window for each output index.
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// Samples of a group.
    pub fn group_len(&self) -> usize {
        self.group_len
    }

    /// How many samples before the first of all the first group begins.
    pub fn phase(&self) -> usize {
        self.phase
    }

    /// The weights of all windows, which must be kept in this many lanes for each group.
    pub fn weights<const LANES: usize>(&self) -> &[[i32; LANES]] {
        assert!(LANES == self.group_lanes, "the weights are another kernel's");
        self.weights.as_chunks().0
    }

    /// The weights of window `index` and of all later ones, which follow each other.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "for AVX2"))]
    pub fn weights_from<const LANES: usize>(&self, index: usize) -> &[[i32; LANES]] {
        &self.weights()[self.windows[index].weights as usize..]
    }

    /// The first group that output index `index` or a later one uses.
    pub fn keep_from(&self, index: usize) -> usize {
        self.keep_from[index]
    }

    /// Groups among which are all those of the windows of some output indices, which must not be none.
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

/// The windows of an axis for AVX2; `None` if they are out of its range.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "for AVX2"))]
pub fn pairs(coefficients: &Coefficients) -> Option<Windows> {
    let mut table = Windows::new(coefficients, 0..2, pair_halves)?;
    let mut windows = std::mem::take(&mut table.windows);
    for window in &mut windows {
        window.ends = match window.lanes(table.weights::<2>()) {
            [first, .., last] => ends(*first, *last),
            _ => Ends::Apart,
        };
    }
    table.windows = windows;
    Some(table)
}

// Only the low halves need be apart to go together.
fn ends([first_low, first_high]: [i32; 2], [last_low, last_high]: [i32; 2]) -> Ends {
    if first_low & 0xffff != 0 || last_low >> 16 != 0 {
        return Ends::Apart;
    }
    match (first_high, last_high) {
        (0, 0) => Ends::Light,
        (_, 0) => Ends::FirstHeavy,
        (0, _) => Ends::LastHeavy,
        _ => Ends::Apart,
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
                for phase in 0..2 {
                    holds_every_weight_once::<2>(&exact, from, phase);
                }
                for phase in 0..4 {
                    holds_every_weight_once::<4>(&exact, from, phase);
                }
            }
        }
    }

    #[test]
    fn the_phase_with_the_fewest_groups_is_taken() {
        // Windows of 12 taps that begin at every other odd sample, but for those at the edges.
        let halved = coefficients(200, 100, Filter::Lanczos);
        let windows = Windows::new(&halved, 0..2, pair_halves).expect("range");
        assert_eq!(windows.phase(), 1);
        assert!(windows.windows()[5..95].iter().all(|window| window.groups() == 6));
        assert_eq!(Windows::new(&halved, 0..1, pair_halves).expect("range").phase(), 0);
    }

    #[test]
    fn ends_that_go_together_leave_no_weight_out() {
        let mut seen = Vec::new();
        for (from, to) in [(3840, 1288), (2160, 728), (100, 37), (64, 128), (1000, 999), (9, 2)] {
            for filter in [Filter::Lanczos, Filter::Bicubic, Filter::Bilinear, Filter::Box, Filter::Hamming] {
                let exact = coefficients(from, to, filter);
                let table = pairs(&exact).expect("range");
                for (index, window) in table.windows().iter().enumerate() {
                    let (range, weights) = exact.window(index);
                    let weight = |group: usize, sample: usize| {
                        let at = (2 * group + sample).checked_sub(table.phase() + range.start);
                        split_16(at.and_then(|at| weights.get(at)).copied().unwrap_or(0))
                    };
                    let (first, last) = (window.first(), window.end() - 1);
                    let heavy = [first, last].map(|group| weight(group, 0).0 != 0 || weight(group, 1).0 != 0);
                    let meet = first == last || weight(first, 0).1 != 0 || weight(last, 1).1 != 0;
                    let expected = match heavy {
                        _ if meet => Ends::Apart,
                        [false, false] => Ends::Light,
                        [true, false] => Ends::FirstHeavy,
                        [false, true] => Ends::LastHeavy,
                        [true, true] => Ends::Apart,
                    };
                    assert_eq!(window.ends(), expected, "{from} to {to}, {filter:?}, {index}");
                    if !seen.contains(&expected) {
                        seen.push(expected);
                    }
                }
            }
        }
        assert_eq!(seen.len(), 4);
    }

    fn holds_every_weight_once<const LEN: usize>(exact: &Coefficients, from: usize, phase: usize) {
        let windows = Windows::new::<LEN, LEN>(exact, phase..phase + 1, Some).expect("no range");
        for (index, window) in windows.windows().iter().enumerate() {
            let (range, weights) = exact.window(index);
            let lanes = window.lanes(windows.weights::<LEN>()).as_flattened();
            for (at, &weight) in (LEN * window.first()..).zip(lanes) {
                let expected = at.checked_sub(phase + range.start).and_then(|at| weights.get(at));
                assert_eq!(weight, expected.copied().unwrap_or(0));
            }
            assert_eq!(lanes.iter().sum::<i32>(), weights.iter().sum::<i32>());
            assert!(windows.keep_from(index) <= window.first());
            assert!(window.end() <= (from + phase).div_ceil(LEN));
        }
    }
}
