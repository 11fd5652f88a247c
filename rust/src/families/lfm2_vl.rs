//! LFM2-VL: one picture of whole tokens, or tiles of a large one and a thumbnail last; rows of patches, padded with zeros.

use serde::Serialize;

use crate::error::Result;
use crate::recipe::checkpoint::{Checkpoint, PixelBudget, filter_number};
use crate::recipe::{
    Arithmetic, Backend, Declared, Extra, Family, FamilySpec, Filter, Inside, Layout, Normalisation, Plan,
    PlannedTensor, Rect, Request, Source, Values, View, size,
};

/// The family, as the registry knows it.
pub const SPEC: FamilySpec = FamilySpec { name: "lfm2_vl", read };

const CLASSES: [(&str, Backend); 2] =
    [("Lfm2VlImageProcessor", Backend::Torchvision), ("Lfm2VlImageProcessorFast", Backend::Torchvision)];

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Lfm2 {
    do_image_splitting: bool,
    downsample_factor: usize,
    encoder_patch_size: usize,
    max_image_tokens: usize,
    max_pixels_tolerance: f64,
    max_tiles: u64,
    min_image_tokens: usize,
    min_tiles: u64,
    #[serde(flatten)]
    normalisation: Normalisation,
    #[serde(serialize_with = "filter_number")]
    resample: Filter,
    tile_size: usize,
    use_thumbnail: bool,
}

fn read(fields: &mut Checkpoint) -> Result<Declared> {
    for name in ["do_resize", "do_pad"] {
        fields.must_be_true(name)?;
    }
    // The size is that of the rule, and what `max_num_patches` says follows from the tokens.
    fields.ignore(&["size", "return_row_col_info", "max_num_patches"]);
    let (resample, backend) = fields.resize(&CLASSES, (Filter::Bilinear, Backend::Torchvision))?;
    if backend == Backend::Pil {
        return Err(fields.refusal("transformers has no PIL backend of it; choose backend \"torchvision\""));
    }
    let made = Lfm2 {
        do_image_splitting: fields.flag("do_image_splitting", true)?,
        downsample_factor: fields.count("downsample_factor", 2, 64)?,
        encoder_patch_size: fields.count("encoder_patch_size", 16, 1024)?,
        max_image_tokens: fields.count("max_image_tokens", 256, 1 << 20)?,
        max_pixels_tolerance: fields.number("max_pixels_tolerance", 2.0)?,
        max_tiles: fields.count("max_tiles", 10, 1024)? as u64,
        min_image_tokens: fields.count("min_image_tokens", 64, 1 << 20)?,
        min_tiles: fields.count("min_tiles", 2, 1024)? as u64,
        normalisation: fields.normalisation(Normalisation::HALF)?,
        resample,
        tile_size: fields.count("tile_size", 512, 1 << 14)?,
        use_thumbnail: fields.flag("use_thumbnail", true)?,
    };
    if made.min_tiles > made.max_tiles || !made.tile_size.is_multiple_of(made.encoder_patch_size) {
        return Err(fields.refusal("min_tiles is above max_tiles, or tile_size no whole number of patches"));
    }
    Declared::new(made)
}

impl Lfm2 {
    fn factor_px(&self) -> usize {
        self.encoder_patch_size * self.downsample_factor
    }

    fn is_large(&self, source: Source) -> bool {
        let factor = self.factor_px();
        let side = |px: usize| {
            ((px as f64 / factor as f64).round_ties_even() as usize * factor).max(self.encoder_patch_size)
        };
        let most = (self.max_image_tokens * factor * factor) as f64 * self.max_pixels_tolerance;
        (side(source.width) * side(source.height)) as f64 > most
    }

    // Rows that every view has.
    fn most_rows(&self) -> usize {
        let tile = self.tile_size / self.encoder_patch_size;
        let tile = if self.do_image_splitting { tile * tile } else { 0 };
        (self.max_image_tokens * self.downsample_factor * self.downsample_factor).max(tile)
    }
}

impl Family for Lfm2 {
    fn arithmetic(&self) -> Arithmetic {
        self.normalisation.arithmetic(Backend::Torchvision)
    }

    fn plan(&self, source: Source, _: &Request) -> Result<Plan> {
        let (given, px, factor) = ((source.width, source.height), self.encoder_patch_size, self.factor_px());
        let pixels = |tokens: usize| (tokens * factor * factor) as u64;
        let budget = PixelBudget {
            shortest_edge: pixels(self.min_image_tokens),
            longest_edge: pixels(self.max_image_tokens),
        };
        let small = size::whole_tokens(given, factor, budget);
        let is_split = self.do_image_splitting && self.max_tiles > 1 && self.is_large(source);
        let grid = match is_split {
            true => size::closest_grid(given, self.min_tiles, self.max_tiles, self.tile_size),
            false => (1, 1),
        };
        let resized =
            |layout, size| View::whole(source, layout).resized(size, self.resample, Backend::Torchvision);
        let (one_by_one, most) = (Layout::patches(px, Inside::Hwc), self.most_rows());
        let mut views = Vec::new();
        if is_split {
            let (tile, columns) = (self.tile_size, grid.0);
            let canvas = (columns * tile, grid.1 * tile);
            let merge = tile / px;
            if merge * merge == most {
                views.push(resized(Layout::Patches { px, merge, inside: Inside::Hwc }, canvas));
            } else {
                // Each tile is followed by zeros, so each is a view.
                views.extend((0..columns * grid.1).map(|at| {
                    let (left, top) = (at % columns * tile, at / columns * tile);
                    resized(one_by_one, canvas).cropped(Rect { left, top, width: tile, height: tile })
                }));
            }
        }
        if !is_split || (self.use_thumbnail && grid != (1, 1)) {
            views.push(resized(one_by_one, small));
        }
        let (mut shapes, mut mask, mut num_tokens, mut count) = (Vec::new(), Vec::new(), 0, 0);
        for view in &mut views {
            let patches = (view.keep.width / px) * (view.keep.height / px);
            let side = self.tile_size / px;
            let (tiles, rows, columns) = match view.layout != one_by_one {
                true => (patches / (side * side), side, side),
                false => (1, view.keep.height / px, view.keep.width / px),
            };
            for _ in 0..tiles {
                shapes.extend([rows as i64, columns as i64]);
                mask.extend((0..most).map(|row| i32::from(row < rows * columns)));
                num_tokens +=
                    rows.div_ceil(self.downsample_factor) * columns.div_ceil(self.downsample_factor);
            }
            view.zeros_behind = (most * tiles).saturating_sub(patches) * px * px * 3;
            count += tiles;
        }
        let tensors = vec![PlannedTensor::new("pixel_values", vec![count, most, px * px * 3])];
        let plan = Plan { views, tensors, extras: Vec::new(), grid: [1, grid.1, grid.0], num_tokens };
        Ok(plan
            .with(Extra { name: "pixel_attention_mask", shape: vec![count, most], values: Values::I32(mask) })
            .with_i64("spatial_shapes", vec![count, 2], shapes))
    }
}
