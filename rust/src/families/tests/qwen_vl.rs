//! Checkpoints of Qwen-VL as they stand, and what is planned for them.

use crate::error::Result;
use crate::families::qwen_vl::{QwenVl, SPEC, read};
use crate::recipe::checkpoint::{Checkpoint, PixelBudget};
use crate::recipe::{Backend, Filter, Normalisation, Request, Source};
use crate::registry::ImageProcessorSpec;
use crate::tensor::Transport;

fn parse(json: &str) -> Result<QwenVl> {
    let mut fields = Checkpoint::parse("qwen_vl", json)?;
    let family = read(&mut fields)?;
    fields.refuse_the_rest()?;
    Ok(family)
}

#[test]
fn nothing_said_means_the_class_defaults() {
    let defaults = parse("{}").expect("valid");
    assert_eq!((defaults.backend, defaults.resample), (Backend::Torchvision, Filter::Bicubic));
    assert_eq!((defaults.patch_size, defaults.merge_size, defaults.temporal_patch_size), (14, 2, 2));
    assert_eq!(defaults.normalisation, Normalisation::CLIP);
    let size = PixelBudget { longest_edge: 1_003_520, shortest_edge: 3136 };
    assert_eq!((defaults.size, defaults.do_resize, defaults.expand_temporal), (size, true, false));
}

#[test]
fn canonical_text_reads_back_as_itself() {
    let text = r#"{"image_processor_type":"Qwen2VLImageProcessorPil","size":{"longest_edge":16777216,
        "shortest_edge":65536},"patch_size":16,"image_mean":0.5,"image_std":[0.5,0.5,0.5],"resample":2,
        "do_rescale":false,"rescale_factor":0.00392156862745098,"expand_temporal":true,"crop_size":null}"#;
    let parameters = parse(text).expect("valid");
    assert_eq!((parameters.backend, parameters.resample), (Backend::Pil, Filter::Bilinear));
    let canonical = serde_json::to_string(&parameters).expect("serialisable");
    assert_eq!(parse(&canonical), Ok(parameters));
}

#[test]
fn the_pixel_budget_comes_from_either_name_and_the_top_wins() {
    let budget = |text: &str| parse(text).map(|p| (p.size.shortest_edge, p.size.longest_edge));
    assert_eq!(budget(r#"{"size":{"shortest_edge":7,"longest_edge":9}}"#), Ok((7, 9)));
    assert_eq!(budget(r#"{"min_pixels":7}"#), Ok((7, 1_003_520)));
    assert_eq!(budget(r#"{"min_pixels":0}"#), Ok((0, 1_003_520)));
    assert_eq!(
        budget(r#"{"min_pixels":5,"max_pixels":6,"size":{"shortest_edge":7,"longest_edge":9}}"#),
        Ok((5, 6))
    );
    assert_eq!(
        budget(r#"{"min_pixels":5,"max_pixels":6,"size":{"min_pixels":7,"max_pixels":9}}"#),
        Ok((5, 6))
    );
    for bad in [
        r#"{"size":{"shortest_edge":7}}"#,
        r#"{"size":{"min_pixels":7,"max_pixels":9}}"#,
        r#"{"size":{"height":7,"width":9}}"#,
        r#"{"size":224}"#,
        r#"{"min_pixels":-1}"#,
    ] {
        assert!(budget(bad).is_err(), "{bad}");
    }
}

#[test]
fn an_image_processor_among_others_is_all_that_is_read() {
    let image = r#"{"image_processor_type":"Qwen2VLImageProcessor","patch_size":16}"#;
    let nested = |more: &str| {
        parse(&format!(
            r#"{{"image_processor":{image},"processor_class":"Qwen3VLProcessor",
            "video_processor":{{"patch_size":7,"surprise":1}}{more}}}"#
        ))
    };
    assert_eq!(nested(""), parse(image));
    let ours = nested(r#","backend":"pil","expand_temporal":true,"image_token_id":1"#).expect("valid");
    assert_eq!((ours.backend, ours.expand_temporal, ours.patch_size), (Backend::Pil, true, 16));
    for name in ["patch_size", "max_pixels", "size", "resample"] {
        let error = nested(&format!(r#","{name}":3"#)).expect_err(name).to_string();
        assert!(error.contains(name), "{error}");
    }
    for bad in [
        r#"{"image_processor":[]}"#,
        r#"{"image_processor":{"surprise":1}}"#,
        r#"{"image_processor":{"backend":"pil"},"backend":"torchvision"}"#,
    ] {
        assert!(parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn what_could_change_the_result_unseen_is_refused_by_name() {
    for (text, named) in [
        (r#"{"surprise":1}"#, "surprise"),
        (r#"{"auto_map":{}}"#, "auto_map"),
        (r#"{"do_convert_rgb":false}"#, "do_convert_rgb"),
        (r#"{"image_processor_type":"CLIPImageProcessor"}"#, "CLIPImageProcessor"),
        (r#"{"resample":0}"#, "resample"),
        (r#"{"resample":"lanczos"}"#, "resample"),
        (r#"{"resample":4}"#, "box"),
        (r#"{"resample":"pil","backend":"torchvision"}"#, "backend"),
        (r#"{"backend":"numpy"}"#, "backend"),
        (r#"{"image_std":[0.5,0.5]}"#, "image_std"),
        (r#"{"image_std":0}"#, "image_std"),
        (r#"{"rescale_factor":0}"#, "rescale_factor"),
        (r#"{"patch_size":0}"#, "patch_size"),
        (r#"{"do_resize":1}"#, "do_resize"),
        ("[]", "parameters"),
    ] {
        let error = parse(text).expect_err(text).to_string();
        assert!(error.contains(named), "{text}: {error}");
    }
}

#[test]
fn plans_name_the_tensor_and_count_tokens_not_patches() {
    let plan = |json: &str, transport| {
        let plan = SPEC.configure(json)?.plan(Source::opaque(1920, 1080), &Request::default())?;
        Ok::<_, crate::error::CoreError>((plan.specs(transport).remove(0), plan))
    };
    let (spec, made) = plan(r#"{"max_pixels":12845056}"#, Transport::Bf16).expect("plan");
    assert_eq!((made.size(), made.grid, made.num_tokens), ((1932, 1092), [1, 78, 138], 2691));
    assert_eq!((spec.name, &spec.shape[..]), ("pixel_values", &[10764, 3, 1, 14, 14][..]));
    let expanded = r#"{"max_pixels":12845056,"expand_temporal":true}"#;
    assert_eq!(plan(expanded, Transport::Float32).expect("plan").0.shape, [10764, 1176]);
    let (spec, _) = plan(expanded, Transport::Uint8).expect("plan");
    assert_eq!((spec.name, &spec.shape[..]), ("pixels", &[1092, 1932, 3][..]));
}

#[test]
fn without_resizing_the_sides_must_be_whole_tokens() {
    let processor = SPEC.configure(r#"{"do_resize":false}"#).expect("valid");
    let plan = |width, height| processor.plan(Source::opaque(width, height), &Request::default());
    assert!(plan(56, 28).is_ok());
    for (width, height) in [(57, 28), (56, 14), (0, 28)] {
        assert!(plan(width, height).is_err(), "{width} x {height}");
    }
}
