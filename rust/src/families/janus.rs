//! Janus-Pro: the longer side resized, squared on the colour of the mean.
//!
//! The reference is the model's code on Pillow and numpy, as sglang 0.5.23 has it.

use serde::Serialize;

use crate::error::Result;
use crate::recipe::checkpoint::Checkpoint;
use crate::recipe::{
    Arithmetic, Backend, Declared, Family, FamilySpec, Fill, Filter, Layout, Normalisation, Plan,
    PlannedTensor, Request, Source, View,
};

/// The family, as the registry knows it.
pub const SPEC: FamilySpec = FamilySpec { name: "janus", read };

// Of the model, whatever the size.
const TOKENS: usize = 576;

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Janus {
    image_size: usize,
    min_size: usize,
    #[serde(flatten)]
    normalisation: Normalisation,
}

fn read(fields: &mut Checkpoint) -> Result<Declared> {
    fields.only_pillow()?;
    // The model's code takes the mean for it.
    fields.ignore(&["background_color"]);
    Declared::new(Janus {
        image_size: fields.count("image_size", 384, 1 << 14)?,
        min_size: fields.count("min_size", 14, 1 << 14)?,
        normalisation: fields.normalisation(Normalisation::HALF)?,
    })
}

impl Family for Janus {
    fn arithmetic(&self) -> Arithmetic {
        self.normalisation.arithmetic(Backend::Pil)
    }

    fn plan(&self, source: Source, _: &Request) -> Result<Plan> {
        let px = self.image_size;
        let longest = source.width.max(source.height) as f64;
        let side = |side: usize| ((side as f64 / longest * px as f64) as usize).max(self.min_size);
        let background = self.normalisation.image_mean.map(|mean| (mean * 255.0) as u8);
        let view = View::whole(source, Layout::whole(px, px))
            .resized((side(source.width), side(source.height)), Filter::Bicubic, Backend::Pil)
            .centred((px, px), Fill::Colour(background));
        let tensor = PlannedTensor::new("pixel_values", vec![1, 3, px, px]);
        Ok(Plan::of_one_view(view, tensor, [1, 1, 1], TOKENS))
    }
}
