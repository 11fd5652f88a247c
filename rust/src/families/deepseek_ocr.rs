//! DeepSeek-OCR, OCR-2 and Unlimited-OCR: the picture on a grey square, and for large ones tiles beside it.
//!
//! The references are the models' codes on Pillow, as sglang 0.5.23 has them.

use serde::Serialize;

use crate::error::{CoreError, Result};
use crate::recipe::arithmetic::Order;
use crate::recipe::checkpoint::Checkpoint;
use crate::recipe::{
    Arithmetic, Backend, Declared, Family, FamilySpec, Filter, Layout, Normalisation, Plan, PlannedTensor,
    Request, Source, View, size,
};

/// DeepSeek-OCR and OCR-2 (`"ocr2_mode": true`), as the registry knows them.
pub const SPEC: FamilySpec = FamilySpec { name: "deepseek_ocr", read: |fields| read(fields, false) };
/// Unlimited-OCR.
pub const UNLIMITED: FamilySpec = FamilySpec { name: "unlimited_ocr", read: |fields| read(fields, true) };

const GREY: [u8; 3] = [127; 3];
const BASE_PX: usize = 1024;
const IMAGE_MODE: &str = "image_mode";
// With more images than this in a request none is cut into tiles.
const MOST_IMAGES_IN_TILES: usize = 2;

#[derive(Debug, Clone, PartialEq, Serialize)]
struct DeepSeekOcr {
    downsample_ratio: usize,
    is_unlimited: bool,
    #[serde(flatten)]
    normalisation: Normalisation,
    ocr2_mode: bool,
    patch_size: usize,
}

// How one image is looked at.
struct Mode {
    base_px: usize,
    tile_px: usize,
    // Squashed to a square of this first.
    squashed_px: Option<usize>,
    grid: (usize, usize),
}

fn read(fields: &mut Checkpoint, is_unlimited: bool) -> Result<Declared> {
    fields.only_pillow()?;
    fields.must_be_true("normalize")?;
    fields.ignore(&[
        "add_special_token",
        "ignore_id",
        "image_token",
        "mask_prompt",
        "pad_token",
        "sft_format",
    ]);
    // Its first resolution is the base's, which the models' code holds as a number of its own.
    fields.pairs("candidate_resolutions", &[(BASE_PX, BASE_PX)])?;
    Declared::new(DeepSeekOcr {
        downsample_ratio: fields.count("downsample_ratio", 4, 64)?,
        is_unlimited,
        normalisation: fields.normalisation(Normalisation::HALF)?,
        ocr2_mode: fields.flag("ocr2_mode", false)?,
        patch_size: fields.count("patch_size", 16, 1024)?,
    })
}

impl DeepSeekOcr {
    fn tile_px(&self) -> usize {
        if self.ocr2_mode { 768 } else { 640 }
    }

    fn mode(&self, given: (usize, usize), request: &Request) -> Result<Mode> {
        let (tile_px, most_tiles) = (self.tile_px(), if self.is_unlimited { 32 } else { 6 });
        let base_px = match self.is_unlimited.then_some(request.text(IMAGE_MODE)?).flatten() {
            None | Some("gundam") => {
                let is_in_tiles = self.is_unlimited
                    || request
                        .count(Request::NUM_IMAGES)?
                        .is_none_or(|images| images <= MOST_IMAGES_IN_TILES);
                let is_small = given.0 <= tile_px && given.1 <= tile_px;
                let grid = match is_in_tiles && !is_small {
                    true => size::closest_grid(given, 2, most_tiles, tile_px),
                    false => (1, 1),
                };
                let squashed_px = (!is_in_tiles).then_some(tile_px);
                return Ok(Mode { base_px: BASE_PX, tile_px, squashed_px, grid });
            }
            Some("tiny") => 512,
            Some("small") => 640,
            Some("base") => 1024,
            Some("large") => 1280,
            Some(other) => {
                return Err(CoreError::argument(format!(
                    "the request's {IMAGE_MODE} is {other:?}; choose tiny, small, base, large or gundam"
                )));
            }
        };
        let squashed_px = (base_px <= tile_px).then_some(base_px);
        Ok(Mode { base_px, tile_px: base_px, squashed_px, grid: (1, 1) })
    }

    fn tokens(&self, mode: &Mode) -> usize {
        let side = |px: usize| (px / self.patch_size).div_ceil(self.downsample_ratio);
        let (base, tile, (columns, rows)) = (side(mode.base_px), side(self.tile_px()), mode.grid);
        let has_tiles = columns * rows > 1;
        match (self.ocr2_mode, has_tiles) {
            (false, false) => (base + 1) * base + 1,
            (false, true) => (base + 1) * base + 1 + (tile * columns + 1) * (tile * rows),
            (true, false) => base * base + 1,
            (true, true) => base * base + 1 + tile * columns * tile * rows,
        }
    }
}

impl Family for DeepSeekOcr {
    fn arithmetic(&self) -> Arithmetic {
        Arithmetic { order: Order::ToTensor, ..self.normalisation.arithmetic(Backend::Pil) }
    }

    fn request_facts(&self) -> &'static [&'static str] {
        if self.is_unlimited { &[IMAGE_MODE] } else { &[Request::NUM_IMAGES] }
    }

    fn plan(&self, source: Source, request: &Request) -> Result<Plan> {
        let mode = self.mode((source.width, source.height), request)?;
        let (base, px, (columns, rows)) = (mode.base_px, mode.tile_px, mode.grid);
        let whole = View::whole(source, Layout::whole(base, base));
        let whole = match mode.squashed_px {
            Some(side) => {
                whole.resized((base, base), Filter::Bicubic, Backend::Pil).squashed_first((side, side))
            }
            None => whole.fitted((base, base), Filter::Bicubic, GREY)?,
        };
        let mut views = vec![whole];
        let tiles = if columns * rows > 1 { columns * rows } else { 0 };
        if tiles > 0 {
            let view = View::whole(source, Layout::Tiles { width: px, height: px });
            views.push(view.resized((columns * px, rows * px), Filter::Bicubic, Backend::Pil).into_tensor(1));
        }
        let tensors = vec![
            PlannedTensor::new("pixel_values", vec![1, 3, base, base]),
            PlannedTensor::new("images_crop", vec![tiles, 3, px, px]),
        ];
        let num_tokens = self.tokens(&mode);
        let plan = Plan { views, tensors, extras: Vec::new(), grid: [1, rows, columns], num_tokens };
        Ok(plan.with_i64("images_spatial_crop", vec![1, 2], vec![columns as i64, rows as i64]))
    }
}
