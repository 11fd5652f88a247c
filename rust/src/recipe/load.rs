//! Which colours a file becomes before anything else is done with it.

/// A picture's size, and what else a plan may ask of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// Width in pixels.
    pub width: usize,
    /// Height in pixels.
    pub height: usize,
    /// Whether the file has transparency.
    pub has_alpha: bool,
}

impl Source {
    /// An opaque picture.
    pub fn opaque(width: usize, height: usize) -> Self {
        Self { width, height, has_alpha: false }
    }
}

/// How pixels are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Load {
    /// `convert("RGB")` of Pillow: transparency is dropped.
    #[default]
    Rgb,
    /// Turned as EXIF says, and transparency put on a grey that contrasts, as SGLang loads images of GLM's models. The core
    /// loads such files as [`Self::Rgb`]; the workers look first, and hand it the pixels.
    Upright,
}

impl Load {
    /// Its name in Python.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rgb => "rgb",
            Self::Upright => "upright",
        }
    }
}
