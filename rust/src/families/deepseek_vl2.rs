//! DeepSeek-VL2: the picture on a grey square, then tiles of it on the grey resolution that suits it.
//!
//! The reference is the model's code on Pillow, as sglang 0.5.23 has it.

use serde::Serialize;

use crate::error::Result;
use crate::recipe::arithmetic::Order;
use crate::recipe::checkpoint::Checkpoint;
use crate::recipe::{
    Arithmetic, Backend, Declared, Family, FamilySpec, Filter, Layout, Normalisation, Plan, PlannedTensor,
    Request, Source, View, size,
};

/// The family, as the registry knows it.
pub const SPEC: FamilySpec = FamilySpec { name: "deepseek_vl2", read };

const GREY: [u8; 3] = [127; 3];
// With more images than this in a request none is cut into tiles.
const MOST_IMAGES_IN_TILES: usize = 2;

#[derive(Debug, Clone, PartialEq, Serialize)]
struct DeepSeekVl2 {
    candidate_resolutions: Vec<(usize, usize)>,
    downsample_ratio: usize,
    #[serde(flatten)]
    normalisation: Normalisation,
    patch_size: usize,
}

fn read(fields: &mut Checkpoint) -> Result<Declared> {
    fields.only_pillow()?;
    fields.must_be_true("normalize")?;
    // Of the text.
    fields.ignore(&[
        "add_special_token",
        "ignore_id",
        "image_token",
        "mask_prompt",
        "pad_token",
        "sft_format",
    ]);
    let candidate_resolutions = fields.pairs("candidate_resolutions", &[(384, 384)])?;
    Declared::new(DeepSeekVl2 {
        candidate_resolutions,
        downsample_ratio: fields.count("downsample_ratio", 2, 64)?,
        normalisation: fields.normalisation(Normalisation::HALF)?,
        patch_size: fields.count("patch_size", 14, 1024)?,
    })
}

impl Family for DeepSeekVl2 {
    fn arithmetic(&self) -> Arithmetic {
        Arithmetic { order: Order::ToTensor, ..self.normalisation.arithmetic(Backend::Pil) }
    }

    fn request_facts(&self) -> &'static [&'static str] {
        &[Request::NUM_IMAGES]
    }

    fn plan(&self, source: Source, request: &Request) -> Result<Plan> {
        let px = self.candidate_resolutions.first().map_or(384, |first| first.0);
        let is_in_tiles =
            request.count(Request::NUM_IMAGES)?.is_none_or(|images| images <= MOST_IMAGES_IN_TILES);
        let best = match is_in_tiles {
            true => size::best_resolution((source.width, source.height), &self.candidate_resolutions),
            false => (px, px),
        };
        let views = vec![
            View::whole(source, Layout::whole(px, px)).fitted((px, px), Filter::Bicubic, GREY)?,
            View::whole(source, Layout::Tiles { width: px, height: px }).fitted(
                best,
                Filter::Bicubic,
                GREY,
            )?,
        ];
        let (columns, rows) = (best.0 / px, best.1 / px);
        let side = (px / self.patch_size).div_ceil(self.downsample_ratio);
        let num_tokens = side * (side + 1) + 1 + (rows * side) * (columns * side + 1);
        let tensors = vec![PlannedTensor::new("pixel_values", vec![1 + rows * columns, 3, px, px])];
        let plan = Plan { views, tensors, extras: Vec::new(), grid: [1, rows, columns], num_tokens };
        Ok(plan.with_i64("images_spatial_crop", vec![1, 2], vec![columns as i64, rows as i64]))
    }
}
