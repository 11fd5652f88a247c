//! Model families, by name. A family is one folder with an [`ImageProcessorSpec`] and one line in
//! [`default_registry`].

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::error::{CoreError, Result};
pub use crate::family::ImageProcessorSpec;

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
        registry.register(Box::new(crate::inkling::InklingSpec));
        registry.register(Box::new(crate::qwen_vl::QwenVlSpec));
        registry
    });
    &REGISTRY
}
