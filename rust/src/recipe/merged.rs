//! Qwen's order of patches, which many models took over: those of a token are neighbours, and a still picture fills
//! a temporal patch with copies of itself.

use serde::Serialize;

use super::checkpoint::Checkpoint;
use super::layout::{Inside, Layout};
use super::plan::{Plan, PlannedTensor};
use super::view::View;
use crate::error::Result;

/// How patches are merged and repeated, by the names of transformers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Merged {
    /// Whether patches hold `temporal_patch_size` copies of a picture, or one that the consumer expands.
    pub expand_temporal: bool,
    /// Patches that merge into one token, along each side.
    pub merge_size: usize,
    /// Side of a patch, in pixels.
    pub patch_size: usize,
    /// Copies of a still picture along time.
    pub temporal_patch_size: usize,
}

impl Merged {
    /// Takes the four fields.
    ///
    /// # Errors
    /// [`crate::error::CoreError::InvalidArgument`] that names the field.
    pub fn read(fields: &mut Checkpoint, default: Self) -> Result<Self> {
        Ok(Self {
            expand_temporal: fields.flag("expand_temporal", default.expand_temporal)?,
            merge_size: fields.count("merge_size", default.merge_size, 64)?,
            patch_size: fields.count("patch_size", default.patch_size, 1024)?,
            temporal_patch_size: fields.count("temporal_patch_size", default.temporal_patch_size, 64)?,
        })
    }

    /// Side of a token, in pixels.
    pub fn factor_px(&self) -> usize {
        self.patch_size * self.merge_size
    }

    /// The layout of a view.
    pub fn layout(&self) -> Layout {
        Layout::Patches {
            px: self.patch_size,
            merge: self.merge_size,
            inside: Inside::Chw { copies: self.copies() },
        }
    }

    /// Copies of a still picture that a patch holds.
    pub fn copies(&self) -> usize {
        if self.expand_temporal { self.temporal_patch_size } else { 1 }
    }

    /// The plan of one view: `pixel_values`, and the grid of its canvas.
    pub fn plan(&self, view: View) -> Plan {
        let &Self { patch_size: px, merge_size: merge, .. } = self;
        let (rows, columns) = (view.place.height / px, view.place.width / px);
        let shape = if self.expand_temporal {
            vec![rows * columns, 3 * self.copies() * px * px]
        } else {
            vec![rows * columns, 3, 1, px, px]
        };
        let tokens = rows * columns / (merge * merge);
        Plan::of_one_view(view, PlannedTensor::new("pixel_values", shape), [1, rows, columns], tokens)
    }
}
