//! Size rules: from the size of a picture to the size it is resized to. One rule a file, each a pure function.

pub mod contain;
pub mod glm;
pub mod grids;
pub mod most_patches;
pub mod muse;
pub mod navit;
pub mod shortest_edge;
pub mod smart;
pub mod soft_tokens;
pub mod whole_tokens;

pub use crate::common::dims::scaled_dims as scaled_long_edge;
pub use contain::contain;
pub use glm::{Fitted, glm_image, glm4v, glm5_next};
pub use grids::{best_resolution, closest_grid, within_rounded_up, without_distortion};
pub use most_patches::most_patches;
pub use muse::{muse_glimmer, muse_spark};
pub use navit::{navit, up_to_multiple};
pub use shortest_edge::shortest_edge;
pub use smart::smart_resize;
pub use soft_tokens::soft_tokens;
pub use whole_tokens::{check_aspect, ernie, floored, paddleocr_vl, rounded, whole_tokens};
