//! The model families, one file each: parameters of a checkpoint to a recipe, and nothing else.

pub mod inkling;
pub mod qwen_vl;

use crate::recipe::FamilySpec;

/// All families.
pub const ALL: &[FamilySpec] = &[inkling::SPEC, qwen_vl::SPEC];

#[cfg(test)]
mod tests;
