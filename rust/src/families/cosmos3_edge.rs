//! Cosmos3 Edge: whole tokens, resized by Pillow, rows of patches.
//!
//! The reference is SGLang 0.5.23's own processor on the CPU.

use serde::Serialize;

use crate::error::Result;
use crate::recipe::arithmetic::Order;
use crate::recipe::checkpoint::{Checkpoint, PixelBudget};
use crate::recipe::{
    Arithmetic, Backend, Declared, Family, FamilySpec, Filter, Inside, Layout, Normalisation, Plan,
    PlannedTensor, Request, Source, View, size,
};

/// The family, as the registry knows it.
pub const SPEC: FamilySpec = FamilySpec { name: "cosmos3_edge", read };

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Cosmos {
    patch_size: usize,
    size: PixelBudget,
    spatial_merge_size: usize,
}

fn read(fields: &mut Checkpoint) -> Result<Declared> {
    fields.only_pillow()?;
    Declared::new(Cosmos {
        patch_size: fields.count("patch_size", 16, 1024)?,
        size: fields.pixel_budget(PixelBudget { shortest_edge: 256 * 256, longest_edge: 4096 * 4096 })?,
        spatial_merge_size: fields.count("spatial_merge_size", 2, 64)?,
    })
}

impl Family for Cosmos {
    fn arithmetic(&self) -> Arithmetic {
        Arithmetic { order: Order::ToTensor, ..Normalisation::HALF.arithmetic(Backend::Pil) }
    }

    fn plan(&self, source: Source, _: &Request) -> Result<Plan> {
        let (px, merge) = (self.patch_size, self.spatial_merge_size);
        size::check_aspect((source.width, source.height))?;
        let (width, height) = size::whole_tokens((source.width, source.height), px * merge, self.size);
        let view = View::whole(source, Layout::patches(px, Inside::Hwc)).resized(
            (width, height),
            Filter::Bicubic,
            Backend::Pil,
        );
        let (rows, columns) = (height / px, width / px);
        let tensor = PlannedTensor::new("pixel_values", vec![rows * columns, px * px * 3]);
        let shapes = vec![rows as i64, columns as i64];
        Ok(Plan::of_one_view(view, tensor, [1, rows, columns], rows * columns / (merge * merge)).with_i64(
            "spatial_shapes",
            vec![1, 2],
            shapes,
        ))
    }
}
