//! Plans that no family has, by every way through the executor, against the definition.

use super::*;
use crate::common::random::Random;
use crate::common::resize::{Arithmetic as ResizeArithmetic, Size};
use crate::common::simd::{Level, with_level};
use crate::finish::{Resized, finish};
use crate::recipe::arithmetic::Order;
use crate::recipe::{Backend, Fill, Filter, Half, Inside, Layout, PlannedTensor};
use crate::tensor::Transport;

/// A family that is one plan.
struct Fixed(Plan);

impl Family for Fixed {
    fn arithmetic(&self) -> Arithmetic {
        let normalise = Some(([0.48, 0.45, 0.40], [0.26, 0.27, 0.28]));
        Arithmetic { order: Order::Split, rescale: Some(1.0 / 255.0), normalise }
    }

    fn plan(&self, _: Source, _: &Request) -> Result<Plan> {
        Ok(self.0.clone())
    }
}

fn processor(plan: Plan) -> Processor {
    Processor::new("fixed", Declared { family: Box::new(Fixed(plan)), parameters_json: String::new() })
}

fn resized(pixels: &[u8], from: (usize, usize), view: &View) -> Vec<u8> {
    let mut cut = vec![0; view.source.width * view.source.height * 3];
    copy_rect(pixels, from.0, view.source, &mut cut);
    if let Some((size, filter, arithmetic)) = view.resize() {
        let mut out = vec![0; size.out_width * size.out_height * 3];
        resize::resize(&cut, 3, size, filter, arithmetic, &mut out).expect("resize");
        cut = out;
    }
    let mut kept = vec![0; view.kept_pixels() * 3];
    copy_rect(&cut, view.width, view.keep, &mut kept);
    kept
}

// The values of a view from the definition, in single precision.
fn expected(view: &View, kept: &[u8], arithmetic: &Arithmetic) -> Vec<f32> {
    let table = arithmetic.normaliser().float;
    let place = view.place;
    let at = |x: usize, y: usize, channel: usize| {
        let inside = (place.left..place.left + view.keep.width).contains(&x)
            && (place.top..place.top + view.keep.height).contains(&y);
        if inside {
            let pixel = (y - place.top) * view.keep.width + x - place.left;
            return table[channel][usize::from(kept[pixel * 3 + channel])];
        }
        match place.fill {
            Fill::Colour(colour) => table[channel][usize::from(colour[channel])],
            Fill::Scaled(value) => arithmetic.of_scaled(value)[channel],
            Fill::Value(value) => value,
        }
    };
    let mut values = Vec::new();
    match view.layout {
        Layout::Patches { px, merge, inside } => {
            let (rows, columns) = (place.height / px, place.width / px);
            for patch in 0..rows * columns {
                let (square, inner) = (patch / (merge * merge), patch % (merge * merge));
                let squares = columns / merge;
                let top = (square / squares * merge + inner / merge) * px;
                let left = (square % squares * merge + inner % merge) * px;
                let mut plane = |channel: usize| {
                    (0..px * px).for_each(|i| values.push(at(left + i % px, top + i / px, channel)));
                };
                match inside {
                    Inside::Chw { copies } => {
                        (0..3).for_each(|channel| (0..copies).for_each(|_| plane(channel)));
                    }
                    Inside::Tchw { copies } => (0..copies).for_each(|_| (0..3).for_each(&mut plane)),
                    Inside::Hwc => (0..px * px * 3)
                        .for_each(|i| values.push(at(left + i / 3 % px, top + i / 3 / px, i % 3))),
                }
            }
        }
        Layout::Tiles { width, height } => {
            for tile in 0..place.width / width * (place.height / height) {
                let tiles = place.width / width;
                let (left, top) = (tile % tiles * width, tile / tiles * height);
                for i in 0..3 * width * height {
                    let (channel, y, x) = (i / (width * height), i / width % height, i % width);
                    values.push(at(left + x, top + y, channel));
                }
            }
        }
        Layout::Strips { px, width, height } => {
            for tile in 0..place.width / width * (place.height / height) {
                let tiles = place.width / width;
                let (left, top) = (tile % tiles * width, tile / tiles * height);
                for channel in 0..3 {
                    for row in 0..px {
                        for i in 0..height / px * width {
                            let (patch, column) = (i / px, i % px);
                            let (patch_row, patch_column) = (patch / (width / px), patch % (width / px));
                            let (x, y) = (patch_column * px + column, patch_row * px + row);
                            values.push(at(left + x, top + y, channel));
                        }
                    }
                }
            }
        }
    }
    values
}

fn half(values: &[f32], half: Half) -> Vec<u16> {
    values
        .iter()
        .map(|&value| match half {
            Half::Bf16 => crate::common::bf16::f32_to_bf16(value),
            Half::F16 => crate::common::f16::f32_to_f16(value),
        })
        .collect()
}

