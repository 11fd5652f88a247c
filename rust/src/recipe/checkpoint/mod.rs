//! `preprocessor_config.json` of a checkpoint, as it stands; or the `processor_config.json` that transformers 5 writes
//! instead, which has the same fields under `image_processor`.
//!
//! A family takes the fields that it knows. A field that it did not take could change the result, so it is refused by
//! name; those that transformers' processors take and never use are ignored.

mod backend;
mod sizes;

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::normalisation::Normalisation;
use crate::error::{CoreError, Result};

pub use backend::filter_number;
pub use sizes::{ExactSize, PixelBudget};

// No picture is larger.
const MOST_PX: usize = 1 << 16;

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

    /// As [`Self::object`]; an absent one has no fields.
    ///
    /// # Errors
    /// As [`Self::flag`].
    pub fn object_or_empty(&mut self, name: &str) -> Result<Self> {
        let empty =
            Self { family: self.family, fields: Map::new(), beside: Map::new(), asked: BTreeSet::new() };
        Ok(self.object(name)?.unwrap_or(empty))
    }

    /// Takes a field if it is this text.
    pub fn take_if(&mut self, name: &str, text: &str) -> bool {
        let is_so = self.fields.get(name).and_then(Value::as_str) == Some(text);
        if is_so {
            self.take(name);
        }
        is_so
    }

    /// Whether a field is there, be it null.
    pub fn has(&self, name: &str) -> bool {
        self.fields.contains_key(name)
    }

    /// The names of the fields that nobody took yet.
    pub fn names(&self) -> Vec<String> {
        self.fields.keys().cloned().collect()
    }

    /// Takes a list of two whole numbers from 1 to `most`, or one for both.
    ///
    /// # Errors
    /// As [`Self::flag`].
    pub fn pair(&mut self, name: &str, default: [usize; 2], most: usize) -> Result<[usize; 2]> {
        let Some(value) = self.take(name) else { return Ok(default) };
        let count = |value: &Value| value.as_u64().and_then(|count| usize::try_from(count).ok());
        let found = match &value {
            Value::Array(values) => match &values[..] {
                [first, second] => count(first).zip(count(second)),
                _ => None,
            },
            value => count(value).map(|count| (count, count)),
        };
        let is_fine =
            |&(first, second): &(usize, usize)| (1..=most).contains(&first) && (1..=most).contains(&second);
        found
            .filter(is_fine)
            .map(|(first, second)| [first, second])
            .ok_or_else(|| self.refusal(format!("{name} must be one or two whole numbers from 1 to {most}")))
    }

    /// Takes a list of pairs of whole numbers above 0.
    ///
    /// # Errors
    /// As [`Self::flag`].
    pub fn pairs(&mut self, name: &str, default: &[(usize, usize)]) -> Result<Vec<(usize, usize)>> {
        let Some(value) = self.take(name) else { return Ok(default.to_vec()) };
        let pairs: Option<Vec<(usize, usize)>> = serde_json::from_value(value).ok();
        let is_fine = |&(first, second): &(usize, usize)| {
            (1..=MOST_PX).contains(&first) && (1..=MOST_PX).contains(&second)
        };
        pairs.filter(|pairs| !pairs.is_empty() && pairs.iter().all(is_fine)).ok_or_else(|| {
            self.refusal(format!("{name} must be a list of pairs of whole numbers from 1 to {MOST_PX}"))
        })
    }

    /// Takes a flag that this family can only have true.
    ///
    /// # Errors
    /// As [`Self::flag`].
    pub fn must_be_true(&mut self, name: &str) -> Result<()> {
        if self.flag(name, true)? {
            return Ok(());
        }
        Err(self.refusal(format!("{name} is false, which the model does not work with; set it to true")))
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
