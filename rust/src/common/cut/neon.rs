//! NEON: sixteen values at a time; a load that parts three ways takes the channels apart.
#![allow(unsafe_code)]

use std::arch::aarch64::*;

use super::lines::{Kernel, lanes};
use super::{Block, Order, Source, scalar};
use crate::common::normalise::{CHANNELS, Constant, Element, Line, Steps};
use crate::common::simd::Level;

// Pixels of a row that one load takes apart, and values of a block.
const BLOCK: usize = 16;
const GROUP_BYTES: usize = BLOCK * CHANNELS;

/// Conversion by arithmetic `A`.
pub struct Neon<'a, A>(&'a A);

impl<'a, A> Neon<'a, A> {
    /// The kernel for some constants.
    pub fn new(arithmetic: &'a A) -> Self {
        assert!(Level::Neon.is_available());
        Self(arithmetic)
    }
}

impl<T: Element, A: Vectors> Kernel<T> for Neon<'_, A> {
    fn gather(&self, source: Source<'_>, block: &Block, stage: &mut [u8]) {
        if block.order == Order::Interleaved {
            return scalar::pack(source, block, stage);
        }
        let Source { pixels, row_bytes, start } = source;
        let &Block { rows, columns, copies, .. } = block;
        let (plane, (channel_step, copy_step)) = (rows * columns, block.steps());
        for row in 0..rows {
            for left in (0..columns).step_by(BLOCK) {
                let from = start + row * row_bytes + left * CHANNELS;
                let channels = split(&pixels[from..pixels.len().min(from + GROUP_BYTES)]);
                let at = row * columns + left;
                // What is written beyond a row, the next one puts right; at the end of a plane there is none.
                let len = BLOCK.min(plane - at);
                for (channel, bytes) in channels.iter().enumerate() {
                    for copy in 0..copies {
                        let start = channel * channel_step + copy * copy_step + at;
                        if len == BLOCK {
                            stage[start..start + BLOCK].copy_from_slice(bytes);
                        } else {
                            stage[start..start + len].copy_from_slice(&bytes[..len]);
                        }
                    }
                }
            }
        }
    }

    fn convert(&self, channel: usize, bytes: &[u8], out: &mut [T]) {
        let registers = [self.0.registers(|constant| splat(constant.channel[channel])); CHANNELS];
        convert_blocks::<T, A>(&registers, bytes, out);
    }

    fn convert_seam(&self, channels: [usize; 2], split: usize, bytes: &[u8], out: &mut [T]) {
        let mut second = [T::zeroed(); lanes::<u16>()];
        let second = &mut second[..out.len()];
        self.convert(channels[0], bytes, out);
        self.convert(channels[1], bytes, second);
        out[split..].copy_from_slice(&second[split..]);
    }

    fn convert_pixels(&self, first: usize, bytes: &[u8], out: &mut [T]) {
        // Four lanes move the channel on by one.
        let registers = std::array::from_fn(|at| {
            self.0.registers(|constant| side_by_side(constant, (first + at) % CHANNELS))
        });
        convert_blocks::<T, A>(&registers, bytes, out);
    }
}

/// Arithmetic on vectors.
pub trait Vectors {
    /// Constants of a vector.
    type Registers: Copy;
    /// The constants, loaded by `load`.
    fn registers(&self, load: impl Fn(&Constant) -> float32x4_t) -> Self::Registers;
    /// What becomes of four bytes as floats.
    fn values(registers: &Self::Registers, bytes: float32x4_t) -> float32x4_t;
}

impl Vectors for Steps {
    type Registers = [float32x4_t; 5];

    #[inline]
    fn registers(&self, load: impl Fn(&Constant) -> float32x4_t) -> Self::Registers {
        [&self.high, &self.low, &self.mean, &self.inverse_high, &self.inverse_low].map(load)
    }