// Runs a plan by every way, and compares with the definition.
fn compare(plan: &Plan, width: usize, height: usize, random: &mut Random) {
    let source = Source::opaque(width, height);
    plan.check(source).expect("a sound plan");
    let pixels: Vec<u8> = (0..width * height * 3).map(|_| random.bits() as u8).collect();
    let processor = processor(plan.clone());
    let kept: Vec<Vec<u8>> = plan.views.iter().map(|view| resized(&pixels, (width, height), view)).collect();
    let kept_bytes = kept.concat();
    let wanted: Vec<Vec<f32>> = (0..plan.tensors.len())
        .map(|index| {
            let views = plan.views.iter().zip(&kept).filter(|(view, _)| view.tensor == index);
            let mut values: Vec<f32> =
                views.flat_map(|(view, kept)| expected(view, kept, &processor.arithmetic)).collect();
            values.resize(plan.tensors[index].len(), 0.0);
            values
        })
        .collect();
    let run = |transport: Transport| {
        let specs = plan.pixel_tensors(transport);
        let mut out: Vec<Vec<u32>> =
            specs.iter().map(|spec| vec![0x5555_5555; spec.size_bytes().div_ceil(4)]).collect();
        let places = out
            .iter_mut()
            .zip(&specs)
            .map(|(out, spec)| &mut bytemuck::cast_slice_mut(out)[..spec.size_bytes()])
            .collect();
        let input = Input::Rgb { pixels: &pixels, width, height };
        processor.run(input, plan, transport, &mut StageTimes::default(), places).expect("runs");
        let bytes = out.iter().zip(&specs);
        bytes
            .map(|(out, spec)| bytemuck::cast_slice(out)[..spec.size_bytes()].to_vec())
            .collect::<Vec<Vec<u8>>>()
    };
    for level in Level::available() {
        with_level(level, || {
            assert!(run(Transport::Uint8).concat() == kept_bytes, "{level} {plan:?}");
            for transport in [Transport::Bf16, Transport::Float32] {
                let bytes: Vec<Vec<u8>> = wanted
                    .iter()
                    .zip(&plan.tensors)
                    .map(|(values, tensor)| match transport {
                        Transport::Float32 => bytemuck::cast_slice(values).to_vec(),
                        _ => bytemuck::cast_slice(&half(values, tensor.half)).to_vec(),
                    })
                    .collect();
                assert!(run(transport) == bytes, "{level} {transport:?} {plan:?}");
                let bytes = bytes.concat();
                let mut late = vec![0x5555_5555_u32; bytes.len().div_ceil(4)];
                let place = &mut bytemuck::cast_slice_mut(&mut late)[..bytes.len()];
                let image = Resized { pixels: &kept_bytes, plan };
                finish(&processor, image, transport, place).expect("finishes");
                assert!(place == bytes, "late {level} {transport:?} {plan:?}");
            }
        })
        .expect("an available level");
    }
}

fn one(view: View, tensor: PlannedTensor) -> Plan {
    Plan::of_one_view(view, tensor, [1, 1, 1], 1)
}

fn any_fill(random: &mut Random) -> Fill {
    [Fill::Colour([127, 3, 255]), Fill::Scaled(-1.0 / 255.0), Fill::Value(0.0)][random.below(3)]
}

#[test]
fn every_layout_of_every_place_is_the_definition() {
    let mut random = Random(7);
    let pools = [1, 3].map(|threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build());
    let insides =
        [Inside::Hwc, Inside::Chw { copies: 1 }, Inside::Chw { copies: 2 }, Inside::Tchw { copies: 2 }];
    for round in 0..120 {
        let source = Source::opaque(1 + random.below(90), 1 + random.below(90));
        let (px, merge) = (1 + random.below(9), 1 + random.below(3));
        let (columns, rows) = (1 + random.below(5), 1 + random.below(5));
        let unit = px * merge;
        let (layout, canvas) = match round % 4 {
            0 => (Layout::whole(columns * unit, rows * unit), (columns * unit, rows * unit)),
            1 => {
                let (width, height) = (unit + random.below(50), unit + random.below(50));
                (Layout::Tiles { width, height }, (columns * width, rows * height))
            }
            2 => (Layout::Strips { px, width: unit, height: 2 * px }, (columns * unit, rows * 2 * px)),
            _ => {
                let inside = insides[random.below(4)];
                (Layout::Patches { px, merge, inside }, (columns * unit, rows * unit))
            }
        };
        let size = (1 + random.below(canvas.0), 1 + random.below(canvas.1));
        let corner = (random.below(canvas.0 - size.0 + 1), random.below(canvas.1 - size.1 + 1));
        let backend = [Backend::Pil, Backend::Torchvision][random.below(2)];
        let whole = View::whole(source, layout);
        let view = match random.below(3) {
            0 => whole.resized(size, Filter::Bicubic, backend).placed(canvas, corner, any_fill(&mut random)),
            1 => whole.resized(size, Filter::Lanczos, backend).padded(canvas, any_fill(&mut random)),
            _ => whole.resized(canvas, Filter::Bilinear, backend),
        };
        let padding = random.below(30);
        let tensor = PlannedTensor {
            half: [Half::Bf16, Half::F16][random.below(2)],
            ..PlannedTensor::new("values", vec![view.values() + padding])
        };
        let plan = one(view, tensor);
        for pool in pools.iter().flatten() {
            pool.install(|| compare(&plan, source.width, source.height, &mut random));
        }
    }
}

