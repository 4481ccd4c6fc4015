//! Resizing.

use super::indexing::{picked, two_axes};
use super::prelude::*;
use crate::ir::MAX_TABLE;
use kiln_types::{CoordinateTransform, InterpolateMode, InterpolateOptions, Taps, resized_axes};

attributes! {
    /// One scale for several axes, which sizes of the run tell: the smallest or the largest of those that each would have.
    pub struct KeptRatio {
        /// The axes.
        pub axes: Vec<usize>,
        /// The size that each was to have.
        pub wanted: Vec<Dim>,
        /// Whether it is the smallest scale.
        pub smallest: bool,
    }
}

attributes! {
    /// Another spatial size; see `kiln_types::InterpolateOptions`, here with symbolic sizes.
    pub struct Interpolate {
        /// Size of every axis of the result.
        pub sizes: Vec<Dim>,
        /// Scale per axis, when scales were given.
        pub scales: Option<Vec<f64>>,
        /// The scale of some axes, where none are given.
        pub kept_ratio: Option<KeptRatio>,
        /// How values between samples are computed.
        pub mode: InterpolateMode,
        /// How coordinates map.
        pub coordinates: CoordinateTransform,
        /// Low-pass filter when scaling down.
        pub antialias: bool,
        /// Leave out samples beyond the border.
        pub exclude_outside: bool,
        /// For [`CoordinateTransform::TfCropAndResize`].
        pub roi: Option<Vec<(f64, f64)>>,
        /// For [`CoordinateTransform::TfCropAndResize`].
        pub extrapolation_value: f64,
    }
}

impl Operation for Interpolate {
    facts!(operands: ["x"], effect: Pure, folding: Never, result: Computed);
    none!(host, evaluate, derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let x = cx.ty(0)?;
        need("x", x, !x.dtype.is_bool(), "expected a number")?;
        let wanted = x.with_dims(self.sizes.clone());
        if self.sizes.len() != x.rank() {
            return Err(dims_error("ranks of a resize", x, &wanted));
        }
        Ok(vec![wanted])
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        let (from, to) = (cx.shape(0)?, sizes(&self.sizes)?);
        let ratio = |(axis, &size): (usize, &usize)| match &self.scales {
            Some(scales) => scales.get(axis).copied(),
            None => Some(size as f64 / *from.get(axis)? as f64),
        };
        let is_long = from.iter().zip(&to).any(|(from, to)| from != to && (*from).max(*to) > MAX_TABLE);
        if is_long || self.kept_ratio.is_some() || self.coordinates == CoordinateTransform::TfCropAndResize {
            return None;
        }
        let options = InterpolateOptions {
            output_size: to.as_slice().into(),
            scales: to.iter().enumerate().map(ratio).collect::<Option<_>>()?,
            mode: self.mode,
            coordinates: self.coordinates,
            antialias: self.antialias,
            exclude_outside: self.exclude_outside,
            roi: None,
            extrapolation_value: self.extrapolation_value,
        };
        let axes: Vec<(usize, Vec<Taps>)> =
            resized_axes(&from, &options).map(|(axis, resized)| (axis, resized.taps().collect())).collect();
        match self.mode {
            InterpolateMode::Nearest(_) => {
                let nearest =
                    |taps: &[Taps]| taps.iter().map(|taps| Some(taps.first()?.0)).collect::<Option<Vec<_>>>();
                let places = axes.iter().map(|(axis, taps)| Some((*axis, nearest(taps)?)));
                picked(cx, &places.collect::<Option<Vec<_>>>()?)
            }
            InterpolateMode::Linear | InterpolateMode::Cubic { .. } if cx.dtype(0).is_float() => {
                mixed(cx, &axes)
            }
            InterpolateMode::Linear | InterpolateMode::Cubic { .. } => None,
        }
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        let from = cx.ty(0).map(|ty| ty.dims.as_slice()).unwrap_or_default();
        if self.is_plain(from) && cx.dtype(0).is_float() {
            let spatial = self.sizes.iter().skip(2).map(|size| Arg::Size(size.clone()));
            let arguments = [
                Arg::Operand(0),
                Arg::List(spatial.collect()),
                Arg::options(&self.mode),
                Arg::options(&self.coordinates),
            ];
            return Implementation::Call(Arg::call("tensor::module::interpolate", arguments));
        }
        let scale = |(i, size): (usize, &Dim)| match self.scales.as_ref().and_then(|scales| scales.get(i)) {
            Some(&scale) => Arg::Float(scale),
            None => match &self.kept_ratio {
                Some(kept) if kept.axes.contains(&i) => kept.scale(from),
                Some(_) | None => ratio(size, from.get(i)),
            },
        };
        let options = Arg::fields(
            "tensor::InterpolateOptions",
            [
                ("output_size", Arg::List(Arg::sizes(&self.sizes))),
                ("scales", Arg::List(self.sizes.iter().enumerate().map(scale).collect())),
                ("mode", Arg::options(&self.mode)),
                ("coordinates", Arg::options(&self.coordinates)),
                ("antialias", Arg::Bool(self.antialias)),
                ("exclude_outside", Arg::Bool(self.exclude_outside)),
                ("roi", Arg::options(&self.roi)),
                ("extrapolation_value", Arg::Float(self.extrapolation_value)),
            ],
        );
        Implementation::Call(Arg::call("tensor::module::interpolate_with", [Arg::Operand(0), options]))
    }
}

