//! Pixels of one or four components to RGB, as Pillow converts its modes `L` and `CMYK`.

/// Repeats each grey value.
pub fn grey_to_rgb(grey: &[u8], rgb: &mut [u8]) {
    for (pixel, &value) in rgb.as_chunks_mut::<3>().0.iter_mut().zip(grey) {
        *pixel = [value; 3];
    }
}

/// CMYK as stored in the file, which Pillow takes to be inverted whatever the Adobe marker says.
pub fn inverted_cmyk_to_rgb(cmyk: &[u8], rgb: &mut [u8]) {
    for (pixel, &[c, m, y, k]) in rgb.as_chunks_mut::<3>().0.iter_mut().zip(cmyk.as_chunks::<4>().0) {
        *pixel = [c, m, y].map(|ink| k.saturating_sub(scale(255 - ink, k)));
    }
}

// a * b / 255, rounded, without a division.
fn scale(a: u8, b: u8) -> u8 {
    let product = u32::from(a) * u32::from(b) + 128;
    (((product >> 8) + product) >> 8) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_is_the_rounded_quotient() {
        for a in 0..=255_u8 {
            for b in 0..=255_u8 {
                let exact = (f64::from(a) * f64::from(b) / 255.0).round();
                assert_eq!(f64::from(scale(a, b)), exact, "{a} {b}");
            }
        }
    }

    #[test]
    fn known_inks() {
        let mut rgb = [0; 6];
        inverted_cmyk_to_rgb(&[255 - 10, 255 - 200, 255 - 30, 255 - 40, 0, 0, 0, 255], &mut rgb);
        assert_eq!(rgb, [207, 46, 190, 0, 0, 0]);
        grey_to_rgb(&[3, 9], &mut rgb);
        assert_eq!(rgb, [3, 3, 3, 9, 9, 9]);
    }
}
