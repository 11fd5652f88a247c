//! The reference: a table of each channel.

use super::Lines;

/// Writes the table's entry for each byte.
pub(super) fn look_up<T: Copy>(table: &[[T; 256]; 3], lines: Lines<'_>, out: &mut [T], out_stride: usize) {
    for (bytes, values) in lines.zip(out, out_stride) {
        look_up_line(table, 0, bytes, values);
    }
}

/// Writes the entries of one line whose first byte is of channel `channel`.
pub(super) fn look_up_line<T: Copy>(table: &[[T; 256]; 3], channel: usize, bytes: &[u8], out: &mut [T]) {
    // Whole pixels first: three known tables are quicker than a counter.
    let lead = (3 - channel) % 3;
    let (first, bytes) = bytes.split_at(lead.min(bytes.len()));
    let (first_out, out) = out.split_at_mut(first.len());
    for (at, (value, &byte)) in first_out.iter_mut().zip(first).enumerate() {
        *value = table[(channel + at) % 3][usize::from(byte)];
    }
    let (pixels, rest) = bytes.as_chunks::<3>();
    let (triples, rest_out) = out.as_chunks_mut::<3>();
    for ([red, green, blue], pixel) in triples.iter_mut().zip(pixels) {
        *red = table[0][usize::from(pixel[0])];
        *green = table[1][usize::from(pixel[1])];
        *blue = table[2][usize::from(pixel[2])];
    }
    for ((value, &byte), table) in rest_out.iter_mut().zip(rest).zip(table) {
        *value = table[usize::from(byte)];
    }
}
