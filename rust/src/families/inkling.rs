//! The Inkling family: long edge rescaled, 40-pixel patches with one extra column.

use serde::Serialize;

use crate::error::{CoreError, Result};
use crate::recipe::arithmetic::Order;
use crate::recipe::checkpoint::Checkpoint;
use crate::recipe::{
    Arithmetic, Backend, Declared, Family, FamilySpec, Fill, Filter, Inside, Layout, Plan, PlannedTensor,
    Request, Source, View, size,
};

/// The family, as the registry knows it.
pub const SPEC: FamilySpec = FamilySpec { name: "inkling", read };

const MOST_PATCH_PX: usize = 4096;
// The reference pads after scaling, with -1/255 in place of `value * (1/255)`.
const PADDING_SCALED: f32 = -1.0 / 255.0;

/// The family's parameters, with the model's defaults.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Inkling {
    /// Side of a patch, in pixels.
    pub patch_size: usize,
    /// Factor of the long edge; `None` keeps the size.
    pub rescale_frac: Option<f64>,
    /// Bound on growth of the long edge, in pixels; needs `rescale_frac > 1`.
    pub rescale_cap: Option<i64>,
    /// Mean of each channel, in `0..=1`.
    pub mean: [f32; 3],
    /// Standard deviation of each channel.
    pub std: [f32; 3],
}

impl Default for Inkling {
    fn default() -> Self {
        Self {
            patch_size: 40,
            rescale_frac: Some(2.0),
            rescale_cap: Some(2048),
            mean: [0.481_454_66, 0.457_827_5, 0.408_210_73],
            std: [0.268_629_54, 0.261_302_6, 0.275_777_1],
        }
    }
}

fn read(fields: &mut Checkpoint) -> Result<Declared> {
    let default = Inkling::default();
    let made = Inkling {
        patch_size: fields.count("patch_size", default.patch_size, MOST_PATCH_PX)?,
        rescale_frac: fields.number_or_null("rescale_frac", default.rescale_frac)?,
        rescale_cap: fields.whole_or_null("rescale_cap", default.rescale_cap)?,
        mean: fields.channels("mean", default.mean.map(f64::from))?.map(|mean| mean as f32),
        std: fields.channels("std", default.std.map(f64::from))?.map(|std| std as f32),
    };
    if let Some(frac) = made.rescale_frac.filter(|frac| !(frac.is_finite() && *frac > 0.0)) {
        return Err(fields.refusal(format!("rescale_frac is {frac}; it must be finite and positive")));
    }
    if let Some(cap) = made.rescale_cap.filter(|&cap| cap <= 0) {
        return Err(fields.refusal(format!("rescale_cap is {cap}; it must be positive")));
    }
    if made.rescale_cap.is_some() && made.rescale_frac.is_none_or(|frac| frac <= 1.0) {
        return Err(fields.refusal("rescale_cap limits growth, so it needs rescale_frac > 1"));
    }
    made.check_patches()?;
    Declared::new(made)
}

impl Inkling {
    /// Refuses what makes no patches; the published functions take any rescale.
    ///
    /// # Errors
    /// [`CoreError::InvalidArgument`] that names the parameter.
    pub fn check_patches(&self) -> Result<()> {
        let Self { patch_size, mean, std, .. } = self;
        if !(1..=MOST_PATCH_PX).contains(patch_size) {
            let reason = format!("patch_size is {patch_size}; choose 1 to {MOST_PATCH_PX}");
            return Err(CoreError::argument(reason));
        }
        if std.contains(&0.0) || !mean.iter().chain(std).all(|value| value.is_finite()) {
            return Err(CoreError::argument("mean and std must be finite and std not 0"));
        }
        Ok(())
    }
}

impl Family for Inkling {
    fn arithmetic(&self) -> Arithmetic {
        let normalise = Some((self.mean.map(f64::from), self.std.map(f64::from)));
        Arithmetic { order: Order::SingleFactor, rescale: Some(1.0 / 255.0), normalise }
    }

    fn plan(&self, source: Source, _: &Request) -> Result<Plan> {
        let Source { width, height, .. } = source;
        let (width, height) = size::scaled_long_edge(width, height, self.rescale_frac, self.rescale_cap);
        // One extra column, also where the width is whole patches.
        let px = self.patch_size;
        let (rows, columns) = (height.div_ceil(px), (width / px).saturating_add(1));
        let view = View::whole(source, Layout::patches(px, Inside::Hwc))
            .resized((width, height), Filter::Lanczos, Backend::Pil)
            .padded((columns.saturating_mul(px), rows.saturating_mul(px)), Fill::Scaled(PADDING_SCALED));
        let patches = rows.saturating_mul(columns);
        let tensor = PlannedTensor::new("patches", vec![patches, px, px, 3]);
        Ok(Plan::of_one_view(view, tensor, [1, rows, columns], patches))
    }

    fn plan_of_resized(&self, resized: Source) -> Result<Plan> {
        Self { rescale_frac: None, ..self.clone() }.plan(resized, &Request::default())
    }
}
