//! ERNIE 4.5 VL: transformers' classes, or with backend `"sglang"` what SGLang 0.5.23 does in their place.

use serde::Serialize;

use crate::error::Result;
use crate::recipe::arithmetic::Order;
use crate::recipe::checkpoint::{Checkpoint, PixelBudget};
use crate::recipe::merged::Merged;
use crate::recipe::{
    Arithmetic, Backend, Declared, Family, FamilySpec, Filter, Normalisation, Plan, Request, Source, View,
    size,
};

/// The family, as the registry knows it.
pub const SPEC: FamilySpec = FamilySpec { name: "ernie4_5_vl", read };

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Ernie {
    backend: Backend,
    is_sglang: bool,
    #[serde(flatten)]
    merged: Merged,
    #[serde(flatten)]
    normalisation: Normalisation,
    size: PixelBudget,
}

fn read(fields: &mut Checkpoint) -> Result<Declared> {
    const CLASSES: [(&str, Backend); 4] = [
        ("Ernie4_5_VLMoeImageProcessor", Backend::Torchvision),
        ("Ernie4_5_VLMoeImageProcessorFast", Backend::Torchvision),
        ("Ernie4_5_VLMoeImageProcessorPil", Backend::Pil),
        ("Ernie4_5_VLImageProcessor", Backend::Torchvision),
    ];
    let is_sglang = fields.take_if("backend", "sglang");
    let default = if is_sglang { Backend::Pil } else { Backend::Torchvision };
    let (_, backend) = fields.resize(&CLASSES, (Filter::Bicubic, default))?;
    let backend = if is_sglang { Backend::Pil } else { backend };
    let size = match is_sglang {
        true => PixelBudget { shortest_edge: 4 * 28 * 28, longest_edge: 16_384 * 28 * 28 },
        false => PixelBudget { shortest_edge: 56 * 56, longest_edge: 28 * 28 * 6177 },
    };
    // Videos have patches of two frames; pictures have none along time.
    fields.ignore(&["temporal_patch_size", "temporal_conv_size"]);
    let merged = Merged { expand_temporal: true, merge_size: 2, patch_size: 14, temporal_patch_size: 1 };
    Declared::new(Ernie {
        backend,
        is_sglang,
        merged: Merged::read(fields, merged)?,
        normalisation: fields.normalisation(Normalisation::CLIP)?,
        size: fields.pixel_budget(size)?,
    })
}

impl Family for Ernie {
    fn arithmetic(&self) -> Arithmetic {
        let arithmetic = self.normalisation.arithmetic(self.backend);
        if self.is_sglang { Arithmetic { order: Order::SingleFactor, ..arithmetic } } else { arithmetic }
    }

    fn plan(&self, source: Source, _: &Request) -> Result<Plan> {
        let (given, factor) = ((source.width, source.height), self.merged.factor_px());
        let size = if self.is_sglang {
            size::ernie(given, factor, self.size)?
        } else {
            let PixelBudget { shortest_edge, longest_edge } = self.size;
            let (height, width) = size::smart_resize(given.1, given.0, factor, shortest_edge, longest_edge)?;
            (width, height)
        };
        let view = View::whole(source, self.merged.layout()).resized(size, Filter::Bicubic, self.backend);
        Ok(self.merged.plan(view))
    }
}
