//! The Python module `sglang_mm_ray._core`. Bindings only convert.

pub mod array;
mod common;
pub mod edge;
pub mod errors;
mod inkling;
pub mod input;
mod limits;
pub mod pixels;
mod processor;
mod qwen_vl;
mod transforms;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::common::resize::{self, PassOrder};
use crate::common::simd;

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    errors::register(module)?;
    // A forced level that this CPU lacks is refused here rather than at the first image.
    simd::level().map_err(errors::to_python)?;
    processor::register(module)?;
    module.add_function(wrap_pyfunction!(build_info, module)?)?;
    module.add_function(wrap_pyfunction!(set_thread_budget, module)?)?;
    module.add_function(wrap_pyfunction!(set_simd_level, module)?)?;
    module.add_function(wrap_pyfunction!(touch_ahead, module)?)?;
    type Register = fn(&Bound<'_, PyModule>) -> PyResult<()>;
    let submodules: [(&str, Register); 4] = [
        ("common", self::common::register),
        ("transforms", self::transforms::register),
        ("inkling", self::inkling::register),
        ("qwen_vl", self::qwen_vl::register),
    ];
    for (name, register) in submodules {
        let submodule = PyModule::new(py, name)?;
        register(&submodule)?;
        add_submodule(module, &submodule)?;
    }
    Ok(())
}

// `import sglang_mm_ray._core.common` needs the entry in sys.modules; an attribute alone does not do.
fn add_submodule(parent: &Bound<'_, PyModule>, child: &Bound<'_, PyModule>) -> PyResult<()> {
    let name = format!("sglang_mm_ray._core.{}", child.name()?);
    parent.add_submodule(child)?;
    child.setattr("__name__", &name)?;
    child.py().import("sys")?.getattr("modules")?.set_item(name, child)
}

/// How this build was made and what it runs with.
#[pyfunction]
fn build_info(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let info = PyDict::new(py);
    info.set_item("version", env!("CARGO_PKG_VERSION"))?;
    info.set_item("jpeg_simd", cfg!(jpeg_simd))?;
    info.set_item("threads", crate::common::threads::thread_count())?;
    info.set_item("simd", simd::level().map_err(errors::to_python)?.name())?;
    info.set_item("simd_detected", simd::detected().name())?;
    info.set_item("simd_available", simd::Level::available().map(simd::Level::name).collect::<Vec<_>>())?;
    info.set_item(
        "resize_vertical_first_when_tall",
        resize::pass_order() == PassOrder::VerticalFirstWhenTall,
    )?;
    info.set_item("cpu_features", simd::cpu_features())?;
    info.set_item("target", std::env::consts::ARCH)?;
    Ok(info)
}

/// Sets how many threads this process may use; before the first image.
#[pyfunction]
fn set_thread_budget(threads: usize) -> PyResult<()> {
    crate::common::threads::set_thread_budget(threads).map_err(errors::to_python)
}

/// Touches memory for the results to come, which is slow the first time on a virtual machine.
#[pyfunction]
fn touch_ahead(py: Python<'_>, size_bytes: usize) -> PyResult<()> {
    edge::run(py, || crate::common::memory::touch_ahead(size_bytes))
}

/// Forces a SIMD level in this process (`None`: `SGL_MM_RS_SIMD` or the CPU decide); for tests and comparisons.
#[pyfunction]
#[pyo3(signature = (name = None))]
fn set_simd_level(name: Option<&str>) -> PyResult<()> {
    name.map(simd::Level::parse).transpose().and_then(simd::set_level).map_err(errors::to_python)
}
