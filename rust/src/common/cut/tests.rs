//! Every level against the definition, value by value.

use super::*;
use crate::common::normalise::{F16, Steps, Table};
use crate::common::random::Random;

const MEAN: [f32; 3] = [0.481_454_66, 0.457_827_5, 0.408_210_73];
const STD: [f32; 3] = [0.268_629_54, 0.261_302_6, 0.275_777_1];
const ORDERS: [Order; 3] = [Order::Interleaved, Order::ChannelMajor, Order::CopyMajor];

fn table(std: [f32; 3]) -> Table<f32> {
    std::array::from_fn(|channel| {
        std::array::from_fn(|byte| (byte as f32 * (1.0 / 255.0) - MEAN[channel]) / std[channel])
    })
}

// By a line where bfloat16 has one, by steps in single precision; by steps in both; by the table alone.
fn normalisers() -> [Normaliser; 3] {
    let steps = |std| Steps::new(f64::from(1.0_f32 / 255.0), MEAN, std);
    let by_line = Normaliser::new(table(STD), &steps(STD));
    let mut by_steps = Normaliser::new(table(STD), &steps(STD));
    by_steps.bf16_line = None;
    by_steps.bf16_steps = by_steps.steps;
    let mut crooked = table(STD);
    crooked[1][77] = 3.0;
    let by_table = Normaliser::new(crooked, &steps(STD));
    assert!(by_line.steps.is_some() && by_line.bf16_line.is_some() && by_table.bf16_line.is_none());
    [by_line, by_steps, by_table]
}

struct Picture {
    bytes: Vec<u8>,
    row_bytes: usize,
    width: usize,
    height: usize,
    left: usize,
    top: usize,
}

impl Picture {
    fn new(random: &mut Random, width: usize, height: usize, left: usize, top: usize) -> Self {
        let row_bytes = width * 3 + random.below(3);
        let len = height.saturating_sub(1) * row_bytes + if height > 0 { width * 3 } else { 0 };
        let bytes = (0..len).map(|_| random.bits() as u8).collect();
        Self { bytes, row_bytes, width, height, left, top }
    }

    fn rows(&self) -> Rows<'_> {
        let &Self { ref bytes, row_bytes, width, height, left, top } = self;
        Rows { bytes, row_bytes, width, height, left, top }
    }

    // The value of one channel at a place of the canvas, from the definition.
    fn value<T: Element>(&self, cutter: &Cutter<'_>, x: usize, y: usize, channel: usize) -> T {
        let of_byte = |byte: u8| T::table(cutter.normaliser)[channel][usize::from(byte)];
        let inside = (self.left..self.left + self.width).contains(&x)
            && (self.top..self.top + self.height).contains(&y);
        match cutter.background {
            _ if inside => {
                let at = (y - self.top) * self.row_bytes + (x - self.left) * 3 + channel;
                of_byte(self.bytes[at])
            }
            Background::Colour(colour) => of_byte(colour[channel]),
            Background::Values(values) => T::from_f32(values[channel]),
        }
    }

    fn block<T: Element>(&self, cutter: &Cutter<'_>, block: &Block, (x, y): (usize, usize)) -> Vec<T> {
        let mut values = Vec::new();
        let pixels =
            |row: usize, column: usize, channel: usize| self.value(cutter, x + column, y + row, channel);
        let mut plane = |channel: usize| {
            for at in 0..block.rows * block.columns {
                values.push(pixels(at / block.columns, at % block.columns, channel));
            }
        };
        match block.order {
            Order::ChannelMajor => {
                (0..3).for_each(|channel| (0..block.copies).for_each(|_| plane(channel)));
            }
            Order::CopyMajor => (0..block.copies).for_each(|_| (0..3).for_each(&mut plane)),
            Order::Interleaved => {
                for at in 0..block.rows * block.columns * 3 {
                    let (pixel, channel) = (at / 3, at % 3);
                    values.push(pixels(pixel / block.columns, pixel % block.columns, channel));
                }
            }
        }
        values
    }
}

// An output within memory that must stay as it was.
fn written<T: Element>(len: usize, skew: usize, write: impl FnOnce(&mut [T])) -> Vec<T> {
    let untouched = T::from_f32(77.0);
    let mut memory = vec![untouched; len + 256];
    let start = memory.as_ptr().align_offset(64) + skew;
    write(&mut memory[start..start + len]);
    let same = |values: &[T]| {
        bytemuck::cast_slice::<_, u8>(values) == bytemuck::cast_slice::<_, u8>(&vec![untouched; values.len()])
    };
    assert!(same(&memory[..start]) && same(&memory[start + len..]), "wrote beyond its place");
    memory[start..start + len].to_vec()
}

