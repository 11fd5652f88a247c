//! LLaVA-NeXT and LLaVA-OneVision: the picture squashed, then tiles of it on the black resolution that suits it.

use serde::Serialize;

use crate::error::Result;
use crate::recipe::checkpoint::{Checkpoint, filter_number};
use crate::recipe::{
    Arithmetic, Backend, Declared, Family, FamilySpec, Fill, Filter, Layout, Normalisation, Plan,
    PlannedTensor, Request, Source, View, size,
};

/// LLaVA-NeXT, as the registry knows it.
pub const NEXT: FamilySpec = FamilySpec {
    name: "llava_next",
    read: |fields| read(fields, "LlavaNext", Normalisation::CLIP, 224, &NEXT_PINPOINTS),
};
/// LLaVA-OneVision.
pub const ONEVISION: FamilySpec = FamilySpec {
    name: "llava_onevision",
    read: |fields| read(fields, "LlavaOnevision", Normalisation::CLIP, 384, &[(384, 384)]),
};

// Height and width, as transformers has them.
const NEXT_PINPOINTS: [(usize, usize); 5] = [(336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008)];

#[derive(Debug, Clone, PartialEq, Serialize)]
struct LlavaNext {
    backend: Backend,
    image_grid_pinpoints: Vec<(usize, usize)>,
    #[serde(flatten)]
    normalisation: Normalisation,
    #[serde(serialize_with = "filter_number")]
    resample: Filter,
    tile_px: usize,
}

fn read(
    fields: &mut Checkpoint,
    class: &str,
    normalisation: Normalisation,
    tile_px: usize,
    pinpoints: &[(usize, usize)],
) -> Result<Declared> {
    for name in ["do_resize", "do_pad"] {
        fields.must_be_true(name)?;
    }
    let names =
        ["ImageProcessor", "ImageProcessorFast", "ImageProcessorPil"].map(|end| format!("{class}{end}"));
    let classes =
        [(&*names[0], Backend::Torchvision), (&*names[1], Backend::Torchvision), (&*names[2], Backend::Pil)];
    let (resample, backend) = fields.resize(&classes, (Filter::Bicubic, Backend::Torchvision))?;
    let tile = fields.square(tile_px)?;
    Declared::new(LlavaNext {
        backend,
        image_grid_pinpoints: fields.pairs("image_grid_pinpoints", pinpoints)?,
        normalisation: fields.normalisation(normalisation)?,
        resample,
        tile_px: tile,
    })
}

impl Family for LlavaNext {
    fn arithmetic(&self) -> Arithmetic {
        self.normalisation.arithmetic(self.backend)
    }

    fn plan(&self, source: Source, _: &Request) -> Result<Plan> {
        let (given, px) = ((source.width, source.height), self.tile_px);
        let candidates: Vec<_> =
            self.image_grid_pinpoints.iter().map(|&(height, width)| (width, height)).collect();
        let canvas = size::best_resolution(given, &candidates);
        let layout = Layout::Tiles { width: px, height: px };
        let views = vec![
            View::whole(source, Layout::whole(px, px)).resized((px, px), self.resample, self.backend),
            View::whole(source, layout)
                .resized(size::within_rounded_up(given, canvas), self.resample, self.backend)
                .centred(canvas, Fill::Colour([0; 3])),
        ];
        let (columns, rows) = (canvas.0 / px, canvas.1 / px);
        let tiles = 1 + columns * rows;
        let tensors = vec![PlannedTensor::new("pixel_values", vec![1, tiles, 3, px, px])];
        // The model unpads its features, so that it alone knows the tokens; these are the views.
        let plan = Plan { views, tensors, extras: Vec::new(), grid: [1, rows, columns], num_tokens: tiles };
        Ok(plan.with_i64("image_sizes", vec![1, 2], vec![source.height as i64, source.width as i64]))
    }
}