/// Sums of weighted elements along one or two axes, for a kernel.
fn mixed(cx: &Site<'_>, axes: &[(usize, Vec<Taps>)]) -> Option<Loops> {
    let sizes = two_axes(cx, &axes.iter().map(|(axis, _)| *axis).collect::<Vec<_>>())?;
    let most = axes.iter().flat_map(|(_, taps)| taps).map(|taps| taps.len()).max().unwrap_or(1).max(1);
    let mut tables = Vec::new();
    let one = vec![Taps::from([(0, 1.0)])];
    // An axis that stays the same is one of a single element.
    for (n, names) in [(0, ["rows", "row_weights"]), (1, ["columns", "column_weights"])] {
        let taps = match axes.len() {
            1 => {
                if n == 0 {
                    &one
                } else {
                    &axes.first()?.1
                }
            }
            _ => &axes.get(n)?.1,
        };
        let all = taps.iter().flat_map(|taps| {
            let first = taps.first().copied().unwrap_or((0, 0.0));
            taps.iter().copied().chain(std::iter::repeat((first.0, 0.0))).take(most)
        });
        let (places, weights): (Vec<usize>, Vec<f32>) =
            all.map(|(place, weight)| (place, weight as f32)).unzip();
        let count = weights.len();
        tables.push(KernelArg::places(names[0], &places)?);
        tables.push(KernelArg::Known(names[1], TensorData::new(weights, [count])));
    }
    let args = [KernelArg::Operand(0)].into_iter().chain(tables).chain([sizes, KernelArg::Size(most)]);
    Some(Loops::kernel("mix", args.collect::<Vec<_>>()))
}

impl Interpolate {
    /// Whether only the spatial axes of images change, by scales that follow from their sizes, in no unusual way.
    fn is_plain(&self, from: &[Dim]) -> bool {
        let follows =
            |(axis, size): (usize, &Dim)| match self.scales.as_ref().and_then(|scales| scales.get(axis)) {
                None => true,
                Some(&scale) => ratio(size, from.get(axis)) == Arg::Float(scale),
            };
        from.len() > 2
            && self.sizes.get(..2) == from.get(..2)
            && self.sizes.iter().enumerate().all(follows)
            && self.kept_ratio.is_none()
            && !self.antialias
            && !self.exclude_outside
            && self.roi.is_none()
            && self.coordinates != CoordinateTransform::TfCropAndResize
    }
}

impl KeptRatio {
    /// The scale.
    fn scale(&self, from: &[Dim]) -> Arg {
        let pairs = self.axes.iter().zip(&self.wanted).filter_map(|(&axis, wanted)| {
            Some(Arg::Tuple(vec![Arg::Size(wanted.clone()), Arg::Size(from.get(axis)?.clone())]))
        });
        let function = match self.smallest {
            true => "tensor::module::smallest_ratio",
            false => "tensor::module::largest_ratio",
        };
        Arg::call(function, [Arg::Array(pairs.collect())])
    }
}

/// `to / from`, as a number when both are known or one is a multiple of the other.
fn ratio(to: &Dim, from: Option<&Dim>) -> Arg {
    let from = from.unwrap_or(to);
    let known = |dim: &Dim| dim.as_constant().map(|size| size as f64);
    let times = to.modulo(from).is(0).then(|| known(&to.floor_div(from))).flatten();
    match (known(to), known(from), times) {
        (Some(to), Some(from), _) if from != 0.0 => Arg::Float(to / from),
        (_, _, Some(times)) => Arg::Float(times),
        _ => {
            let float = |dim: &Dim| Arg::call("tensor::module::size_as_float", [Arg::Size(dim.clone())]);
            float(to).then("div", [float(from)])
        }
    }
}
