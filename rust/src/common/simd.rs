//! Which instruction set the kernels use: detected when the program runs, or forced.
//!
//! A kernel asks [`level`] once, at its entry in the calling thread, and hands the answer down; so all parts
//! of one image use one set, and a level that a test forces for its thread holds in the pool's threads too.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::error::{CoreError, Result};

/// Environment variable that forces a level: `scalar`, `avx2`, `avx512` or `neon`.
pub const SIMD_VARIABLE: &str = "SGL_MM_RS_SIMD";

/// A set of instructions that kernels are written for. All levels give the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Level {
    /// Plain Rust.
    Scalar = 1,
    /// AVX2 and FMA (x86-64).
    Avx2 = 2,
    /// AVX-512 F, BW, DQ, VL, VBMI and VNNI, besides AVX2 and FMA (x86-64).
    Avx512 = 3,
    /// NEON (aarch64).
    Neon = 4,
}

impl Level {
    /// Every level, the CPU's or not.
    pub const ALL: [Self; 4] = [Self::Scalar, Self::Avx2, Self::Avx512, Self::Neon];

    /// Its name in `SGL_MM_RS_SIMD` and `build_info()`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Neon => "neon",
        }
    }

    /// Whether this CPU has it.
    pub fn is_available(self) -> bool {
        match self {
            Self::Scalar => true,
            Self::Avx2 => has_avx2(),
            Self::Avx512 => has_avx512(),
            Self::Neon => cfg!(target_arch = "aarch64"),
        }
    }

    /// The levels of this CPU.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|level| level.is_available())
    }

    /// Parses a name and checks that the CPU has the level.
    ///
    /// # Errors
    /// [`CoreError::InvalidArgument`] if no level has this name, or this CPU lacks it.
    pub fn parse(name: &str) -> Result<Self> {
        let level = Self::ALL.into_iter().find(|level| level.name() == name.trim()).ok_or_else(|| {
            CoreError::argument("the SIMD level is unknown; choose scalar, avx2, avx512 or neon")
        })?;
        level.checked()
    }

    fn checked(self) -> Result<Self> {
        if self.is_available() {
            return Ok(self);
        }
        let choices: Vec<_> = Self::available().map(Self::name).collect();
        Err(CoreError::argument(format!(
            "this CPU lacks the SIMD level {self}; it has {}",
            choices.join(", ")
        )))
    }

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&level| level as u8 == code)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

// Plain atomics: a lock or a `OnceLock` could be held by another thread at the moment of a fork. 0 = not set.
static FORCED: AtomicU8 = AtomicU8::new(0);
static CHOSEN: AtomicU8 = AtomicU8::new(0);

thread_local! {
    static FORCED_HERE: Cell<Option<Level>> = const { Cell::new(None) };
}

/// The best level of this CPU.
pub fn detected() -> Level {
    [Level::Avx512, Level::Avx2, Level::Neon]
        .into_iter()
        .find(|level| level.is_available())
        .unwrap_or(Level::Scalar)
}

/// The level in force: that of [`with_level`] around this call, else that of [`set_level`], else
/// `SGL_MM_RS_SIMD`, else the best of this CPU.
///
/// # Errors
/// [`CoreError::InvalidArgument`] if `SGL_MM_RS_SIMD` names no level, or one that this CPU lacks.
pub fn level() -> Result<Level> {
    if let Some(level) = FORCED_HERE.get().or_else(|| Level::from_code(FORCED.load(Ordering::Relaxed))) {
        return Ok(level);
    }
    if let Some(level) = Level::from_code(CHOSEN.load(Ordering::Relaxed)) {
        return Ok(level);
    }
    let level = choose(std::env::var(SIMD_VARIABLE).ok().as_deref())?;
    CHOSEN.store(level as u8, Ordering::Relaxed);
    Ok(level)
}

