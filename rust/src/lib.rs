//! Image preprocessing for vision-language models: decode, resize, patchify, normalise and hash, bit for bit
//! as Pillow and the models' reference code do it.
//!
//! `unsafe` is denied here and allowed by name only in files that hold one instruction set or one foreign
//! interface each.

pub mod common;
pub mod error;
pub mod family;
pub mod finish;
pub mod inkling;
pub mod pipeline;
pub mod processor;
pub mod qwen_vl;
pub mod registry;
pub mod stages;
pub mod tensor;

#[cfg(feature = "python")]
mod python;
