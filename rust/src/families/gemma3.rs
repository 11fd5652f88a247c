//! Gemma 3: squashed to a square, and with pan and scan also crops of it.

use serde::Serialize;

use crate::error::Result;
use crate::recipe::checkpoint::{Checkpoint, ExactSize, filter_number};
use crate::recipe::{
    Arithmetic, Backend, Declared, Family, FamilySpec, Filter, Layout, Normalisation, Plan, PlannedTensor,
    Rect, Request, Source, View,
};

/// The family, as the registry knows it.
pub const SPEC: FamilySpec = FamilySpec { name: "gemma3", read };

const CLASSES: [(&str, Backend); 3] = [
    ("Gemma3ImageProcessor", Backend::Torchvision),
    ("Gemma3ImageProcessorFast", Backend::Torchvision),
    ("Gemma3ImageProcessorPil", Backend::Pil),
];

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Gemma3 {
    backend: Backend,
    do_pan_and_scan: bool,
    image_seq_length: usize,
    #[serde(flatten)]
    normalisation: Normalisation,
    pan_and_scan_max_num_crops: usize,
    pan_and_scan_min_crop_size: usize,
    pan_and_scan_min_ratio_to_activate: f64,
    #[serde(serialize_with = "filter_number")]
    resample: Filter,
    size: ExactSize,
}

fn read(fields: &mut Checkpoint) -> Result<Declared> {
    fields.must_be_true("do_resize")?;
    let (resample, backend) = fields.resize(&CLASSES, (Filter::Bilinear, Backend::Torchvision))?;
    Declared::new(Gemma3 {
        backend,
        do_pan_and_scan: fields.flag("do_pan_and_scan", false)?,
        image_seq_length: fields.count("image_seq_length", 256, 1 << 20)?,
        normalisation: fields.normalisation(Normalisation::HALF)?,
        pan_and_scan_max_num_crops: fields.count("pan_and_scan_max_num_crops", 4, 1 << 10)?,
        pan_and_scan_min_crop_size: fields.count("pan_and_scan_min_crop_size", 256, 1 << 20)?,
        pan_and_scan_min_ratio_to_activate: fields.number("pan_and_scan_min_ratio_to_activate", 1.2)?,
        resample,
        size: fields.exact_size("size", ExactSize { height: 224, width: 224 })?,
    })
}

impl Gemma3 {
    // Crops along the longer side, each of the whole shorter one; none where they would be small.
    fn crops(&self, width: usize, height: usize) -> Vec<Rect> {
        let (long, short) = (width.max(height), width.min(height));
        let ratio = long as f64 / short as f64;
        let smallest = self.pan_and_scan_min_crop_size;
        if !self.do_pan_and_scan || ratio < self.pan_and_scan_min_ratio_to_activate {
            return Vec::new();
        }
        let count = (long / smallest).min((ratio + 0.5).floor() as usize);
        let count = count.max(2).min(self.pan_and_scan_max_num_crops);
        let step = long.div_ceil(count);
        if step.min(short) < smallest {
            return Vec::new();
        }
        let starts = (0..count).map(|at| at * step).filter(|&start| start < long);
        starts
            .map(|start| {
                let len = step.min(long - start);
                match width >= height {
                    true => Rect { left: start, top: 0, width: len, height },
                    false => Rect { left: 0, top: start, width, height: len },
                }
            })
            .collect()
    }
}

impl Family for Gemma3 {
    fn arithmetic(&self) -> Arithmetic {
        self.normalisation.arithmetic(self.backend)
    }

    fn plan(&self, source: Source, _: &Request) -> Result<Plan> {
        let ExactSize { height, width } = self.size;
        let squashed = |cut: Rect| {
            View::whole(source, Layout::whole(width, height)).of(cut).resized(
                (width, height),
                self.resample,
                self.backend,
            )
        };
        let crops = self.crops(source.width, source.height);
        let all = std::iter::once(Rect::whole(source.width, source.height)).chain(crops.iter().copied());
        let views: Vec<View> = all.map(squashed).collect();
        let tensors = vec![PlannedTensor::new("pixel_values", vec![views.len(), 3, height, width])];
        let num_tokens = self.image_seq_length * views.len();
        let grid = [1, 1, views.len()];
        let plan = Plan { views, tensors, extras: Vec::new(), grid, num_tokens };
        Ok(plan.with_i64("num_crops", vec![1], vec![crops.len() as i64]))
    }
}
