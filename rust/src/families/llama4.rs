//! Llama 4: fitted onto the canvas of square tiles that suits it, with a squashed view of all last.

use serde::Serialize;

use crate::error::Result;
use crate::recipe::arithmetic::Order;
use crate::recipe::checkpoint::{Checkpoint, ExactSize, filter_number};
use crate::recipe::{
    Arithmetic, Backend, Declared, Family, FamilySpec, Fill, Filter, Layout, Normalisation, Plan,
    PlannedTensor, Request, Source, View, size,
};

/// The family, as the registry knows it.
pub const SPEC: FamilySpec = FamilySpec { name: "llama4", read };

const CLASSES: [(&str, Backend); 2] =
    [("Llama4ImageProcessor", Backend::Torchvision), ("Llama4ImageProcessorFast", Backend::Torchvision)];
// Of the model: patches are 14 pixels, and 2 x 2 of them one token.
const TOKEN_PX: usize = 28;

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Llama4 {
    max_patches: usize,
    #[serde(flatten)]
    normalisation: Normalisation,
    #[serde(serialize_with = "filter_number")]
    resample: Filter,
    resize_to_max_canvas: bool,
    tile_px: usize,
}

fn read(fields: &mut Checkpoint) -> Result<Declared> {
    fields.must_be_true("do_resize")?;
    let (resample, backend) = fields.resize(&CLASSES, (Filter::Bilinear, Backend::Torchvision))?;
    if backend == Backend::Pil {
        return Err(fields.refusal("transformers has no PIL backend of it; choose backend \"torchvision\""));
    }
    let ExactSize { height, width } = fields.exact_size("size", ExactSize { height: 336, width: 336 })?;
    if height != width {
        return Err(fields.refusal("size must be square"));
    }
    Declared::new(Llama4 {
        max_patches: fields.count("max_patches", 16, 256)?,
        normalisation: fields.normalisation(Normalisation::HALF)?,
        resample,
        resize_to_max_canvas: fields.flag("resize_to_max_canvas", false)?,
        tile_px: height,
    })
}

impl Llama4 {
    // `(columns, rows)` of every canvas, those of an aspect together, as a dict of aspects keeps them.
    fn canvases(&self) -> Vec<(usize, usize)> {
        let mut by_aspect: Vec<(f64, Vec<(usize, usize)>)> = Vec::new();
        for tiles in (1..=self.max_patches).rev() {
            for rows in (1..=tiles).filter(|&rows| tiles.is_multiple_of(rows)) {
                let grid = (tiles / rows, rows);
                let aspect = rows as f64 / grid.0 as f64;
                match by_aspect.iter_mut().find(|(known, _)| *known == aspect) {
                    Some((_, grids)) => grids.push(grid),
                    None => by_aspect.push((aspect, vec![grid])),
                }
            }
        }
        by_aspect.into_iter().flat_map(|(_, grids)| grids).collect()
    }

    // Scales are compared in single precision.
    fn grid(&self, (width, height): (usize, usize)) -> (usize, usize) {
        let scale = |&(columns, rows): &(usize, usize)| {
            let across = (columns * self.tile_px) as f32 / width as f32;
            let down = (rows * self.tile_px) as f32 / height as f32;
            if down > across { across } else { down }
        };
        let canvases = self.canvases();
        let enlarging = canvases.iter().map(scale).filter(|&scale| scale >= 1.0);
        let picked = match self.resize_to_max_canvas {
            true => enlarging
                .fold(None, |most: Option<f32>, scale| Some(most.map_or(scale, |most| most.max(scale)))),
            false => enlarging
                .fold(None, |least: Option<f32>, scale| Some(least.map_or(scale, |least| least.min(scale)))),
        };
        let picked = picked.unwrap_or_else(|| canvases.iter().map(scale).fold(0.0, f32::max));
        let fitting = canvases.iter().filter(|grid| scale(grid) == picked);
        fitting.min_by_key(|(columns, rows)| columns * rows).copied().unwrap_or((1, 1))
    }
}

impl Family for Llama4 {
    fn arithmetic(&self) -> Arithmetic {
        Arithmetic { order: Order::Bfloat16, ..self.normalisation.arithmetic(Backend::Torchvision) }
    }

    fn plan(&self, source: Source, _: &Request) -> Result<Plan> {
        let (given, px) = ((source.width, source.height), self.tile_px);
        let (columns, rows) = self.grid(given);
        let canvas = (columns * px, rows * px);
        let most = match self.resize_to_max_canvas {
            true => canvas,
            false => (given.0.max(px).min(canvas.0), given.1.max(px).min(canvas.1)),
        };
        let view = |layout| View::whole(source, layout);
        let resized = |view: View, size| view.resized(size, self.resample, Backend::Torchvision);
        let mut views = vec![
            resized(view(Layout::Tiles { width: px, height: px }), size::without_distortion(given, most))
                .padded(canvas, Fill::Colour([0; 3])),
        ];
        let mut tiles = columns * rows;
        if tiles > 1 {
            views.push(resized(view(Layout::whole(px, px)), (px, px)));
            tiles += 1;
        }
        let tensors = vec![PlannedTensor::new("pixel_values", vec![tiles, 3, px, px])];
        let num_tokens = tiles * (px / TOKEN_PX) * (px / TOKEN_PX);
        let plan = Plan { views, tensors, extras: Vec::new(), grid: [1, rows, columns], num_tokens };
        Ok(plan.with_i64("aspect_ratios", vec![1, 2], vec![rows as i64, columns as i64]))
    }
}
