//! DeepSeek-V4.1's images: padded to whole patches on grey, or stretched where they are very wide.
//!
//! The reference is SGLang 0.5.23's Pillow code, whose Rust twin is its default.

use serde::Serialize;

use crate::error::{CoreError, Result};
use crate::recipe::arithmetic::Order;
use crate::recipe::checkpoint::Checkpoint;
use crate::recipe::{
    Arithmetic, Backend, Declared, Family, FamilySpec, Filter, Inside, Layout, Normalisation, Plan,
    PlannedTensor, Request, Source, View,
};

/// The family, as the registry knows it.
pub const SPEC: FamilySpec = FamilySpec { name: "deepseek_v41", read };

const GREY: [u8; 3] = [127; 3];

#[derive(Debug, Clone, PartialEq, Serialize)]
struct DeepSeek {
    vision_downsample_ratio: usize,
    vision_max_n_token: usize,
    vision_max_wh_ratio: Option<f64>,
    vision_min_pixels: u64,
    vision_patch_size: usize,
}

fn read(fields: &mut Checkpoint) -> Result<Declared> {
    fields.only_pillow()?;
    let made = DeepSeek {
        vision_downsample_ratio: fields.count("vision_downsample_ratio", 3, 64)?,
        vision_max_n_token: fields.count("vision_max_n_token", 1024, 1 << 20)?,
        vision_max_wh_ratio: fields.number_or_null("vision_max_wh_ratio", None)?,
        vision_min_pixels: fields.whole("vision_min_pixels")?.unwrap_or(544 * 544),
        vision_patch_size: fields.count("vision_patch_size", 14, 1024)?,
    };
    if made.vision_max_n_token < 4 {
        return Err(fields.refusal("vision_max_n_token must be at least 4"));
    }
    if made.vision_max_wh_ratio.is_some_and(|ratio| !(ratio.is_finite() && ratio > 0.0)) {
        return Err(fields.refusal("vision_max_wh_ratio must be above 0, or null"));
    }
    Declared::new(made)
}

impl DeepSeek {
    fn tokens(&self, (width, height): (usize, usize)) -> usize {
        let side = |px: usize| (px / self.vision_patch_size).div_ceil(self.vision_downsample_ratio);
        side(height) * (side(width) + 1) + 2
    }

    // Whole patches within the number of tokens: rows of tokens, each with a mark at its end, and two more.
    fn shrunk(&self, (width, height): (f64, f64)) -> (usize, usize) {
        let (px, most) = (self.vision_patch_size, self.vision_max_n_token);
        let cell = px * self.vision_downsample_ratio;
        let ratio = height / width;
        let columns = ((most - 2) as f64 / ratio + 0.25).sqrt() - 0.5;
        let rows = columns * ratio;
        if columns < 1.0 {
            return (cell, (most - 2) / 2 * cell);
        }
        if rows < 1.0 {
            return ((most - 3) * cell, cell);
        }
        let scale = (columns.floor() * cell as f64 / width).min(rows.floor() * cell as f64 / height);
        let whole = |side: f64| (side * scale / px as f64).floor() as usize * px;
        (whole(width), whole(height))
    }

    fn target(&self, source: Source) -> Result<(usize, usize)> {
        let (mut width, mut height) = (source.width as f64, source.height as f64);
        if let Some(ratio) = self.vision_max_wh_ratio {
            width = width.min(height * ratio);
        }
        let area = width * height;
        if area < self.vision_min_pixels as f64 {
            let grow = (self.vision_min_pixels as f64 / area).powf(0.5);
            (width, height) = ((width * grow).trunc(), (height * grow).trunc());
        }
        let px = self.vision_patch_size as f64;
        let whole = |side: f64| ((side / px).ceil() * px) as usize;
        let target = (whole(width), whole(height));
        let target =
            if self.tokens(target) > self.vision_max_n_token { self.shrunk((width, height)) } else { target };
        if target.0 == 0 || target.1 == 0 || self.tokens(target) > self.vision_max_n_token {
            return Err(CoreError::argument(format!(
                "{} x {} pixels do not fit {} tokens; crop the image",
                source.width, source.height, self.vision_max_n_token
            )));
        }
        Ok(target)
    }
}

impl Family for DeepSeek {
    fn arithmetic(&self) -> Arithmetic {
        Arithmetic { order: Order::ToTensor, ..Normalisation::HALF.arithmetic(Backend::Pil) }
    }

    fn plan(&self, source: Source, _: &Request) -> Result<Plan> {
        let (target, px) = (self.target(source)?, self.vision_patch_size);
        let view = View::whole(source, Layout::patches(px, Inside::Chw { copies: 1 }));
        let is_wide =
            self.vision_max_wh_ratio.is_some_and(|ratio| source.width as f64 >= ratio * source.height as f64);
        let view = match is_wide {
            true => view.resized(target, Filter::Bicubic, Backend::Pil),
            false => view.fitted(target, Filter::Bicubic, GREY)?,
        };
        let (rows, columns) = (target.1 / px, target.0 / px);
        let tensor = PlannedTensor::new("pixel_values", vec![rows * columns, 3, px, px]);
        Ok(Plan::of_one_view(view, tensor, [1, rows, columns], self.tokens(target)))
    }
}
