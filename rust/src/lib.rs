//! Image preprocessing for vision-language models: decode, resize, patchify, normalise and hash, bit for bit
//! as Pillow and the models' reference code do it.
//!
//! `unsafe` is denied here and allowed by name only in files that hold one instruction set or one foreign
//! interface each.

pub mod common;
pub mod error;
pub mod families;
pub mod finish;
pub mod pipeline;
pub mod processor;
pub mod recipe;
pub mod registry;
pub mod stage_times;
pub mod tensor;
pub mod view_output;

#[cfg(feature = "python")]
mod python;
