//! Poolings.

use super::super::reduce::Fold;
use super::super::{launch, line_of};
use super::{Geometry, LINE, Sizes, from_start, spatial_dims, volume, within_image, zero};
use crate::language::{Builder, Kernel, Number, Type, Value};
use crate::runtime::Runtime;
use crate::tensor::{GpuTensor, held_as, require};
use kiln_tensor::{DType, PoolOp, PoolOptions, Shape, Windows};

/// What a pooling yields of its windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pooling {
    /// The largest element and, if wanted, where it is: in positions of a dtype.
    Max(Option<DType>),
    /// See [`PoolOp`]'s others.
    Of(PoolOp),
}

/// A pooling.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pool {
    /// What it yields.
    pub pooling: Pooling,
    /// The elements' dtype.
    pub dtype: DType,
    /// The windows.
    pub geometry: Geometry,
    /// Whether the channels of images stand last in memory.
    pub channels_last: bool,
}

impl Geometry {
    /// Elements of a window that lie in the image or in its padding.
    pub(super) fn padded_count<'k>(
        &self,
        window: [Value<'k>; 3],
        sizes: &Sizes<'k>,
        after: &[Value<'k>; 3],
    ) -> Value<'k> {
        let along = |axis: usize| {
            let end = sizes.input[axis] + sizes.before[axis] + after[axis];
            let start = window[axis] * self.stride[axis];
            let (kernel, dilation) = (self.kernel[axis], self.dilation[axis]);
            ((end.max(start) - start + (dilation - 1)) / dilation).min(kernel)
        };
        volume(&[along(0), along(1), along(2)])
    }

    /// Elements of a window that lie in the image.
    pub(super) fn inner_count<'k>(&self, window: [Value<'k>; 3], sizes: &Sizes<'k>) -> Value<'k> {
        let along = |axis: usize| {
            let (kernel, dilation) = (self.kernel[axis], self.dilation[axis]);
            // Elements before a coordinate of the padded image.
            let before = |end: Value<'k>| {
                let start = window[axis] * self.stride[axis];
                ((end.max(start) - start + (dilation - 1)) / dilation).min(kernel)
            };
            before(sizes.before[axis] + sizes.input[axis]) - before(sizes.before[axis])
        };
        volume(&[along(0), along(1), along(2)])
    }
}

impl Pool {
    /// The kernel. Parameters: the number of results; the sizes; the padding behind; how many channels there are, if these stand last.
    pub fn kernel(&self) -> Kernel {
        let storage = held_as(self.dtype);
        let ty = storage.value();
        Builder::kernel("pool", [LINE, 1], |k| {
            let (x, output) = (k.input(storage), k.output(storage));
            let places = match self.pooling {
                Pooling::Max(Some(dtype)) => Some(k.output(held_as(dtype))),
                Pooling::Max(None) | Pooling::Of(_) => None,
            };
            let count = k.parameter();
            let sizes = Sizes::declare(k);
            let after = [k.parameter(), k.parameter(), k.parameter()];
            let channels = self.channels_last.then(|| k.parameter());
            let position = k.position(LINE);
            k.when(position.below(count), || {
                let (windows, image) = (volume(&sizes.output), volume(&sizes.input));
                // Which window of which image; images of channels that stand last are all channels'.
                let place = channels.map_or(position, |channels| position / channels);
                let window = within_image(place % windows, &sizes.output);
                let base = place / windows * image;
                let each = |inside_of: &dyn Fn(Value<'_>, Value<'_>)| {
                    k.range(0_u32, self.geometry.kernel_length(), 1_u32, |element| {
                        let within = self.geometry.within(element);
                        let (at, inside) = sizes.element(&self.geometry, window, within);
                        k.when(inside, || {
                            let element = base + at;
                            let channel = |channels| element * channels + position % channels;
                            inside_of(at, x.at(channels.map_or(element, channel)));
                        });
                    });
                };
                match self.pooling {
                    Pooling::Max(_) | Pooling::Of(PoolOp::Max) => {
                        let best = k.variable(Fold::Max.neutral_of(k, storage));
                        let (best_at, any) = (k.variable(0_u32), k.variable(false));
                        each(&|at, element| {
                            let beats = element.above(best.get()) | element.is_nan();
                            let taken = !any.get() | (beats & !best.get().is_nan());
                            best.set(taken.select(element, best.get()));
                            best_at.set(taken.select(at, best_at.get()));
                            any.set(k.value(true));
                        });
                        output.set(position, best.get());
                        if let Some(places) = places {
                            places.set(position, best_at.get().to(ty_of(self.pooling)));
                        }
                    }
                    Pooling::Of(PoolOp::Average { include_pad }) => {
                        let (sum, inside) = (k.variable(zero(k, ty)), k.variable(0_u32));
                        each(&|_, element| {
                            sum.set(sum.get() + element);
                            inside.set(inside.get() + 1_u32);
                        });
                        let divisor = if include_pad {
                            self.geometry.padded_count(window, &sizes, &after)
                        } else {
                            inside.get()
                        };
                        output.set(position, sum.get() / divisor.to(ty));
                    }
                    Pooling::Of(PoolOp::Lp { p }) => {
                        let wide = floats_for(ty);
                        let sum = k.variable(k.whole(0, wide));
                        each(&|_, element| {
                            let magnitude = element.to(wide).abs();
                            let power = match p {
                                1 => magnitude,
                                2 => magnitude * magnitude,
                                _ => magnitude.pow(f64::from(p).beside(magnitude)),
                            };
                            sum.set(sum.get() + power);
                        });
                        let root = match p {
                            1 => sum.get(),
                            2 => sum.get().sqrt(),
                            _ => sum.get().pow((1.0 / f64::from(p)).beside(sum.get())),
                        };
                        output.set(position, root.to(ty));
                    }
                }
            });
        })
    }
}

