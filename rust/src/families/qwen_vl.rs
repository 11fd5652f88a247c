//! The Qwen-VL family: Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen3.5, which differ in parameters only.
//!
//! The tensor is `pixel_values`, and `grid` is the row of `image_grid_thw`. A still picture fills a temporal patch with
//! copies of itself, so by default they are left out: `[patches, 3, 1, patch, patch]`, for the consumer to repeat along
//! the third axis and flatten. With `expand_temporal` it is the published `[patches, 3 * temporal * patch * patch]`.

use serde::Serialize;

use crate::error::{CoreError, Result};
use crate::recipe::checkpoint::{Checkpoint, PixelBudget, filter_number};
use crate::recipe::{
    Arithmetic, Backend, Declared, Family, FamilySpec, Filter, Inside, Layout, Normalisation, Plan,
    PlannedTensor, Request, Source, View, size,
};

/// The family, as the registry knows it.
pub const SPEC: FamilySpec = FamilySpec { name: "qwen_vl", read: |fields| Declared::new(read(fields)?) };

// Class names, and what transformers 5 runs for them. The plain name is the torchvision backend today.
const CLASSES: [(&str, Backend); 5] = [
    ("Qwen2VLImageProcessor", Backend::Torchvision),
    ("Qwen2VLImageProcessorFast", Backend::Torchvision),
    ("Qwen2VLImageProcessorPil", Backend::Pil),
    ("Qwen2_5_VLImageProcessor", Backend::Torchvision),
    ("Qwen2_5_VLImageProcessorFast", Backend::Torchvision),
];

// Taken by Qwen's processors and never read by their `_preprocess`.
const IGNORED: [&str; 4] = ["crop_size", "default_to_square", "do_center_crop", "do_pad"];

/// The family's parameters. Serialised, it is a `preprocessor_config.json` that reads back as itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QwenVl {
    /// Whose arithmetic.
    pub backend: Backend,
    /// Whether to resize at all; if not, the picture must already be whole merged patches.
    pub do_resize: bool,
    /// Whether patches hold `temporal_patch_size` copies of a picture, or one that the consumer expands.
    pub expand_temporal: bool,
    /// Patches that merge into one token, along each side.
    pub merge_size: usize,
    /// How bytes become values.
    #[serde(flatten)]
    pub normalisation: Normalisation,
    /// Side of a patch, in pixels.
    pub patch_size: usize,
    /// Filter of the resize.
    #[serde(serialize_with = "filter_number")]
    pub resample: Filter,
    /// Pixel budget.
    pub size: PixelBudget,
    /// Copies of a still picture along time.
    pub temporal_patch_size: usize,
}

/// Reads the parameters; what is not said is the class default of transformers 5.24.0.
///
/// # Errors
/// [`CoreError::InvalidArgument`] that names the field and the way out.
pub fn read(fields: &mut Checkpoint) -> Result<QwenVl> {
    fields.ignore(&IGNORED);
    let (resample, backend) = fields.resize(&CLASSES, (Filter::Bicubic, Backend::Torchvision))?;
    Ok(QwenVl {
        backend,
        do_resize: fields.flag("do_resize", true)?,
        expand_temporal: fields.flag("expand_temporal", false)?,
        merge_size: fields.count("merge_size", 2, 64)?,
        normalisation: fields.normalisation(Normalisation::CLIP)?,
        patch_size: fields.count("patch_size", 14, 1024)?,
        resample,
        size: fields.pixel_budget(PixelBudget { longest_edge: 28 * 28 * 1280, shortest_edge: 56 * 56 })?,
        temporal_patch_size: fields.count("temporal_patch_size", 2, 64)?,
    })
}

impl QwenVl {
    // `(width, height)` after the resize.
    fn resized(&self, source: Source) -> Result<(usize, usize)> {
        let (Source { width, height, .. }, factor_px) = (source, self.patch_size * self.merge_size);
        if self.do_resize {
            let PixelBudget { shortest_edge, longest_edge } = self.size;
            let (height, width) = size::smart_resize(height, width, factor_px, shortest_edge, longest_edge)?;
            return Ok((width, height));
        }
        let whole = |side: usize| side > 0 && side.is_multiple_of(factor_px);
        if whole(height) && whole(width) {
            return Ok((width, height));
        }
        Err(CoreError::argument(format!(
            "do_resize is false, but {width} x {height} pixels are no whole number of {factor_px} x \
             {factor_px} tokens; set it to true"
        )))
    }

    fn plan_at(&self, source: Source, (width, height): (usize, usize)) -> Plan {
        let &Self { patch_size: px, merge_size: merge, backend, resample, .. } = self;
        let copies = if self.expand_temporal { self.temporal_patch_size } else { 1 };
        let (rows, columns) = (height / px, width / px);
        let shape = if self.expand_temporal {
            vec![rows * columns, 3 * copies * px * px]
        } else {
            vec![rows * columns, 3, 1, px, px]
        };
        let layout = Layout::Patches { px, merge, inside: Inside::Chw { copies } };
        let view = View::whole(source, layout).resized((width, height), resample, backend);
        let tokens = rows * columns / (merge * merge);
        Plan::of_one_view(view, PlannedTensor::new("pixel_values", shape), [1, rows, columns], tokens)
    }
}

impl Family for QwenVl {
    fn arithmetic(&self) -> Arithmetic {
        self.normalisation.arithmetic(self.backend)
    }

    fn plan(&self, source: Source, _: &Request) -> Result<Plan> {
        Ok(self.plan_at(source, self.resized(source)?))
    }

    fn plan_of_resized(&self, resized: Source) -> Result<Plan> {
        Ok(self.plan_at(resized, (resized.width, resized.height)))
    }
}
