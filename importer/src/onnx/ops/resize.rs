//! `Resize`, and `Upsample`, its first name.

use super::prelude::*;
use crate::ir::{Quotient, op, quotients};
use kiln_types::{CoordinateTransform, InterpolateMode, NearestRounding};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Policy {
    Stretch,
    NotLarger,
    NotSmaller,
}

pub(super) struct Resize {
    mode: InterpolateMode,
    coordinates: CoordinateTransform,
    antialias: bool,
    exclude_outside: bool,
    extrapolation: f64,
    policy: Policy,
    axes: Option<Vec<i64>>,
    scales: Option<Vec<f64>>,
    /// Whether nearest neighbours are rounded up along axes that shrink, as before there was an attribute for it.
    shrinks_upwards: bool,
}

impl Resize {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let old = node.opset < 11;
        let mut coordinates = CoordinateTransform::Asymmetric;
        let mut rounding = NearestRounding::Floor;
        if !old {
            let roundings = [
                ("round_prefer_floor", NearestRounding::RoundPreferFloor),
                ("round_prefer_ceil", NearestRounding::RoundPreferCeil),
                ("floor", NearestRounding::Floor),
                ("ceil", NearestRounding::Ceil),
            ];
            rounding = node.choice("nearest_mode", "round_prefer_floor", &roundings)?;
            let name = node.string("coordinate_transformation_mode", "half_pixel")?;
            coordinates = transform(&name)?;
        }
        let cubic = InterpolateMode::Cubic { a: node.float("cubic_coeff_a", -0.75)? };
        let modes = [
            ("nearest", InterpolateMode::Nearest(rounding)),
            ("linear", InterpolateMode::Linear),
            ("bilinear", InterpolateMode::Linear),
            ("cubic", cubic),
        ];
        let policies = [
            ("stretch", Policy::Stretch),
            ("not_larger", Policy::NotLarger),
            ("not_smaller", Policy::NotSmaller),
        ];
        let mode = node.choice("mode", "nearest", &modes)?;
        Ok(Self {
            mode,
            coordinates,
            antialias: node.flag("antialias", false)?,
            exclude_outside: node.flag("exclude_outside", false)?,
            extrapolation: node.float("extrapolation_value", 0.0)?,
            policy: node.choice("keep_aspect_ratio_policy", "stretch", &policies)?,
            axes: node.ints("axes")?,
            scales: node.floats("scales")?,
            shrinks_upwards: old && matches!(mode, InterpolateMode::Nearest(_)),
        })
    }
}

impl Resize {
    /// The form for images alone, with a scale for each of their axes.
    fn read_first(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let mut scales = vec![1.0, 1.0];
        for name in ["height_scale", "width_scale"] {
            scales.push(node.optional_float(name)?.ok_or_else(|| invalid(name, "is missing"))?);
        }
        Ok(Self { scales: Some(scales), ..Self::read(node)? })
    }
}

impl<'m> Operator<'m> for Resize {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Upsample", 1, &["X"]).until(6).reads(Self::read_first),
        Spec::onnx("Resize", 10, &["X", "scales"]).until(10).reads(Self::read),
        Spec::onnx("Resize", 11, &["X", "roi?", "scales?", "sizes?"]).reads(Self::read),
        Spec::onnx("Upsample", 7, &["X"]).until(8).reads(Self::read),
        Spec::onnx("Upsample", 9, &["X", "scales"]).until(9).reads(Self::read),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("X")?;
        let rank = to.rank(x);
        let axes = match &self.axes {
            Some(axes) => axes.iter().map(|&axis| axis_of(axis, rank)).collect::<RuleResult<Vec<_>>>()?,
            None => (0..rank).collect(),
        };
        let scales = given(to, args, "scales")?;
        let target = match (scales, given(to, args, "sizes")?, &self.scales) {
            (Some(scales), ..) => match quotients(to.builder.graph, scales) {
                Some(quotients) if to.constant(scales).is_none() => Target::Quotients(quotients),
                _ => Target::Scales(to.known_floats(scales, "scales")?),
            },
            (None, Some(sizes), _) => Target::Sizes(to.host(sizes, "sizes")?),
            (None, None, Some(scales)) => Target::Scales(scales.clone()),
            (None, None, None) => {
                return Err(RuleError::MissingInput { input: "scales or sizes".to_owned() });
            }
        };
        let Extent { sizes, scales, kept } = self.extent(to, x, &axes, target)?;
        let roi = self.roi(to, args, rank, &axes)?;
        if let (true, Some(scales)) = (self.shrinks_upwards, &scales) {
            // One rounding at a time: first the axes that grow, then those that shrink.
            let (larger, rest) = split_scales(scales);
            let dims = to.dims(x).into_iter().zip(&sizes).zip(&rest);
            let between =
                dims.map(|((from, to), &rest)| if rest < 1.0 { from } else { to.clone() }).collect();
            let between = Extent { sizes: between, scales: Some(larger), kept: None };
            let grown = self.resized(to, x, between, self.mode, None)?;
            let upwards = InterpolateMode::Nearest(NearestRounding::Ceil);
            let whole = Extent { sizes, scales: Some(rest), kept: None };
            return Ok(self.resized(to, grown, whole, upwards, None)?.into());
        }
        Ok(self.resized(to, x, Extent { sizes, scales, kept }, self.mode, roi)?.into())
    }
}

