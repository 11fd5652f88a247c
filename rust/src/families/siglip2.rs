//! SigLIP 2 (NaFlex): as many patches as allowed in the picture's own aspect, one row each, padded with zeros.

use serde::Serialize;

use crate::error::Result;
use crate::recipe::checkpoint::{Checkpoint, filter_number};
use crate::recipe::{
    Arithmetic, Backend, Declared, Extra, Family, FamilySpec, Filter, Inside, Layout, Normalisation, Plan,
    PlannedTensor, Request, Source, Values, View, size,
};

/// The family, as the registry knows it.
pub const SPEC: FamilySpec = FamilySpec { name: "siglip2", read };

const CLASSES: [(&str, Backend); 3] = [
    ("Siglip2ImageProcessor", Backend::Torchvision),
    ("Siglip2ImageProcessorFast", Backend::Torchvision),
    ("Siglip2ImageProcessorPil", Backend::Pil),
];

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Siglip2 {
    backend: Backend,
    max_num_patches: usize,
    #[serde(flatten)]
    normalisation: Normalisation,
    patch_size: usize,
    #[serde(serialize_with = "filter_number")]
    resample: Filter,
}

fn read(fields: &mut Checkpoint) -> Result<Declared> {
    fields.must_be_true("do_resize")?;
    let (resample, backend) = fields.resize(&CLASSES, (Filter::Bilinear, Backend::Torchvision))?;
    Declared::new(Siglip2 {
        backend,
        max_num_patches: fields.count("max_num_patches", 256, 1 << 20)?,
        normalisation: fields.normalisation(Normalisation::HALF)?,
        patch_size: fields.count("patch_size", 16, 1024)?,
        resample,
    })
}

impl Family for Siglip2 {
    fn arithmetic(&self) -> Arithmetic {
        self.normalisation.arithmetic(self.backend)
    }

    fn plan(&self, source: Source, _: &Request) -> Result<Plan> {
        let (px, most) = (self.patch_size, self.max_num_patches);
        let (width, height) = size::most_patches((source.width, source.height), px, most);
        let (rows, columns) = (height / px, width / px);
        let view = View::whole(source, Layout::patches(px, Inside::Hwc)).resized(
            (width, height),
            self.resample,
            self.backend,
        );
        let mut mask = vec![1; rows * columns];
        mask.resize(most, 0);
        let tensor = PlannedTensor::new("pixel_values", vec![1, most, px * px * 3]);
        Ok(Plan::of_one_view(view, tensor, [1, rows, columns], rows * columns)
            .with(Extra { name: "pixel_attention_mask", shape: vec![1, most], values: Values::I32(mask) })
            .with_i64("spatial_shapes", vec![1, 2], vec![rows as i64, columns as i64]))
    }
}
