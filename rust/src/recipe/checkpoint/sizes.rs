//! The ways in which checkpoints say a size.

use serde::Serialize;
use serde_json::Value;

use super::{Checkpoint, MOST_PX};
use crate::error::Result;

/// Pixel budget of a resized picture, by the names of transformers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PixelBudget {
    /// Most pixels.
    pub longest_edge: u64,
    /// Fewest pixels.
    pub shortest_edge: u64,
}

/// A size that pictures are squashed to, by the names of transformers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ExactSize {
    /// Height in pixels.
    pub height: usize,
    /// Width in pixels.
    pub width: usize,
}

impl Checkpoint {
    /// Takes `size` as a pixel budget. `min_pixels` and `max_pixels` at the top win over it, and make its own two of these
    /// names void.
    ///
    /// # Errors
    /// As [`Self::flag`].
    pub fn pixel_budget(&mut self, default: PixelBudget) -> Result<PixelBudget> {
        let (fewest, most) = (self.whole("min_pixels")?, self.whole("max_pixels")?);
        let (mut shortest_edge, mut longest_edge) = (Some(default.shortest_edge), Some(default.longest_edge));
        if let Some(mut size) = self.object("size")? {
            (shortest_edge, longest_edge) = (size.whole("shortest_edge")?, size.whole("longest_edge")?);
            for (name, given) in [("min_pixels", fewest), ("max_pixels", most)] {
                if size.take(name).is_some() && given.is_none() {
                    return Err(self.refusal(format!(
                        "size has {name}, which transformers does not read there; name it shortest_edge or \
                         longest_edge, or move it out of size"
                    )));
                }
            }
            if let Some(name) = size.fields.keys().next() {
                return Err(self.refusal(format!(
                    "size has {name:?}; this family's size holds shortest_edge and longest_edge, in pixels"
                )));
            }
        }
        let missing = || self.refusal("size must hold both shortest_edge and longest_edge, in pixels");
        let budget = PixelBudget {
            shortest_edge: fewest.or(shortest_edge).ok_or_else(missing)?,
            longest_edge: most.or(longest_edge).ok_or_else(missing)?,
        };
        if budget.longest_edge == 0 {
            return Err(self.refusal("size needs longest_edge above 0, in pixels"));
        }
        Ok(budget)
    }

    /// Takes a height and a width, or one number for both.
    ///
    /// # Errors
    /// As [`Self::flag`].
    pub fn exact_size(&mut self, name: &str, default: ExactSize) -> Result<ExactSize> {
        if self.fields.get(name).is_some_and(Value::is_u64) {
            let side = self.count(name, default.height, MOST_PX)?;
            return Ok(ExactSize { height: side, width: side });
        }
        let Some(mut size) = self.object(name)? else { return Ok(default) };
        let found = ExactSize {
            height: size.count("height", default.height, MOST_PX)?,
            width: size.count("width", default.width, MOST_PX)?,
        };
        size.refuse_the_rest()?;
        Ok(found)
    }

    /// Takes `size` as the shortest edge, or one number for it.
    ///
    /// # Errors
    /// As [`Self::flag`].
    pub fn shortest_edge(&mut self, default: usize) -> Result<usize> {
        if self.fields.get("size").is_some_and(Value::is_u64) {
            return self.count("size", default, MOST_PX);
        }
        let mut size = self.object_or_empty("size")?;
        let edge = size.count("shortest_edge", default, MOST_PX)?;
        size.refuse_the_rest()?;
        Ok(edge)
    }

    /// Takes `size` and `crop_size`, which must be of the same square.
    ///
    /// # Errors
    /// As [`Self::flag`].
    pub fn square(&mut self, default: usize) -> Result<usize> {
        let mut size = self.object_or_empty("size")?;
        let edge = size.count("shortest_edge", default, MOST_PX)?;
        let sides = [size.count("height", edge, MOST_PX)?, size.count("width", edge, MOST_PX)?];
        size.refuse_the_rest()?;
        let same = ExactSize { height: sides[0], width: sides[0] };
        let crop = self.exact_size("crop_size", same)?;
        self.flag("do_center_crop", true)?;
        if sides[0] == sides[1] && crop == same {
            return Ok(sides[0]);
        }
        Err(self.refusal("size and crop_size must be one square"))
    }

    /// Takes `size` as the longest edge, or as a height and a width.
    ///
    /// # Errors
    /// As [`Self::flag`].
    pub fn longest_edge_or_size(&mut self, default: usize) -> Result<ExactSize> {
        let mut size = self.object_or_empty("size")?;
        let edge = size.count("longest_edge", default, MOST_PX)?;
        let found = ExactSize {
            height: size.count("height", edge, MOST_PX)?,
            width: size.count("width", edge, MOST_PX)?,
        };
        size.refuse_the_rest()?;
        Ok(found)
    }
}
