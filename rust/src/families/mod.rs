//! The model families, one file each: parameters of a checkpoint to a recipe, and nothing else.

pub mod clip;
pub mod cohere2_vision;
pub mod cosmos3_edge;
pub mod deepseek_ocr;
pub mod deepseek_v41;
pub mod deepseek_vl2;
pub mod dots3;
pub mod ernie4_5_vl;
pub mod gemma3;
pub mod gemma4;
pub mod glm;
pub mod inkling;
pub mod internvl;
pub mod janus;
pub mod kimi_k25;
pub mod kimi_vl;
pub mod lfm2_vl;
pub mod llama4;
pub mod llava_next;
pub mod minimax;
pub mod mllama;
pub mod muse;
pub mod nemotron;
pub mod paddleocr_vl;
pub mod pixtral;
pub mod qwen_vl;
pub mod siglip;
pub mod siglip2;

use crate::recipe::FamilySpec;

/// All families.
pub const ALL: &[FamilySpec] = &[
    clip::SPEC,
    cohere2_vision::SPEC,
    cosmos3_edge::SPEC,
    deepseek_ocr::SPEC,
    deepseek_ocr::UNLIMITED,
    deepseek_v41::SPEC,
    deepseek_vl2::SPEC,
    dots3::SPEC,
    ernie4_5_vl::SPEC,
    gemma3::SPEC,
    siglip::GEMMA3N,
    gemma4::SPEC,
    gemma4::UNIFIED,
    glm::GLM46V,
    glm::GLM4V,
    glm::GLM5_NEXT,
    glm::GLM_IMAGE,
    inkling::SPEC,
    internvl::SPEC,
    janus::SPEC,
    kimi_k25::SPEC,
    kimi_vl::SPEC,
    lfm2_vl::SPEC,
    llama4::SPEC,
    llava_next::NEXT,
    llava_next::ONEVISION,
    minimax::M3,
    minimax::M31,
    mllama::SPEC,
    muse::GLIMMER,
    muse::SPARK,
    nemotron::SPEC,
    paddleocr_vl::SPEC,
    pixtral::SPEC,
    qwen_vl::SPEC,
    siglip::SPEC,
    siglip2::SPEC,
];

#[cfg(test)]
mod tests;