/// Scales that enlarge, and those that shrink; 1 in the place of each other.
fn split_scales(scales: &[f64]) -> (Vec<f64>, Vec<f64>) {
    scales.iter().map(|&scale| (scale.max(1.0), scale.min(1.0))).unzip()
}

/// The coordinate transformation of a name.
fn transform(name: &str) -> RuleResult<CoordinateTransform> {
    Ok(match name {
        "half_pixel" => CoordinateTransform::HalfPixel,
        "half_pixel_symmetric" => CoordinateTransform::HalfPixelSymmetric,
        "pytorch_half_pixel" => CoordinateTransform::PytorchHalfPixel,
        "align_corners" => CoordinateTransform::AlignCorners,
        "asymmetric" => CoordinateTransform::Asymmetric,
        "tf_crop_and_resize" => CoordinateTransform::TfCropAndResize,
        "tf_half_pixel_for_nn" => CoordinateTransform::TfHalfPixelForNn,
        other => {
            let reason = format!("is {}", kiln_types::quoted(other));
            return Err(invalid("coordinate_transformation_mode", reason));
        }
    })
}

/// An input that is there and not an empty tensor, which older exporters write for "not given".
fn given(to: &Lowering<'_, '_>, args: &Args, name: &str) -> RuleResult<Option<ValueId>> {
    Ok(args.optional(name)?.filter(|&value| !to.dims(value).iter().any(|dim| dim.is(0))))
}

/// What becomes of the axes.
struct Extent {
    /// The size of every axis.
    sizes: Vec<Dim>,
    /// The scale of every axis, where that is known.
    scales: Option<Vec<f64>>,
    /// The scale of some axes, where sizes of the run tell it.
    kept: Option<op::KeptRatio>,
}

enum Target {
    Scales(Vec<f64>),
    Sizes(Vec<Dim>),
    /// Scales that are computed from sizes, as exporters did before sizes could be asked for.
    Quotients(Vec<Quotient>),
}

impl Resize {
    /// `x` in other sizes, or itself where nothing changes.
    fn resized(
        &self,
        to: &mut Lowering<'_, '_>,
        x: ValueId,
        Extent { sizes, scales, kept }: Extent,
        mode: InterpolateMode,
        roi: Option<Vec<(f64, f64)>>,
    ) -> RuleResult<ValueId> {
        let crops = roi.is_some();
        if sizes == to.dims(x) && !crops && scales.as_ref().is_none_or(|s| s.iter().all(|&s| s == 1.0)) {
            return Ok(x);
        }
        let op = Op::Interpolate(op::Interpolate {
            sizes,
            scales,
            kept_ratio: kept,
            mode,
            coordinates: self.coordinates,
            antialias: self.antialias,
            exclude_outside: self.exclude_outside,
            roi,
            extrapolation_value: self.extrapolation,
        });
        to.add(op, &[x])
    }

    /// Sizes of every axis, and scales where they were given.
    fn extent(
        &self,
        to: &Lowering<'_, '_>,
        x: ValueId,
        axes: &[usize],
        target: Target,
    ) -> RuleResult<Extent> {
        let mut sizes = to.dims(x);
        let count = match &target {
            Target::Scales(scales) => scales.len(),
            Target::Sizes(sizes) => sizes.len(),
            Target::Quotients(quotients) => quotients.len(),
        };
        if count != axes.len() {
            return Err(misfit("scales", format!("or sizes: {count} entries for {} axes", axes.len())));
        }
        match target {
            Target::Scales(given) => {
                let mut scales = vec![1.0; sizes.len()];
                for (&axis, &scale) in axes.iter().zip(&given) {
                    if !scale.is_finite() || scale <= 0.0 {
                        return Err(invalid("scales", format!("holds {scale}")));
                    }
                    sizes[axis] = scaled(&sizes[axis], scale)?;
                    scales[axis] = scale;
                }
                Ok(Extent { sizes, scales: Some(scales), kept: None })
            }
            Target::Quotients(given) => {
                for (&axis, Quotient { dividend, divisor }) in axes.iter().zip(given) {
                    // The size and the scale are those of each other then.
                    sizes[axis] = match divisor {
                        divisor if divisor.is(1) => &sizes[axis] * &dividend,
                        // Which neighbour is nearest depended on whether that grows.
                        divisor if divisor == sizes[axis] && !self.shrinks_upwards => dividend,
                        _ => return Err(RuleError::NotConstant { input: "scales".to_owned() }),
                    };
                }
                Ok(Extent { sizes, scales: None, kept: None })
            }
            Target::Sizes(given) if self.policy == Policy::Stretch => {
                for (&axis, size) in axes.iter().zip(given) {
                    sizes[axis] = size;
                }
                Ok(Extent { sizes, scales: None, kept: None })
            }
            Target::Sizes(given) => {
                let mut known = axes.iter().map(|&axis| &sizes[axis]).chain(&given);
                match known.all(|dim| dim.as_constant().is_some()) {
                    true => self.known_ratio(sizes, axes, &given),
                    false => Ok(self.kept_ratio(sizes, axes, given)),
                }
            }
        }
    }

