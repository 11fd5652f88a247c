//! Resampling weights, in Pillow's fixed point.

use std::f64::consts::PI;
use std::ops::Range;

use super::Filter;

/// Fraction bits of a weight: 32 - 8 - 2, as in Pillow's 8-bit path.
pub const PRECISION_BITS: u32 = 22;

/// Weights of one axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coefficients {
    /// First source index and number of taps, for each output index.
    pub bounds: Vec<(usize, usize)>,
    /// `taps_stride` weights for each output index.
    pub weights: Vec<i32>,
    /// Distance between the weights of neighbouring output indices.
    pub taps_stride: usize,
}

impl Coefficients {
    /// Source indices and weights of an output index.
    pub fn window(&self, index: usize) -> (Range<usize>, &[i32]) {
        let (first, taps) = self.bounds[index];
        let at = index * self.taps_stride;
        (first..first + taps, &self.weights[at..at + taps])
    }

    /// The source indices of an output index between which all its weights are that are not zero.
    pub fn used_by(&self, index: usize) -> Range<usize> {
        let (range, weights) = self.window(index);
        let front = weights.iter().position(|&weight| weight != 0).unwrap_or(0);
        let back = weights.iter().rposition(|&weight| weight != 0).unwrap_or(0);
        range.start + front..range.start + back + 1
    }

    /// The source indices that any output index uses.
    pub fn used(&self) -> Range<usize> {
        let first = self.bounds.iter().map(|&(first, _)| first).min().unwrap_or(0);
        let end = self.bounds.iter().map(|&(first, taps)| first + taps).max().unwrap_or(0);
        first..end
    }
}

impl Filter {
    /// Half the filter's width at scale 1.
    pub fn support(self) -> f64 {
        match self {
            Self::Lanczos => 3.0,
            Self::Bicubic => 2.0,
            Self::Bilinear | Self::Hamming => 1.0,
            Self::Box => 0.5,
        }
    }

    fn weight(self, x: f64) -> f64 {
        match self {
            Self::Box => f64::from(u8::from(x > -0.5 && x <= 0.5)),
            Self::Bilinear => (1.0 - x.abs()).max(0.0),
            Self::Hamming => {
                let x = x.abs();
                if x == 0.0 {
                    1.0
                } else if x >= 1.0 {
                    0.0
                } else {
                    let x = x * PI;
                    // Pillow's constants are floats that C widens.
                    x.sin() / x * (f64::from(0.54_f32) + f64::from(0.46_f32) * x.cos())
                }
            }
            Self::Bicubic => {
                const A: f64 = -0.5;
                let x = x.abs();
                if x < 1.0 {
                    ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
                } else if x < 2.0 {
                    (((x - 5.0) * x + 8.0) * x - 4.0) * A
                } else {
                    0.0
                }
            }
            Self::Lanczos => {
                if (-3.0..3.0).contains(&x) {
                    sinc(x) * sinc(x / 3.0)
                } else {
                    0.0
                }
            }
        }
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 {
        return 1.0;
    }
    let x = x * PI;
    x.sin() / x
}

/// Weights of one axis before they are rounded to fixed point.
#[derive(Debug, Clone, PartialEq)]
pub struct ExactWeights {
    /// First source index and number of taps, for each output index.
    pub bounds: Vec<(usize, usize)>,
    /// `taps_stride` weights for each output index, 0 beyond its taps.
    pub weights: Vec<f64>,
    /// Distance between the weights of neighbouring output indices.
    pub taps_stride: usize,
}

fn taps_stride(in_size: usize, out_size: usize, filter: Filter) -> usize {
    let support = filter.support() * (in_size as f64 / out_size as f64).max(1.0);
    support.ceil() as usize * 2 + 1
}

/// How many weights take `in_size` samples to `out_size`.
pub fn num_weights(in_size: usize, out_size: usize, filter: Filter) -> usize {
    out_size.saturating_mul(taps_stride(in_size, out_size, filter))
}

/// Weights that take `in_size` samples to `out_size`, in double precision.
pub fn exact_weights(in_size: usize, out_size: usize, filter: Filter) -> ExactWeights {
    let scale = in_size as f64 / out_size as f64;
    let filter_scale = scale.max(1.0);
    let support = filter.support() * filter_scale;
    let taps_stride = taps_stride(in_size, out_size, filter);
    let inverse = 1.0 / filter_scale;
    let mut bounds = Vec::with_capacity(out_size);
    let mut weights = vec![0.0_f64; out_size * taps_stride];
    for (index, weights) in weights.chunks_exact_mut(taps_stride).enumerate() {
        let center = (index as f64 + 0.5) * scale;
        // `as` truncates toward zero and saturates at 0, as Pillow's cast and clamp do.
        let first = (center - support + 0.5) as usize;
        let last = ((center + support + 0.5) as usize).min(in_size);
        let taps = last - first;
        let mut sum = 0.0;
        for (tap, weight) in weights[..taps].iter_mut().enumerate() {
            *weight = filter.weight((tap as f64 + first as f64 - center + 0.5) * inverse);
            sum += *weight;
        }
        if sum != 0.0 {
            weights[..taps].iter_mut().for_each(|weight| *weight /= sum);
        }
        bounds.push((first, taps));
    }
    ExactWeights { bounds, weights, taps_stride }
}

/// Weights that take `in_size` samples to `out_size`.
pub fn coefficients(in_size: usize, out_size: usize, filter: Filter) -> Coefficients {
    let exact = exact_weights(in_size, out_size, filter);
    let weights = exact
        .weights
        .iter()
        .map(|&weight| {
            let scaled = weight * f64::from(1_u32 << PRECISION_BITS);
            if weight < 0.0 { (scaled - 0.5) as i32 } else { (scaled + 0.5) as i32 }
        })
        .collect();
    Coefficients { bounds: exact.bounds, weights, taps_stride: exact.taps_stride }
}