fn check_blocks<T: Element>(random: &mut Random, cutter: &Cutter<'_>, block: Block) {
    let (columns, rows) = (1 + random.below(3), 1 + random.below(2));
    let (width, height) = (columns * block.columns, rows * block.rows);
    let is_padded = random.below(3) > 0;
    let [left, top] = [width, height].map(|side| if is_padded { random.below(side + 1) } else { 0 });
    let within = |random: &mut Random, side: usize, start: usize| {
        if is_padded { random.below(side - start + 1) } else { side }
    };
    let (inner_width, inner_height) = (within(random, width, left), within(random, height, top));
    let picture = Picture::new(random, inner_width, inner_height, left, top);
    let corners = (0..rows * columns).map(|at| (at % columns * block.columns, at / columns * block.rows));
    let expected: Vec<T> =
        corners.clone().flat_map(|corner| picture.block::<T>(cutter, &block, corner)).collect();
    let found = written(expected.len(), random.below(65), |out: &mut [T]| {
        cutter.blocks(picture.rows(), block, corners.clone(), out);
    });
    let same = bytemuck::cast_slice::<_, u8>(&found) == bytemuck::cast_slice::<_, u8>(&expected);
    assert!(same, "{} {block:?} {:?} {left} {top}", cutter.level, cutter.background);
}

fn check_planes<T: Element>(random: &mut Random, cutter: &Cutter<'_>, columns: usize, height: usize) {
    let (left, top) = (random.below(3), random.below(3));
    let (width, rows) = (random.below(columns + 3), random.below(height + 2));
    let picture = Picture::new(random, width, rows, left, top);
    let corner = (random.below(3), random.below(3));
    let block = Block { rows: height, columns, order: Order::ChannelMajor, copies: 1 };
    let expected = picture.block::<T>(cutter, &block, corner);
    let plane = columns * height;
    let (gap, untouched) = (random.below(40), T::from_f32(77.0));
    let found = written(expected.len() + 2 * gap, random.below(65), |out: &mut [T]| {
        let (red, rest) = out.split_at_mut(plane);
        let (green, blue) = rest[gap..].split_at_mut(plane);
        let planes = [red, green, &mut blue[gap..]];
        cutter.planes(picture.rows(), corner, (columns, height), planes);
    });
    let mut joined = Vec::new();
    for (channel, plane) in expected.chunks(plane).enumerate() {
        joined.extend_from_slice(plane);
        joined.extend(std::iter::repeat_n(untouched, if channel < 2 { gap } else { 0 }));
    }
    let same = bytemuck::cast_slice::<_, u8>(&found) == bytemuck::cast_slice::<_, u8>(&joined);
    assert!(same, "{} {columns} x {height} {:?}", cutter.level, cutter.background);
}

fn each_cutter(normalisers: &[Normaliser], mut check: impl FnMut(Cutter<'_>)) {
    for level in Level::available() {
        for normaliser in normalisers {
            for past_cache in [false, true] {
                for background in [Background::Colour([9, 200, 77]), Background::Values([-1.5, 0.25, 3.0])] {
                    check(Cutter { normaliser, level, background, past_cache });
                }
            }
        }
    }
}

#[test]
fn blocks_of_every_shape_order_and_place_equal_the_definition() {
    let (mut random, normalisers) = (Random(1), normalisers());
    for side in (1..=20).chain([28, 31, 32, 33, 40, 64, 65]) {
        for order in ORDERS {
            let copies = if order == Order::Interleaved { 1 } else { 1 + random.below(3) };
            let columns = if side % 3 == 0 { side + 1 + random.below(9) } else { side };
            let block = Block { rows: side, columns, order, copies };
            each_cutter(&normalisers, |cutter| {
                check_blocks::<u16>(&mut random, &cutter, block);
                check_blocks::<f32>(&mut random, &cutter, block);
                if cutter.past_cache {
                    check_blocks::<F16>(&mut random, &cutter, block);
                }
            });
        }
    }
}

#[test]
fn planes_of_every_width_equal_the_definition() {
    let (mut random, normalisers) = (Random(2), normalisers());
    for columns in (1..40).chain([63, 64, 65, 97, 448, 3000]) {
        let height = if columns > 100 { 9 } else { 1 + columns % 5 };
        each_cutter(&normalisers, |cutter| {
            check_planes::<u16>(&mut random, &cutter, columns, height);
            check_planes::<f32>(&mut random, &cutter, columns, height);
            check_planes::<F16>(&mut random, &cutter, columns, height);
        });
    }
}

#[test]
fn every_byte_of_every_channel_in_every_lane() {
    let normalisers = normalisers();
    let bytes: Vec<u8> = (0..256 * 3 * 64).map(|at: usize| (at / 3 * 37 + at / 771) as u8).collect();
    let picture = Picture { bytes, row_bytes: 256 * 3, width: 256, height: 64, left: 0, top: 0 };
    let mut random = Random(3);
    for order in ORDERS {
        let block = Block { rows: 64, columns: 256, order, copies: 1 };
        each_cutter(&normalisers[..2], |cutter| {
            let expected = picture.block::<u16>(&cutter, &block, (0, 0));
            let found = written(expected.len(), random.below(65), |out: &mut [u16]| {
                cutter.blocks(picture.rows(), block, std::iter::once((0, 0)), out);
            });
            assert!(found == expected, "{} {order:?}", cutter.level);
            let expected = picture.block::<f32>(&cutter, &block, (0, 0));
            let found = written(expected.len(), random.below(65), |out: &mut [f32]| {
                cutter.blocks(picture.rows(), block, std::iter::once((0, 0)), out);
            });
            assert!(found == expected, "{} {order:?}", cutter.level);
        });
    }
}
