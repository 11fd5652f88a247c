//! Placeholder tokens and multimodal rotary positions of prompts that hold text and still images.

use std::ops::Range;

use crate::error::{CoreError, Result};

/// An image's place in the token sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageSpan {
    /// Its tokens.
    pub tokens: Range<usize>,
    /// Its patch grid: temporal, rows, columns.
    pub grid: [usize; 3],
}

/// Rotary positions of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Positions {
    /// `[3, len]`, row-major: temporal, vertical, horizontal.
    pub values: Vec<i64>,
    /// What to add to a token's index to get the position of the text that follows.
    pub delta: i64,
}

/// Tokens of an image whose grid is `grid`, when `merge` by `merge` patches become one.
///
/// # Errors
/// [`CoreError::InvalidArgument`] if the grid is empty or not made of whole tokens.
pub fn num_tokens(grid: [usize; 3], merge: usize) -> Result<usize> {
    let [time, rows, columns] = grid;
    if merge == 0 || grid.contains(&0) || !rows.is_multiple_of(merge) || !columns.is_multiple_of(merge) {
        return Err(CoreError::argument(format!(
            "a grid of {grid:?} patches is no whole number of tokens of {merge} x {merge}"
        )));
    }
    time.checked_mul(rows / merge)
        .and_then(|tokens| tokens.checked_mul(columns / merge))
        .ok_or_else(|| CoreError::argument("the grid is larger than any prompt"))
}

/// Positions of `len` tokens in which the images stand at `images`, in order.
///
/// Text counts on by one in all three rows. Within an image the rows hold the indices of its grid of tokens,
/// from where the text stood; the text after it goes on behind its longer side. As `get_rope_index` of
/// transformers for still images.
///
/// # Errors
/// [`CoreError::InvalidArgument`] where spans overlap, leave the prompt, or do not match their grid.
pub fn image_only(len: usize, images: &[ImageSpan], merge: usize) -> Result<Positions> {
    let mut values = vec![0; 3 * len];
    let (temporal, rest) = values.split_at_mut(len);
    let (vertical, horizontal) = rest.split_at_mut(len);
    let (mut at, mut position) = (0, 0_i64);
    let mut text = |range: Range<usize>, position: &mut i64| {
        for token in range {
            for row in [&mut *temporal, &mut *vertical, &mut *horizontal] {
                row[token] = *position;
            }
            *position += 1;
        }
    };
    let mut grids = Vec::with_capacity(images.len());
    for (index, ImageSpan { tokens, grid }) in images.iter().enumerate() {
        let Range { start, end } = *tokens;
        if start < at || end < start || end > len {
            return Err(CoreError::argument(format!(
                "image {index} stands at tokens {start} to {end} of {len}, which overlap another or leave the prompt"
            )));
        }
        if num_tokens(*grid, merge)? != end - start {
            return Err(CoreError::argument(format!(
                "image {index} has {} tokens, but its grid of {grid:?} patches makes {}",
                end - start,
                num_tokens(*grid, merge)?
            )));
        }
        text(at..start, &mut position);
        grids.push((start, position, [grid[0], grid[1] / merge, grid[2] / merge]));
        position += (grid[1].max(grid[2]) / merge) as i64;
        at = end;
    }
    text(at..len, &mut position);
    for (start, base, [time, rows, columns]) in grids {
        let mut token = start;
        for t in 0..time {
            for row in 0..rows {
                for column in 0..columns {
                    temporal[token] = base + t as i64;
                    vertical[token] = base + row as i64;
                    horizontal[token] = base + column as i64;
                    token += 1;
                }
            }
        }
    }
    let last = values.iter().copied().max().unwrap_or(-1);
    Ok(Positions { values, delta: last + 1 - len as i64 })
}

/// Replaces each placeholder, one an image, by as many as the image has tokens: the new ids and, for each
/// image, the range of its tokens.
///
/// # Errors
/// [`CoreError::InvalidArgument`] if there are more or fewer placeholders than images.
pub fn expand_placeholders(
    input_ids: &[i64],
    placeholder: i64,
    num_tokens: &[usize],
) -> Result<(Vec<i64>, Vec<Range<usize>>)> {
    let found = input_ids.iter().filter(|&&id| id == placeholder).count();
    if found != num_tokens.len() {
        return Err(CoreError::argument(format!(
            "the prompt has {found} image placeholders, but there are {} images; put one for each",
            num_tokens.len()
        )));
    }
    let mut expanded = Vec::with_capacity(input_ids.len() + num_tokens.iter().sum::<usize>());
    let mut ranges = Vec::with_capacity(num_tokens.len());
    let mut images = num_tokens.iter();
    for &id in input_ids {
        let repeat = if id == placeholder { images.next().copied().unwrap_or(1) } else { 1 };
        let start = expanded.len();
        expanded.extend(std::iter::repeat_n(id, repeat));
        if id == placeholder {
            ranges.push(start..expanded.len());
        }
    }
    Ok((expanded, ranges))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_image_text() {
        let image = ImageSpan { tokens: 1..7, grid: [1, 4, 6] };
        let Positions { values, delta } = image_only(8, &[image], 2).expect("valid");
        assert_eq!(values[..8], [0, 1, 1, 1, 1, 1, 1, 4]);
        assert_eq!(values[8..16], [0, 1, 1, 1, 2, 2, 2, 4]);
        assert_eq!(values[16..], [0, 1, 2, 3, 1, 2, 3, 4]);
        assert_eq!(delta, -3);
    }

    #[test]
    fn an_image_may_open_and_close_the_prompt() {
        let images = [(0..6, [1, 4, 6]), (7..13, [1, 4, 6])].map(|(tokens, grid)| ImageSpan { tokens, grid });
        let Positions { values, delta } = image_only(13, &images, 2).expect("valid");
        assert_eq!(values[26..], [0, 1, 2, 0, 1, 2, 3, 4, 5, 6, 4, 5, 6]);
        assert_eq!(delta, -6);
        assert_eq!(image_only(0, &[], 2), Ok(Positions { values: vec![], delta: 0 }));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let at = |tokens: Range<usize>, grid| image_only(8, &[ImageSpan { tokens, grid }], 2);
        assert!(at(2..8, [1, 4, 6]).is_ok());
        assert!(at(3..9, [1, 4, 6]).is_err());
        assert!(at(2..7, [1, 4, 6]).is_err());
        assert!(at(2..8, [1, 3, 8]).is_err());
        let overlapping =
            [(0..6, [1, 4, 6]), (2..8, [1, 4, 6])].map(|(tokens, grid)| ImageSpan { tokens, grid });
        assert!(image_only(8, &overlapping, 2).is_err());
        assert!(expand_placeholders(&[1, 9, 2], 9, &[2, 3]).is_err());
    }

    #[test]
    fn placeholders_expand_in_order() {
        let expanded = expand_placeholders(&[9, 3, 9, 9], 9, &[2, 1, 3]).expect("valid");
        assert_eq!(expanded, (vec![9, 9, 3, 9, 9, 9, 9], vec![0..2, 3..4, 4..7]));
    }
}
