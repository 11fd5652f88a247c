//! Llama 3.2 Vision (mllama): fitted onto a canvas of square tiles; tiles that are missing are zeros.

use serde::Serialize;

use crate::error::Result;
use crate::recipe::checkpoint::{Checkpoint, ExactSize, filter_number};
use crate::recipe::{
    Arithmetic, Backend, Declared, Family, FamilySpec, Fill, Filter, Layout, Normalisation, Plan,
    PlannedTensor, Request, Source, View, size,
};

/// The family, as the registry knows it.
pub const SPEC: FamilySpec = FamilySpec { name: "mllama", read };

const CLASSES: [(&str, Backend); 3] = [
    ("MllamaImageProcessor", Backend::Torchvision),
    ("MllamaImageProcessorFast", Backend::Torchvision),
    ("MllamaImageProcessorPil", Backend::Pil),
];

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Mllama {
    backend: Backend,
    max_image_tiles: usize,
    #[serde(flatten)]
    normalisation: Normalisation,
    #[serde(serialize_with = "filter_number")]
    resample: Filter,
    tile: ExactSize,
}

fn read(fields: &mut Checkpoint) -> Result<Declared> {
    fields.must_be_true("do_resize")?;
    fields.must_be_true("do_pad")?;
    let (resample, backend) = fields.resize(&CLASSES, (Filter::Bilinear, Backend::Torchvision))?;
    let tile = fields.exact_size("size", ExactSize { height: 224, width: 224 })?;
    if tile.height != tile.width {
        return Err(fields.refusal("size must be square"));
    }
    Declared::new(Mllama {
        backend,
        max_image_tiles: fields.count("max_image_tiles", 4, 256)?,
        normalisation: fields.normalisation(Normalisation::HALF)?,
        resample,
        tile,
    })
}

impl Mllama {
    // `(columns, rows)` of all canvases; the model's ids of aspects count them from 1.
    fn grids(&self) -> Vec<(usize, usize)> {
        let most = self.max_image_tiles;
        let all = (1..=most).flat_map(|rows| (1..=most).map(move |columns| (columns, rows)));
        all.filter(|(columns, rows)| columns * rows <= most).collect()
    }

    // The least enlarging canvas, or the least shrinking one; of those the smallest.
    fn grid(&self, grids: &[(usize, usize)], (width, height): (usize, usize)) -> (usize, usize) {
        let px = self.tile.height;
        let scale = |&(columns, rows): &(usize, usize)| {
            let (across, down) = ((columns * px) as f64 / width as f64, (rows * px) as f64 / height as f64);
            if across > down { down } else { across }
        };
        let scales = || grids.iter().map(scale);
        let enlarging = scales().filter(|&scale| scale >= 1.0).fold(f64::INFINITY, f64::min);
        let picked = if enlarging.is_finite() { enlarging } else { scales().fold(0.0, f64::max) };
        let fitting = grids.iter().filter(|grid| scale(grid) == picked);
        fitting.min_by_key(|(columns, rows)| columns * rows).copied().unwrap_or((1, 1))
    }
}

impl Family for Mllama {
    fn arithmetic(&self) -> Arithmetic {
        self.normalisation.arithmetic(self.backend)
    }

    fn plan(&self, source: Source, _: &Request) -> Result<Plan> {
        let (given, px) = ((source.width, source.height), self.tile.height);
        let grids = self.grids();
        let grid = self.grid(&grids, given);
        let (columns, rows) = grid;
        let canvas = (columns * px, rows * px);
        let most = (given.0.max(px).min(canvas.0), given.1.max(px).min(canvas.1));
        let view = View::whole(source, Layout::Tiles { width: px, height: px })
            .resized(size::without_distortion(given, most), self.resample, self.backend)
            .padded(canvas, Fill::Colour([0; 3]));
        let (tiles, all) = (columns * rows, self.max_image_tiles);
        let mask = (0..all).map(|tile| i64::from(tile < tiles)).collect();
        let id = grids.iter().position(|&known| known == grid).map_or(0, |at| at as i64 + 1);
        let tensor = PlannedTensor::new("pixel_values", vec![1, 1, all, 3, px, px]);
        Ok(Plan::of_one_view(view, tensor, [1, rows, columns], 1)
            .with_i64("aspect_ratio_ids", vec![1, 1], vec![id])
            .with_i64("aspect_ratio_mask", vec![1, 1, all], mask)
            .with_i64("num_tiles", vec![1, 1], vec![tiles as i64]))
    }
}
