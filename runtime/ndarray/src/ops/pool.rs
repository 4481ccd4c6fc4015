//! Pooling.

use crate::compute::{Compute, WideType};
use crate::ops::cast;
use crate::storage::{Buffer, Computed, Work};
use crate::tensor::NdArrayTensor;
use alloc::vec;
use kiln_kernels::Windows;
use kiln_kernels::pool::{self as kernel, PoolShape};
use kiln_tensor::backend::Primitive;
use kiln_tensor::{DType, PoolOp, PoolOptions, Shape, bf16};
use num_traits::Float;

/// The windows of a pooling over `x`, and the result's shape.
fn geometry(x: &NdArrayTensor, options: &PoolOptions) -> (Windows, Shape) {
    let &[batch, channels, ref spatial @ ..] = x.dims() else { panic!("pool: x is {}", x.shape()) };
    let PoolOptions { kernel, stride, padding, dilation, ceil_mode } = options;
    let windows = Windows::new(spatial, kernel, stride, padding, dilation, *ceil_mode);
    let mut shape = vec![batch, channels];
    shape.extend(windows.output_dims());
    (windows, shape.into())
}

/// The type that pooling works in: f32 where that is exact, else one in which maxima and averages are. Powers of integers are rounded beyond 53 bits.
fn pooling_type(op: PoolOp, dtype: DType) -> WideType {
    let wide = WideType::of(dtype);
    match (wide, op) {
        (WideType::F64 | WideType::F32, _) => wide,
        (WideType::I64 | WideType::U64, PoolOp::Lp { .. }) => WideType::F64,
        (WideType::I64 | WideType::U64, PoolOp::Max | PoolOp::Average { .. }) if dtype.size() <= 2 => {
            WideType::F32
        }
        (WideType::I64 | WideType::U64, PoolOp::Average { .. }) if dtype.size() == 4 => WideType::F64,
        (WideType::I64 | WideType::U64, PoolOp::Max | PoolOp::Average { .. }) => wide,
    }
}

/// See [`PoolOp`].
pub(crate) fn pool(op: PoolOp, x: NdArrayTensor, options: &PoolOptions) -> NdArrayTensor {
    let dtype = x.dtype();
    let wide = pooling_type(op, dtype);
    let x = cast::cast(x, wide.dtype());
    if wide == WideType::F32 && x.layout().is_channels_last() {
        return cast::cast(channels_last(op, x, options), dtype);
    }
    let x = x.into_contiguous();
    let pooled = match (wide, op) {
        (WideType::F32, _) => {
            let shape = PoolShape::new(x.dims(), options);
            NdArrayTensor::build(shape.output_dims().into(), DType::F32, |out| {
                kernel::pool(op, &shape, x.slice(), out);
            })
        }
        (WideType::I64, PoolOp::Average { include_pad }) => {
            averages(&x, options, include_pad, |mean| mean as i64)
        }
        (WideType::U64, PoolOp::Average { include_pad }) => {
            averages(&x, options, include_pad, |mean| mean as u64)
        }
        (WideType::F64, PoolOp::Lp { p }) if dtype.is_int() => whole_norms(p, &x, options),
        (WideType::F64, _) => typed::<f64>(op, &x, options),
        (WideType::I64, _) => typed::<i64>(op, &x, options),
        (WideType::U64, _) => typed::<u64>(op, &x, options),
    };
    cast::cast(pooled, dtype)
}

/// f32 images with their channels last, into such.
fn channels_last(op: PoolOp, x: NdArrayTensor, options: &PoolOptions) -> NdArrayTensor {
    let shape = PoolShape::new(x.dims(), options);
    let x = x.channels_last();
    let mut dims = shape.output_dims();
    dims[1..].rotate_left(1);
    let y = if op == PoolOp::Max && x.is_rounded_or_waits() {
        NdArrayTensor::deferred(Work::Maxima(MaxPool { shape, x }), dims.into())
    } else {
        NdArrayTensor::build(dims.into(), DType::F32, |out| {
            kernel::pool_channels_last(op, &shape, x.slice(), out);
        })
    };
    y.channels_first()
}

/// Maxima of what a convolution of rounded operands yields. They wait for whoever reads them as that does: of rounded numbers they are the same numbers,
/// so that another such convolution gets them rounded, and the image is never held in f32.
pub(crate) struct MaxPool {
    shape: PoolShape,
    /// Contiguous with the channels last.
    x: NdArrayTensor,
}

impl MaxPool {
    /// The maxima, rounded if that is wanted and the image is.
    pub(crate) fn run(&self, rounded: bool) -> Computed {
        let count = self.shape.output_dims().iter().product();
        if let Some(x) = rounded.then(|| self.x.rounded()).flatten() {
            let mut out = Buffer::new::<bf16>(count);
            kernel::max_pool_rounded(&self.shape, x, out.as_mut());
            return Computed::rounded(out);
        }
        let mut out = Buffer::new::<f32>(count);
        kernel::pool_channels_last(PoolOp::Max, &self.shape, self.x.slice(), out.as_mut());
        Computed::Single(out)
    }
}

fn typed<T: Compute>(op: PoolOp, x: &NdArrayTensor, options: &PoolOptions) -> NdArrayTensor {
    let (windows, shape) = geometry(x, options);
    NdArrayTensor::build(shape, x.dtype(), |out: &mut [T]| {
        let source = x.slice::<T>();
        match op {
            PoolOp::Max => each_window(source, out, &windows, |channel, window| {
                let max = |best: Option<T>, at: usize| {
                    Some(best.map_or(channel[at], |b| Compute::max(b, channel[at])))
                };
                window.positions().fold(None, max).unwrap_or(T::LEAST)
            }),
            PoolOp::Average { include_pad } => each_window(source, out, &windows, |channel, window| {
                let sum = window.positions().fold(T::ZERO, |sum, at| sum.add(channel[at]));
                sum.mean_of(window.len(include_pad))
            }),
            PoolOp::Lp { p } => each_window(source, out, &windows, |channel, window| {
                let power = |x: T| (if x < T::ZERO { T::ZERO.sub(x) } else { x }).power(f64::from(p));
                window
                    .positions()
                    .fold(T::ZERO, |sum, at| sum.add(power(channel[at])))
                    .power(1.0 / f64::from(p))
            }),
        }
    })
}