fn choose(variable: Option<&str>) -> Result<Level> {
    match variable {
        None => Ok(detected()),
        Some(name) if name.trim().is_empty() => Ok(detected()),
        Some(name) => Level::parse(name).map_err(|error| match error {
            CoreError::InvalidArgument(reason) => CoreError::argument(format!("{SIMD_VARIABLE}: {reason}")),
            other => other,
        }),
    }
}

/// Forces a level in the whole process, or with `None` lets the environment and the CPU decide again.
///
/// # Errors
/// [`CoreError::InvalidArgument`] if this CPU lacks the level.
pub fn set_level(level: Option<Level>) -> Result<()> {
    let code = match level {
        Some(level) => level.checked()? as u8,
        None => 0,
    };
    FORCED.store(code, Ordering::Relaxed);
    Ok(())
}

/// Runs `work` with a level forced for what this thread starts, and for nobody else.
///
/// # Errors
/// [`CoreError::InvalidArgument`] if this CPU lacks the level.
pub fn with_level<T>(level: Level, work: impl FnOnce() -> T) -> Result<T> {
    struct Restore(Option<Level>);
    impl Drop for Restore {
        fn drop(&mut self) {
            FORCED_HERE.set(self.0);
        }
    }
    let level = level.checked()?;
    let _restore = Restore(FORCED_HERE.replace(Some(level)));
    Ok(work())
}

/// Features of this CPU that the kernels, or the libraries under them, have a use for.
pub fn cpu_features() -> Vec<&'static str> {
    #[cfg(target_arch = "x86_64")]
    {
        macro_rules! present {
            ($($name:tt),*) => {
                [$(($name, is_x86_feature_detected!($name))),*]
                    .into_iter().filter_map(|(name, found)| found.then_some(name)).collect()
            };
        }
        present!(
            "sse4.1",
            "ssse3",
            "avx2",
            "fma",
            "bmi2",
            "sha",
            "avxvnni",
            "avx512f",
            "avx512bw",
            "avx512dq",
            "avx512vl",
            "avx512vbmi",
            "avx512vbmi2",
            "avx512vnni",
            "avx512bf16"
        )
    }
    #[cfg(target_arch = "aarch64")]
    {
        macro_rules! present {
            ($($name:tt),*) => {
                [$(($name, std::arch::is_aarch64_feature_detected!($name))),*]
                    .into_iter().filter_map(|(name, found)| found.then_some(name)).collect()
            };
        }
        present!("neon", "dotprod", "i8mm", "bf16", "sha2")
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    Vec::new()
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    has_avx2()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vbmi")
        && is_x86_feature_detected!("avx512vnni")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx2() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx512() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_and_a_level_of_another_cpu_is_refused() {
        for level in Level::ALL {
            assert_eq!(Level::parse(level.name()).is_ok(), level.is_available(), "{level}");
        }
        let foreign = if cfg!(target_arch = "aarch64") { "avx2" } else { "neon" };
        let error = choose(Some(foreign)).expect_err("a foreign level").to_string();
        assert!(
            error.contains(SIMD_VARIABLE) && error.contains(foreign) && error.contains("scalar"),
            "{error}"
        );
        assert!(choose(Some("fastest")).is_err());
    }

    #[test]
    fn the_best_level_is_the_default() {
        assert_eq!(choose(None), Ok(detected()));
        assert_eq!(choose(Some("")), Ok(detected()));
        assert_eq!(choose(Some("scalar")), Ok(Level::Scalar));
    }

    #[test]
    fn a_forced_level_holds_for_this_thread_and_ends() {
        let before = level();
        for forced in Level::available() {
            assert_eq!(with_level(forced, level), Ok(Ok(forced)));
            let elsewhere = with_level(forced, || std::thread::spawn(level).join().expect("thread"));
            assert_eq!(elsewhere, Ok(before.clone()));
        }
        assert_eq!(level(), before);
        assert!(
            with_level(if cfg!(target_arch = "aarch64") { Level::Avx2 } else { Level::Neon }, || ()).is_err()
        );
    }
}
