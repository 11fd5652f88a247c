//! What can go wrong in the core, split by whose fault it is.

use thiserror::Error;

/// Shorthand for results of the core.
pub type Result<T> = std::result::Result<T, CoreError>;

/// An error of the core. Each variant names the party that can mend it, and maps to one Python exception.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CoreError {
    /// The file is broken, or is no image: Pillow refuses it too.
    #[error("cannot decode {format} image: {reason}")]
    Decode {
        /// Name of the format as Pillow spells it, or `"unknown"`.
        format: &'static str,
        /// What is wrong with the file. Never quotes its content.
        reason: String,
    },
    /// The file may be fine, but no native decoder handles its format (Pillow may).
    #[error("no native decoder for {format} images")]
    UnsupportedFormat {
        /// Name of the format as Pillow spells it, or `"unknown"`.
        format: &'static str,
    },
    /// The policy refuses the input, before memory is taken for it.
    #[error("{what} is {value}, over the limit of {limit}")]
    LimitExceeded {
        /// The limited quantity with its unit, such as `"image size in pixels"`.
        what: &'static str,
        /// The value found.
        value: u64,
        /// The limit in force.
        limit: u64,
    },
    /// The caller passed something that can never work.
    #[error("invalid argument: {0}")]
    InvalidArgument(String),
    /// A fault of the core itself (a caught panic, say).
    #[error("internal error: {0}")]
    Internal(String),
}

impl CoreError {
    /// A [`CoreError::Decode`].
    pub fn decode(format: &'static str, reason: impl Into<String>) -> Self {
        Self::Decode { format, reason: reason.into() }
    }

    /// A [`CoreError::Internal`] with the message of a caught panic.
    pub fn from_panic(panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned());
        Self::Internal(text.unwrap_or_else(|| "a panic without a message".to_owned()))
    }

    /// A [`CoreError::InvalidArgument`].
    pub fn argument(reason: impl Into<String>) -> Self {
        Self::InvalidArgument(reason.into())
    }
}
