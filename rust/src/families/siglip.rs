//! SigLIP's image processor: squashed to one size. Gemma 3n has it too, without mean and deviation.

use serde::Serialize;

use crate::error::Result;
use crate::recipe::checkpoint::{Checkpoint, ExactSize, filter_number};
use crate::recipe::{
    Arithmetic, Backend, Declared, Family, FamilySpec, Filter, Layout, Normalisation, Plan, PlannedTensor,
    Request, Source, View,
};

/// SigLIP, as the registry knows it.
pub const SPEC: FamilySpec = FamilySpec { name: "siglip", read };
/// Gemma 3n's images.
pub const GEMMA3N: FamilySpec = FamilySpec { name: "gemma3n", read };

const CLASSES: [(&str, Backend); 3] = [
    ("SiglipImageProcessor", Backend::Torchvision),
    ("SiglipImageProcessorFast", Backend::Torchvision),
    ("SiglipImageProcessorPil", Backend::Pil),
];

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Siglip {
    backend: Backend,
    num_tokens: usize,
    #[serde(flatten)]
    normalisation: Normalisation,
    #[serde(serialize_with = "filter_number")]
    resample: Filter,
    size: ExactSize,
}

fn read(fields: &mut Checkpoint) -> Result<Declared> {
    fields.must_be_true("do_resize")?;
    let (resample, backend) = fields.resize(&CLASSES, (Filter::Bicubic, Backend::Torchvision))?;
    let size = fields.exact_size("size", ExactSize { height: 224, width: 224 })?;
    // The model's, not the processor's: by its patches, or as many as its configuration says.
    let num_tokens = match fields.whole("patch_size")? {
        Some(0) => return Err(fields.refusal("patch_size must be above 0")),
        Some(px) => (size.height / px as usize) * (size.width / px as usize),
        None => fields.count("image_seq_length", 256, 1 << 20)?,
    };
    Declared::new(Siglip {
        backend,
        num_tokens,
        normalisation: fields.normalisation(Normalisation::HALF)?,
        resample,
        size,
    })
}

impl Family for Siglip {
    fn arithmetic(&self) -> Arithmetic {
        self.normalisation.arithmetic(self.backend)
    }

    fn plan(&self, source: Source, _: &Request) -> Result<Plan> {
        let ExactSize { height, width } = self.size;
        let view = View::whole(source, Layout::whole(width, height)).resized(
            (width, height),
            self.resample,
            self.backend,
        );
        let tensor = PlannedTensor::new("pixel_values", vec![1, 3, height, width]);
        Ok(Plan::of_one_view(view, tensor, [1, 1, 1], self.num_tokens))
    }
}
