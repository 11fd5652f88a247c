//! Gemma 4, DiffusionGemma and EmbeddingGemma 2; and Gemma 4's unified model, whose patches are the pooled squares.

use serde::Serialize;

use crate::error::Result;
use crate::recipe::checkpoint::{Checkpoint, filter_number};
use crate::recipe::{
    Arithmetic, Backend, Declared, Family, FamilySpec, Filter, Inside, Layout, Normalisation, Plan,
    PlannedTensor, Request, Source, View, size,
};

/// The family, as the registry knows it.
pub const SPEC: FamilySpec = FamilySpec { name: "gemma4", read: |fields| read(fields, &CLASSES, false) };
/// The unified model.
pub const UNIFIED: FamilySpec =
    FamilySpec { name: "gemma4_unified", read: |fields| read(fields, &UNIFIED_CLASSES, true) };

const CLASSES: [(&str, Backend); 3] = [
    ("Gemma4ImageProcessor", Backend::Torchvision),
    ("Gemma4ImageProcessorFast", Backend::Torchvision),
    ("Gemma4ImageProcessorPil", Backend::Pil),
];
const UNIFIED_CLASSES: [(&str, Backend); 2] = [
    ("Gemma4UnifiedImageProcessor", Backend::Torchvision),
    ("Gemma4UnifiedImageProcessorFast", Backend::Torchvision),
];
const SOFT_TOKENS: [usize; 5] = [70, 140, 280, 560, 1120];
const SCALED_ONLY: Normalisation =
    Normalisation { do_normalize: false, ..Normalisation::new([0.0; 3], [1.0; 3]) };

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Gemma4 {
    backend: Backend,
    is_unified: bool,
    max_soft_tokens: usize,
    #[serde(flatten)]
    normalisation: Normalisation,
    patch_size: usize,
    pooling_kernel_size: usize,
    #[serde(serialize_with = "filter_number")]
    resample: Filter,
}

fn read(fields: &mut Checkpoint, classes: &[(&str, Backend)], is_unified: bool) -> Result<Declared> {
    fields.must_be_true("do_resize")?;
    fields.ignore(&["size", "model_patch_size"]);
    let (resample, backend) = fields.resize(classes, (Filter::Bicubic, Backend::Torchvision))?;
    if is_unified && backend == Backend::Pil {
        return Err(fields.refusal("transformers has no PIL backend of it; choose backend \"torchvision\""));
    }
    let max_soft_tokens = fields.count("max_soft_tokens", 280, 1 << 20)?;
    if !SOFT_TOKENS.contains(&max_soft_tokens) {
        return Err(
            fields.refusal(format!("max_soft_tokens is {max_soft_tokens}; choose one of {SOFT_TOKENS:?}"))
        );
    }
    Declared::new(Gemma4 {
        backend,
        is_unified,
        max_soft_tokens,
        normalisation: fields.normalisation(SCALED_ONLY)?,
        patch_size: fields.count("patch_size", 16, 1024)?,
        pooling_kernel_size: fields.count("pooling_kernel_size", 3, 64)?,
        resample,
    })
}

impl Family for Gemma4 {
    fn arithmetic(&self) -> Arithmetic {
        self.normalisation.arithmetic(self.backend)
    }

    fn plan(&self, source: Source, _: &Request) -> Result<Plan> {
        let square_px = self.patch_size * self.pooling_kernel_size;
        let (width, height) =
            size::soft_tokens((source.width, source.height), square_px, self.max_soft_tokens)?;
        let pooled = self.pooling_kernel_size * self.pooling_kernel_size;
        let (px, most) = match self.is_unified {
            true => (square_px, self.max_soft_tokens),
            false => (self.patch_size, self.max_soft_tokens * pooled),
        };
        let view = View::whole(source, Layout::patches(px, Inside::Hwc)).resized(
            (width, height),
            self.resample,
            self.backend,
        );
        let (rows, columns) = (height / px, width / px);
        let tokens = (height / square_px) * (width / square_px);
        let mut positions: Vec<i64> = (0..rows)
            .flat_map(|row| (0..columns).flat_map(move |column| [column as i64, row as i64]))
            .collect();
        positions.resize(most * 2, -1);
        let tensor = PlannedTensor::new("pixel_values", vec![1, most, px * px * 3]);
        Ok(Plan::of_one_view(view, tensor, [1, rows, columns], tokens)
            .with_i64("image_position_ids", vec![1, most, 2], positions)
            .with_i64("num_soft_tokens_per_image", vec![1], vec![tokens as i64]))
    }
}
