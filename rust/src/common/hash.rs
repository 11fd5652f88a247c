//! Content hashes: SHA-256 of the encoded bytes, whole and cut to SGLang's 64 bits.

use sha2::{Digest, Sha256};

/// The 256 bits that every cache keys on.
pub type ContentDigest = [u8; 32];

/// SHA-256 of `data`.
pub fn content_digest(data: &[u8]) -> ContentDigest {
    Sha256::digest(data).into()
}

/// SGLang's `data_hash` of a digest: its first 8 bytes, big-endian.
pub fn digest_u64(digest: &ContentDigest) -> u64 {
    digest.iter().take(8).fold(0, |acc, &byte| (acc << 8) | u64::from(byte))
}

/// First 8 bytes of SHA-256 of `data`, big-endian.
pub fn sha256_u64(data: &[u8]) -> u64 {
    digest_u64(&content_digest(data))
}

/// `content_hash` of the published API: the first 8 bytes of BLAKE3, big-endian. Not [`data_hash`], and
/// nothing here keys on it.
pub fn blake3_u64(data: &[u8]) -> u64 {
    digest_u64(blake3::hash(data).as_bytes())
}

/// The published name of [`sha256_u64`].
pub fn data_hash(data: &[u8]) -> u64 {
    sha256_u64(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_sha256_test_vector() {
        // FIPS 180-2, "abc": ba7816bf 8f01cfea ...
        assert_eq!(sha256_u64(b"abc"), 0xba78_16bf_8f01_cfea);
        assert_eq!(sha256_u64(b""), 0xe3b0_c442_98fc_1c14);
        // BLAKE3's own test vector for the empty input: af1349b9f5f9a1a6 ...
        assert_eq!(blake3_u64(b""), 0xaf13_49b9_f5f9_a1a6);
    }
}
