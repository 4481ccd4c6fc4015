//! Windows over images: convolutions, transposed convolutions, pooling. Images have three spatial dims here; absent ones have
//! size 1, in front.

mod rows;

pub use rows::RowConv;

use super::access::coordinates;
use super::elementwise::from_start;
use super::matmul::{Epilogue, Tile, Tiling};
use super::then::{self, Then};
use super::tune::{self, Variant};
use super::{LINE, block, launch, launch_open, line_of};
use crate::language::{Builder, Kernel, Number, Type, Value};
use crate::runtime::Runtime;
use crate::tensor::{GpuTensor, held_as, require};
use kiln_tensor::{
    Activation, ConvOptions, ConvTransposeOptions, DType, PoolOp, PoolOptions, Shape, Windows, spatial,
};

/// What a window's geometry is when its kernel is compiled: divisions by what is known cost little.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Size of a window.
    pub kernel: [u32; 3],
    /// Step of the window.
    pub stride: [u32; 3],
    /// Distance between a window's elements.
    pub dilation: [u32; 3],
}

impl Geometry {
    fn of(windows: &Windows) -> Self {
        let words = |sizes: [usize; 3]| sizes.map(|size| size as u32);
        Self {
            kernel: words(windows.kernel),
            stride: words(windows.stride),
            dilation: words(windows.dilation),
        }
    }

    fn kernel_length(&self) -> u32 {
        self.kernel.iter().product()
    }

    /// The coordinates of an element of the window.
    fn within<'k>(&self, element: Value<'k>) -> [Value<'k>; 3] {
        let [_, height, width] = self.kernel;
        [element / (height * width), element / width % height, element % width]
    }
}

/// Sizes of images, as parameters.
struct Sizes<'k> {
    input: [Value<'k>; 3],
    output: [Value<'k>; 3],
    before: [Value<'k>; 3],
}

impl<'k> Sizes<'k> {
    /// The next parameters.
    fn declare(k: &'k Builder) -> Self {
        let three = || [k.parameter(), k.parameter(), k.parameter()];
        Self { input: three(), output: three(), before: three() }
    }

    fn words(windows: &Windows) -> impl Iterator<Item = u32> {
        let before = windows.padding.map(|(before, _)| before);
        [windows.input, windows.output, before].into_iter().flatten().map(|size| size as u32)
    }

    /// The coordinates of a window.
    fn window(&self, position: Value<'k>) -> [Value<'k>; 3] {
        let [_, height, width] = self.output;
        let row = position / width;
        [row / height, row % height, position % width]
    }

    /// Where element `within` of window `at` is in a row-major image, and whether it is inside: coordinates before the
    /// image wrap around, and so are beyond its end.
    fn element(
        &self,
        geometry: &Geometry,
        at: [Value<'k>; 3],
        within: [Value<'k>; 3],
    ) -> (Value<'k>, Value<'k>) {
        let along = |axis: usize| {
            at[axis] * geometry.stride[axis] + within[axis] * geometry.dilation[axis] - self.before[axis]
        };
        let [z, y, x] = [along(0), along(1), along(2)];
        let inside = z.below(self.input[0]) & y.below(self.input[1]) & x.below(self.input[2]);
        ((z * self.input[1] + y) * self.input[2] + x, inside)
    }
}

fn volume<'k>(size: &[Value<'k>; 3]) -> Value<'k> {
    size[0] * size[1] * size[2]
}

fn zero(k: &Builder, ty: Type) -> Value<'_> {
    if ty == Type::F32 { k.value(0.0) } else { k.value(0_u32).to(ty) }
}

/// A convolution: a tiled product of the weights with the windows (which are gathered on the way), or, where a group has few
/// channels, one result an invocation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conv {
    /// The elements' dtype.
    pub dtype: DType,
    /// The windows.
    pub geometry: Geometry,
    /// Whether a bias is added to each channel.
    pub bias: bool,
    /// What is done to each element at last.
    pub activation: Option<Activation>,
    /// Who computes what of a tile, if it is a tiled product.
    pub tiling: Option<Tiling>,
    /// What came after that.
    pub then: Vec<Then>,
}

