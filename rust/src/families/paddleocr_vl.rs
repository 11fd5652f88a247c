//! PaddleOCR-VL: Qwen-VL's rule after small sides grew, and patches row by row.

use serde::Serialize;

use crate::error::Result;
use crate::recipe::checkpoint::{Checkpoint, PixelBudget, filter_number};
use crate::recipe::merged::Merged;
use crate::recipe::{
    Arithmetic, Backend, Declared, Family, FamilySpec, Filter, Inside, Layout, Normalisation, Plan,
    PlannedTensor, Request, Source, View, size,
};

/// The family, as the registry knows it.
pub const SPEC: FamilySpec = FamilySpec { name: "paddleocr_vl", read };

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Paddle {
    backend: Backend,
    #[serde(flatten)]
    merged: Merged,
    #[serde(flatten)]
    normalisation: Normalisation,
    #[serde(serialize_with = "filter_number")]
    resample: Filter,
    size: PixelBudget,
}

fn read(fields: &mut Checkpoint) -> Result<Declared> {
    const CLASSES: [(&str, Backend); 3] = [
        ("PaddleOCRVLImageProcessor", Backend::Torchvision),
        ("PaddleOCRVLImageProcessorFast", Backend::Torchvision),
        ("PaddleOCRVLImageProcessorPil", Backend::Pil),
    ];
    fields.must_be_true("do_resize")?;
    let (resample, backend) = fields.resize(&CLASSES, (Filter::Bicubic, Backend::Torchvision))?;
    let merged = Merged { expand_temporal: true, merge_size: 2, patch_size: 14, temporal_patch_size: 1 };
    let size = PixelBudget { shortest_edge: 384 * 384, longest_edge: 1536 * 1536 };
    Declared::new(Paddle {
        backend,
        merged: Merged::read(fields, merged)?,
        normalisation: fields.normalisation(Normalisation::CLIP)?,
        resample,
        size: fields.pixel_budget(size)?,
    })
}

impl Family for Paddle {
    fn arithmetic(&self) -> Arithmetic {
        self.normalisation.arithmetic(self.backend)
    }

    fn plan(&self, source: Source, _: &Request) -> Result<Plan> {
        let (px, factor, copies) = (self.merged.patch_size, self.merged.factor_px(), self.merged.copies());
        let size = size::paddleocr_vl((source.width, source.height), factor, self.size)?;
        let view = View::whole(source, Layout::patches(px, Inside::Chw { copies })).resized(
            size,
            self.resample,
            self.backend,
        );
        let (rows, columns) = (size.1 / px, size.0 / px);
        let tensor = PlannedTensor::new("pixel_values", vec![rows * columns, 3 * copies, px, px]);
        let tokens = rows * columns / (self.merged.merge_size * self.merged.merge_size);
        Ok(Plan::of_one_view(view, tensor, [1, rows, columns], tokens))
    }
}
