//! MiniMax M3 and M3.1 as SGLang 0.5.23 serves them: resized first, mostly with Pillow; then transformers' processor,
//! which resizes no more.

use serde::Serialize;

use crate::error::{CoreError, Result};
use crate::recipe::checkpoint::Checkpoint;
use crate::recipe::merged::Merged;
use crate::recipe::{
    Arithmetic, Backend, Declared, Family, FamilySpec, Filter, Normalisation, Plan, Request, Source, View,
    size,
};

/// MiniMax M3, as the registry knows it.
pub const M3: FamilySpec = FamilySpec { name: "minimax_m3", read: |fields| read(fields, false) };
/// MiniMax M3.1.
pub const M31: FamilySpec = FamilySpec { name: "minimax_m31", read: |fields| read(fields, true) };

// Bounds and default of the request's `max_long_side_pixel`, and what a shorter side grows to.
const LONG_SIDE_PX: std::ops::RangeInclusive<usize> = 112..=3584;
const DEFAULT_LONG_SIDE_PX: usize = 2016;
const SHORT_SIDE_PX: usize = 112;
const MOST_PIXELS: usize = 12_845_056;
const LONG_SIDE: &str = "max_long_side_pixel";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Rule {
    LongSide { max_pixels: Option<u64>, min_pixels: u64 },
    Within { height: usize, width: usize },
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct MiniMax {
    rule: Rule,
    #[serde(flatten)]
    merged: Merged,
    #[serde(flatten)]
    normalisation: Normalisation,
}

fn read(fields: &mut Checkpoint, is_m31: bool) -> Result<Declared> {
    const CLASSES: [(&str, Backend); 4] = [
        ("MiniMaxM3VLImageProcessor", Backend::Torchvision),
        ("MiniMaxM3VLImageProcessorFast", Backend::Torchvision),
        ("MiniMaxM31ImageProcessor", Backend::Torchvision),
        ("MiniMaxM31VLImageProcessor", Backend::Torchvision),
    ];
    // Never used, since the processor is told not to resize.
    fields.ignore(&["size", "do_resize", "auto_map"]);
    fields.resize(&CLASSES, (Filter::Bicubic, Backend::Torchvision))?;
    let merged = Merged { expand_temporal: true, merge_size: 2, patch_size: 14, temporal_patch_size: 2 };
    let merged = Merged::read(fields, merged)?;
    let rule = if is_m31 {
        let [height, width] = fields.pair("max_size", [2016, 2016], 1 << 16)?;
        if height < merged.factor_px() || width < merged.factor_px() {
            return Err(fields.refusal(format!("max_size must be at least {} pixels", merged.factor_px())));
        }
        Rule::Within { height, width }
    } else {
        let factor = merged.factor_px() as u64;
        let min_pixels = fields.whole("min_pixels")?.unwrap_or(4 * factor * factor);
        Rule::LongSide { max_pixels: fields.whole("max_pixels")?, min_pixels }
    };
    Declared::new(MiniMax { rule, merged, normalisation: fields.normalisation(Normalisation::CLIP)? })
}

impl MiniMax {
    // The size, and whose resize.
    fn resized(&self, given: (usize, usize), request: &Request) -> Result<((usize, usize), Backend)> {
        let factor = self.merged.factor_px();
        let long_side = request.count(LONG_SIDE)?;
        match self.rule {
            Rule::Within { height, width } => Ok((within(given, (width, height), factor), Backend::Pil)),
            Rule::LongSide { max_pixels: Some(most), min_pixels } if long_side.is_none() => {
                let (height, width) = size::smart_resize(given.1, given.0, factor, min_pixels, most)?;
                Ok(((width, height), Backend::Torchvision))
            }
            Rule::LongSide { .. } => {
                let long_side = long_side.unwrap_or(DEFAULT_LONG_SIDE_PX);
                if !LONG_SIDE_PX.contains(&long_side) || !long_side.is_multiple_of(factor) {
                    return Err(CoreError::argument(format!(
                        "{LONG_SIDE} is {long_side}; choose a multiple of {factor} from {} to {}",
                        LONG_SIDE_PX.start(),
                        LONG_SIDE_PX.end()
                    )));
                }
                Ok((below_long_side(given, long_side, factor)?, Backend::Pil))
            }
        }
    }
}

fn below_long_side(given: (usize, usize), cap: usize, factor: usize) -> Result<(usize, usize)> {
    size::check_aspect(given)?;
    let (long, short) = (given.0.max(given.1) as f64, given.0.min(given.1) as f64);
    let to_cap = cap as f64 / long;
    let scale = match (long > cap as f64, short < SHORT_SIDE_PX as f64) {
        (true, _) => to_cap,
        (false, true) => (SHORT_SIDE_PX as f64 / short).min(to_cap),
        (false, false) => 1.0,
    };
    let side = |side: usize| size::rounded(side as f64 * scale, factor);
    let (width, height) = (side(given.0), side(given.1));
    if width * height > MOST_PIXELS {
        return Err(CoreError::argument(format!(
            "{width} x {height} pixels are over the model's {MOST_PIXELS}"
        )));
    }
    Ok((width, height))
}

fn within(given: (usize, usize), most: (usize, usize), factor: usize) -> (usize, usize) {
    let up = |side: usize| size::up_to_multiple(side.max(factor), factor);
    let (width, height) = (up(given.0), up(given.1));
    if width <= most.0 && height <= most.1 {
        return (width, height);
    }
    let shrunk = |side: usize| (side * most.1 / height).min(side * most.0 / width);
    (up(shrunk(width)), up(shrunk(height)))
}

impl Family for MiniMax {
    fn arithmetic(&self) -> Arithmetic {
        self.normalisation.arithmetic(Backend::Torchvision)
    }

    fn request_facts(&self) -> &'static [&'static str] {
        &[LONG_SIDE]
    }

    fn plan(&self, source: Source, request: &Request) -> Result<Plan> {
        let (size, backend) = self.resized((source.width, source.height), request)?;
        let view = View::whole(source, self.merged.layout()).resized(size, Filter::Bicubic, backend);
        Ok(self.merged.plan(view))
    }
}