/// Means of integers of 64 bits, whose sums have more; `narrowed` makes one of a mean.
fn averages<T: Compute + Into<i128>>(
    x: &NdArrayTensor,
    options: &PoolOptions,
    include_pad: bool,
    narrowed: impl Fn(i128) -> T,
) -> NdArrayTensor {
    let (windows, shape) = geometry(x, options);
    NdArrayTensor::build(shape, x.dtype(), |out: &mut [T]| {
        each_window(x.slice::<T>(), out, &windows, |channel, window| {
            let sum: i128 = window.positions().map(|at| Into::<i128>::into(channel[at])).sum();
            // Of nothing the sum is 0.
            narrowed(sum / window.len(include_pad).max(1) as i128)
        });
    })
}

/// Norms of whole numbers without what is behind the point: that of (4, 4, 4), whose cubes' root is 5.769, is 5, and that of 4 alone is 4, though the
/// root of 64 is less than it by a rounding.
fn whole_norms(p: u32, x: &NdArrayTensor, options: &PoolOptions) -> NdArrayTensor {
    let (windows, shape) = geometry(x, options);
    let power = |x: f64| Float::powi(x, p.cast_signed());
    NdArrayTensor::build(shape, x.dtype(), |out: &mut [f64]| {
        each_window(x.slice::<f64>(), out, &windows, |channel, window| {
            let sum = window.positions().fold(0.0, |sum, at| sum + power(Float::abs(channel[at])));
            let nearest = Float::round(Float::powf(sum, 1.0 / f64::from(p)));
            if power(nearest) > sum { nearest - 1.0 } else { nearest }
        });
    })
}

/// Max pooling with the position of each maximum in its channel; a window of padding alone has position 0.
pub(crate) fn max_pool_with_indices(
    x: NdArrayTensor,
    options: &PoolOptions,
) -> (NdArrayTensor, NdArrayTensor) {
    let dtype = x.dtype();
    let wide = pooling_type(PoolOp::Max, dtype);
    let x = cast::cast(x, wide.dtype()).into_contiguous();
    let (windows, shape) = geometry(&x, options);
    let mut best_at = NdArrayTensor::build(shape.clone(), DType::I64, |out: &mut [i64]| out.fill(0));
    let positions = best_at.slice_mut().unwrap_or_default();
    let values = by_wide!(
        wide.dtype(),
        F32 => NdArrayTensor::build(shape, DType::F32, |out| {
            let shape = PoolShape::new(x.dims(), options);
            kernel::max_pool_with_indices(&shape, x.slice(), out, positions);
        }),
        T => max_typed::<T>(&x, &windows, shape, positions)
    );
    (cast::cast(values, dtype), best_at)
}

fn max_typed<T: Compute>(
    x: &NdArrayTensor,
    windows: &Windows,
    shape: Shape,
    positions: &mut [i64],
) -> NdArrayTensor {
    NdArrayTensor::build(shape, x.dtype(), |out: &mut [T]| {
        let mut positions = positions.iter_mut();
        each_window(x.slice::<T>(), out, windows, |channel, window| {
            let larger = |best: Option<usize>, at: usize| match best {
                Some(best)
                    if channel[best].is_nan() || !(channel[at] > channel[best] || channel[at].is_nan()) =>
                {
                    Some(best)
                }
                _ => Some(at),
            };
            let best = window.positions().fold(None, larger);
            if let (Some(position), Some(best)) = (positions.next(), best) {
                *position = best as i64;
            }
            best.map_or(T::LEAST, |best| channel[best])
        });
    })
}

/// One window over a channel.
struct PlacedWindow<'a> {
    windows: &'a Windows,
    at: [usize; 3],
}

impl PlacedWindow<'_> {
    /// Where in the channel the elements lie that are inside the input.
    fn positions(&self) -> impl Iterator<Item = usize> {
        let &Self { windows, at } = self;
        let [_, height, width] = windows.input;
        let along = move |axis: usize| {
            (0..windows.kernel[axis]).filter_map(move |k| windows.position(axis, at[axis], k))
        };
        let rows = along(0).flat_map(move |z| along(1).map(move |y| z * height + y));
        rows.flat_map(move |row| along(2).map(move |x| row * width + x))
    }

    /// How many elements count in a mean: those inside the input, or inside its padding too.
    fn len(&self, include_pad: bool) -> usize {
        (0..3).map(|axis| self.windows.elements(axis, self.at[axis], include_pad)).product()
    }
}

fn each_window<T: Compute>(
    source: &[T],
    out: &mut [T],
    windows: &Windows,
    mut f: impl FnMut(&[T], &PlacedWindow<'_>) -> T,
) {
    let [depth, height, width] = windows.output;
    if windows.output_len() == 0 {
        return;
    }
    let size = windows.input_len();
    for (i, out) in out.chunks_exact_mut(windows.output_len()).enumerate() {
        let channel = &source[i * size..][..size];
        let mut out = out.iter_mut();
        for z in 0..depth {
            for y in 0..height {
                for (x, out) in (0..width).zip(&mut out) {
                    *out = f(channel, &PlacedWindow { windows, at: [z, y, x] });
                }
            }
        }
    }
}
