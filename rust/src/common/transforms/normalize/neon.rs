//! NEON (aarch64): 16 values a step, in four vectors whose first channels follow each other.
#![allow(unsafe_code)]

use std::arch::aarch64::*;

use super::scalar::look_up_line;
use super::{Affine, Lines, Normaliser};

const BLOCK: usize = 16;

// Vector `first` has channel `first` in lane 0; four lanes move the channel on by one.
fn vectors(values: [f32; 3]) -> [float32x4_t; 3] {
    std::array::from_fn(|first| {
        let lanes: [f32; 4] = std::array::from_fn(|lane| values[(first + lane) % 3]);
        // SAFETY: the array is the 16 bytes of the load.
        unsafe { vld1q_f32(lanes.as_ptr()) }
    })
}

fn widen(block: &[u8; BLOCK]) -> [float32x4_t; 4] {
    // SAFETY: NEON is part of every aarch64 target, and the load reads the 16 bytes of `block`.
    unsafe {
        let bytes = vld1q_u8(block.as_ptr());
        let (low, high) = (vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes));
        [
            vcvtq_f32_u32(vmovl_u16(vget_low_u16(low))),
            vcvtq_f32_u32(vmovl_high_u16(low)),
            vcvtq_f32_u32(vmovl_u16(vget_low_u16(high))),
            vcvtq_f32_u32(vmovl_high_u16(high)),
        ]
    }
}

/// One fused multiply-add, rounded half up.
pub(super) fn fused_bf16(
    affine: &Affine,
    table: &[[u16; 256]; 3],
    lines: Lines<'_>,
    out: &mut [u16],
    out_stride: usize,
) {
    let (scale, offset) = (vectors(affine.scale), vectors(affine.offset));
    for (bytes, out) in lines.zip(out, out_stride) {
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        let (out_blocks, out_rest) = out.as_chunks_mut::<BLOCK>();
        let mut channel = 0;
        for (block, out) in blocks.iter().zip(out_blocks) {
            for (part, values) in widen(block).into_iter().enumerate() {
                let at = (channel + part) % 3;
                // SAFETY: NEON is part of every aarch64 target; the store writes 4 of the 16 values of `out`.
                unsafe {
                    let bits = vreinterpretq_u32_f32(vfmaq_f32(offset[at], values, scale[at]));
                    let rounded = vshrn_n_u32::<16>(vaddq_u32(bits, vdupq_n_u32(0x8000)));
                    vst1_u16(out.as_mut_ptr().add(part * 4), rounded);
                }
            }
            channel = (channel + BLOCK) % 3;
        }
        look_up_line(table, channel, rest, out_rest);
    }
}

/// The reference's operations, each rounded.
pub(super) fn exact_f32(normaliser: &Normaliser, lines: Lines<'_>, out: &mut [f32], out_stride: usize) {
    let (mean, std) = (vectors(normaliser.mean), vectors(normaliser.std));
    for (bytes, out) in lines.zip(out, out_stride) {
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        let (out_blocks, out_rest) = out.as_chunks_mut::<BLOCK>();
        let mut channel = 0;
        for (block, out) in blocks.iter().zip(out_blocks) {
            for (part, values) in widen(block).into_iter().enumerate() {
                let at = (channel + part) % 3;
                // SAFETY: NEON is part of every aarch64 target; the store writes 4 of the 16 values of `out`.
                unsafe {
                    let scaled = vmulq_f32(values, vdupq_n_f32(1.0 / 255.0));
                    let value = vdivq_f32(vsubq_f32(scaled, mean[at]), std[at]);
                    vst1q_f32(out.as_mut_ptr().add(part * 4), value);
                }
            }
            channel = (channel + BLOCK) % 3;
        }
        look_up_line(&normaliser.float, channel, rest, out_rest);
    }
}
