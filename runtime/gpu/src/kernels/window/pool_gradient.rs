//! Gradients of poolings: each element gathers from the windows that it is in.

use super::super::{elementwise, launch, line_of};
use super::reach::Reach;
use super::{Geometry, LINE, Sizes, from_start, spatial_dims, volume, within_image, zero};
use crate::language::{Builder, Kernel, Number, Type, Value};
use crate::runtime::Runtime;
use crate::tensor::{GpuTensor, held_as};
use kiln_tensor::{DType, PoolOptions, Scalar, Shape, Windows, spatial};

/// The most windows of an element for which there is a line of code each.
const MOST_UNROLLED: u32 = 16;

/// What flows back from a window to its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flow {
    /// All of it to the element at the window's position, of a dtype.
    ToPosition(DType),
    /// The same to all elements that were averaged.
    Average {
        /// Whether padding was counted.
        include_pad: bool,
    },
    /// Of the norm `y = (Σ |x|^p)^(1/p)`: `sign(x) (|x| / y)^(p-1)` of it, and nothing where all are 0.
    Norm {
        /// The norm's order.
        p: u32,
    },
}

/// The gradient of a pooling's input: each element sums what flows back from the windows that it is in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PoolGradient {
    /// What flows back.
    pub flow: Flow,
    /// The elements' dtype.
    pub dtype: DType,
    /// The windows.
    pub geometry: Geometry,
}

impl PoolGradient {
    /// The kernel. Buffers: the gradient; the positions, or what was pooled and the norms; what is yielded. Parameters: the number of
    /// elements; the sizes; the padding behind.
    pub fn kernel(&self) -> Kernel {
        let storage = held_as(self.dtype);
        let ty = storage.value();
        Builder::kernel("pool_gradient", [LINE, 1], |k| {
            if storage.bytes() == 8 {
                k.resident(4);
            }
            let gradient = k.input(storage);
            let others: Vec<_> = match self.flow {
                Flow::ToPosition(dtype) => vec![k.input(held_as(dtype))],
                Flow::Average { .. } => Vec::new(),
                Flow::Norm { .. } => vec![k.input(storage), k.input(storage)],
            };
            let output = k.output(storage);
            let count = k.parameter();
            let sizes = Sizes::declare(k);
            let after = [k.parameter(), k.parameter(), k.parameter()];
            let taps = self.geometry.reaching();
            let position = k.position(LINE);
            k.when(position.below(count), || {
                let (windows, image) = (volume(&sizes.output), volume(&sizes.input));
                let own = position % image;
                let reach = Reach::of(k, self.geometry, within_image(own, &sizes.input), sizes.before);
                let base = position / image * windows;
                let sum = k.variable(zero(k, ty));
                let none = k.value(0_u32);
                let gather = |tap: [Value<'_>; 3]| {
                    let (place, inside) = reach.place(tap, [none; 3], &sizes.output);
                    // Reads beyond a buffer yield some element, which is not taken: cheaper than a branch around few of them.
                    let arrives = gradient.at(base + place);
                    let window = || [0, 1, 2].map(|axis| reach.window(axis, none, tap[axis]));
                    let (taken, share) = match (self.flow, others.as_slice()) {
                        (Flow::ToPosition(_), &[positions]) => {
                            let here = positions.at(base + place).to(Type::U32).equals(own);
                            (inside & here, arrives)
                        }
                        (Flow::Average { include_pad }, _) => {
                            let divisor = match include_pad {
                                true => self.geometry.padded_count(window(), &sizes, &after),
                                false => self.geometry.inner_count(window(), &sizes),
                            };
                            (inside, arrives / divisor.max(1_u32).to(ty))
                        }
                        (Flow::Norm { p }, &[x, norms]) => {
                            let (x, norm) = (x.at(position), norms.at(base + place));
                            // A norm is flat where an element is 0, whatever arrives there.
                            let zero = zero(k, ty);
                            let signed = x.equals(zero).select(zero, arrives * x.sign());
                            let share = signed * power(x.abs() / norm, p - 1);
                            (inside & !norm.at_most(k.whole(0, ty)), share)
                        }
                        (Flow::ToPosition(_) | Flow::Norm { .. }, _) => unreachable!("buffers of a flow"),
                    };
                    sum.set(sum.get() + taken.select(share, zero(k, ty)));
                };
                let [deep, high, wide] = taps.kernel;
                if deep * high * wide <= MOST_UNROLLED {
                    for tap in 0..deep * high * wide {
                        gather([tap / wide / high, tap / wide % high, tap % wide].map(|nth| k.value(nth)));
                    }
                } else {
                    k.range(0_u32, deep * high * wide, 1_u32, |tap| gather(taps.within(tap)));
                }
                output.set(position, sum.get());
            });
        })
    }
}

