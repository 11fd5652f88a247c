//! What a model family says: how its parameters become a recipe.

use serde::Serialize;

use super::arithmetic::Arithmetic;
use super::checkpoint::Checkpoint;
use super::load::{Load, Source};
use super::plan::Plan;
use super::request::Request;
use crate::error::{CoreError, Result};

/// A family with its parameters fixed. Pure: equal input gives equal output on every machine.
pub trait Family: Send + Sync {
    /// What bytes become.
    fn arithmetic(&self) -> Arithmetic;

    /// How files are loaded.
    fn load(&self) -> Load {
        Load::Rgb
    }

    /// Names of the facts of a request that its plans depend on.
    fn request_facts(&self) -> &'static [&'static str] {
        &[]
    }

    /// What a picture of one size becomes.
    ///
    /// # Errors
    /// [`CoreError::InvalidArgument`] if the model forbids the size.
    fn plan(&self, source: Source, request: &Request) -> Result<Plan>;

    /// What a picture becomes that was resized by this family already, if the source's size is not needed for that.
    ///
    /// # Errors
    /// As [`Self::plan`].
    fn plan_of_resized(&self, resized: Source) -> Result<Plan> {
        let _ = resized;
        Err(CoreError::argument("this family cuts pixels by the size of their source; pass it"))
    }
}

/// What the parameters of a checkpoint became.
pub struct Declared {
    /// The family with its parameters.
    pub family: Box<dyn Family>,
    /// All parameters, defaults filled in, as canonical JSON: equal text means equal results.
    pub parameters_json: String,
}

impl Declared {
    /// For a family that is its parameters.
    ///
    /// # Errors
    /// [`CoreError::Internal`] if the parameters are no JSON.
    pub fn new(family: impl Family + Serialize + 'static) -> Result<Self> {
        let parameters_json =
            serde_json::to_string(&family).map_err(|error| CoreError::Internal(error.to_string()))?;
        Ok(Self { family: Box::new(family), parameters_json })
    }
}

/// A family by its name.
#[derive(Debug, Clone, Copy)]
pub struct FamilySpec {
    /// The name in the registry.
    pub name: &'static str,
    /// Reads its parameters.
    pub read: fn(&mut Checkpoint) -> Result<Declared>,
}

impl FamilySpec {
    /// Reads parameters from a JSON object (`"{}"` for all defaults).
    ///
    /// # Errors
    /// [`CoreError::InvalidArgument`] that names the family, the field and the way out.
    pub fn declare(&self, parameters_json: &str) -> Result<Declared> {
        let mut fields = Checkpoint::parse(self.name, parameters_json)?;
        let declared = (self.read)(&mut fields)?;
        fields.refuse_the_rest()?;
        Ok(declared)
    }
}
