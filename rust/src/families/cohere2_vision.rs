//! Cohere2 Vision (Command A Vision): tiles of the grid that enlarges least, and a thumbnail last.

use serde::Serialize;

use crate::error::Result;
use crate::recipe::checkpoint::{Checkpoint, ExactSize, filter_number};
use crate::recipe::{
    Arithmetic, Backend, Declared, Family, FamilySpec, Filter, Layout, Normalisation, Plan, PlannedTensor,
    Request, Source, View,
};

/// The family, as the registry knows it.
pub const SPEC: FamilySpec = FamilySpec { name: "cohere2_vision", read };

const CLASSES: [(&str, Backend); 2] = [
    ("Cohere2VisionImageProcessor", Backend::Torchvision),
    ("Cohere2VisionImageProcessorFast", Backend::Torchvision),
];

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Cohere2 {
    crop_to_patches: bool,
    max_patches: usize,
    #[serde(flatten)]
    normalisation: Normalisation,
    // Of the processor: patches of a tile, along a side.
    patch_size: usize,
    #[serde(serialize_with = "filter_number")]
    resample: Filter,
    size: ExactSize,
}

fn read(fields: &mut Checkpoint) -> Result<Declared> {
    fields.must_be_true("do_resize")?;
    // Read by the processor of the text, or by nobody.
    fields.ignore(&["min_patches", "img_size", "downsample_factor"]);
    let (resample, backend) = fields.resize(&CLASSES, (Filter::Bicubic, Backend::Torchvision))?;
    if backend == Backend::Pil {
        return Err(fields.refusal("transformers has no PIL backend of it; choose backend \"torchvision\""));
    }
    Declared::new(Cohere2 {
        crop_to_patches: fields.flag("crop_to_patches", true)?,
        max_patches: fields.count("max_patches", 12, 1024)?,
        normalisation: fields.normalisation(Normalisation::CLIP)?,
        patch_size: fields.count("patch_size", 16, 1024)?,
        resample,
        size: fields.exact_size("size", ExactSize { height: 512, width: 512 })?,
    })
}

impl Cohere2 {
    // `(columns, rows)`: the least scale that enlarges, or the largest of all; the first of equals.
    fn grid(&self, source: Source) -> (usize, usize) {
        let most = self.max_patches;
        let mut grids: Vec<(usize, usize)> =
            (1..=most).flat_map(|columns| (1..=most / columns).map(move |rows| (columns, rows))).collect();
        grids.sort_by_key(|(columns, rows)| columns * rows);
        let ExactSize { height, width } = self.size;
        let scale = |(columns, rows): (usize, usize)| {
            let (across, down) = (columns * width, rows * height);
            (across as f64 / source.width as f64).min(down as f64 / source.height as f64)
        };
        let enlarges = grids.iter().any(|&grid| scale(grid) >= 1.0);
        let is_better = |new: f64, best: f64| if enlarges { new < best } else { new > best };
        let usable = grids.into_iter().filter(|&grid| !enlarges || scale(grid) >= 1.0);
        let best = usable.reduce(|best, grid| if is_better(scale(grid), scale(best)) { grid } else { best });
        best.unwrap_or((1, 1))
    }
}

impl Family for Cohere2 {
    fn arithmetic(&self) -> Arithmetic {
        self.normalisation.arithmetic(Backend::Torchvision)
    }

    fn plan(&self, source: Source, _: &Request) -> Result<Plan> {
        let ExactSize { height, width } = self.size;
        let (columns, rows) = if self.crop_to_patches { self.grid(source) } else { (1, 1) };
        let view =
            |layout, size| View::whole(source, layout).resized(size, self.resample, Backend::Torchvision);
        let mut views = vec![view(Layout::Tiles { width, height }, (columns * width, rows * height))];
        if columns * rows > 1 {
            views.push(view(Layout::whole(width, height), (width, height)));
        }
        let tiles = columns * rows + views.len() - 1;
        let tensors = vec![PlannedTensor::new("pixel_values", vec![tiles, 3, height, width])];
        let num_tokens = tiles * self.patch_size * self.patch_size;
        let plan = Plan { views, tensors, extras: Vec::new(), grid: [1, rows, columns], num_tokens };
        Ok(plan.with_i64("num_patches", vec![1], vec![tiles as i64]))
    }
}
