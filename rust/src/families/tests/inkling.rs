//! Inkling's parameters, and what is planned for them.

use crate::error::CoreError;
use crate::families::inkling::SPEC;
use crate::recipe::{Request, Source};
use crate::registry::ImageProcessorSpec;

#[test]
fn defaults_and_bad_parameters() {
    let processor = SPEC.configure("{}").expect("defaults are valid");
    let plan = processor.plan(Source::opaque(512, 512), &Request::default()).expect("plan");
    assert_eq!((plan.size(), plan.grid, plan.num_tokens), ((1024, 1024), [1, 26, 26], 676));
    for bad in [
        r#"{"patch_size":0}"#,
        r#"{"rescale_frac":-1.0}"#,
        r#"{"rescale_frac":null}"#,
        r#"{"rescale_cap":0}"#,
        r#"{"surprise":1}"#,
        "[]",
    ] {
        assert!(matches!(SPEC.configure(bad), Err(CoreError::InvalidArgument(_))), "{bad}");
    }
}
