//! What an image of one size becomes: known from its header and the request, before any pixel.

use super::load::Source;
use super::view::View;
use crate::error::{CoreError, Result};
use crate::tensor::{DType, TensorSpec, Transport};

/// Which 16-bit type a tensor has where the transport is of 16 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Half {
    /// bfloat16.
    #[default]
    Bf16,
    /// IEEE half precision.
    F16,
}

/// A tensor of normalised values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedTensor {
    /// Name under which consumers ask for it.
    pub name: &'static str,
    /// Row-major shape. What the views of the tensor leave of it is zero.
    pub shape: Vec<usize>,
    /// Its 16-bit type.
    pub half: Half,
}

impl PlannedTensor {
    /// A tensor that is bfloat16 where the transport is of 16 bits.
    pub fn new(name: &'static str, shape: Vec<usize>) -> Self {
        Self { name, shape, half: Half::Bf16 }
    }

    /// Its values.
    pub fn len(&self) -> usize {
        self.shape.iter().fold(1, |values: usize, &len| values.saturating_mul(len))
    }

    /// Whether it has no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn spec(&self, transport: Transport) -> TensorSpec {
        let dtype = match (transport, self.half) {
            (Transport::Float32, _) => DType::F32,
            (_, Half::Bf16) => DType::Bf16,
            (_, Half::F16) => DType::F16,
        };
        TensorSpec { name: self.name, dtype, shape: self.shape.clone() }
    }
}

/// Values that the plan itself knows.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// Signed 64-bit integers.
    I64(Vec<i64>),
    /// Signed 32-bit integers.
    I32(Vec<i32>),
    /// Single precision.
    F32(Vec<f32>),
}

/// A small tensor beside the pixels: grids, sizes, positions, masks.
#[derive(Debug, Clone, PartialEq)]
pub struct Extra {
    /// Name under which consumers ask for it.
    pub name: &'static str,
    /// Row-major shape.
    pub shape: Vec<usize>,
    /// Its values.
    pub values: Values,
}

impl Extra {
    /// Its name, type and shape.
    pub fn spec(&self) -> TensorSpec {
        let dtype = match &self.values {
            Values::I64(_) => DType::I64,
            Values::I32(_) => DType::I32,
            Values::F32(_) => DType::F32,
        };
        TensorSpec { name: self.name, dtype, shape: self.shape.clone() }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        match &self.values {
            Values::I64(values) => bytemuck::cast_slice(values),
            Values::I32(values) => bytemuck::cast_slice(values),
            Values::F32(values) => bytemuck::cast_slice(values),
        }
    }
}

/// What an image of one size becomes.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The views; those of one tensor follow each other in it. The first one's size is that of the image.
    pub views: Vec<View>,
    /// The tensors of normalised values.
    pub tensors: Vec<PlannedTensor>,
    /// The tensors beside them.
    pub extras: Vec<Extra>,
    /// Patch grid: temporal, rows, columns.
    pub grid: [usize; 3],
    /// Placeholder tokens that stand for the image in the prompt.
    pub num_tokens: usize,
}

impl Plan {
    /// A plan of one view that becomes one tensor.
    pub fn of_one_view(view: View, tensor: PlannedTensor, grid: [usize; 3], num_tokens: usize) -> Self {
        Self { views: vec![view], tensors: vec![tensor], extras: Vec::new(), grid, num_tokens }
    }

    /// With another small tensor of 64-bit integers.
    #[must_use]
    pub fn with_i64(self, name: &'static str, shape: Vec<usize>, values: Vec<i64>) -> Self {
        self.with(Extra { name, shape, values: Values::I64(values) })
    }

    /// With another small tensor.
    #[must_use]
    pub fn with(mut self, extra: Extra) -> Self {
        self.extras.push(extra);
        self
    }

    /// `(width, height)` after the resize of the first view.
    pub fn size(&self) -> (usize, usize) {
        self.views.first().map_or((0, 0), |view| (view.width, view.height))
    }

    /// The normalised tensors, as late normalising makes them, one after the other.
    ///
    /// # Errors
    /// [`CoreError::InvalidArgument`] for `Uint8`, which normalises nothing.
    pub fn normalised(&self, transport: Transport) -> Result<Vec<TensorSpec>> {
        if transport == Transport::Uint8 {
            return Err(CoreError::argument("uint8 pixels are not patches; choose bf16 or float32"));
        }
        Ok(self.tensors.iter().map(|tensor| tensor.spec(transport)).collect())
    }

    /// The tensors that are made of pixels: for `Uint8` the resized pixels of all views, one after the other, in place of
    /// the normalised ones.
    pub fn pixel_tensors(&self, transport: Transport) -> Vec<TensorSpec> {
        self.normalised(transport).unwrap_or_else(|_| vec![self.pixels()])
    }

    /// All tensors that are handed out.
    pub fn specs(&self, transport: Transport) -> Vec<TensorSpec> {
        let mut specs = self.pixel_tensors(transport);
        specs.extend(self.extras.iter().map(Extra::spec));
        specs
    }

    // `[height, width, 3]` of a single view, else `[pixels of all, 3]`.
    fn pixels(&self) -> TensorSpec {
        let shape = match &self.views[..] {
            [view] => vec![view.keep.height, view.keep.width, 3],
            views => {
                let pixels = views.iter().map(View::kept_pixels).fold(0, usize::saturating_add);
                vec![pixels, 3]
            }
        };
        TensorSpec { name: "pixels", dtype: DType::U8, shape }
    }

    /// Refuses a plan that contradicts itself: a fault of the family, or a size that it does not provide for.
    ///
    /// # Errors
    /// [`CoreError::InvalidArgument`], [`CoreError::Internal`].
    pub fn check(&self, source: Source) -> Result<()> {
        self.views.iter().try_for_each(|view| view.check(source))?;
        for (index, tensor) in self.tensors.iter().enumerate() {
            let views = self.views.iter().filter(|view| view.tensor == index);
            let values = views.map(|view| view.values().saturating_add(view.zeros_behind));
            let values = values.fold(0, usize::saturating_add);
            if values > tensor.len() {
                return Err(CoreError::Internal(format!(
                    "{} has {} values, but its views {values}",
                    tensor.name,
                    tensor.len()
                )));
            }
        }
        for extra in &self.extras {
            if extra.bytes().len() != extra.spec().size_bytes() {
                return Err(CoreError::Internal(format!("{} has values of another shape", extra.name)));
            }
        }
        let is_sound = self.views.iter().all(|view| view.tensor < self.tensors.len());
        if is_sound { Ok(()) } else { Err(CoreError::Internal("a view of no tensor".to_owned())) }
    }
}
