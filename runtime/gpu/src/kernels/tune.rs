//! Which of several ways to do the same a device goes: the usual one, or the one that was fastest when they were timed.

use super::tiling::Tiling;
use super::{Template, launch_blocks};
use crate::runtime::{Limits, Runtime, Way};
use crate::tensor::GpuTensor;
use std::fmt;

/// Tells a kernel from others of its class. It is printed only where kernels are timed: what was found is kept by it.
#[derive(Clone, Copy)]
pub(super) enum Name {
    /// The one for products of few rows.
    Gemv,
    /// Products in tiles.
    Tiles(Tiling),
    /// Products in blocks of so many rows and columns.
    Blocks([u32; 2]),
    /// Convolutions of so many neighbours at a time.
    Pixels(u32),
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Gemv => f.write_str("gemv"),
            Name::Tiles(tiling) => write!(f, "tiles {tiling}"),
            Name::Blocks([high, wide]) => write!(f, "blocks {high}x{wide}"),
            Name::Pixels(pixels) => write!(f, "{pixels} pixels"),
        }
    }
}

/// A kernel of one workgroup a block.
pub(super) struct Variant {
    pub name: Name,
    pub template: Template,
    /// How many blocks there are along x, y and z.
    pub blocks: [usize; 3],
}

/// Launches one of several kernels that write all of the last tensor: the `usual` one, but on devices that
/// [time them](crate::runtime::Limits::tunes) the fastest for work of its `class`.
pub(super) fn launch_fastest<R: Runtime>(
    device: &R::Device,
    class: impl FnOnce() -> String,
    usual: Variant,
    others: impl FnOnce() -> Vec<Variant>,
    tensors: &[&GpuTensor<R>],
    words: &[u32],
) {
    let mut chosen = usual;
    if R::limits(device).tunes {
        let mut variants = others();
        variants.retain(|other| other.template != chosen.template);
        variants.insert(0, chosen);
        let names: Vec<String> = variants.iter().map(|variant| variant.name.to_string()).collect();
        let kernels = variants.iter().map(|variant| Some(&variant.template));
        let ways: Vec<Way<'_>> =
            names.iter().zip(kernels).map(|(name, kernel)| Way { name, kernel }).collect();
        let best = R::fastest(device, &class(), &ways, &mut |n| {
            let Variant { template, blocks, .. } = &variants[n];
            launch_blocks::<R>(device, template.clone(), tensors, words, *blocks, false);
            true
        });
        chosen = variants.swap_remove(best.min(variants.len() - 1));
    }
    launch_blocks::<R>(device, chosen.template, tensors, words, chosen.blocks, true);
}

/// What a library yields, or where that does not do it, kernels; on devices that [time them](crate::runtime::Limits::tunes) the faster of both for work of
/// its `class`.
pub(super) fn by_fastest<R: Runtime, T>(
    device: &R::Device,
    class: impl FnOnce() -> String,
    by_library: impl Fn() -> Option<T>,
    by_kernels: impl Fn() -> T,
) -> T {
    let Limits { tunes, libraries, .. } = R::limits(device);
    let ways = ["library", "kernels"].map(|name| Way { name, kernel: None });
    // What the library does not do is left to kernels, which are not tried for that.
    let mut is_refused = false;
    let are_kernels_faster = libraries
        && tunes
        && R::fastest(device, &class(), &ways, &mut |n| match n {
            0 => {
                is_refused = by_library().is_none();
                !is_refused
            }
            _ if is_refused => false,
            _ => {
                drop(by_kernels());
                true
            }
        }) == 1;
    if are_kernels_faster { None } else { by_library() }.unwrap_or_else(by_kernels)
}

/// A size as classes of work have it: the next power of two.
pub(super) fn rounded(size: usize) -> usize {
    size.next_power_of_two()
}
