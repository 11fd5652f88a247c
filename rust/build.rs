//! Compiles the C shim around libjpeg, and finds out whether the linked libjpeg-turbo was built with its SIMD code, and says so.
//!
//! libjpeg-turbo without an assembler decodes sound files to the same pixels, only slower, and damaged ones to
//! others; a wheel built that way must not go unnoticed, so the build warns and `build_info()` reports it.

use std::path::Path;

const JPEG_SHIM: &str = "src/common/decode/jpeg/shim.c";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={JPEG_SHIM}");
    println!("cargo::rustc-check-cfg=cfg(jpeg_simd)");
    let include_dirs = std::env::var("DEP_TURBOJPEG_INCLUDE").unwrap_or_default();
    cc::Build::new()
        .file(JPEG_SHIM)
        .includes(include_dirs.split(',').filter(|dir| !dir.is_empty()))
        .warnings(true)
        .compile("smr_jpeg");
    let has_simd = include_dirs.split(',').any(|dir| {
        std::fs::read_to_string(Path::new(dir).join("jconfig.h"))
            .is_ok_and(|text| text.lines().any(|line| line.starts_with("#define WITH_SIMD 1")))
    });
    if has_simd {
        println!("cargo::rustc-cfg=jpeg_simd");
    } else {
        println!(
            "cargo::warning=libjpeg-turbo was built without SIMD: JPEG decoding will be up to 2.2 times slower. \
             Install nasm and rebuild from clean."
        );
    }
}
