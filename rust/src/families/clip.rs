//! CLIP: the shortest edge resized, the middle cropped.

use serde::Serialize;

use crate::error::Result;
use crate::recipe::checkpoint::{Checkpoint, ExactSize, filter_number};
use crate::recipe::{
    Arithmetic, Backend, Declared, Family, FamilySpec, Fill, Filter, Layout, Normalisation, Plan,
    PlannedTensor, Request, Source, View, size,
};

/// The family, as the registry knows it.
pub const SPEC: FamilySpec = FamilySpec { name: "clip", read };

const CLASSES: [(&str, Backend); 4] = [
    ("CLIPImageProcessor", Backend::Torchvision),
    ("CLIPImageProcessorFast", Backend::Torchvision),
    ("CLIPImageProcessorPil", Backend::Pil),
    ("CLIPFeatureExtractor", Backend::Torchvision),
];

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Clip {
    backend: Backend,
    crop_size: ExactSize,
    #[serde(flatten)]
    normalisation: Normalisation,
    // Of the model: how many tokens an image becomes.
    patch_size: usize,
    #[serde(serialize_with = "filter_number")]
    resample: Filter,
    shortest_edge: usize,
}

fn read(fields: &mut Checkpoint) -> Result<Declared> {
    fields.must_be_true("do_resize")?;
    fields.must_be_true("do_center_crop")?;
    let (resample, backend) = fields.resize(&CLASSES, (Filter::Bicubic, Backend::Torchvision))?;
    Declared::new(Clip {
        backend,
        crop_size: fields.exact_size("crop_size", ExactSize { height: 224, width: 224 })?,
        normalisation: fields.normalisation(Normalisation::CLIP)?,
        patch_size: fields.count("patch_size", 14, 1024)?,
        resample,
        shortest_edge: fields.shortest_edge(224)?,
    })
}

impl Family for Clip {
    fn arithmetic(&self) -> Arithmetic {
        self.normalisation.arithmetic(self.backend)
    }

    fn plan(&self, source: Source, _: &Request) -> Result<Plan> {
        let ExactSize { height, width } = self.crop_size;
        let resized = size::shortest_edge((source.width, source.height), self.shortest_edge);
        let view =
            View::whole(source, Layout::whole(width, height)).resized(resized, self.resample, self.backend);
        // A side that is shorter than its crop is padded first, with black; only then the middle is taken.
        let kept = (resized.0.min(width), resized.1.min(height));
        let view = view.centre_cropped(kept).centred((width, height), Fill::Colour([0; 3]));
        let tensor = PlannedTensor::new("pixel_values", vec![1, 3, height, width]);
        let tokens = (height / self.patch_size) * (width / self.patch_size);
        Ok(Plan::of_one_view(view, tensor, [1, 1, 1], tokens))
    }
}