fn ty_of(pooling: Pooling) -> Type {
    match pooling {
        Pooling::Max(Some(dtype)) => held_as(dtype).value(),
        Pooling::Max(None) | Pooling::Of(_) => Type::U32,
    }
}

/// The floats that hold numbers of a type as well as floats do.
fn floats_for(ty: Type) -> Type {
    match ty {
        Type::F64 | Type::I64 | Type::U64 => Type::F64,
        Type::F32 | Type::I32 | Type::U32 | Type::Bool => Type::F32,
    }
}

/// A pooling; of the largest with their positions in their channel, where a dtype for them is given.
pub(crate) fn pool<R: Runtime>(
    pooling: Pooling,
    x: GpuTensor<R>,
    options: &PoolOptions,
) -> (GpuTensor<R>, Option<GpuTensor<R>>) {
    let PoolOptions { kernel, stride, padding, dilation, ceil_mode } = options;
    let windows = Windows::new(spatial_dims("pool", &x), kernel, stride, padding, dilation, *ceil_mode);
    let shape = Shape::from([&x.dims()[..2], windows.output_dims()].concat());
    let channels_last = x.is_channels_last();
    let like_images = |dtype: DType| match channels_last {
        true => GpuTensor::empty_channels_last(shape.clone(), dtype, &x.device),
        false => GpuTensor::empty(shape.clone(), dtype, &x.device),
    };
    let out = like_images(x.dtype);
    let places = match pooling {
        Pooling::Max(Some(dtype)) => Some(like_images(dtype)),
        Pooling::Max(None) | Pooling::Of(_) => None,
    };
    if out.is_empty() {
        return (out, places);
    }
    if matches!(pooling, Pooling::Of(PoolOp::Lp { .. })) && floats_for(held_as(x.dtype).value()) == Type::F64
    {
        require::<R>(&x.device, DType::F64);
    }
    let x = if channels_last { x.with_channels_last() } else { from_start(x) };
    let mut words = vec![out.len() as u32];
    words.extend(Sizes::words(&windows));
    words.extend(windows.padding.iter().map(|&(_, after)| after as u32));
    words.extend(channels_last.then(|| x.dims()[1] as u32));
    let template = Pool { pooling, dtype: x.dtype, geometry: Geometry::of(&windows), channels_last };
    let mut tensors = vec![&x, &out];
    tensors.extend(&places);
    launch::<R>(&x.device, template, &tensors, &words, line_of::<R>(&x.device, out.len()));
    (out, places)
}
