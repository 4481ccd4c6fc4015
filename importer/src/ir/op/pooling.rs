//! Pooling.

use super::convert::cast_call;
use super::prelude::*;
use super::windows::{
    AxisWindow, cell, check_options, each, elements_in_padding, need_places, plane, result_shape,
    spatial_rank, three,
};
use kiln_types::{DType, PoolOp, PoolOptions, Windows};

attributes! {
    /// A pooling.
    pub struct Pool {
        /// What is computed of each window.
        pub op: PoolOp,
        /// The windows.
        pub options: PoolOptions,
    }
}

impl Operation for Pool {
    facts!(operands: ["x"], effect: Pure, folding: Never, result: Computed);
    none!(host, derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        Ok(vec![infer_pool(cx, &self.options)?])
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        let (op, x, options) = (self.op, operands.get(0)?, &self.options);
        let PoolOptions { kernel, stride, padding, dilation, ceil_mode } = options;
        let windows =
            Windows::try_new(x.shape.get(2..)?, kernel, stride, padding, dilation, *ceil_mode).ok()?;
        let (places, cells) = (windows.output, windows.input_len());
        let xs = Elements::load(x);
        if let (PoolOp::Max, Elements::Int(xs), Some((least, _))) = (op, &xs, x.dtype.integers()) {
            let mut out = Vec::new();
            for plane in 0..x.shape[0] * x.shape[1] {
                each(places, |place, _| {
                    let mut most = least;
                    each(windows.kernel, |tap, _| {
                        most = cell(&windows, place, tap)
                            .map_or(most, |cell| most.max(xs[plane * cells + cell]));
                    });
                    out.push(most);
                });
            }
            return Some(vec![Elements::Int(out).store(x.dtype, result_shape(x, x.shape[1], places))]);
        }
        let xs = xs.floats();
        let mut out = Vec::new();
        for plane in 0..x.shape[0] * x.shape[1] {
            each(places, |place, _| {
                let mut inside = Vec::new();
                each(windows.kernel, |tap, _| {
                    inside.extend(cell(&windows, place, tap).map(|cell| xs[plane * cells + cell]));
                });
                out.push(match op {
                    PoolOp::Max => inside.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                    PoolOp::Average { include_pad } => {
                        let count =
                            if include_pad { elements_in_padding(&windows, place) } else { inside.len() };
                        inside.iter().sum::<f64>() / count as f64
                    }
                    PoolOp::Lp { p } => {
                        let p = f64::from(p);
                        inside.iter().map(|x| x.abs().powf(p)).sum::<f64>().powf(1.0 / p)
                    }
                });
            });
        }
        Some(vec![Elements::Float(out).store(x.dtype, result_shape(x, x.shape[1], places))])
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        let (x, result, options) = (cx.shape(0)?, cx.result_shape()?, &self.options);
        // A window that may see nothing of the image has no largest element.
        let sees = |(axis, &(before, after)): (usize, &(usize, usize))| {
            let dilation = options.dilation[axis];
            let reach = (options.kernel[axis] - 1).saturating_mul(dilation);
            before <= reach && after <= reach && x.get(axis + 2).is_some_and(|&size| dilation <= size)
        };
        if !options.padding.iter().enumerate().all(sees) {
            return None;
        }
        let before: Vec<usize> = options.padding.iter().map(|&(before, _)| before).collect();
        let after: Vec<usize> = options.padding.iter().map(|&(_, after)| after).collect();
        let sizes = KernelArg::Fields(
            "Pool2d",
            vec![
                ("planes", KernelArg::Size(elements(x.get(..2)?))),
                ("size", plane(x.get(2..)?, 1)?),
                ("result", plane(result.get(2..)?, 1)?),
                ("kernel", plane(&options.kernel, 1)?),
                ("stride", plane(&options.stride, 1)?),
                ("before", plane(&before, 0)?),
                ("after", plane(&after, 0)?),
                ("dilation", plane(&options.dilation, 1)?),
            ],
        );
        match self.op {
            PoolOp::Max => Some(Loops::kernel("max_pool2d", [KernelArg::Operand(0), sizes])),
            PoolOp::Average { include_pad } => {
                let include_pad = KernelArg::Bool(include_pad);
                Some(Loops::kernel("average_pool2d", [KernelArg::Operand(0), sizes, include_pad]))
            }
            PoolOp::Lp { .. } => None,
        }
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        // Integers of up to 16 bits are floats of 32, with which devices are faster.
        if self.op == PoolOp::Max && cx.dtype(0).is_int() && cx.dtype(0).size() > 2 {
            let args = [Arg::Operand(0), Arg::options(&self.options)];
            return Implementation::Call(Arg::call("tensor::module::max_pool", args));
        }
        Implementation::Call(on_floats(cx, |x| pool_call(self.op, &self.options, x)))
    }
}

attributes! {
    /// Maxima, and their positions (i64) in the flattened spatial axes of their channel.
    pub struct MaxPoolWithIndices {
        /// The windows.
        pub options: PoolOptions,
    }
}

impl Operation for MaxPoolWithIndices {
    facts!(operands: ["x"], effect: Pure, folding: Never, result: Computed);
    none!(host, evaluate, derivation, loops);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let maxima = infer_pool(cx, &self.options)?;
        let positions = maxima.with_dtype(DType::I64);
        Ok(vec![maxima, positions])
    }

    fn implementation(&self, _: &Site<'_>) -> Implementation {
        let args = [Arg::Operand(0), Arg::options(&self.options)];
        Implementation::Call(Arg::call("tensor::module::max_pool_with_indices", args))
    }
}

