//! Rescaling and normalising, as checkpoints name it.

use serde::Serialize;

use super::arithmetic::{Arithmetic, Backend};

/// How bytes are rescaled and normalised, by the names of transformers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Normalisation {
    /// Whether to multiply by `rescale_factor`.
    pub do_rescale: bool,
    /// Whether to subtract the mean and divide by the standard deviation.
    pub do_normalize: bool,
    /// Mean of each channel.
    pub image_mean: [f64; 3],
    /// Standard deviation of each channel.
    pub image_std: [f64; 3],
    /// Factor of the bytes.
    pub rescale_factor: f64,
}

impl Normalisation {
    /// Rescaled by 1/255 and normalised.
    pub const fn new(image_mean: [f64; 3], image_std: [f64; 3]) -> Self {
        Self { do_rescale: true, do_normalize: true, image_mean, image_std, rescale_factor: 1.0 / 255.0 }
    }

    /// OpenAI's CLIP.
    pub const CLIP: Self =
        Self::new([0.481_454_66, 0.457_827_5, 0.408_210_73], [0.268_629_54, 0.261_302_58, 0.275_777_11]);
    /// One half each: -1 to 1.
    pub const HALF: Self = Self::new([0.5; 3], [0.5; 3]);
    /// ImageNet's.
    pub const IMAGENET: Self = Self::new([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);

    /// As a backend of transformers does it.
    pub fn arithmetic(&self, backend: Backend) -> Arithmetic {
        let rescale = self.do_rescale.then_some(self.rescale_factor);
        Arithmetic::of_backend(
            backend,
            rescale,
            self.do_normalize.then_some((self.image_mean, self.image_std)),
        )
    }
}
