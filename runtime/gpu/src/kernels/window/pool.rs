//! Poolings.

use super::super::direct::Side;
use super::super::reduce::Reducer;
use super::super::{launch, line_of};
use super::{Geometry, LINE, Sizes, from_start, spatial_dims, volume, within_image, zero};
use crate::language::{Buffer, Builder, Fours, Kernel, Number, Type, Value, Variable};
use crate::runtime::Runtime;
use crate::tensor::{GpuTensor, held_as, supports};
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
    /// The floats that norms are computed in.
    pub floats: DType,
    /// The windows.
    pub geometry: Geometry,
    /// Whether the channels of images stand last in memory.
    pub channels_last: bool,
    /// Whether an invocation pools four neighbouring channels, which stand last.
    pub fours: bool,
}

/// What a pooling writes: an element, or four neighbours.
enum Output<'k> {
    Single(Buffer<'k>),
    Fours(Fours<'k>),
}

impl<'k> Output<'k> {
    fn declare(k: &'k Builder, dtype: DType, fours: bool) -> Self {
        let storage = held_as(dtype);
        if fours { Output::Fours(k.output_of_fours(storage)) } else { Output::Single(k.output(storage)) }
    }

    /// Writes as many as were read.
    fn set(&self, position: Value<'k>, values: impl Fn(usize) -> Value<'k>) {
        match self {
            Output::Single(buffer) => buffer.set(position, values(0)),
            Output::Fours(buffer) => buffer.set(position, [0, 1, 2, 3].map(values)),
        }
    }
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

/// A mean of integers, of which there are so many: the sum may be more than their type holds, and is kept as a whole mean and what is left over.
struct Mean<'k> {
    count: Value<'k>,
    whole: Variable<'k>,
    rest: Variable<'k>,
}

impl<'k> Mean<'k> {
    fn new(k: &'k Builder, count: Value<'k>) -> Self {
        let zero = || k.variable(zero(k, count.ty()));
        Self { count, whole: zero(), rest: zero() }
    }

    fn add(&self, x: Value<'k>) {
        let share = x / self.count;
        let rest = self.rest.get() + (x - share * self.count);
        let more = rest / self.count;
        self.whole.set(self.whole.get() + share + more);
        self.rest.set(rest - more * self.count);
    }

    /// Without what is behind the point.
    fn get(&self) -> Value<'k> {
        let (whole, rest) = (self.whole.get(), self.rest.get());
        let k = whole.kernel();
        let [zero, one] = [0, 1].map(|n| k.whole(n, whole.ty()));
        if !matches!(whole.ty(), Type::I32 | Type::I64) {
            return whole;
        }
        let is_less = whole.above(zero) & rest.below(zero);
        let is_more = whole.below(zero) & rest.above(zero);
        is_less.select(whole - one, is_more.select(whole + one, whole))
    }
}

impl Pool {
    /// Whether sums may be more than their type holds, which for narrow integers has 32 bits.
    fn sums_may_wrap(&self) -> bool {
        matches!(self.dtype, DType::I32 | DType::U32 | DType::I64 | DType::U64)
    }

