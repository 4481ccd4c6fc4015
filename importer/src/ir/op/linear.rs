//! Products of matrices.

use super::activation::activate;
use super::broadcast::broadcast_dims;
use super::prelude::*;
use kiln_types::{Activation, Shape};

/// A product of matrices, the last two axes of operands of equal rank.
pub struct MatMul;

impl Operation for MatMul {
    facts!(operands: ["a", "b"], effect: Pure, folding: Products, result: Computed);
    none!(host);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let a = at_least_rank(cx, 0, "a", 2)?;
        let b = of_rank(cx, 1, "b", a.rank())?;
        same_dtype("a", a, "b", b)?;
        need("a", a, !a.dtype.is_bool(), "expected a number")?;
        Ok(vec![a.with_dims(matmul_dims(cx, a, b)?)])
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        let (a, b) = (operands.get(0)?, operands.get(1)?);
        let (lead_a, [m, k]) = a.shape.split_last_chunk::<2>()?;
        let (lead_b, [k_b, n]) = b.shape.split_last_chunk::<2>()?;
        let lead = Shape::from(lead_a).broadcast(&lead_b.into())?.dims;
        if k != k_b {
            return None;
        }
        let (x, y) = (Elements::load(a), Elements::load(b));
        let floats = matches!(x, Elements::Float(_));
        let (x, y) = (x.floats(), y.floats());
        let count: usize = elements(&lead);
        let matrices = |lead_dims: &[usize]| {
            let mut places = Vec::with_capacity(count);
            Strided::new(lead_dims).expand(&lead)?.for_each(|at| places.push(at));
            Some(places)
        };
        let mut out = Vec::with_capacity(count * m * n);
        for (i, j) in matrices(lead_a)?.into_iter().zip(matrices(lead_b)?) {
            let a = &x[i * m * k..(i + 1) * m * k];
            let b = &y[j * k * n..(j + 1) * k * n];
            out.extend(product(a, b, *m, *k, *n));
        }
        let shape = [lead.as_slice(), &[*m, *n]].concat();
        let exact = |x: f64| x.abs() < 9e15;
        if !floats && !out.iter().all(|&x| exact(x)) {
            return None;
        }
        Some(vec![Elements::Float(out).store(a.dtype, shape)])
    }

    fn derivation(&self, of: &Sources<'_>) -> Result<Derivation, String> {
        let is_matrix = |n| of.shape(n).is_some_and(|shape| shape.len() == 2);
        if !(is_matrix(0) && is_matrix(1)) {
            return Err(of.unknown());
        }
        Ok(Derivation::MatMul(of.boxed(0)?, of.boxed(1)?))
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        let sizes = product_sizes(cx)?;
        Some(Loops::kernel("matmul", [KernelArg::Operand(0), KernelArg::Operand(1), sizes]))
    }

    fn implementation(&self, _: &Site<'_>) -> Implementation {
        Implementation::Call(Arg::Operand(0).then("matmul", [Arg::Operand(1)]))
    }
}

/// The sizes of a product of the first two operands, for a kernel.
pub(super) fn product_sizes(cx: &Site<'_>) -> Option<KernelArg> {
    let (a, b) = (cx.shape(0)?, cx.shape(1)?);
    let ((lead_a, &[m, k]), (lead_b, &[_, n])) = (a.split_last_chunk::<2>()?, b.split_last_chunk::<2>()?);
    let lead = Shape::from(lead_a).broadcast(&lead_b.into())?.dims;
    let count = elements(&lead);
    // Matrices of one side go with all of the other, or one by one.
    let step = |lead_dims: &[usize]| match elements(lead_dims) {
        1 => Some(0),
        many => (many == count).then_some(1),
    };
    Some(matrices([count, m, k, n], [step(lead_a)? * m * k, step(lead_b)? * k * n]))
}

/// How many pairs of matrices a kernel works on, `[m, k]` and `[k, n]` each, and how far apart those of either side are.
pub(super) fn matrices([count, m, k, n]: [usize; 4], [a_step, b_step]: [usize; 2]) -> KernelArg {
    let sizes = [("count", count), ("m", m), ("k", k), ("n", n), ("a_step", a_step), ("b_step", b_step)];
    KernelArg::sizes("Product", sizes)
}

/// The dims of a product of operands of equal rank.
pub(super) fn matmul_dims(cx: &mut Infer<'_>, a: &TensorType, b: &TensorType) -> RuleResult<Vec<Dim>> {
    let lead = a.rank() - 2;
    need_equal("inner dims of a product", &a.dims[lead + 1], a, &b.dims[lead], b)?;
    let mut dims = broadcast_dims(&a.dims[..lead], &b.dims[..lead], &mut || cx.fresh("dim"))
        .ok_or_else(|| dims_error("leading dims of a product", a, b))?;
    dims.push(a.dims[lead].clone());
    dims.push(b.dims[lead + 1].clone());
    Ok(dims)
}

