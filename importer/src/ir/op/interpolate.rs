//! Resizing.

use super::prelude::*;
use kiln_types::{CoordinateTransform, InterpolateMode};

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
    none!(host, evaluate, derivation, loops);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let x = cx.ty(0)?;
        need("x", x, !x.dtype.is_bool(), "expected a number")?;
        let wanted = x.with_dims(self.sizes.clone());
        if self.sizes.len() != x.rank() {
            return Err(dims_error("ranks of a resize", x, &wanted));
        }
        Ok(vec![wanted])
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
