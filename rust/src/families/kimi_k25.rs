//! Kimi K2.5, 2.6 and 2.7: never enlarged, padded with black to whole tokens, patches row by row.
//!
//! Two references: the checkpoint's own code on Pillow and numpy (`media_proc_cfg` in its configuration), and
//! transformers' `Kimi_K25ImageProcessor`.

use serde::Serialize;

use crate::error::Result;
use crate::recipe::arithmetic::Order;
use crate::recipe::checkpoint::Checkpoint;
use crate::recipe::{
    Arithmetic, Backend, Declared, Family, FamilySpec, Fill, Filter, Inside, Layout, Normalisation, Plan,
    PlannedTensor, Request, Source, View, size,
};

/// The family, as the registry knows it.
pub const SPEC: FamilySpec =
    FamilySpec { name: "kimi_k25", read: |fields| Declared::new(read(fields, 16_384)?) };

/// The family's parameters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Kimi {
    /// Pillow's resize for the checkpoint's code.
    pub backend: Backend,
    /// Whether the arithmetic is the checkpoint's own, in doubles.
    pub is_checkpoint_code: bool,
    /// Tokens of every image, if not those of its size.
    pub fixed_output_tokens: Option<usize>,
    /// Most patches, before padding.
    pub most_patches: usize,
    /// Most patches along one side.
    pub most_patches_a_side: usize,
    /// Patches that merge into one token, along each side.
    pub merge_size: usize,
    /// Side of a patch, in pixels.
    pub patch_size: usize,
    /// How bytes become values.
    #[serde(flatten)]
    pub normalisation: Normalisation,
}

/// Reads the parameters of either reference; `most_patches` is the default of the model.
///
/// # Errors
/// [`crate::error::CoreError::InvalidArgument`] that names the field and the way out.
pub fn read(fields: &mut Checkpoint, most_patches: usize) -> Result<Kimi> {
    const CLASSES: [(&str, Backend); 2] = [
        ("Kimi_K25ImageProcessor", Backend::Torchvision),
        ("Kimi_K25ImageProcessorFast", Backend::Torchvision),
    ];
    fields.ignore(&["auto_map", "do_resize", "media_proc_cfg_class"]);
    let Some(mut own) = fields.object("media_proc_cfg")? else {
        let (_, backend) = fields.resize(&CLASSES, (Filter::Bicubic, Backend::Torchvision))?;
        let mut size = fields.object_or_empty("size")?;
        let side = size.count("max_height", 512, 1 << 16)?;
        if size.count("max_width", side, 1 << 16)? != side {
            return Err(fields.refusal("size has max_height and max_width that differ; they must be equal"));
        }
        size.refuse_the_rest()?;
        return Ok(Kimi {
            backend,
            is_checkpoint_code: false,
            fixed_output_tokens: None,
            most_patches: fields.count("max_patches", most_patches, 1 << 32)?,
            most_patches_a_side: side,
            merge_size: fields.count("merge_size", 2, 64)?,
            patch_size: fields.count("patch_size", 14, 1024)?,
            normalisation: fields.normalisation(Normalisation::HALF)?,
        });
    };
    let (_, backend) = fields.resize(&[], (Filter::Bicubic, Backend::Pil))?;
    if backend != Backend::Pil {
        return Err(fields.refusal(
            "media_proc_cfg is of the checkpoint's own code, which uses Pillow; choose backend \"pil\"",
        ));
    }
    // About videos.
    own.ignore(&[
        "in_patch_limit_each_frame",
        "in_patch_limit_video",
        "max_num_frames_each_video",
        "sample_fps",
        "temporal_merge_kernel_size",
        "timestamp_mode",
    ]);
    let fixed = own.whole_or_null("fixed_output_tokens", None)?;
    let made = Kimi {
        backend,
        is_checkpoint_code: true,
        fixed_output_tokens: fixed.and_then(|tokens| usize::try_from(tokens).ok()),
        most_patches: own.count("in_patch_limit", most_patches, 1 << 32)?,
        most_patches_a_side: own.count("patch_limit_on_one_side", 512, 1 << 16)?,
        merge_size: own.count("merge_kernel_size", 2, 64)?,
        patch_size: own.count("patch_size", 14, 1024)?,
        normalisation: own.normalisation(Normalisation::HALF)?,
    };
    own.refuse_the_rest()?;
    Ok(made)
}

impl Family for Kimi {
    fn arithmetic(&self) -> Arithmetic {
        let arithmetic = self.normalisation.arithmetic(self.backend);
        if self.is_checkpoint_code {
            Arithmetic { order: Order::DoubleInPlace, ..arithmetic }
        } else {
            arithmetic
        }
    }

    fn plan(&self, source: Source, _: &Request) -> Result<Plan> {
        let (px, unit) = (self.patch_size, self.patch_size * self.merge_size);
        let (width, height) =
            size::navit((source.width, source.height), px, self.most_patches, self.most_patches_a_side);
        let canvas = (size::up_to_multiple(width, unit), size::up_to_multiple(height, unit));
        let view = View::whole(source, Layout::patches(px, Inside::Chw { copies: 1 }))
            .resized((width, height), Filter::Bicubic, self.backend)
            .padded(canvas, Fill::Colour([0; 3]));
        let (rows, columns) = (canvas.1 / px, canvas.0 / px);
        let tokens = self.fixed_output_tokens.unwrap_or(rows * columns / (self.merge_size * self.merge_size));
        let tensor = PlannedTensor::new("pixel_values", vec![rows * columns, 3, px, px]);
        Ok(Plan::of_one_view(view, tensor, [1, rows, columns], tokens))
    }
}