impl Conv {
    /// The kernel. Parameters: the `block` of a tiled product; the number of images, groups, channels a group of input and output;
    /// the sizes.
    pub fn kernel(&self) -> Kernel {
        let storage = held_as(self.dtype);
        let (name, workgroup) = match self.tiling {
            Some(tiling) => (tiling.kernel("conv"), tiling.workgroup()),
            None => (String::from("conv"), [LINE, 1]),
        };
        Builder::kernel(name, workgroup, |k| {
            let (x, weight) = (k.input(storage), k.input(storage));
            let epilogue =
                Epilogue { bias: self.bias.then(|| k.input(storage)), activation: self.activation };
            let output = k.output(storage);
            let of_tile = self.tiling.map(|tiling| (tiling, block(k)));
            let (images, groups) = (k.parameter(), k.parameter());
            let (in_channels, out_channels) = (k.parameter(), k.parameter());
            let sizes = Sizes::declare(k);
            let then = then::declare(k, &self.then);
            let (image, windows) = (volume(&sizes.input), volume(&sizes.output));
            let length = self.geometry.kernel_length();
            let depth = in_channels * length;
            // The element of the window that the depth names, or nothing beyond the image.
            let gather = |place: Value<'_>, depth: Value<'_>, at: [Value<'_>; 3]| {
                let (channel, within) = (depth / length, self.geometry.within(depth % length));
                let (element, inside) = sizes.element(&self.geometry, at, within);
                let value = k.variable(zero(k, storage.value()));
                k.when(inside, || value.set(x.at((place * in_channels + channel) * image + element)));
                value.get()
            };
            // Images and groups along z: the channels of one group of one image follow one another.
            if let Some((tiling, [column, row, place])) = of_tile {
                let group = place % groups;
                let [high, wide] = tiling.tile();
                let start = [row * high, column * wide];
                let tile = Tile { tiling, start, size: [out_channels, windows, depth], ty: storage.value() };
                tile.product(
                    k,
                    |row, at| weight.at((group * out_channels + row) * depth + at),
                    |column| sizes.window(column),
                    |at, window| gather(place, at, *window),
                    |row, column, sum| {
                        let sum = epilogue.apply(sum, |bias| bias.at(group * out_channels + row));
                        let position = (place * out_channels + row) * windows + column;
                        output.set(position, then::apply(&then, position, sum));
                    },
                );
            } else {
                let position = k.position(LINE);
                k.when(position.below(images * groups * out_channels * windows), || {
                    let (at, of) = (position % windows, position / windows);
                    let (place, row) = (of / out_channels, of % out_channels);
                    let channel = place % groups * out_channels + row;
                    let window = sizes.window(at);
                    let sum = k.variable(zero(k, storage.value()));
                    k.range(0_u32, depth, 1_u32, |at| {
                        let product =
                            weight.at(channel * depth + at).fma(gather(place, at, window), sum.get());
                        sum.set(product);
                    });
                    let sum = epilogue.apply(sum.get(), |bias| bias.at(channel));
                    output.set(position, then::apply(&then, position, sum));
                });
            }
        })
    }
}
/// The dims of images behind batch and channels.
fn spatial_dims<'a, R: Runtime>(op: &str, x: &'a GpuTensor<R>) -> &'a [usize] {
    match x.dims() {
        [_, _, spatial @ ..] if (1..=3).contains(&spatial.len()) => spatial,
        dims => panic!("{op}: images of shape {dims:?} do not have one to three spatial dims"),
    }
}

/// `activation(conv(x, weight) + bias)`.
pub(crate) fn conv<R: Runtime>(
    x: GpuTensor<R>,
    weight: GpuTensor<R>,
    bias: Option<GpuTensor<R>>,
    activation: Option<Activation>,
    options: &ConvOptions,
) -> GpuTensor<R> {
    let ConvOptions { stride, padding, dilation, groups } = options;
    let images = spatial_dims("conv", &x);
    let windows = Windows::new(images, &weight.dims()[2..], stride, padding, dilation, false);
    let (batch, channels) = (x.dims()[0], weight.dims()[0]);
    let shape = [&[batch, channels], windows.output_dims()].concat();
    let out = GpuTensor::empty(Shape::from(shape), x.dtype, &x.device);
    if out.is_empty() {
        return out;
    }
    let (in_channels, out_channels) = (weight.dims()[1], channels / groups);
    if !R::limits(&x.device).shared_memory {
        rows::conv(x, weight, bias, activation, &windows, *groups, &out);
        return out;
    }
    let (x, weight) = (from_start(x), from_start(weight));
    let bias = bias.map(from_start);
    let template = |tiling| Conv {
        dtype: x.dtype,
        geometry: Geometry::of(&windows),
        bias: bias.is_some(),
        activation,
        tiling,
        then: Vec::new(),
    };
    let mut tensors = vec![&x, &weight];
    tensors.extend(&bias);
    tensors.push(&out);
    let mut words = [batch, *groups, in_channels, out_channels].map(|n| n as u32).to_vec();
    words.extend(Sizes::words(&windows));
    // A tile of few rows computes mostly what nobody asked for.
    if out_channels < 8 {
        launch_open::<R>(&x.device, template(None), &tensors, &words, line_of::<R>(&x.device, out.len()));
        return out;
    }
    let depth = in_channels * Geometry::of(&windows).kernel_length() as usize;
    let size = [out_channels, windows.output_len(), depth];
    let variant = |tiling: Tiling| {
        let [high, wide] = tiling.tile();
        let across = windows.output_len().div_ceil(wide as usize);
        let blocks = [across, out_channels.div_ceil(high as usize), batch * groups];
        Variant { name: tiling.name(), template: template(Some(tiling)).into(), blocks }
    };
    let class = || {
        let [rows, columns, depth] = size.map(tune::rounded);
        let places = tune::rounded(batch * groups);
        format!("convolution {} {places}x{rows}x{columns}x{depth} {:?}", x.dtype, Geometry::of(&windows))
    };
    let (usual, others) = Tiling::of::<R>(&x.device, x.dtype, size);
    let others = || others.map(variant).collect();
    tune::launch_fastest::<R>(&x.device, class, variant(usual), others, &tensors, &words);
    out
}

