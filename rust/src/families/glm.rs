//! GLM-4.1V, 4.5V, 4.6V and GLM-OCR, GLM-5 Next, and GLM-Image: Qwen's patches under size rules of their own.

use serde::Serialize;

use crate::error::Result;
use crate::recipe::checkpoint::{Checkpoint, PixelBudget, filter_number};
use crate::recipe::merged::Merged;
use crate::recipe::{
    Arithmetic, Backend, Declared, Family, FamilySpec, Fill, Filter, Load, Normalisation, Plan, Request,
    Source, View, size,
};

/// GLM-4.1V, 4.5V and GLM-OCR, as the registry knows them.
pub const GLM4V: FamilySpec =
    FamilySpec { name: "glm4v", read: |fields| read(fields, "Glm4v", Rule::Frames) };
/// GLM-4.6V.
pub const GLM46V: FamilySpec =
    FamilySpec { name: "glm46v", read: |fields| read(fields, "Glm46V", Rule::Frames) };
/// GLM-5.3-Flash.
pub const GLM5_NEXT: FamilySpec =
    FamilySpec { name: "glm5_next", read: |fields| read(fields, "Glm5Next", Rule::Fitted { expand: 1 }) };
/// GLM-Image.
pub const GLM_IMAGE: FamilySpec =
    FamilySpec { name: "glm_image", read: |fields| read(fields, "GlmImage", Rule::Halved) };

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Rule {
    /// The frames of a temporal patch count.
    Frames,
    /// Fitted into a canvas of tokens; each of so many patches along a side.
    Fitted { expand: usize },
    /// Half the sides.
    Halved,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Glm {
    backend: Backend,
    rule: Rule,
    #[serde(flatten)]
    merged: Merged,
    #[serde(flatten)]
    normalisation: Normalisation,
    #[serde(serialize_with = "filter_number")]
    resample: Filter,
    size: PixelBudget,
}

fn read(fields: &mut Checkpoint, class: &str, mut rule: Rule) -> Result<Declared> {
    fields.must_be_true("do_resize")?;
    let names =
        ["ImageProcessor", "ImageProcessorFast", "ImageProcessorPil"].map(|end| format!("{class}{end}"));
    let classes =
        [(&*names[0], Backend::Torchvision), (&*names[1], Backend::Torchvision), (&*names[2], Backend::Pil)];
    let (resample, backend) = fields.resize(&classes, (Filter::Bicubic, Backend::Torchvision))?;
    let merged = Merged { expand_temporal: true, merge_size: 2, patch_size: 14, temporal_patch_size: 2 };
    let merged = Merged::read(fields, merged)?;
    let size = match rule {
        Rule::Frames => {
            fields.pixel_budget(PixelBudget { shortest_edge: 112 * 112, longest_edge: 28 * 28 * 15_000 })?
        }
        Rule::Halved => {
            fields.pixel_budget(PixelBudget { shortest_edge: 56 * 56, longest_edge: 28 * 28 * 1280 })?
        }
        Rule::Fitted { .. } => {
            fields.ignore(&["size"]);
            let expand = fields.count("patch_expand_factor", 1, 64)?;
            // transformers' PIL class does not read it.
            let expand = if backend == Backend::Pil { 1 } else { expand };
            rule = Rule::Fitted { expand };
            let factor = (merged.factor_px() * expand) as u64;
            let token_px = merged.temporal_patch_size as u64 * factor * factor;
            PixelBudget {
                shortest_edge: fields.count("min_image_tokens", 16, 1 << 20)? as u64 * token_px,
                longest_edge: fields.count("max_image_tokens", 8000, 1 << 20)? as u64 * token_px,
            }
        }
    };
    Declared::new(Glm {
        backend,
        rule,
        merged,
        normalisation: fields.normalisation(Normalisation::CLIP)?,
        resample,
        size,
    })
}

impl Family for Glm {
    fn arithmetic(&self) -> Arithmetic {
        self.normalisation.arithmetic(self.backend)
    }

    fn load(&self) -> Load {
        if self.rule == Rule::Halved { Load::Rgb } else { Load::Upright }
    }

    fn plan(&self, source: Source, _: &Request) -> Result<Plan> {
        let (given, factor) = ((source.width, source.height), self.merged.factor_px());
        let frames = self.merged.temporal_patch_size;
        let view = View::whole(source, self.merged.layout());
        let resized = |view: View, size| view.resized(size, self.resample, self.backend);
        let view = match self.rule {
            Rule::Frames => resized(view, size::glm4v(given, factor, frames, self.size)?),
            Rule::Halved => resized(view, size::glm_image(given, factor, self.size)?),
            Rule::Fitted { expand } => {
                let size::Fitted { canvas, content } =
                    size::glm5_next(given, factor * expand, frames, self.size)?;
                resized(view, content).padded(canvas, Fill::Colour([0; 3]))
            }
        };
        Ok(self.merged.plan(view))
    }
}
