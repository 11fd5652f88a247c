//! Facts of a request that a plan may depend on beside the image.

use serde_json::{Map, Value};

use crate::error::{CoreError, Result};

/// Facts of a request, by name. An empty one is what families take for granted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Request(Map<String, Value>);

impl Request {
    /// How many images the request has.
    pub const NUM_IMAGES: &'static str = "num_images";
    /// Tokens that all images of the request may have together.
    pub const TOKEN_BUDGET: &'static str = "token_budget";

    /// Reads a JSON object.
    ///
    /// # Errors
    /// [`CoreError::InvalidArgument`] for anything else.
    pub fn parse(json: &str) -> Result<Self> {
        match serde_json::from_str(json) {
            Ok(Value::Object(facts)) => Ok(Self(facts)),
            _ => Err(CoreError::argument("the facts of a request must be a JSON object")),
        }
    }

    /// A whole number, if the request says it.
    ///
    /// # Errors
    /// [`CoreError::InvalidArgument`] if it is something else.
    pub fn count(&self, name: &str) -> Result<Option<usize>> {
        let Some(value) = self.0.get(name).filter(|value| !value.is_null()) else { return Ok(None) };
        let count = value.as_u64().and_then(|count| usize::try_from(count).ok());
        count.map(Some).ok_or_else(|| {
            CoreError::argument(format!("the request's {name} must be a whole number, not below 0"))
        })
    }

    /// A text, if the request says it.
    ///
    /// # Errors
    /// [`CoreError::InvalidArgument`] if it is something else.
    pub fn text(&self, name: &str) -> Result<Option<&str>> {
        let Some(value) = self.0.get(name).filter(|value| !value.is_null()) else { return Ok(None) };
        let text = value.as_str();
        text.map(Some).ok_or_else(|| CoreError::argument(format!("the request's {name} must be a text")))
    }

    /// What of it changes the results of a family that asks for `names`, as canonical JSON; refuses what the family
    /// does not know. The number of images and the token budget are facts of every request, so any family takes them.
    ///
    /// # Errors
    /// [`CoreError::InvalidArgument`] that names the fact.
    pub fn key(&self, names: &[&str]) -> Result<String> {
        let is_known =
            |name: &str| names.contains(&name) || [Self::NUM_IMAGES, Self::TOKEN_BUDGET].contains(&name);
        if let Some(name) = self.0.keys().find(|name| !is_known(name)) {
            return Err(CoreError::argument(format!(
                "this family has no use for {name} in a request; it knows {}",
                if names.is_empty() { "nothing of one".to_owned() } else { names.join(", ") }
            )));
        }
        // serde_json keeps the keys of an object sorted.
        let used: Map<String, Value> = self
            .0
            .iter()
            .filter(|(name, value)| names.contains(&name.as_str()) && !value.is_null())
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        Ok(if used.is_empty() { String::new() } else { Value::Object(used).to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_by_name_and_only_those_in_use_are_part_of_the_key() {
        let request = Request::parse(r#"{"num_images":3,"detail":"high","gone":null}"#).expect("an object");
        assert_eq!((request.count("num_images"), request.count("gone")), (Ok(Some(3)), Ok(None)));
        assert_eq!(request.text("detail"), Ok(Some("high")));
        assert!(request.count("detail").is_err() && request.text("num_images").is_err());
        assert_eq!(request.key(&["detail", "gone"]).as_deref(), Ok(r#"{"detail":"high"}"#));
        assert_eq!(
            request.key(&["num_images", "detail", "gone"]).as_deref(),
            Ok(r#"{"detail":"high","num_images":3}"#)
        );
        assert!(request.key(&[]).is_err_and(|error| error.to_string().contains("detail")));
        assert_eq!(Request::default().key(&["detail"]).as_deref(), Ok(""));
        for bad in ["[]", "3", "{"] {
            assert!(Request::parse(bad).is_err());
        }
    }
}
