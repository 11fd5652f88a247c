//! `preprocessor_config.json` of a checkpoint, as it stands; or the `processor_config.json` that transformers 5 writes
//! instead, which has the same fields under `image_processor`.
//!
//! A family takes the fields that it knows. A field that it did not take could change the result, so it is refused by
//! name; those that transformers' processors take and never use are ignored.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Map, Value};

use super::arithmetic::Backend;
use super::normalisation::Normalisation;
use crate::common::resize::Filter;
use crate::error::{CoreError, Result};

// Taken by every processor of transformers and never read for still images, or about something else.
const IGNORED: [&str; 18] = [
    "_commit_hash",
    "_name_or_path",
    "data_format",
    "device",
    "disable_grouping",
    "do_sample_frames",
    "family",
    "fps",
    "image_seq_length",
    "image_token_id",
    "input_data_format",
    "max_frames",
    "min_frames",
    "num_frames",
    "pad_size",
    "processor_class",
    "return_tensors",
    "transformers_version",
];

/// Pillow's numbers of the filters that the core has.
pub const FILTER_NUMBERS: [(u64, Filter); 5] = [
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

/// Pixel budget of a resized picture, by the names of transformers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PixelBudget {
    /// Most pixels.
    pub longest_edge: u64,
    /// Fewest pixels.
    pub shortest_edge: u64,
}

/// The fields of a checkpoint's image processor, which a family takes one by one.
///
/// Absent and null fields take the family's defaults. Of an object with `image_processor` that is all that is read, as
/// transformers does it, but for the fields of our own: `backend` and `expand_temporal`.
#[derive(Debug)]
pub struct Checkpoint {
    family: &'static str,
    fields: Map<String, Value>,
    // What stands beside `image_processor`.
    beside: Map<String, Value>,
    asked: BTreeSet<String>,
}

impl Checkpoint {
    /// Reads a JSON object.
    ///
    /// # Errors
    /// [`CoreError::InvalidArgument`] that names the family.
    pub fn parse(family: &'static str, parameters_json: &str) -> Result<Self> {
        let fields: Map<String, Value> = serde_json::from_str(parameters_json)
            .map_err(|error| CoreError::argument(format!("{family} parameters: {error}")))?;
        let mut made = Self { family, fields, beside: Map::new(), asked: BTreeSet::new() };
        match made.fields.remove("image_processor") {
            None | Some(Value::Null) => return Ok(made),
            Some(Value::Object(image)) => made.beside = std::mem::replace(&mut made.fields, image),
            Some(_) => return Err(made.refusal("image_processor must be an object")),
        }
        for name in ["backend", "expand_temporal"] {
            if let Some(value) = made.beside.remove(name)
                && made.fields.insert(name.to_owned(), value.clone()).is_some_and(|inner| inner != value)
            {
                let reason = format!("{name} differs within image_processor; keep one of them");
                return Err(made.refusal(reason));
            }
        }
        Ok(made)
    }

    /// An error that names the family.
    pub fn refusal(&self, reason: impl std::fmt::Display) -> CoreError {
        CoreError::argument(format!("{} parameters: {reason}", self.family))
    }

    /// Ignores fields that this family's processor takes and never reads.
    pub fn ignore(&mut self, names: &[&str]) {
        for name in names {
            self.fields.remove(*name);
        }
    }

