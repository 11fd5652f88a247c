//! The blocks that a family's recipe is made of: pure data, and how it becomes sizes, offsets and tables.
//!
//! | block | says |
//! | --- | --- |
//! | [`load`] | which colours a file becomes |
//! | [`size`] | size rules, one file each |
//! | [`view`] | a cut of the source, resized and placed on a canvas |
//! | [`merged`] | Qwen's order of patches, which many models share |
//! | [`layout`] | in which order the canvas becomes values |
//! | [`arithmetic`] | what a byte becomes |
//! | [`plan`] | what an image of one size becomes: views, tensors, tokens |
//! | [`request`] | what a plan may depend on beside the image |
//! | [`mrope`] | positions of a prompt's tokens |

pub mod arithmetic;
pub mod checkpoint;
pub mod family;
pub mod layout;
pub mod load;
pub mod merged;
pub mod mrope;
pub mod normalisation;
pub mod plan;
pub mod request;
pub mod size;
pub mod view;

pub use crate::common::resize::Filter;
pub use arithmetic::{Arithmetic, Backend};
pub use family::{Declared, Family, FamilySpec};
pub use layout::{Inside, Layout};
pub use load::{Load, Source};
pub use normalisation::Normalisation;
pub use plan::{Extra, Half, Plan, PlannedTensor, Values};
pub use request::Request;
pub use view::{Fill, Place, Rect, View};