    /// The kernel. Parameters: the number of results; the sizes; the padding behind; how many channels there are, if these stand last. Results and
    /// channels are counted in fours, if it pools these.
    pub fn kernel(&self) -> Kernel {
        let storage = held_as(self.dtype);
        let ty = storage.value();
        Builder::kernel("pool", [LINE, 1], |k| {
            let x = Side::declare(k, self.dtype, self.fours);
            let output = Output::declare(k, self.dtype, self.fours);
            let places = match self.pooling {
                Pooling::Max(Some(dtype)) => Some(Output::declare(k, dtype, self.fours)),
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
                let neighbours = if self.fours { 4 } else { 1 };
                // A variable for each of the channels.
                let each_of = |value| (0..neighbours).map(|_| k.variable(value)).collect::<Vec<_>>();
                let each = |inside_of: &dyn Fn(Value<'_>, &[Value<'_>])| {
                    k.range(0_u32, self.geometry.kernel_length(), 1_u32, |element| {
                        let within = self.geometry.within(element);
                        let (at, inside) = sizes.element(&self.geometry, window, within);
                        k.when(inside, || {
                            let element = base + at;
                            let channel = |channels| element * channels + position % channels;
                            let element = channels.map_or(element, channel);
                            let first = if self.fours { element * 4_u32 } else { element };
                            inside_of(at, &x.at(first));
                        });
                    });
                };
                match self.pooling {
                    Pooling::Max(_) | Pooling::Of(PoolOp::Max) => {
                        let (best, best_at) =
                            (each_of(Reducer::Max.neutral_of(k, storage)), each_of(k.value(0_u32)));
                        let any = k.variable(false);
                        each(&|at, elements| {
                            for (n, &element) in elements.iter().enumerate() {
                                let (best, best_at) = (best[n], best_at[n]);
                                let beats = element.above(best.get()) | element.is_nan();
                                let taken = !any.get() | (beats & !best.get().is_nan());
                                best.set(taken.select(element, best.get()));
                                best_at.set(taken.select(at, best_at.get()));
                            }
                            any.set(k.value(true));
                        });
                        output.set(position, |n| best[n].get());
                        if let Some(places) = places {
                            places.set(position, |n| best_at[n].get().to(ty_of(self.pooling)));
                        }
                    }
                    Pooling::Of(PoolOp::Average { include_pad }) if self.sums_may_wrap() => {
                        let count = if include_pad {
                            self.geometry.padded_count(window, &sizes, &after)
                        } else {
                            self.geometry.inner_count(window, &sizes)
                        };
                        let count = count.max(1_u32).to(ty);
                        let means: Vec<_> = (0..neighbours).map(|_| Mean::new(k, count)).collect();
                        each(&|_, elements| {
                            means.iter().zip(elements).for_each(|(mean, &element)| mean.add(element));
                        });
                        output.set(position, |n| means[n].get());
                    }
                    Pooling::Of(PoolOp::Average { include_pad }) => {
                        let (sums, inside) = (each_of(zero(k, ty)), k.variable(0_u32));
                        each(&|_, elements| {
                            for (sum, &element) in sums.iter().zip(elements) {
                                sum.set(sum.get() + element);
                            }
                            inside.set(inside.get() + 1_u32);
                        });
                        let divisor = if include_pad {
                            self.geometry.padded_count(window, &sizes, &after)
                        } else {
                            inside.get()
                        };
                        output.set(position, |n| sums[n].get() / divisor.to(ty));
                    }
                    Pooling::Of(PoolOp::Lp { p }) => {
                        let wide = held_as(self.floats).value();
                        let sums = each_of(k.whole(0, wide));
                        each(&|_, elements| {
                            for (sum, element) in sums.iter().zip(elements) {
                                let magnitude = element.to(wide).abs();
                                let power = match p {
                                    1 => magnitude,
                                    2 => magnitude * magnitude,
                                    _ if self.dtype.is_int() => whole_power(magnitude, p),
                                    _ => magnitude.pow(f64::from(p).beside(magnitude)),
                                };
                                sum.set(sum.get() + power);
                            }
                        });
                        let root = |n: usize| match p {
                            1 => sums[n].get(),
                            2 => sums[n].get().sqrt(),
                            _ => sums[n].get().pow((1.0 / f64::from(p)).beside(sums[n].get())),
                        };
                        // Of whole numbers all before the point: what is rounded to a whole root from below is one.
                        let before_point = |n: usize| {
                            let nearest = root(n).round();
                            whole_power(nearest, p)
                                .above(sums[n].get())
                                .select(nearest - k.whole(1, wide), nearest)
                        };
                        let is_whole = self.dtype.is_int();
                        output.set(position, |n| if is_whole { before_point(n) } else { root(n) }.to(ty));
                    }
                }
            });
        })
    }
}

/// `x^order` of a whole number in floats, as products, which are exact.
fn whole_power(x: Value<'_>, order: u32) -> Value<'_> {
    match order {
        0 => x.kernel().whole(1, x.ty()),
        1 => x,
        _ if order.is_multiple_of(2) => whole_power(x * x, order / 2),
        _ => x * whole_power(x * x, order / 2),
    }
}

fn ty_of(pooling: Pooling) -> Type {
    match pooling {
        Pooling::Max(Some(dtype)) => held_as(dtype).value(),
        Pooling::Max(None) | Pooling::Of(_) => Type::U32,
    }
}

/// The floats that hold numbers of a dtype as well as the device's floats do.
fn floats_for<R: Runtime>(dtype: DType, device: &R::Device) -> DType {
    match held_as(dtype).value() {
        Type::I64 | Type::U64 if !supports::<R>(device, DType::F64) => DType::F32,
        Type::F64 | Type::I64 | Type::U64 => DType::F64,
        Type::F32 | Type::I32 | Type::U32 | Type::Bool => DType::F32,
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
    // Of one dim, too, if a convolution yields them so.
    let channels_last = x.layout.is_channels_last();
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
    let x = if channels_last { x.with_channels_last() } else { from_start(x) };
    let fours = channels_last && x.dims()[1].is_multiple_of(4);
    let each = if fours { 4 } else { 1 };
    let count = out.len() / each;
    let mut words = vec![count as u32];
    words.extend(Sizes::words(&windows));
    words.extend(windows.padding.iter().map(|&(_, after)| after as u32));
    words.extend(channels_last.then(|| (x.dims()[1] / each) as u32));
    let floats = floats_for::<R>(x.dtype, &x.device);
    let template =
        Pool { pooling, dtype: x.dtype, floats, geometry: Geometry::of(&windows), channels_last, fours };
    let mut tensors = vec![&x, &out];
    tensors.extend(&places);
    launch::<R>(&x.device, template, &tensors, &words, line_of::<R>(&x.device, count));
    (out, places)
}
