//! Whose resize a checkpoint asks for: filter, class and backend.

use super::Checkpoint;
use crate::common::resize::Filter;
use crate::error::Result;
use crate::recipe::arithmetic::Backend;

/// Pillow's numbers of the filters that the core has.
const FILTER_NUMBERS: [(u64, Filter); 5] = [
    (1, Filter::Lanczos),
    (2, Filter::Bilinear),
    (3, Filter::Bicubic),
    (4, Filter::Box),
    (5, Filter::Hamming),
];

/// Serialises a filter as Pillow's number for it.
///
/// # Errors
/// Those of the serialiser.
pub fn filter_number<S: serde::Serializer>(
    filter: &Filter,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    let number = FILTER_NUMBERS.iter().find(|(_, known)| known == filter).map_or(0, |&(number, _)| number);
    serializer.serialize_u64(number)
}

impl Checkpoint {
    /// Takes `backend`, which must be Pillow's if it is said: the model's own code has no other.
    ///
    /// # Errors
    /// As [`Self::flag`].
    pub fn only_pillow(&mut self) -> Result<()> {
        self.ignore(&["auto_map", "image_processor_type"]);
        match self.resize(&[], (Filter::Bicubic, Backend::Pil))? {
            (_, Backend::Pil) => Ok(()),
            _ => Err(self.refusal("the model's own code uses Pillow; choose backend \"pil\"")),
        }
    }

    /// Takes the filter and what says the backend: `backend` (`"torchvision"` or `"pil"`), the class's name, which must be
    /// one of `classes`, or `"aten_u8"` and `"pil"` as `resample`, which stand for a backend with its bicubic filter.
    ///
    /// # Errors
    /// As [`Self::flag`].
    pub fn resize(
        &mut self,
        classes: &[(&str, Backend)],
        default: (Filter, Backend),
    ) -> Result<(Filter, Backend)> {
        let (implied, filter) = self.resample(default.0)?;
        let class = self.class_backend(classes)?;
        let backend = match (self.backend()?, implied) {
            (Some(named), Some(implied)) if named != implied => {
                return Err(self.refusal("backend and resample name different backends; keep one of them"));
            }
            (Some(backend), _) | (None, Some(backend)) => backend,
            (None, None) => class.unwrap_or(default.1),
        };
        if !self.flag("do_convert_rgb", true)? {
            let reason = "do_convert_rgb is false, but the core always converts to RGB; set it to true";
            return Err(self.refusal(reason));
        }
        if backend == Backend::Torchvision && matches!(filter, Filter::Box | Filter::Hamming) {
            let reason = "torchvision has no box and no hamming filter; choose backend \"pil\"";
            return Err(self.refusal(reason));
        }
        Ok((filter, backend))
    }

    fn resample(&mut self, default: Filter) -> Result<(Option<Backend>, Filter)> {
        let Some(value) = self.take("resample") else { return Ok((None, default)) };
        match value.as_str() {
            Some("aten_u8") => return Ok((Some(Backend::Torchvision), Filter::Bicubic)),
            Some("pil") => return Ok((Some(Backend::Pil), Filter::Bicubic)),
            _ => {}
        }
        let known = FILTER_NUMBERS.iter().find(|(number, _)| value.as_u64() == Some(*number));
        known.map(|&(_, filter)| (None, filter)).ok_or_else(|| {
            self.refusal(
                "resample must be 1 (lanczos), 2 (bilinear), 3 (bicubic), 4 (box), 5 (hamming), \"aten_u8\" \
                 or \"pil\"",
            )
        })
    }

    fn backend(&mut self) -> Result<Option<Backend>> {
        let Some(value) = self.take("backend") else { return Ok(None) };
        match value.as_str() {
            Some("torchvision") => Ok(Some(Backend::Torchvision)),
            Some("pil") => Ok(Some(Backend::Pil)),
            _ => Err(self.refusal("backend must be \"torchvision\" or \"pil\"")),
        }
    }

    fn class_backend(&mut self, classes: &[(&str, Backend)]) -> Result<Option<Backend>> {
        // Old checkpoints call the field by its name for audio.
        let old = self.take("feature_extractor_type");
        let Some(class) = self.take("image_processor_type").or(old) else { return Ok(None) };
        let known = classes.iter().find(|(name, _)| class.as_str() == Some(name));
        known.map(|&(_, backend)| Some(backend)).ok_or_else(|| {
            let names: Vec<_> = classes.iter().map(|(name, _)| *name).collect();
            self.refusal(format!(
                "image_processor_type {class} is not of this family; known: {}",
                names.join(", ")
            ))
        })
    }
}