    /// Takes a field as it is.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.take_or_null(name).filter(|value| !value.is_null())
    }

    fn take_or_null(&mut self, name: &str) -> Option<Value> {
        self.asked.insert(name.to_owned());
        self.fields.remove(name)
    }

    /// Takes `true` or `false`.
    ///
    /// # Errors
    /// [`CoreError::InvalidArgument`] that names the field, as all that follow.
    pub fn flag(&mut self, name: &str, default: bool) -> Result<bool> {
        match self.take(name) {
            None => Ok(default),
            Some(Value::Bool(value)) => Ok(value),
            Some(_) => Err(self.refusal(format!("{name} must be true or false"))),
        }
    }

    /// Takes a whole number, not below 0.
    ///
    /// # Errors
    /// As [`Self::flag`].
    pub fn whole(&mut self, name: &str) -> Result<Option<u64>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let wrong = || self.refusal(format!("{name} must be a whole number, not below 0"));
        value.as_u64().map(Some).ok_or_else(wrong)
    }

    /// Takes a whole number from 1 to `most`.
    ///
    /// # Errors
    /// As [`Self::flag`].
    pub fn count(&mut self, name: &str, default: usize, most: usize) -> Result<usize> {
        let value = self.whole(name)?.map_or(default, |value| usize::try_from(value).unwrap_or(usize::MAX));
        if (1..=most).contains(&value) {
            return Ok(value);
        }
        Err(self.refusal(format!("{name} is {value}; choose 1 to {most}")))
    }

    /// Takes a number.
    ///
    /// # Errors
    /// As [`Self::flag`].
    pub fn number(&mut self, name: &str, default: f64) -> Result<f64> {
        Ok(self.number_or_null(name, Some(default))?.unwrap_or(default))
    }

    /// Takes a number, or null for none.
    ///
    /// # Errors
    /// As [`Self::flag`].
    pub fn number_or_null(&mut self, name: &str, default: Option<f64>) -> Result<Option<f64>> {
        match self.take_or_null(name) {
            None => Ok(default),
            Some(Value::Null) => Ok(None),
            Some(value) => {
                value.as_f64().map(Some).ok_or_else(|| self.refusal(format!("{name} must be a number")))
            }
        }
    }

    /// Takes a whole number, or null for none.
    ///
    /// # Errors
    /// As [`Self::flag`].
    pub fn whole_or_null(&mut self, name: &str, default: Option<i64>) -> Result<Option<i64>> {
        match self.take_or_null(name) {
            None => Ok(default),
            Some(Value::Null) => Ok(None),
            Some(value) => {
                value.as_i64().map(Some).ok_or_else(|| self.refusal(format!("{name} must be a whole number")))
            }
        }
    }

    /// Takes a number for all channels, or a list of one for each.
    ///
    /// # Errors
    /// As [`Self::flag`].
    pub fn channels(&mut self, name: &str, default: [f64; 3]) -> Result<[f64; 3]> {
        let wrong = |fields: &Self| fields.refusal(format!("{name} must be a number, or a list of 3"));
        match self.take(name) {
            None => Ok(default),
            Some(Value::Array(values)) => {
                let values: Option<Vec<f64>> = values.iter().map(Value::as_f64).collect();
                values.and_then(|values| values.try_into().ok()).ok_or_else(|| wrong(self))
            }
            Some(value) => value.as_f64().map(|value| [value; 3]).ok_or_else(|| wrong(self)),
        }
    }

    /// Takes an object, whose fields are taken likewise.
    ///
    /// # Errors
    /// As [`Self::flag`].
    pub fn object(&mut self, name: &str) -> Result<Option<Self>> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Object(fields)) => {
                Ok(Some(Self { family: self.family, fields, beside: Map::new(), asked: BTreeSet::new() }))
            }
            Some(_) => Err(self.refusal(format!("{name} must be an object, such as one with shortest_edge"))),
        }
    }

    /// Takes `size` as a pixel budget. `min_pixels` and `max_pixels` at the top win over it, and make its own two of these
    /// names void.
    ///
    /// # Errors
    /// As [`Self::flag`].
    pub fn pixel_budget(&mut self, default: PixelBudget) -> Result<PixelBudget> {
        let (fewest, most) = (self.whole("min_pixels")?, self.whole("max_pixels")?);
        let (mut shortest_edge, mut longest_edge) = (Some(default.shortest_edge), Some(default.longest_edge));
        if let Some(mut size) = self.object("size")? {
            (shortest_edge, longest_edge) = (size.whole("shortest_edge")?, size.whole("longest_edge")?);
            for (name, given) in [("min_pixels", fewest), ("max_pixels", most)] {
                if size.take(name).is_some() && given.is_none() {
                    return Err(self.refusal(format!(
                        "size has {name}, which transformers does not read there; name it shortest_edge or \
                         longest_edge, or move it out of size"
                    )));
                }
            }
            if let Some(name) = size.fields.keys().next() {
                return Err(self.refusal(format!(
                    "size has {name:?}; this family's size holds shortest_edge and longest_edge, in pixels"
                )));
            }
        }
        let missing = || self.refusal("size must hold both shortest_edge and longest_edge, in pixels");
        let budget = PixelBudget {
            shortest_edge: fewest.or(shortest_edge).ok_or_else(missing)?,
            longest_edge: most.or(longest_edge).ok_or_else(missing)?,
        };
        if budget.longest_edge == 0 {
            return Err(self.refusal("size needs longest_edge above 0, in pixels"));
        }
        Ok(budget)
    }

    /// Takes `do_rescale`, `do_normalize`, `image_mean`, `image_std` and `rescale_factor`.
    ///
    /// # Errors
    /// As [`Self::flag`].
    pub fn normalisation(&mut self, default: Normalisation) -> Result<Normalisation> {
        let found = Normalisation {
            do_rescale: self.flag("do_rescale", default.do_rescale)?,
            do_normalize: self.flag("do_normalize", default.do_normalize)?,
            image_mean: self.channels("image_mean", default.image_mean)?,
            image_std: self.channels("image_std", default.image_std)?,
            rescale_factor: self.number("rescale_factor", default.rescale_factor)?,
        };
        let usable = |value: f64| value.is_finite() && (value as f32).is_finite();
        if !usable(found.rescale_factor) || found.rescale_factor as f32 == 0.0 {
            return Err(self.refusal("rescale_factor must be finite and not 0"));
        }
        if !found.image_mean.into_iter().chain(found.image_std).all(usable) {
            return Err(self.refusal("image_mean and image_std must be finite"));
        }
        if found.do_normalize && found.image_std.iter().any(|&std| std as f32 == 0.0) {
            return Err(self.refusal("image_std must not be 0"));
        }
        Ok(found)
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

    /// Refuses the fields that nobody took; and beside `image_processor`, those that were meant for it.
    ///
    /// # Errors
    /// [`CoreError::InvalidArgument`] that names them.
    pub fn refuse_the_rest(&self) -> Result<()> {
        if let Some(name) = self.beside.keys().find(|name| self.asked.contains(*name)) {
            return Err(self.refusal(format!("{name} stands beside image_processor; move it into that")));
        }
        let unknown: Vec<&str> =
            self.fields.keys().map(String::as_str).filter(|name| !IGNORED.contains(name)).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        Err(self.refusal(format!(
            "unknown fields {}; they could change the result, so remove them if they do not matter",
            unknown.join(", ")
        )))
    }
}
