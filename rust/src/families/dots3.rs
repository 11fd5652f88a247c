//! Dots3: whole tokens within a budget that the request's `detail` may change.
//!
//! The reference is SGLang 0.5.23's own processor on the CPU.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::error::{CoreError, Result};
use crate::recipe::arithmetic::Order;
use crate::recipe::checkpoint::{Checkpoint, PixelBudget};
use crate::recipe::merged::Merged;
use crate::recipe::{
    Arithmetic, Backend, Declared, Family, FamilySpec, Filter, Inside, Layout, Normalisation, Plan, Request,
    Source, View, size,
};

/// The family, as the registry knows it.
pub const SPEC: FamilySpec = FamilySpec { name: "dots3", read };

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Detail {
    target_height: Option<usize>,
    target_width: Option<usize>,
    size: PixelBudget,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Dots3 {
    details: BTreeMap<String, Detail>,
    #[serde(flatten)]
    merged: Merged,
    #[serde(flatten)]
    normalisation: Normalisation,
    pre_pixel_shuffle: bool,
    size: PixelBudget,
}

fn read(fields: &mut Checkpoint) -> Result<Declared> {
    fields.only_pillow()?;
    let mut own = fields.object_or_empty("vision_config")?;
    let size = own.pixel_budget(PixelBudget { shortest_edge: 3136, longest_edge: 11_289_600 })?;
    let mut table = fields.object_or_empty("image_details")?;
    let mut details = BTreeMap::new();
    for name in table.names() {
        let mut detail = table.object_or_empty(&name)?;
        let target = |detail: &mut Checkpoint, name: &str| -> Result<Option<usize>> {
            Ok(detail.whole(name)?.filter(|&px| px > 0).and_then(|px| usize::try_from(px).ok()))
        };
        let (target_height, target_width) =
            (target(&mut detail, "target_height")?, target(&mut detail, "target_width")?);
        details.insert(name, Detail { target_height, target_width, size: detail.pixel_budget(size)? });
        detail.refuse_the_rest()?;
    }
    let merged = Merged { expand_temporal: true, merge_size: 2, patch_size: 14, temporal_patch_size: 1 };
    let made = Dots3 {
        details,
        merged: Merged::read(&mut own, merged)?,
        normalisation: own.normalisation(Normalisation::CLIP)?,
        pre_pixel_shuffle: own.flag("pre_pixel_shuffle", true)?,
        size,
    };
    own.refuse_the_rest()?;
    Declared::new(made)
}

impl Family for Dots3 {
    fn arithmetic(&self) -> Arithmetic {
        Arithmetic { order: Order::ToTensor, ..self.normalisation.arithmetic(Backend::Pil) }
    }

    fn request_facts(&self) -> &'static [&'static str] {
        &["detail"]
    }

    fn plan(&self, source: Source, request: &Request) -> Result<Plan> {
        let plain = Detail { target_height: None, target_width: None, size: self.size };
        let detail = self.details.get(request.text("detail")?.unwrap_or("auto")).copied().unwrap_or(plain);
        let given =
            (detail.target_width.unwrap_or(source.width), detail.target_height.unwrap_or(source.height));
        let factor = self.merged.factor_px();
        if given.0.min(given.1) < factor / 4 {
            return Err(CoreError::argument(format!(
                "{} x {} pixels have a side below {}; enlarge the image first",
                given.0,
                given.1,
                factor / 4
            )));
        }
        size::check_aspect(given)?;
        let mut sides = size::whole_tokens(given, factor, detail.size);
        let pixels = (sides.0 * sides.1) as f64;
        if pixels > detail.size.longest_edge as f64 {
            let shrink = (pixels / detail.size.longest_edge as f64).sqrt();
            sides = (
                size::floored(sides.0 as f64 / shrink, factor),
                size::floored(sides.1 as f64 / shrink, factor),
            );
        }
        let merge = if self.pre_pixel_shuffle { self.merged.merge_size } else { 1 };
        let layout = Layout::Patches {
            px: self.merged.patch_size,
            merge,
            inside: Inside::Chw { copies: self.merged.copies() },
        };
        let view = View::whole(source, layout).resized(sides, Filter::Bicubic, Backend::Pil);
        Ok(self.merged.plan(view))
    }
}
