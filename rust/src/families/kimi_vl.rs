//! Kimi-VL: shrunk only over its budget of patches, padded with black to whole tokens, patches row by row.
//!
//! The reference is the checkpoint's own code on Pillow and torchvision's `to_tensor`.

use serde::Serialize;

use crate::error::{CoreError, Result};
use crate::recipe::arithmetic::Order;
use crate::recipe::checkpoint::Checkpoint;
use crate::recipe::{
    Arithmetic, Backend, Declared, Family, FamilySpec, Fill, Filter, Inside, Layout, Normalisation, Plan,
    PlannedTensor, Request, Source, View, size,
};

/// The family, as the registry knows it.
pub const SPEC: FamilySpec = FamilySpec { name: "kimi_vl", read };

// The table of positions has no more rows and columns.
const PATCHES_A_SIDE: usize = 512;

#[derive(Debug, Clone, PartialEq, Serialize)]
struct KimiVl {
    in_token_limit: usize,
    merge_kernel_size: [usize; 2],
    patch_size: usize,
    #[serde(flatten)]
    normalisation: Normalisation,
}

fn read(fields: &mut Checkpoint) -> Result<Declared> {
    if !fields.flag("pad_input", true)? {
        return Err(fields.refusal("pad_input is false, which no published checkpoint has; set it to true"));
    }
    fields.only_pillow()?;
    Declared::new(KimiVl {
        in_token_limit: fields.count("in_token_limit", 4096, 1 << 32)?,
        merge_kernel_size: fields.pair("merge_kernel_size", [2, 2], 64)?,
        patch_size: fields.count("patch_size", 14, 1024)?,
        normalisation: fields.normalisation(Normalisation::CLIP)?,
    })
}

impl Family for KimiVl {
    fn arithmetic(&self) -> Arithmetic {
        Arithmetic { order: Order::ToTensor, ..self.normalisation.arithmetic(Backend::Pil) }
    }

    fn plan(&self, source: Source, _: &Request) -> Result<Plan> {
        let Source { mut width, mut height, .. } = source;
        let (px, [merge_rows, merge_columns]) = (self.patch_size, self.merge_kernel_size);
        let patches = (width / px) * (height / px);
        if patches > self.in_token_limit {
            let scale = (self.in_token_limit as f64 / patches as f64).sqrt();
            (width, height) = ((width as f64 * scale) as usize, (height as f64 * scale) as usize);
        }
        let view = View::whole(source, Layout::patches(px, Inside::Chw { copies: 1 }));
        let canvas =
            (size::up_to_multiple(width, px * merge_columns), size::up_to_multiple(height, px * merge_rows));
        let (rows, columns) = (canvas.1 / px, canvas.0 / px);
        if rows >= PATCHES_A_SIDE || columns >= PATCHES_A_SIDE {
            return Err(CoreError::argument(format!(
                "{width} x {height} pixels are {columns} x {rows} patches; a side must have fewer than \
                 {PATCHES_A_SIDE}"
            )));
        }
        let view =
            view.resized((width, height), Filter::Bicubic, Backend::Pil).padded(canvas, Fill::Colour([0; 3]));
        let tensor = PlannedTensor::new("pixel_values", vec![rows * columns, 3, px, px]);
        let tokens = rows * columns / (merge_rows * merge_columns);
        let grid = vec![rows as i64, columns as i64];
        Ok(Plan::of_one_view(view, tensor, [1, rows, columns], tokens).with_i64(
            "image_grid_hws",
            vec![1, 2],
            grid,
        ))
    }
}