/// `x^order`, of a whole order.
fn power(x: Value<'_>, order: u32) -> Value<'_> {
    match order {
        0 => x.kernel().whole(1, x.ty()),
        1 => x,
        2 => x * x,
        _ => x.pow(f64::from(order).beside(x)),
    }
}

/// The gradient of the input of a pooling, which has the shape `input`, from that of its result and what else the `flow` needs.
pub(crate) fn pool_gradient<R: Runtime>(
    flow: Flow,
    gradient: GpuTensor<R>,
    others: Vec<GpuTensor<R>>,
    input: &Shape,
    options: &PoolOptions,
) -> GpuTensor<R> {
    let (dtype, device) = (gradient.dtype, gradient.device.clone());
    if gradient.is_empty() {
        return elementwise::full(input.clone(), Scalar::Int(0), dtype, &device);
    }
    let out = GpuTensor::empty(input.clone(), dtype, &device);
    if out.is_empty() {
        return out;
    }
    let PoolOptions { kernel, stride, padding, dilation, ceil_mode } = options;
    let windows = Windows::new(&input.dims[2..], kernel, stride, padding, dilation, *ceil_mode);
    assert_eq!(
        spatial_dims("pool_gradient", &gradient),
        windows.output_dims(),
        "pool_gradient: the gradient's windows are not those over {input}"
    );
    let read: Vec<_> = [gradient].into_iter().chain(others).map(from_start).collect();
    let mut words = vec![out.len() as u32];
    words.extend(Sizes::words(&windows));
    words.extend(windows.padding.iter().map(|&(_, after)| after as u32));
    let template = PoolGradient { flow, dtype, geometry: Geometry::of(&windows) };
    let tensors: Vec<_> = read.iter().chain([&out]).collect();
    launch::<R>(&device, template, &tensors, &words, line_of::<R>(&device, out.len()));
    out
}

/// Where the `n`-th of `of` parts of a size begins and ends, as large as it must be for the parts to cover all: the elements of an adaptive
/// mean, and the means of an element.
fn part<'k>(n: Value<'k>, of: Value<'k>, size: Value<'k>) -> [Value<'k>; 2] {
    [n * size / of, ((n + 1_u32) * size + (of - 1_u32)) / of]
}

/// The length of a [`part`].
fn part_length<'k>(n: Value<'k>, of: Value<'k>, size: Value<'k>) -> Value<'k> {
    let [begin, end] = part(n, of, size);
    end - begin
}

/// The gradient of an adaptive average pooling's input: each element sums its shares of the means that it is in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AdaptivePoolGradient {
    /// The elements' dtype.
    pub dtype: DType,
}

impl AdaptivePoolGradient {
    /// The kernel. Parameters: the number of elements; the sizes of the input's images and the result's.
    pub fn kernel(&self) -> Kernel {
        let storage = held_as(self.dtype);
        let ty = storage.value();
        Builder::kernel("adaptive_pool_gradient", [LINE, 1], |k| {
            if storage.bytes() == 8 {
                k.resident(4);
            }
            let (gradient, output) = (k.input(storage), k.output(storage));
            let count = k.parameter();
            let three = || [k.parameter(), k.parameter(), k.parameter()];
            let (input, means) = (three(), three());
            let position = k.position(LINE);
            k.when(position.below(count), || {
                let image = volume(&input);
                let at = within_image(position % image, &input);
                let base = position / image * volume(&means);
                let sum = k.variable(zero(k, ty));
                // The means that the element is in.
                let means_of = |axis: usize| part(at[axis], input[axis], means[axis]);
                let [[z_begin, z_end], [y_begin, y_end], [x_begin, x_end]] = [0, 1, 2].map(means_of);
                k.range(z_begin, z_end, 1_u32, |z| {
                    k.range(y_begin, y_end, 1_u32, |y| {
                        let rows = part_length(z, means[0], input[0]) * part_length(y, means[1], input[1]);
                        k.range(x_begin, x_end, 1_u32, |x| {
                            let arrives = gradient.at(base + (z * means[1] + y) * means[2] + x);
                            let share = arrives / (rows * part_length(x, means[2], input[2])).to(ty);
                            sum.set(sum.get() + share);
                        });
                    });
                });
                output.set(position, sum.get());
            });
        })
    }
}

/// The gradient of the input of an adaptive average pooling, which has the shape `input`; nothing where its positions are beyond what
/// kernels count.
pub(crate) fn adaptive_average_gradient<R: Runtime>(
    gradient: &GpuTensor<R>,
    input: &Shape,
) -> Option<GpuTensor<R>> {
    let (from, to) = (spatial(&input.dims[2..], 1), spatial(spatial_dims("adaptive_avg_pool", gradient), 1));
    let counted =
        |axis: usize| (from[axis] + 1).checked_mul(to[axis] + 1).is_some_and(|n| u32::try_from(n).is_ok());
    if gradient.is_empty() || !(0..3).all(counted) {
        return None;
    }
    let (gradient, device) = (from_start(gradient.clone()), &gradient.device);
    let out = GpuTensor::empty(input.clone(), gradient.dtype, device);
    if out.is_empty() {
        return Some(out);
    }
    let words: Vec<u32> = [out.len()].into_iter().chain(from).chain(to).map(|n| n as u32).collect();
    let template = AdaptivePoolGradient { dtype: gradient.dtype };
    launch::<R>(device, template, &[&gradient, &out], &words, line_of::<R>(device, out.len()));
    Some(out)
}
