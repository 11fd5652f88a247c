//! Size rules: from the size of a picture to the size it is resized to. One rule a file, each a pure function.

pub mod smart;

pub use crate::common::dims::scaled_dims as scaled_long_edge;
pub use smart::smart_resize;
