//! Pixtral, Mistral 3 and LightOnOCR: shrunk into a longest edge, sides up to whole patches.
//!
//! The images of a batch differ in size; whoever gathers them pads with zeros, as the reference does.

use serde::Serialize;

use crate::error::{CoreError, Result};
use crate::recipe::checkpoint::{Checkpoint, ExactSize, filter_number};
use crate::recipe::{
    Arithmetic, Backend, Declared, Family, FamilySpec, Filter, Layout, Normalisation, Plan, PlannedTensor,
    Request, Source, View, size,
};

/// The family, as the registry knows it.
pub const SPEC: FamilySpec = FamilySpec { name: "pixtral", read };

const CLASSES: [(&str, Backend); 3] = [
    ("PixtralImageProcessor", Backend::Torchvision),
    ("PixtralImageProcessorFast", Backend::Torchvision),
    ("PixtralImageProcessorPil", Backend::Pil),
];

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Pixtral {
    backend: Backend,
    longest: ExactSize,
    #[serde(flatten)]
    normalisation: Normalisation,
    patch: ExactSize,
    #[serde(serialize_with = "filter_number")]
    resample: Filter,
    spatial_merge_size: usize,
}

fn read(fields: &mut Checkpoint) -> Result<Declared> {
    fields.must_be_true("do_resize")?;
    let (resample, backend) = fields.resize(&CLASSES, (Filter::Bicubic, Backend::Torchvision))?;
    Declared::new(Pixtral {
        backend,
        longest: fields.longest_edge_or_size(1024)?,
        normalisation: fields.normalisation(Normalisation::CLIP)?,
        patch: fields.exact_size("patch_size", ExactSize { height: 16, width: 16 })?,
        resample,
        spatial_merge_size: fields.count("spatial_merge_size", 1, 64)?,
    })
}

impl Family for Pixtral {
    fn arithmetic(&self) -> Arithmetic {
        self.normalisation.arithmetic(self.backend)
    }

    fn plan(&self, source: Source, _: &Request) -> Result<Plan> {
        let ratio = (source.height as f64 / self.longest.height as f64)
            .max(source.width as f64 / self.longest.width as f64);
        let shrunk = |side: usize| if ratio > 1.0 { (side as f64 / ratio).floor() as usize } else { side };
        let unit = |patch: usize| patch * self.spatial_merge_size;
        let height = size::up_to_multiple(shrunk(source.height), unit(self.patch.height));
        let width = size::up_to_multiple(shrunk(source.width), unit(self.patch.width));
        if height == 0 || width == 0 {
            return Err(CoreError::argument(format!(
                "{} x {} pixels shrink to nothing within {} x {}; crop the image",
                source.width, source.height, self.longest.width, self.longest.height
            )));
        }
        let view = View::whole(source, Layout::whole(width, height)).resized(
            (width, height),
            self.resample,
            self.backend,
        );
        let (rows, columns) = (height / unit(self.patch.height), width / unit(self.patch.width));
        let tensor = PlannedTensor::new("pixel_values", vec![1, 3, height, width]);
        Ok(Plan::of_one_view(view, tensor, [1, rows, columns], rows * columns).with_i64(
            "image_sizes",
            vec![1, 2],
            vec![height as i64, width as i64],
        ))
    }
}
