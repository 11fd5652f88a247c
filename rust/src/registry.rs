//! Model families, by name: those of [`crate::families::ALL`], and whatever else is registered.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use crate::common::limits::Limits;
use crate::error::{CoreError, Result};
use crate::families;
use crate::pipeline::{self, Job, Processed};
use crate::processor::Processor;
use crate::recipe::{FamilySpec, Request};
use crate::tensor::Transport;

/// A model family: builds processors from its parameters.
pub trait ImageProcessorSpec: Send + Sync {
    /// Name in the registry.
    fn name(&self) -> &'static str;

    /// Builds a processor from the family's parameters as a JSON object (`"{}"` for all defaults).
    ///
    /// # Errors
    /// [`CoreError::InvalidArgument`] for an unknown or impossible parameter.
    fn configure(&self, parameters_json: &str) -> Result<Arc<Processor>>;

    /// Preprocesses encoded images side by side on [`crate::common::pool`], each with a result of its own.
    ///
    /// # Errors
    /// The outer error is that of [`Self::configure`].
    fn preprocess_batch(
        &self,
        datas: &[&[u8]],
        parameters_json: &str,
        transport: Transport,
        limits: &Limits,
    ) -> Result<Vec<Result<Processed>>> {
        let (processor, request) = (self.configure(parameters_json)?, Request::default());
        let job = Job { processor: &processor, request: &request, transport, limits };
        Ok(pipeline::preprocess_batch(job, datas, &[]))
    }
}

impl ImageProcessorSpec for FamilySpec {
    fn name(&self) -> &'static str {
        self.name
    }

    fn configure(&self, parameters_json: &str) -> Result<Arc<Processor>> {
        Ok(Arc::new(Processor::new(self.name, self.declare(parameters_json)?)))
    }
}

/// The families by name.
#[derive(Default)]
pub struct ProcessorRegistry {
    families: BTreeMap<&'static str, Box<dyn ImageProcessorSpec>>,
}

impl ProcessorRegistry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a family; a later one of the same name replaces the earlier.
    pub fn register(&mut self, family: Box<dyn ImageProcessorSpec>) {
        self.families.insert(family.name(), family);
    }

    /// Looks a family up.
    ///
    /// # Errors
    /// [`CoreError::InvalidArgument`] that lists the known names.
    pub fn get(&self, name: &str) -> Result<&dyn ImageProcessorSpec> {
        self.families.get(name).map(|family| &**family).ok_or_else(|| {
            CoreError::argument(format!("no processor {name:?}; known: {}", self.names().join(", ")))
        })
    }

    /// All families, in the order of their names.
    pub fn families(&self) -> impl Iterator<Item = &dyn ImageProcessorSpec> {
        self.families.values().map(|family| &**family)
    }

    /// Names of all families, sorted.
    pub fn names(&self) -> Vec<&'static str> {
        self.families.keys().copied().collect()
    }
}

/// The families that this build ships.
pub fn default_registry() -> &'static ProcessorRegistry {
    static REGISTRY: LazyLock<ProcessorRegistry> = LazyLock::new(|| {
        let mut registry = ProcessorRegistry::new();
        for family in families::ALL {
            registry.register(Box::new(*family));
        }
        registry
    });
    &REGISTRY
}
