//! What every model family shares: thread pool, hashing, decoding, resizing, normalising, cutting.

pub mod bands;
pub mod base64;
pub mod bf16;
pub mod cut;
pub mod decode;
pub mod dims;
pub mod f16;
pub mod hash;
pub mod limits;
pub mod mapping;
pub mod memory;
pub mod normalise;
#[cfg(test)]
pub mod random;
pub mod resize;
pub mod simd;
pub mod streaming;
pub mod threads;
pub mod transforms;

pub use decode::{decode_rescale, image_decode_rgb, probe};
pub use dims::scaled_dims;
pub use hash::{data_hash, sha256_u64};
pub use limits::Limits;
pub use threads::pool;