#[test]
fn several_views_fill_one_tensor_or_several_and_cuts_are_cuts() {
    let mut random = Random(8);
    let source = Source::opaque(70, 50);
    let tiles = |width, height| Layout::Tiles { width, height };
    let main = View::whole(source, tiles(16, 16)).resized((48, 32), Filter::Bicubic, Backend::Pil);
    let thumbnail = View::whole(source, tiles(16, 16)).resized((16, 16), Filter::Bicubic, Backend::Pil);
    let part = View::whole(source, Layout::patches(4, Inside::Hwc))
        .of(Rect { left: 10, top: 5, width: 33, height: 21 })
        .resized((24, 30), Filter::Bilinear, Backend::Torchvision)
        .centre_cropped((16, 12))
        .into_tensor(1);
    let kept = View::whole(source, Layout::whole(30, 20))
        .cropped(Rect { left: 3, top: 30, width: 30, height: 20 })
        .into_tensor(2);
    let plan = Plan {
        views: vec![main, part, thumbnail, kept],
        tensors: vec![
            PlannedTensor::new("tiles", vec![9, 3, 16, 16]),
            PlannedTensor::new("patches", vec![20, 4, 4, 3]),
            PlannedTensor::new("kept", vec![3, 20, 30]),
        ],
        extras: Vec::new(),
        grid: [1, 1, 1],
        num_tokens: 1,
    };
    compare(&plan, 70, 50, &mut random);
}

#[test]
fn large_pictures_are_split_over_threads_and_streamed() {
    let mut random = Random(9);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().expect("threads");
    let source = Source::opaque(700, 500);
    for layout in [
        Layout::patches(40, Inside::Hwc),
        Layout::Patches { px: 20, merge: 2, inside: Inside::Chw { copies: 2 } },
        Layout::Tiles { width: 320, height: 280 },
        Layout::Strips { px: 14, width: 448, height: 560 },
    ] {
        let canvas = if matches!(layout, Layout::Strips { .. }) { (896, 560) } else { (960, 560) };
        let resized = View::whole(source, layout).resized((890, 550), Filter::Bicubic, Backend::Pil);
        let whole = View::whole(source, layout).resized(canvas, Filter::Bicubic, Backend::Torchvision);
        for view in [
            resized.clone().padded(canvas, Fill::Scaled(-0.1)),
            resized.centred(canvas, Fill::Colour([7; 3])),
            whole,
        ] {
            let tensor = PlannedTensor::new("values", vec![view.values()]);
            pool.install(|| compare(&one(view, tensor), 700, 500, &mut random));
        }
    }
}

#[test]
fn pillow_centres_by_half_to_even_and_others_by_whole_halves() {
    let view = |size| {
        View::whole(Source::opaque(9, 9), Layout::whole(8, 8)).resized(size, Filter::Bicubic, Backend::Pil)
    };
    let corner = |view: View| (view.place.left, view.place.top);
    let fill = Fill::Colour([127; 3]);
    // PIL.ImageOps.pad: round((8 - 5) * 0.5) = 2, round((8 - 7) * 0.5) = 0.
    assert_eq!(corner(view((5, 8)).centred_as_pillow((8, 8), fill)), (2, 0));
    assert_eq!(corner(view((8, 7)).centred_as_pillow((8, 8), fill)), (0, 0));
    assert_eq!(corner(view((5, 7)).centred((8, 8), fill)), (1, 0));
}

#[test]
fn plans_that_contradict_themselves_are_refused() {
    let source = Source::opaque(20, 20);
    let view = View::whole(source, Layout::patches(10, Inside::Hwc));
    let tensor = |values| PlannedTensor::new("values", vec![values]);
    assert_eq!(one(view.clone(), tensor(1200)).check(source), Ok(()));
    assert!(one(view.clone(), tensor(1199)).check(source).is_err(), "too small a tensor");
    assert!(one(view.clone().into_tensor(1), tensor(1200)).check(source).is_err(), "no such tensor");
    let part = Rect { left: 15, top: 0, width: 10, height: 10 };
    assert!(one(view.clone().of(part), tensor(1200)).check(source).is_err(), "beyond the source");
    assert!(one(view.clone().cropped(part), tensor(1200)).check(source).is_err(), "beyond the resized");
    assert!(one(view.clone().padded((10, 30), Fill::Value(0.0)), tensor(1200)).check(source).is_err());
    assert!(
        one(view.padded((25, 20), Fill::Value(0.0)), tensor(1500)).check(source).is_err(),
        "half a patch"
    );
    let size = Size { in_width: 20, in_height: 20, out_width: 10, out_height: 10 };
    let resize =
        View::whole(source, Layout::whole(10, 10)).resized((10, 10), Filter::Box, Backend::Torchvision);
    assert_eq!(resize.resize(), Some((size, Filter::Box, ResizeArithmetic::Aten)));
}