    #[inline]
    fn values(
        &[high, low, mean, inverse_high, inverse_low]: &Self::Registers,
        bytes: float32x4_t,
    ) -> float32x4_t {
        // SAFETY: NEON is part of every aarch64 target.
        unsafe {
            let scaled = vfmaq_f32(vmulq_f32(bytes, low), bytes, high);
            let centred = vsubq_f32(scaled, mean);
            vfmaq_f32(vmulq_f32(centred, inverse_low), centred, inverse_high)
        }
    }
}

impl Vectors for Line {
    type Registers = [float32x4_t; 2];

    #[inline]
    fn registers(&self, load: impl Fn(&Constant) -> float32x4_t) -> Self::Registers {
        [&self.factor, &self.offset].map(load)
    }

    #[inline]
    fn values(&[factor, offset]: &Self::Registers, bytes: float32x4_t) -> float32x4_t {
        // SAFETY: NEON is part of every aarch64 target.
        unsafe { vfmaq_f32(offset, bytes, factor) }
    }
}

#[inline]
fn splat(value: f32) -> float32x4_t {
    // SAFETY: NEON is part of every aarch64 target.
    unsafe { vdupq_n_f32(value) }
}

#[inline]
fn side_by_side(constant: &Constant, first: usize) -> float32x4_t {
    // SAFETY: NEON is part of every aarch64 target; the array has the bytes of the longest vector.
    unsafe { vld1q_f32(constant.side_by_side[first].as_ptr()) }
}

// Up to sixteen pixels to the bytes of each channel; a group is cut short by the end of the picture only.
#[inline]
fn split(group: &[u8]) -> [[u8; BLOCK]; CHANNELS] {
    let mut tail = [0; GROUP_BYTES];
    let group = if let Some(whole) = group.first_chunk::<GROUP_BYTES>() {
        whole
    } else {
        tail[..group.len()].copy_from_slice(group);
        &tail
    };
    let mut channels = [[0; BLOCK]; CHANNELS];
    // SAFETY: NEON is part of every aarch64 target; the group has 48 bytes and each array 16.
    unsafe {
        let uint8x16x3_t(first, second, third) = vld3q_u8(group.as_ptr());
        for (bytes, vector) in channels.iter_mut().zip([first, second, third]) {
            vst1q_u8(bytes.as_mut_ptr(), vector);
        }
    }
    channels
}

// Whole lines have whole blocks. The vectors' constants take turns.
#[inline]
fn convert_blocks<T: Element, A: Vectors>(registers: &[A::Registers; CHANNELS], bytes: &[u8], out: &mut [T]) {
    let mut turn = 0;
    for (block, out) in bytes.as_chunks::<BLOCK>().0.iter().zip(out.as_chunks_mut::<BLOCK>().0) {
        convert_block::<T, A>(std::array::from_fn(|at| &registers[(turn + at) % CHANNELS]), block, out);
        turn = (turn + 4) % CHANNELS;
    }
}

#[inline]
fn convert_block<T: Element, A: Vectors>(
    registers: [&A::Registers; 4],
    block: &[u8; BLOCK],
    out: &mut [T; BLOCK],
) {
    // SAFETY: NEON is part of every aarch64 target; the block has 16 bytes, and each store writes 4 of 16 values.
    unsafe {
        let bytes = vld1q_u8(block.as_ptr());
        let (low, high) = (vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes));
        let quarters = [
            vmovl_u16(vget_low_u16(low)),
            vmovl_high_u16(low),
            vmovl_u16(vget_low_u16(high)),
            vmovl_high_u16(high),
        ];
        for (quarter, bytes) in quarters.into_iter().enumerate() {
            let values = A::values(registers[quarter], vcvtq_f32_u32(bytes));
            let out = out.as_mut_ptr().add(quarter * 4);
            if T::IS_BF16 {
                let bits = vaddq_u32(vreinterpretq_u32_f32(values), vdupq_n_u32(0x8000));
                vst1_u16(out.cast(), vshrn_n_u32::<16>(bits));
            } else {
                vst1q_f32(out.cast(), values);
            }
        }
    }
}