    /// One scale for all axes, so that the result is not larger (or not smaller) than asked for, by sizes of the run.
    fn kept_ratio(&self, mut sizes: Vec<Dim>, axes: &[usize], wanted: Vec<Dim>) -> Extent {
        let smallest = self.policy == Policy::NotLarger;
        let from: Vec<Dim> = axes.iter().map(|&axis| sizes[axis].clone()).collect();
        for (&axis, size) in axes.iter().zip(&from) {
            // What each axis' own scale would make of this size: halves up, as the specification's `round_int`.
            let double = |dim: &Dim| &Dim::constant(2) * dim;
            let by_axis = wanted.iter().zip(&from).map(|(wanted, from)| match from == size {
                true => wanted.clone(),
                false => (&double(&(size * wanted)) + from).floor_div(&double(from)),
            });
            let pick = |a: Dim, b: Dim| if smallest { a.minimum(&b) } else { a.maximum(&b) };
            sizes[axis] = by_axis.reduce(pick).unwrap_or_else(|| size.clone());
        }
        Extent { sizes, scales: None, kept: Some(op::KeptRatio { axes: axes.to_vec(), wanted, smallest }) }
    }

    /// One scale for all axes, so that the result is not larger (or not smaller) than asked for.
    fn known_ratio(&self, mut sizes: Vec<Dim>, axes: &[usize], wanted: &[Dim]) -> RuleResult<Extent> {
        let unknown = || RuleError::NotConstant { input: "sizes (to keep the aspect ratio)".to_owned() };
        let mut ratios = Vec::with_capacity(axes.len());
        for (&axis, wanted) in axes.iter().zip(wanted) {
            let size = sizes[axis].as_size().filter(|&size| size > 0).ok_or_else(unknown)?;
            ratios.push(wanted.as_size().ok_or_else(unknown)? as f64 / size as f64);
        }
        let pick = if self.policy == Policy::NotLarger { f64::min } else { f64::max };
        let scale = ratios.into_iter().reduce(pick).unwrap_or(1.0);
        let mut scales = vec![1.0; sizes.len()];
        for &axis in axes {
            let size = sizes[axis].as_size().ok_or_else(unknown)?;
            // Halves up, as the specification's `round_int`.
            sizes[axis] = Dim::constant((size as f64 * scale + 0.5).floor() as i64);
            scales[axis] = scale;
        }
        Ok(Extent { sizes, scales: Some(scales), kept: None })
    }

    /// Start and end of the region of interest per axis, for the transformation that needs it.
    fn roi(
        &self,
        to: &Lowering<'_, '_>,
        args: &Args,
        rank: usize,
        axes: &[usize],
    ) -> RuleResult<Option<Vec<(f64, f64)>>> {
        if self.coordinates != CoordinateTransform::TfCropAndResize {
            return Ok(None);
        }
        let values = to.known_floats(args.value("roi")?, "roi")?;
        if values.len() != 2 * axes.len() {
            return Err(misfit("roi", format!("has {} entries for {} axes", values.len(), axes.len())));
        }
        let mut roi = vec![(0.0, 1.0); rank];
        for (i, &axis) in axes.iter().enumerate() {
            roi[axis] = (values[i], values[i + axes.len()]);
        }
        Ok(Some(roi))
    }
}

/// `floor(size · scale)`.
fn scaled(size: &Dim, scale: f64) -> RuleResult<Dim> {
    if let Some(size) = size.as_constant() {
        // Single precision, as the scale is.
        return Ok(Dim::constant((size as f32 * scale as f32).floor() as i64));
    }
    // A small fraction that is the scale to the precision it has.
    let fraction = (1..=64i64).find_map(|denominator| {
        let numerator = (scale * denominator as f64).round();
        let close = (numerator / denominator as f64 - scale).abs() <= scale * f64::from(f32::EPSILON);
        (close && numerator >= 1.0).then_some((numerator as i64, denominator))
    });
    let (numerator, denominator) = fraction.ok_or_else(|| RuleError::Unsupported {
        what: format!(
            "the scale {scale} for a size that is not known ({size}); bind it with `ModelGen::bind_dim` or `--bind NAME=SIZE`"
        ),
    })?;
    Ok((size * &Dim::constant(numerator)).floor_div(&Dim::constant(denominator)))
}
