//! InternVL 2.5, 3, 3.5 and InternS1: tiles of the grid closest in aspect, and a thumbnail last.
//!
//! Two references: the checkpoint's own Pillow code, and transformers' `GotOcr2ImageProcessor`. Nemotron Nano VL has the
//! first with other values.

use serde::Serialize;

use crate::error::Result;
use crate::recipe::arithmetic::Order;
use crate::recipe::checkpoint::{Checkpoint, ExactSize, filter_number};
use crate::recipe::{
    Arithmetic, Backend, Declared, Family, FamilySpec, Filter, Layout, Normalisation, Plan, PlannedTensor,
    Request, Source, View, size,
};

/// The family, as the registry knows it.
pub const SPEC: FamilySpec = FamilySpec { name: "internvl", read };

const CLASSES: [(&str, Backend); 4] = [
    ("GotOcr2ImageProcessor", Backend::Torchvision),
    ("GotOcr2ImageProcessorFast", Backend::Torchvision),
    ("GotOcr2ImageProcessorPil", Backend::Pil),
    ("CLIPFeatureExtractor", Backend::Pil),
];

/// Tiles and a thumbnail.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tiler {
    /// Whose resize.
    pub backend: Backend,
    /// Whether the arithmetic is the checkpoint's, and no `num_patches` is handed out.
    pub is_checkpoint_code: bool,
    /// Fewest and most tiles; none for the picture as a whole.
    pub tiles: Option<(u64, u64)>,
    /// How bytes become values.
    #[serde(flatten)]
    pub normalisation: Normalisation,
    /// The filter.
    #[serde(serialize_with = "filter_number")]
    pub resample: Filter,
    /// Side of a tile, in pixels.
    pub tile_px: usize,
    /// Tokens of a tile.
    pub tile_tokens: usize,
    /// Whether a picture of several tiles is also there as a whole.
    pub use_thumbnail: bool,
}

fn read(fields: &mut Checkpoint) -> Result<Declared> {
    let is_hf = fields.has("crop_to_patches");
    fields.ignore(&["auto_map", "crop_size", "do_center_crop"]);
    fields.must_be_true("do_resize")?;
    let default = if is_hf { Backend::Torchvision } else { Backend::Pil };
    let (resample, backend) = fields.resize(&CLASSES, (Filter::Bicubic, default))?;
    let ExactSize { height, width } = fields.exact_size("size", ExactSize { height: 448, width: 448 })?;
    if height != width {
        return Err(fields.refusal("size must be square"));
    }
    let (fewest, most) =
        if is_hf { ("min_patches", "max_patches") } else { ("min_dynamic_patch", "max_dynamic_patch") };
    let tiles = (fields.count(fewest, 1, 1024)? as u64, fields.count(most, 12, 1024)? as u64);
    let tiles = (!is_hf || fields.flag("crop_to_patches", false)?).then_some(tiles);
    Declared::new(Tiler {
        backend,
        is_checkpoint_code: !is_hf,
        tiles,
        normalisation: fields.normalisation(Normalisation::IMAGENET)?,
        resample,
        tile_px: height,
        tile_tokens: tile_tokens(fields, height, 14)?,
        use_thumbnail: fields.flag("use_thumbnail", true)?,
    })
}

/// Takes `patch_size` and `downsample_ratio`, of the model: tokens of a tile.
///
/// # Errors
/// [`crate::error::CoreError::InvalidArgument`] that names the field.
pub fn tile_tokens(fields: &mut Checkpoint, tile_px: usize, patch_px: usize) -> Result<usize> {
    let side = (tile_px / fields.count("patch_size", patch_px, 1024)?) as f64;
    let ratio = fields.number("downsample_ratio", 0.5)?;
    Ok((side * side * (ratio * ratio)) as usize)
}

impl Family for Tiler {
    fn arithmetic(&self) -> Arithmetic {
        let arithmetic = self.normalisation.arithmetic(self.backend);
        if self.is_checkpoint_code { Arithmetic { order: Order::ToTensor, ..arithmetic } } else { arithmetic }
    }

    fn plan(&self, source: Source, _: &Request) -> Result<Plan> {
        let px = self.tile_px;
        let (columns, rows) = self.tiles.map_or((1, 1), |(fewest, most)| {
            size::closest_grid((source.width, source.height), fewest, most, px)
        });
        let view = |layout, size| View::whole(source, layout).resized(size, self.resample, self.backend);
        let mut views = vec![view(Layout::Tiles { width: px, height: px }, (columns * px, rows * px))];
        let has_thumbnail = self.use_thumbnail && columns * rows > 1;
        if has_thumbnail {
            views.push(view(Layout::whole(px, px), (px, px)));
        }
        let tiles = columns * rows + usize::from(has_thumbnail);
        let tensors = vec![PlannedTensor::new("pixel_values", vec![tiles, 3, px, px])];
        let num_tokens = tiles * self.tile_tokens;
        let plan = Plan { views, tensors, extras: Vec::new(), grid: [1, rows, columns], num_tokens };
        if self.is_checkpoint_code {
            return Ok(plan);
        }
        Ok(plan.with_i64("num_patches", vec![1], vec![tiles as i64]))
    }
}