/// A transposed convolution, one result an invocation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConvTranspose {
    /// The elements' dtype.
    pub dtype: DType,
    /// The windows, which lie over the result.
    pub geometry: Geometry,
    /// Whether a bias is added to each channel.
    pub bias: bool,
}

impl ConvTranspose {
    /// The kernel. Parameters: the number of results, groups, channels a group of input and output; the sizes of the windows
    /// over the result (whose "output" is the input's).
    pub fn kernel(&self) -> Kernel {
        let storage = held_as(self.dtype);
        Builder::kernel("conv_transpose", [LINE, 1], |k| {
            let (x, weight) = (k.input(storage), k.input(storage));
            let epilogue = Epilogue { bias: self.bias.then(|| k.input(storage)), activation: None };
            let output = k.output(storage);
            let (count, groups) = (k.parameter(), k.parameter());
            let (in_channels, out_channels) = (k.parameter(), k.parameter());
            let sizes = Sizes::declare(k);
            let length = self.geometry.kernel_length();
            let position = k.position(LINE);
            k.when(position.below(count), || {
                let (pixels, points) = (volume(&sizes.input), volume(&sizes.output));
                let (at, of) = (position % pixels, position / pixels);
                let (place, row) = (of / out_channels, of % out_channels);
                let group = place % groups;
                let at = coordinates(at, &sizes.input);
                let sum = k.variable(zero(k, storage.value()));
                k.range(0_u32, length, 1_u32, |element| {
                    let within = self.geometry.within(element);
                    // The window whose element this is, if there is one: what would lie before the first wraps, and is beyond
                    // the last.
                    let mut point = k.value(0_u32);
                    let mut inside = k.value(true);
                    for axis in 0..3 {
                        let stride = self.geometry.stride[axis];
                        let start =
                            at[axis] + sizes.before[axis] - within[axis] * self.geometry.dilation[axis];
                        let window = start / stride;
                        inside = inside & (window * stride).equals(start) & window.below(sizes.output[axis]);
                        point = point * sizes.output[axis] + window;
                    }
                    k.when(inside, || {
                        k.range(0_u32, in_channels, 1_u32, |channel| {
                            let from = x.at((place * in_channels + channel) * points + point);
                            let channel = group * in_channels + channel;
                            let by = weight.at((channel * out_channels + row) * length + element);
                            sum.set(from.fma(by, sum.get()));
                        });
                    });
                });
                let sum = epilogue.apply(sum.get(), |bias| bias.at(group * out_channels + row));
                output.set(position, sum);
            });
        })
    }
}

