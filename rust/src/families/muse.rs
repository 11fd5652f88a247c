//! Muse Glimmer and Muse Spark: whole tokens, in the aspect closest to the picture's.
//!
//! The references are SGLang 0.5.23's own processors on the CPU.

use serde::Serialize;

use crate::error::Result;
use crate::recipe::arithmetic::Order;
use crate::recipe::checkpoint::Checkpoint;
use crate::recipe::merged::Merged;
use crate::recipe::{
    Arithmetic, Backend, Declared, Family, FamilySpec, Filter, Inside, Layout, Normalisation, Plan,
    PlannedTensor, Request, Source, View, size,
};

/// Muse Glimmer, as the registry knows it.
pub const GLIMMER: FamilySpec = FamilySpec { name: "muse_glimmer", read: glimmer };
/// Muse Spark.
pub const SPARK: FamilySpec = FamilySpec { name: "muse_spark", read: spark };

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Glimmer {
    max_image_tokens: usize,
    #[serde(flatten)]
    merged: Merged,
    #[serde(flatten)]
    normalisation: Normalisation,
}

fn glimmer(fields: &mut Checkpoint) -> Result<Declared> {
    const CLASSES: [(&str, Backend); 2] = [
        ("MuseGlimmerImageProcessor", Backend::Torchvision),
        ("MuseGlimmerImageProcessorFast", Backend::Torchvision),
    ];
    // Its configuration asks for Lanczos, and its processor takes bicubic in its place.
    let (_, backend) = fields.resize(&CLASSES, (Filter::Lanczos, Backend::Torchvision))?;
    if backend == Backend::Pil {
        return Err(fields.refusal("the model has no PIL backend; choose backend \"torchvision\""));
    }
    let merged = Merged { expand_temporal: true, merge_size: 2, patch_size: 14, temporal_patch_size: 2 };
    Declared::new(Glimmer {
        max_image_tokens: fields.count("max_image_tokens", 4096, 1 << 20)?,
        merged: Merged::read(fields, merged)?,
        normalisation: fields.normalisation(Normalisation::HALF)?,
    })
}

impl Family for Glimmer {
    fn arithmetic(&self) -> Arithmetic {
        self.normalisation.arithmetic(Backend::Torchvision)
    }

    fn plan(&self, source: Source, _: &Request) -> Result<Plan> {
        let (px, token_px) = (self.merged.patch_size, self.merged.factor_px());
        let (rows, columns) =
            size::muse_glimmer((source.width, source.height), token_px, self.max_image_tokens);
        let layout = Layout::patches(px, Inside::Tchw { copies: self.merged.copies() });
        let view = View::whole(source, layout).resized(
            (columns * token_px, rows * token_px),
            Filter::Bicubic,
            Backend::Torchvision,
        );
        Ok(self.merged.plan(view))
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Spark {
    downsample_factor: usize,
    max_image_tokens: usize,
    min_image_tokens: usize,
    patch_size: usize,
    #[serde(flatten)]
    normalisation: Normalisation,
}

fn spark(fields: &mut Checkpoint) -> Result<Declared> {
    fields.only_pillow()?;
    Declared::new(Spark {
        downsample_factor: fields.count("downsample_factor", 2, 64)?,
        max_image_tokens: fields.count("max_image_tokens", 4096, 1 << 20)?,
        min_image_tokens: fields.count("min_image_tokens", 1, 1 << 20)?,
        patch_size: fields.count("patch_size", 14, 1024)?,
        normalisation: fields.normalisation(Normalisation::HALF)?,
    })
}

impl Family for Spark {
    fn arithmetic(&self) -> Arithmetic {
        Arithmetic { order: Order::ToTensor, ..self.normalisation.arithmetic(Backend::Pil) }
    }

    fn plan(&self, source: Source, _: &Request) -> Result<Plan> {
        let token_px = self.patch_size * self.downsample_factor;
        let (rows, columns) = size::muse_spark(
            (source.width, source.height),
            token_px,
            self.min_image_tokens,
            self.max_image_tokens,
        )?;
        let (width, height) = (columns * token_px, rows * token_px);
        let view = View::whole(source, Layout::whole(width, height)).resized(
            (width, height),
            Filter::Lanczos,
            Backend::Pil,
        );
        let tensor = PlannedTensor::new("pixel_values", vec![3, height, width]);
        let patches = self.downsample_factor;
        Ok(Plan::of_one_view(view, tensor, [1, rows * patches, columns * patches], rows * columns))
    }
}
