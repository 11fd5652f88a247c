//! The parameters of the Inkling family.

use serde::{Deserialize, Serialize};

use crate::error::{CoreError, Result};

const MOST_PATCH_PX: usize = 4096;

/// The family's parameters, with the model's defaults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InklingParameters {
    /// Side of a patch, in pixels.
    pub patch_size: usize,
    /// Factor of the long edge; `None` keeps the size.
    pub rescale_frac: Option<f64>,
    /// Bound on growth of the long edge, in pixels; needs `rescale_frac > 1`.
    pub rescale_cap: Option<i64>,
    /// Mean of each channel, in `0..=1`.
    pub mean: [f32; 3],
    /// Standard deviation of each channel.
    pub std: [f32; 3],
}

impl Default for InklingParameters {
    fn default() -> Self {
        Self {
            patch_size: 40,
            rescale_frac: Some(2.0),
            rescale_cap: Some(2048),
            mean: [0.481_454_66, 0.457_827_5, 0.408_210_73],
            std: [0.268_629_54, 0.261_302_6, 0.275_777_1],
        }
    }
}

impl InklingParameters {
    /// Refuses what the model forbids.
    ///
    /// # Errors
    /// [`CoreError::InvalidArgument`] that names the parameter and the way out.
    pub fn validate(&self) -> Result<()> {
        self.validate_patches()?;
        if let Some(frac) = self.rescale_frac
            && !(frac.is_finite() && frac > 0.0)
        {
            return Err(CoreError::argument(format!(
                "rescale_frac is {frac}; it must be finite and positive"
            )));
        }
        if let Some(cap) = self.rescale_cap {
            if cap <= 0 {
                return Err(CoreError::argument(format!("rescale_cap is {cap}; it must be positive")));
            }
            if self.rescale_frac.is_none_or(|frac| frac <= 1.0) {
                return Err(CoreError::argument("rescale_cap limits growth, so it needs rescale_frac > 1"));
            }
        }
        Ok(())
    }

    /// Refuses what makes no patches; the published functions take any rescale.
    ///
    /// # Errors
    /// As [`Self::validate`].
    pub fn validate_patches(&self) -> Result<()> {
        if self.patch_size == 0 || self.patch_size > MOST_PATCH_PX {
            return Err(CoreError::argument(format!(
                "patch_size is {}; choose 1 to {MOST_PATCH_PX}",
                self.patch_size
            )));
        }
        if self.std.iter().any(|&std| std == 0.0 || !std.is_finite())
            || self.mean.iter().any(|mean| !mean.is_finite())
        {
            return Err(CoreError::argument("mean and std must be finite and std not 0"));
        }
        Ok(())
    }
}