/// A transposed convolution.
pub(crate) fn conv_transpose<R: Runtime>(
    x: GpuTensor<R>,
    weight: GpuTensor<R>,
    bias: Option<GpuTensor<R>>,
    options: &ConvTransposeOptions,
) -> GpuTensor<R> {
    let ConvTransposeOptions { stride, padding, output_padding, dilation, groups } = options;
    let images = spatial_dims("conv_transpose", &x);
    let kernel = &weight.dims()[2..];
    let output: Vec<usize> = (0..images.len())
        .map(|axis| {
            let full = images[axis].saturating_sub(1) * stride[axis]
                + (kernel[axis].max(1) - 1) * dilation[axis]
                + 1
                + output_padding[axis];
            full.saturating_sub(padding[axis].0 + padding[axis].1)
        })
        .collect();
    let out_channels = weight.dims()[1];
    let shape = [&[x.dims()[0], out_channels * groups], output.as_slice()].concat();
    let out = GpuTensor::empty(Shape::from(shape), x.dtype, &x.device);
    if out.is_empty() {
        return out;
    }
    let windows = Windows {
        rank: images.len(),
        input: spatial(&output, 1),
        kernel: spatial(kernel, 1),
        stride: spatial(stride, 1),
        dilation: spatial(dilation, 1),
        padding: spatial(padding, (0, 0)),
        output: spatial(images, 1),
    };
    let in_channels = x.dims()[1] / groups;
    let (x, weight) = (from_start(x), from_start(weight));
    let bias = bias.map(from_start);
    let template = ConvTranspose { dtype: x.dtype, geometry: Geometry::of(&windows), bias: bias.is_some() };
    let mut words = [out.len(), *groups, in_channels, out_channels].map(|n| n as u32).to_vec();
    words.extend(Sizes::words(&windows));
    let mut tensors = vec![&x, &weight];
    tensors.extend(&bias);
    tensors.push(&out);
    launch::<R>(&x.device, template, &tensors, &words, line_of::<R>(&x.device, out.len()));
    out
}

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
}

impl Pool {
    /// The kernel. Parameters: the number of results; the sizes; the padding behind.
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
            let position = k.position(LINE);
            k.when(position.below(count), || {
                let (windows, image) = (volume(&sizes.output), volume(&sizes.input));
                let window = sizes.window(position % windows);
                let base = position / windows * image;
                let each = |inside_of: &dyn Fn(Value<'_>)| {
                    k.range(0_u32, self.geometry.kernel_length(), 1_u32, |element| {
                        let within = self.geometry.within(element);
                        let (at, inside) = sizes.element(&self.geometry, window, within);
                        k.when(inside, || inside_of(at));
                    });
                };
                match self.pooling {
                    Pooling::Max(_) | Pooling::Of(PoolOp::Max) => {
                        let best = k.variable(super::reduce::Fold::Max.neutral_of(k, storage));
                        let (best_at, any) = (k.variable(0_u32), k.variable(false));
                        each(&|at| {
                            let element = x.at(base + at);
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
                        each(&|at| {
                            sum.set(sum.get() + x.at(base + at));
                            inside.set(inside.get() + 1_u32);
                        });
                        let divisor = if include_pad {
                            // Elements of the window that lie in the image or in its padding.
                            (0..3).fold(k.value(1_u32), |product, axis| {
                                let end = sizes.input[axis] + sizes.before[axis] + after[axis];
                                let start = window[axis] * self.geometry.stride[axis];
                                let (kernel, dilation) =
                                    (self.geometry.kernel[axis], self.geometry.dilation[axis]);
                                let room = (end.max(start) - start + (dilation - 1)) / dilation;
                                product * room.min(kernel)
                            })
                        } else {
                            inside.get()
                        };
                        output.set(position, sum.get() / divisor.to(ty));
                    }
                    Pooling::Of(PoolOp::Lp { p }) => {
                        let wide = floats_for(ty);
                        let sum = k.variable(k.whole(0, wide));
                        each(&|at| {
                            let magnitude = x.at(base + at).to(wide).abs();
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
    let out = GpuTensor::empty(shape.clone(), x.dtype, &x.device);
    let places = match pooling {
        Pooling::Max(Some(dtype)) => Some(GpuTensor::empty(shape, dtype, &x.device)),
        Pooling::Max(None) | Pooling::Of(_) => None,
    };
    if out.is_empty() {
        return (out, places);
    }
    if matches!(pooling, Pooling::Of(PoolOp::Lp { .. })) && floats_for(held_as(x.dtype).value()) == Type::F64
    {
        require::<R>(&x.device, DType::F64);
    }
    let x = from_start(x);
    let mut words = vec![out.len() as u32];
    words.extend(Sizes::words(&windows));
    words.extend(windows.padding.iter().map(|&(_, after)| after as u32));
    let template = Pool { pooling, dtype: x.dtype, geometry: Geometry::of(&windows) };
    let mut tensors = vec![&x, &out];
    tensors.extend(&places);
    launch::<R>(&x.device, template, &tensors, &words, line_of::<R>(&x.device, out.len()));
    (out, places)
}
