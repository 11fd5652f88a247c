//! `preprocessor_config.json` of a checkpoint, as it stands, to parameters; or the `processor_config.json` that
//! transformers 5 writes instead, which has the same fields under `image_processor`.
//!
//! Field names old and new are understood. A field that is not known here could change the result, so it is
//! refused; those that transformers' Qwen processors take and never use are ignored by name.

use serde_json::{Map, Value};

use super::parameters::{Backend, FILTER_NUMBERS, PixelBudget, QwenVlParameters, refusal};
use crate::common::resize::Filter;
use crate::error::Result;
use crate::family::parse_parameters;

// Class names, and what transformers 5 runs for them. The plain name is the torchvision backend today.
const CLASSES: [(&str, Backend); 5] = [
    ("Qwen2VLImageProcessor", Backend::Torchvision),
    ("Qwen2VLImageProcessorFast", Backend::Torchvision),
    ("Qwen2VLImageProcessorPil", Backend::Pil),
    ("Qwen2_5_VLImageProcessor", Backend::Torchvision),
    ("Qwen2_5_VLImageProcessorFast", Backend::Torchvision),
];

// Taken by the processors of transformers and never read by Qwen's `_preprocess`, or about something else.
const IGNORED: [&str; 22] = [
    "_commit_hash",
    "_name_or_path",
    "crop_size",
    "data_format",
    "default_to_square",
    "device",
    "disable_grouping",
    "do_center_crop",
    "do_pad",
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

// Read, but kept under another name or only checked.
const PARAMETERS_NOT_KEPT: [&str; 5] =
    ["do_convert_rgb", "feature_extractor_type", "image_processor_type", "max_pixels", "min_pixels"];

/// Parameters from a JSON object; absent and null fields take the class defaults.
///
/// Beside the checkpoint's fields there are `backend` (`"torchvision"` or `"pil"`), `expand_temporal`, and the
/// names `"aten_u8"` and `"pil"` as `resample`, which stand for a backend with its bicubic filter. Of an object with
/// `image_processor` that is all that is read, as transformers does it, but for `backend` and `expand_temporal`.
///
/// # Errors
/// [`crate::error::CoreError::InvalidArgument`] that names the field and the way out.
pub fn parse(parameters_json: &str) -> Result<QwenVlParameters> {
    let defaults = QwenVlParameters::default();
    let mut fields = Fields(image_fields(parse_parameters("qwen_vl", parameters_json)?, &defaults)?);
    let (resample_backend, resample) = fields.resample(defaults.resample)?;
    let class_backend = fields.class_backend()?;
    let backend = match (fields.backend()?, resample_backend) {
        (Some(named), Some(implied)) if named != implied => {
            return Err(refusal("backend and resample name different backends; keep one of them"));
        }
        (Some(backend), _) | (None, Some(backend)) => backend,
        (None, None) => class_backend.unwrap_or(defaults.backend),
    };
    if !fields.flag("do_convert_rgb", true)? {
        return Err(refusal("do_convert_rgb is false, but the core always converts to RGB; set it to true"));
    }
    let parameters = QwenVlParameters {
        backend,
        do_resize: fields.flag("do_resize", defaults.do_resize)?,
        do_rescale: fields.flag("do_rescale", defaults.do_rescale)?,
        do_normalize: fields.flag("do_normalize", defaults.do_normalize)?,
        expand_temporal: fields.flag("expand_temporal", defaults.expand_temporal)?,
        image_mean: fields.channels("image_mean", defaults.image_mean)?,
        image_std: fields.channels("image_std", defaults.image_std)?,
        merge_size: fields.count("merge_size", defaults.merge_size)?,
        patch_size: fields.count("patch_size", defaults.patch_size)?,
        resample,
        rescale_factor: fields.number("rescale_factor", defaults.rescale_factor)?,
        size: fields.budget(defaults.size)?,
        temporal_patch_size: fields.count("temporal_patch_size", defaults.temporal_patch_size)?,
    };
    fields.refuse_the_rest()?;
    parameters.validate()?;
    Ok(parameters)
}

// The fields of the image processor, if it is one of several. The others are of videos and of text; but a parameter
// beside it, which nobody would read, was meant for it.
fn image_fields(mut fields: Map<String, Value>, known: &QwenVlParameters) -> Result<Map<String, Value>> {
    let mut image = match fields.remove("image_processor") {
        None | Some(Value::Null) => return Ok(fields),
        Some(Value::Object(image)) => image,
        Some(_) => return Err(refusal("image_processor must be an object")),
    };
    for name in ["backend", "expand_temporal"] {
        if let Some(value) = fields.remove(name)
            && image.insert(name.to_owned(), value.clone()).is_some_and(|inner| inner != value)
        {
            return Err(refusal(format!("{name} differs within image_processor; keep one of them")));
        }
    }
    let known = serde_json::to_value(known).unwrap_or_default();
    let is_parameter = |name: &str| known.get(name).is_some() || PARAMETERS_NOT_KEPT.contains(&name);
    if let Some(name) = fields.keys().find(|name| is_parameter(name)) {
        return Err(refusal(format!("{name} stands beside image_processor; move it into that")));
    }
    Ok(image)
}

struct Fields(Map<String, Value>);

impl Fields {
    fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name).filter(|value| !value.is_null())
    }

    fn flag(&mut self, name: &str, default: bool) -> Result<bool> {
        match self.take(name) {
            None => Ok(default),
            Some(Value::Bool(value)) => Ok(value),
            Some(_) => Err(refusal(format!("{name} must be true or false"))),
        }
    }

    fn whole(&mut self, name: &str) -> Result<Option<u64>> {
        self.take(name)
            .map(|value| {
                value.as_u64().ok_or_else(|| refusal(format!("{name} must be a whole number, not below 0")))
            })
            .transpose()
    }

    fn count(&mut self, name: &str, default: usize) -> Result<usize> {
        Ok(self.whole(name)?.map_or(default, |value| usize::try_from(value).unwrap_or(usize::MAX)))
    }

    fn number(&mut self, name: &str, default: f64) -> Result<f64> {
        self.take(name).map_or(Ok(default), |value| {
            value.as_f64().ok_or_else(|| refusal(format!("{name} must be a number")))
        })
    }

    fn channels(&mut self, name: &str, default: [f64; 3]) -> Result<[f64; 3]> {
        let wrong = || refusal(format!("{name} must be a number, or a list of 3"));
        match self.take(name) {
            None => Ok(default),
            Some(Value::Array(values)) => {
                let values: Option<Vec<f64>> = values.iter().map(Value::as_f64).collect();
                values.and_then(|values| values.try_into().ok()).ok_or_else(wrong)
            }
            Some(value) => value.as_f64().map(|value| [value; 3]).ok_or_else(wrong),
        }
    }

    // `min_pixels` and `max_pixels` at the top win over `size`, and make its own two of these names void.
    fn budget(&mut self, default: PixelBudget) -> Result<PixelBudget> {
        let (fewest, most) = (self.whole("min_pixels")?, self.whole("max_pixels")?);
        let (mut shortest_edge, mut longest_edge) = (Some(default.shortest_edge), Some(default.longest_edge));
        match self.take("size") {
            None => {}
            Some(Value::Object(size)) => {
                let mut size = Self(size);
                (shortest_edge, longest_edge) = (size.whole("shortest_edge")?, size.whole("longest_edge")?);
                for (name, given) in [("min_pixels", fewest), ("max_pixels", most)] {
                    if size.take(name).is_some() && given.is_none() {
                        return Err(refusal(format!(
                            "size has {name}, which transformers does not read there; name it \
                             shortest_edge or longest_edge, or move it out of size"
                        )));
                    }
                }
                if let Some(name) = size.0.keys().next() {
                    return Err(refusal(format!(
                        "size has {name:?}; Qwen's size holds shortest_edge and longest_edge, in pixels"
                    )));
                }
            }
            Some(_) => return Err(refusal("size must be an object with shortest_edge and longest_edge")),
        }
        let missing = || refusal("size must hold both shortest_edge and longest_edge, in pixels");
        Ok(PixelBudget {
            shortest_edge: fewest.or(shortest_edge).ok_or_else(missing)?,
            longest_edge: most.or(longest_edge).ok_or_else(missing)?,
        })
    }

    fn resample(&mut self, default: Filter) -> Result<(Option<Backend>, Filter)> {
        let unknown = || {
            refusal(
                "resample must be 1 (lanczos), 2 (bilinear), 3 (bicubic), 4 (box), 5 (hamming), \"aten_u8\" \
                 or \"pil\"",
            )
        };
        match self.take("resample") {
            None => Ok((None, default)),
            Some(Value::String(name)) => match name.as_str() {
                "aten_u8" => Ok((Some(Backend::Torchvision), Filter::Bicubic)),
                "pil" => Ok((Some(Backend::Pil), Filter::Bicubic)),
                _ => Err(unknown()),
            },
            Some(value) => {
                let known = FILTER_NUMBERS.iter().find(|(number, _)| value.as_u64() == Some(*number));
                known.map(|&(_, filter)| (None, filter)).ok_or_else(unknown)
            }
        }
    }

    fn backend(&mut self) -> Result<Option<Backend>> {
        match self.take("backend") {
            None => Ok(None),
            Some(Value::String(name)) if name == "torchvision" => Ok(Some(Backend::Torchvision)),
            Some(Value::String(name)) if name == "pil" => Ok(Some(Backend::Pil)),
            Some(_) => Err(refusal("backend must be \"torchvision\" or \"pil\"")),
        }
    }

    fn class_backend(&mut self) -> Result<Option<Backend>> {
        // Old checkpoints call the field by its name for audio.
        let old = self.take("feature_extractor_type");
        let Some(class) = self.take("image_processor_type").or(old) else { return Ok(None) };
        let known = CLASSES.iter().find(|(name, _)| class.as_str() == Some(name));
        known.map(|&(_, backend)| Some(backend)).ok_or_else(|| {
            let names: Vec<_> = CLASSES.iter().map(|(name, _)| *name).collect();
            refusal(format!(
                "image_processor_type {class} is not of this family; known: {}",
                names.join(", ")
            ))
        })
    }

    fn refuse_the_rest(self) -> Result<()> {
        let unknown: Vec<_> = self
            .0
            .into_iter()
            .map(|(name, _)| name)
            .filter(|name| !IGNORED.contains(&name.as_str()))
            .collect();
        if unknown.is_empty() {
            return Ok(());
        }
        Err(refusal(format!(
            "unknown fields {}; they could change the result, so remove them if they do not matter",
            unknown.join(", ")
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_said_means_the_class_defaults() {
        assert_eq!(parse("{}"), Ok(QwenVlParameters::default()));
    }

    #[test]
    fn canonical_text_reads_back_as_itself() {
        let text = r#"{"image_processor_type":"Qwen2VLImageProcessorPil","size":{"longest_edge":16777216,
            "shortest_edge":65536},"patch_size":16,"image_mean":0.5,"image_std":[0.5,0.5,0.5],"resample":2,
            "do_rescale":false,"rescale_factor":0.00392156862745098,"expand_temporal":true,"crop_size":null}"#;
        let parameters = parse(text).expect("valid");
        assert_eq!((parameters.backend, parameters.resample), (Backend::Pil, Filter::Bilinear));
        let canonical = serde_json::to_string(&parameters).expect("serialisable");
        assert_eq!(parse(&canonical), Ok(parameters));
    }

    #[test]
    fn the_pixel_budget_comes_from_either_name_and_the_top_wins() {
        let budget = |text: &str| parse(text).map(|p| (p.size.shortest_edge, p.size.longest_edge));
        assert_eq!(budget(r#"{"size":{"shortest_edge":7,"longest_edge":9}}"#), Ok((7, 9)));
        assert_eq!(budget(r#"{"min_pixels":7}"#), Ok((7, 1_003_520)));
        assert_eq!(budget(r#"{"min_pixels":0}"#), Ok((0, 1_003_520)));
        assert_eq!(
            budget(r#"{"min_pixels":5,"max_pixels":6,"size":{"shortest_edge":7,"longest_edge":9}}"#),
            Ok((5, 6))
        );
        assert_eq!(
            budget(r#"{"min_pixels":5,"max_pixels":6,"size":{"min_pixels":7,"max_pixels":9}}"#),
            Ok((5, 6))
        );
        for bad in [
            r#"{"size":{"shortest_edge":7}}"#,
            r#"{"size":{"min_pixels":7,"max_pixels":9}}"#,
            r#"{"size":{"height":7,"width":9}}"#,
            r#"{"size":224}"#,
            r#"{"min_pixels":-1}"#,
        ] {
            assert!(budget(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_image_processor_among_others_is_all_that_is_read() {
        let image = r#"{"image_processor_type":"Qwen2VLImageProcessor","patch_size":16}"#;
        let nested = |more: &str| {
            parse(&format!(
                r#"{{"image_processor":{image},"processor_class":"Qwen3VLProcessor",
                "video_processor":{{"patch_size":7,"surprise":1}}{more}}}"#
            ))
        };
        assert_eq!(nested(""), parse(image));
        let ours = nested(r#","backend":"pil","expand_temporal":true,"image_token_id":1"#).expect("valid");
        assert_eq!((ours.backend, ours.expand_temporal, ours.patch_size), (Backend::Pil, true, 16));
        for name in ["patch_size", "max_pixels", "size", "resample"] {
            let error = nested(&format!(r#","{name}":3"#)).expect_err(name).to_string();
            assert!(error.contains(name), "{error}");
        }
        for bad in [
            r#"{"image_processor":[]}"#,
            r#"{"image_processor":{"surprise":1}}"#,
            r#"{"image_processor":{"backend":"pil"},"backend":"torchvision"}"#,
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_could_change_the_result_unseen_is_refused_by_name() {
        for (text, named) in [
            (r#"{"surprise":1}"#, "surprise"),
            (r#"{"auto_map":{}}"#, "auto_map"),
            (r#"{"do_convert_rgb":false}"#, "do_convert_rgb"),
            (r#"{"image_processor_type":"CLIPImageProcessor"}"#, "CLIPImageProcessor"),
            (r#"{"resample":0}"#, "resample"),
            (r#"{"resample":"lanczos"}"#, "resample"),
            (r#"{"resample":4}"#, "box"),
            (r#"{"resample":"pil","backend":"torchvision"}"#, "backend"),
            (r#"{"backend":"numpy"}"#, "backend"),
            (r#"{"image_std":[0.5,0.5]}"#, "image_std"),
            (r#"{"image_std":0}"#, "image_std"),
            (r#"{"rescale_factor":0}"#, "rescale_factor"),
            (r#"{"patch_size":0}"#, "patch_size"),
            (r#"{"do_resize":1}"#, "do_resize"),
            ("[]", "parameters"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
