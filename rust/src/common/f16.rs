//! The scalar conversion to half precision.

/// Rounds an `f32` to the bits of an IEEE half, nearest even; beyond its range it becomes infinite.
pub fn f32_to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16) as u16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    if magnitude > 0x7f80_0000 {
        return sign | 0x7e00;
    }
    // From 65520 on the nearest half is infinity.
    if magnitude >= 0x477f_f000 {
        return sign | 0x7c00;
    }
    // Below 2^-14 halves are multiples of 2^-24, and adding 0.5 has the processor round to one.
    if magnitude < 0x3880_0000 {
        let rounded = f32::from_bits(magnitude) + 0.5;
        return sign | (rounded.to_bits() - 0.5_f32.to_bits()) as u16;
    }
    let rounded = magnitude - (112 << 23) + 0x0fff + ((magnitude >> 13) & 1);
    sign | (rounded >> 13) as u16
}

#[cfg(test)]
mod tests {
    use super::f32_to_f16;

    // From numpy: `np.float32(x).astype(np.float16).view(np.uint16)`.
    #[test]
    fn rounds_as_numpy_does() {
        for (value, bits) in [
            (0.0_f32, 0x0000),
            (-0.0, 0x8000),
            (1.0, 0x3c00),
            (0.1, 0x2e66),
            (-2.117_904, 0xc03c),
            (1.000_488_3, 0x3c00),
            (1.001_464_8, 0x3c02),
            (65504.0, 0x7bff),
            (65519.99, 0x7bff),
            (65520.0, 0x7c00),
            (f32::NEG_INFINITY, 0xfc00),
            (6.1e-5, 0x03ff),
            (6.0e-5, 0x03ef),
            (5.96e-8, 0x0001),
            (2.98e-8, 0x0000),
            (2.99e-8, 0x0001),
        ] {
            assert_eq!(f32_to_f16(value), bits, "{value}");
        }
        assert!(f32_to_f16(f32::NAN) & 0x7fff > 0x7c00);
    }
}