attributes! {
    /// A linear layer: `x` is `[…, in]`, `weight` a constant `[in, out]`, `bias` a constant `[out]`.
    pub struct Linear {
        /// Applied to the result.
        pub activation: Option<Activation>,
    }
}

impl Operation for Linear {
    facts!(operands: ["x", "weight", "bias?"], parameters: [1, 2], effect: Pure, folding: Products, result: Computed);
    none!(host, derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let x = at_least_rank(cx, 0, "x", 1)?;
        let weight = of_rank(cx, 1, "weight", 2)?;
        need_float("x", x)?;
        same_dtype("x", x, "weight", weight)?;
        let last = x.rank() - 1;
        need_equal("inner dims of a linear layer", &x.dims[last], x, &weight.dims[0], weight)?;
        if let Some(bias) = cx.optional(2) {
            of_rank(cx, 2, "bias", 1)?;
            same_dtype("x", x, "bias", bias)?;
            need_equal("bias of a linear layer", &bias.dims[0], bias, &weight.dims[1], weight)?;
        }
        let mut dims = x.dims.clone();
        dims[last] = weight.dims[1].clone();
        Ok(vec![x.with_dims(dims)])
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        let (x, weight, bias, activation) =
            (operands.get(0)?, operands.get(1)?, operands.get(2), self.activation);
        let [k, n] = *weight.shape.as_slice() else {
            return None;
        };
        let (last, lead) = x.shape.split_last()?;
        if *last != k {
            return None;
        }
        let m = elements(lead);
        let mut out = product(&Elements::load(x).floats(), &Elements::load(weight).floats(), m, k, n);
        let bias = bias.map(|bias| Elements::load(bias).floats());
        for (i, value) in out.iter_mut().enumerate() {
            if let Some(bias) = &bias {
                *value += bias.get(i % n)?;
            }
            if let Some(activation) = activation {
                *value = activate(activation, *value);
            }
        }
        Some(vec![Elements::Float(out).store(x.dtype, [lead, &[n]].concat())])
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        let function = KernelArg::Function(self.activation);
        let operands = [KernelArg::Operand(0), KernelArg::Operand(1), KernelArg::Optional(2)];
        let [x, weight, bias] = operands;
        let inputs = KernelArg::Size(*cx.shape(1)?.first()?);
        Some(Loops::kernel("linear", [x, weight, bias, inputs, function]))
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        let activation = self.activation;
        let mut args = vec![Arg::Operand(0), Arg::Operand(1), cx.option(2)];
        let function = match activation {
            None => Arg::call("tensor::module::linear", args),
            Some(activation) => {
                args.push(Arg::options(&activation));
                Arg::call("tensor::module::linear_activated", args)
            }
        };
        let (Some(weight), Some(shape)) = (cx.input(1), cx.shape(1)) else {
            return Implementation::Call(function);
        };
        let (&[inputs, outputs], true) = (shape.as_slice(), cx.is_constant(1)) else {
            return Implementation::Call(function);
        };
        if cx.input(2).is_some() && !cx.is_constant(2) {
            return Implementation::Call(function);
        }
        let bias = cx.input(2).is_some();
        let sizes = [Arg::named("d_input", inputs), Arg::named("d_output", outputs)];
        let config = Config::new(&layers::LINEAR, sizes).with("bias", Arg::Bool(bias), bias);
        let (method, args) = activated(activation);
        let layer = Layer::new(config, [Some(weight), cx.input(2)], function);
        Implementation::Layer(layer.called(method, args))
    }
}

/// `[m, k] · [k, n]` on row-major slices.
fn product(a: &[f64], b: &[f64], m: usize, k: usize, n: usize) -> Vec<f64> {
    let mut out = vec![0.0; m * n];
    for i in 0..m {
        let row = &mut out[i * n..(i + 1) * n];
        for p in 0..k {
            let x = a[i * k + p];
            row.iter_mut().zip(&b[p * n..(p + 1) * n]).for_each(|(out, &y)| *out += x * y);
        }
    }
    out
}

/// The method of a layer that can apply an activation, with its arguments.
pub(super) fn activated(activation: Option<Activation>) -> (&'static str, Vec<Arg>) {
    match activation {
        None => ("forward", vec![Arg::Operand(0)]),
        Some(activation) => ("forward_activated", vec![Arg::Operand(0), Arg::options(&activation)]),
    }
}
