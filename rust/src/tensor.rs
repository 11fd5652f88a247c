//! What a processor hands out: named tensors in pooled memory.

use crate::common::memory::Buffer;
use crate::error::{CoreError, Result};

/// Element type of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DType {
    /// Unsigned byte.
    U8,
    /// bfloat16, as its 16 bits.
    Bf16,
    /// IEEE half.
    F16,
    /// IEEE single.
    F32,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer.
    I64,
}

impl DType {
    /// Bytes of one element.
    pub fn size_bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::Bf16 | Self::F16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::I64 => 8,
        }
    }

    /// Name as numpy and safetensors users know it.
    pub fn name(self) -> &'static str {
        match self {
            Self::U8 => "uint8",
            Self::Bf16 => "bfloat16",
            Self::F16 => "float16",
            Self::F32 => "float32",
            Self::I32 => "int32",
            Self::I64 => "int64",
        }
    }
}

/// What the consumer wants to receive for the pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Normalised values in 16 bits: bfloat16, but where a model has half precision.
    Bf16,
    /// Normalised values, float32.
    Float32,
    /// Resized pixels, to be normalised and cut later.
    Uint8,
}

impl Transport {
    /// Parses `"bf16"`, `"float32"` or `"uint8"`.
    ///
    /// # Errors
    /// [`CoreError::InvalidArgument`] for any other text.
    pub fn parse(text: &str) -> Result<Self> {
        match text {
            "bf16" => Ok(Self::Bf16),
            "float32" => Ok(Self::Float32),
            "uint8" => Ok(Self::Uint8),
            other => Err(CoreError::argument(format!(
                "transport {other:?} is unknown; choose \"bf16\", \"uint8\" or \"float32\""
            ))),
        }
    }
}

/// Name, type and shape of a tensor that is yet to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSpec {
    /// Name under which consumers ask for it.
    pub name: &'static str,
    /// Element type.
    pub dtype: DType,
    /// Row-major shape.
    pub shape: Vec<usize>,
}

impl TensorSpec {
    /// Bytes of all elements.
    pub fn size_bytes(&self) -> usize {
        // Saturating, since limits are checked after planning: no memory holds `usize::MAX` bytes.
        self.shape.iter().fold(self.dtype.size_bytes(), |bytes, &len| bytes.saturating_mul(len))
    }
}

/// A named tensor, contiguous and row-major.
#[derive(Debug)]
pub struct Tensor {
    /// Name, type and shape.
    pub spec: TensorSpec,
    /// `spec.size_bytes()` bytes in native byte order.
    pub data: Buffer,
}