attributes! {
    /// Means over windows that give a wanted size.
    pub struct AdaptiveAvgPool {
        /// Spatial size of the result.
        pub output_size: Vec<usize>,
    }
}

impl Operation for AdaptiveAvgPool {
    facts!(operands: ["x"], effect: Pure, folding: Never, result: Computed);
    none!(host, derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let x = cx.ty(0)?;
        let rank = spatial_rank(x)?;
        need_float("x", x)?;
        check_options(rank, &[self.output_size.len()], &[])?;
        let spatial = self.output_size.iter().map(|&size| Dim::from(size));
        Ok(vec![x.with_dims(x.dims[..2].iter().cloned().chain(spatial).collect())])
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        let (x, output_size) = (operands.get(0)?, self.output_size.as_slice());
        let (size, places) = (three(x.shape.get(2..)?, 1usize)?, three(output_size, 1usize)?);
        let cells: usize = elements(&size);
        let xs = Elements::load(x).floats();
        let mut out = Vec::new();
        for plane in 0..x.shape[0] * x.shape[1] {
            each(places, |place, _| {
                let start: [usize; 3] = std::array::from_fn(|i| place[i] * size[i] / places[i]);
                let end: [usize; 3] = std::array::from_fn(|i| ((place[i] + 1) * size[i]).div_ceil(places[i]));
                let mut sum = 0.0;
                let extent: [usize; 3] = std::array::from_fn(|i| end[i] - start[i]);
                each(extent, |at, _| {
                    let cell = (0..3).fold(0, |n, i| n * size[i] + start[i] + at[i]);
                    sum += xs[plane * cells + cell];
                });
                out.push(sum / elements(&extent) as f64);
            });
        }
        Some(vec![Elements::Float(out).store(x.dtype, result_shape(x, x.shape[1], places))])
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        let x = cx.shape(0)?;
        let sizes = KernelArg::Fields(
            "AdaptivePool2d",
            vec![
                ("planes", KernelArg::Size(elements(x.get(..2)?))),
                ("size", plane(x.get(2..)?, 1)?),
                ("result", plane(&self.output_size, 1)?),
            ],
        );
        Some(Loops::kernel("adaptive_average_pool2d", [KernelArg::Operand(0), sizes]))
    }

    fn implementation(&self, _: &Site<'_>) -> Implementation {
        let args = [Arg::Operand(0), Arg::List(Arg::ints(&self.output_size))];
        Implementation::Call(Arg::call("tensor::module::adaptive_avg_pool", args))
    }
}

/// Sums over windows are computed on floats, as ONNX has them of floats alone.
fn on_floats(cx: &Site<'_>, call: impl FnOnce(Arg) -> Arg) -> Arg {
    let dtype = cx.dtype(0);
    if !dtype.is_int() {
        return call(Arg::Operand(0));
    }
    cast_call(call(Arg::Operand(0).then("float", [])), DType::F32, dtype)
}

fn infer_pool(cx: &mut Infer<'_>, options: &PoolOptions) -> RuleResult<TensorType> {
    let x = cx.ty(0)?;
    let rank = spatial_rank(x)?;
    need("x", x, !x.dtype.is_bool(), "expected a number")?;
    let lengths = [options.kernel.len(), options.stride.len(), options.padding.len(), options.dilation.len()];
    check_options(rank, &lengths, &[&options.stride, &options.dilation, &options.kernel])?;
    let mut dims = x.dims[..2].to_vec();
    for axis in 0..rank {
        let window = AxisWindow {
            kernel: Dim::from(options.kernel[axis]),
            stride: options.stride[axis],
            padding: options.padding[axis],
            dilation: options.dilation[axis],
        };
        dims.push(window.places(&x.dims[axis + 2], options.ceil_mode));
    }
    need_places(x, dims)
}

/// A pooling, as one of Burn's functions where these can say it: `max_pool2d(x, [3, 3], [2, 2], …)`.
fn pool_call(op: PoolOp, options: &PoolOptions, x: Arg) -> Arg {
    let symmetric = options.padding.iter().all(|(before, after)| before == after);
    let undilated = options.dilation.iter().all(|&step| step == 1);
    let path = match (op, options.kernel.len()) {
        (PoolOp::Max, 1) if symmetric => "tensor::module::max_pool1d",
        (PoolOp::Max, 2) if symmetric => "tensor::module::max_pool2d",
        (PoolOp::Average { .. }, 1) if symmetric && undilated => "tensor::module::avg_pool1d",
        (PoolOp::Average { .. }, 2) if symmetric && undilated => "tensor::module::avg_pool2d",
        _ => return Arg::call("tensor::module::pool", [Arg::options(&op), x, Arg::options(options)]),
    };
    let numbers = |values: &[usize]| match values {
        [value] => Arg::Int(*value as i64),
        values => Arg::Array(Arg::ints(values)),
    };
    let padding: Vec<usize> = options.padding.iter().map(|&(before, _)| before).collect();
    let last = match op {
        PoolOp::Average { include_pad } => Arg::Bool(include_pad),
        PoolOp::Max | PoolOp::Lp { .. } => numbers(&options.dilation),
    };
    let windows = [numbers(&options.kernel), numbers(&options.stride), numbers(&padding)];
    let [kernel, stride, padding] = windows;
    Arg::call(path, [x, kernel, stride, padding, last, Arg::Bool(options.ceil_mode)])
}
