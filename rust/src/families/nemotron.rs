//! Nemotron Nano VL and Omni: InternVL's tiles, or one picture in its own aspect within a number of patches.
//!
//! The reference is SGLang 0.5.23's Pillow code; bfloat16 is what it hands to the model.

use serde::Serialize;

use super::internvl::{Tiler, tile_tokens};
use crate::error::Result;
use crate::recipe::arithmetic::Order;
use crate::recipe::checkpoint::Checkpoint;
use crate::recipe::{
    Arithmetic, Backend, Declared, Family, FamilySpec, Filter, Layout, Normalisation, Plan, PlannedTensor,
    Request, Source, View,
};

/// The family, as the registry knows it.
pub const SPEC: FamilySpec = FamilySpec { name: "nemotron_nano_vl", read };

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Dynamic {
    max_num_patches: usize,
    merge: usize,
    min_num_patches: usize,
    #[serde(flatten)]
    normalisation: Normalisation,
    patch_size: usize,
}

fn read(fields: &mut Checkpoint) -> Result<Declared> {
    fields.only_pillow()?;
    let normalisation = fields.normalisation(Normalisation::CLIP)?;
    let tile_px = fields.count("image_size", 512, 1 << 14)?;
    let tiles = (
        fields.count("min_dynamic_patch", 1, 1024)? as u64,
        fields.count("max_dynamic_patch", 12, 1024)? as u64,
    );
    let use_thumbnail = fields.flag("use_thumbnail", true)?;
    let (min_num_patches, max_num_patches) =
        (fields.count("min_num_patches", 256, 1 << 24)?, fields.count("max_num_patches", 3328, 1 << 24)?);
    if fields.flag("dynamic_resolution", false)? {
        let merge = (1.0 / fields.number("downsample_ratio", 0.5)?) as usize;
        let patch_size = fields.count("patch_size", 16, 1024)?;
        if merge == 0 || min_num_patches > max_num_patches {
            return Err(
                fields.refusal("downsample_ratio is above 1, or min_num_patches above max_num_patches")
            );
        }
        return Declared::new(Dynamic { max_num_patches, merge, min_num_patches, normalisation, patch_size });
    }
    Declared::new(Tiler {
        backend: Backend::Pil,
        is_checkpoint_code: true,
        tiles: Some(tiles),
        normalisation,
        resample: Filter::Bicubic,
        tile_px,
        tile_tokens: tile_tokens(fields, tile_px, 16)?,
        use_thumbnail,
    })
}

impl Dynamic {
    // `(columns, rows)` of patches, of which at most so many are wanted.
    fn patches(&self, (width, height): (usize, usize), most: usize) -> (usize, usize) {
        let (fewest, unit) = (self.min_num_patches as f64, self.merge as f64);
        let own = [width, height].map(|px| (px as f64 / self.patch_size as f64).round_ties_even().max(1.0));
        let native = own[0] * own[1];
        let budget = native.min(most as f64).max(fewest);
        let shrink = (budget / native.max(1.0)).sqrt().min(1.0);
        let mut sides = own.map(|side| ((side * shrink / unit).round_ties_even() * unit).max(unit));
        if sides[0] * sides[1] < fewest {
            let grow = (fewest / (sides[0] * sides[1])).sqrt();
            sides = sides.map(|side| ((side * grow / unit).ceil() * unit).max(unit));
        }
        if sides[0] * sides[1] > most as f64 {
            let shrink = (most as f64 / (sides[0] * sides[1])).sqrt();
            sides = sides.map(|side| ((side * shrink / unit).floor() * unit).max(unit));
        }
        (sides[0] as usize, sides[1] as usize)
    }

    // Within the tokens that the request leaves to this image, if its rounds come that far.
    fn within(&self, given: (usize, usize), budget: Option<usize>) -> (usize, usize) {
        const ROUNDS: usize = 10;
        let pooled = self.merge * self.merge;
        let mut most = self.max_num_patches;
        let mut patches = self.patches(given, most);
        let Some(budget) = budget else { return patches };
        for _ in 0..ROUNDS {
            patches = self.patches(given, most);
            let tokens = patches.0 * patches.1 / pooled;
            if tokens <= budget {
                break;
            }
            let scale = budget as f64 / tokens as f64;
            most = ((tokens * pooled) as f64 * scale).trunc().max(self.min_num_patches as f64) as usize;
        }
        patches
    }
}

impl Family for Dynamic {
    fn arithmetic(&self) -> Arithmetic {
        Arithmetic { order: Order::ToTensor, ..self.normalisation.arithmetic(Backend::Pil) }
    }

    fn request_facts(&self) -> &'static [&'static str] {
        &[Request::TOKEN_BUDGET]
    }

    fn plan(&self, source: Source, request: &Request) -> Result<Plan> {
        let budget = request.count(Request::TOKEN_BUDGET)?;
        let (columns, rows) = self.within((source.width, source.height), budget);
        let (width, height) = (columns * self.patch_size, rows * self.patch_size);
        let view = View::whole(source, Layout::whole(width, height)).resized(
            (width, height),
            Filter::Bicubic,
            Backend::Pil,
        );
        let tensor = PlannedTensor::new("pixel_values", vec![1, 3, height, width]);
        let tokens = columns * rows / (self.merge * self.merge);
        Ok(Plan::of_one_view(view, tensor, [1, rows, columns], tokens))
    }
}
