//! Evaluates core operations on data known at build time, plainly rather than fast.
//!
//! Passes fold constants with [`evaluate`]; [`run`] interprets a whole graph, which is how tests compare a graph
//! before and after a pass. Results are rounded once to the dtype, so that f32 arithmetic gives what f32 arithmetic
//! gives; transcendental functions may differ from a runtime's in the last place.

mod elements;
mod elementwise;
mod indexing;
mod known;
mod linear;
mod movement;
mod norm;
mod reduce;
mod rnn;
mod run;
mod spatial;
mod strided;

pub(crate) use elements::{Elements, scalar, scalar_text};
pub(crate) use known::known;
pub use run::{RunError, run, run_each};
pub(crate) use strided::Strided;

use crate::ir::{Dim, Op};
use kiln_types::{DType, Scalar, TensorData};

/// The outputs of an operation on known operands; `None` when some size is a symbol, an operand is missing, or the
/// operation has no meaning at build time (a call, random numbers).
pub fn evaluate(op: &Op, operands: &[Option<&TensorData>]) -> Option<Vec<TensorData>> {
    if operands.iter().flatten().any(|data| is_long_and_empty(&data.shape)) {
        return None;
    }
    let outputs = compute(op, operands);
    operands.iter().flatten().for_each(|data| release(data));
    outputs
}

/// Lets the pages of a large weight go that was read from a mapped file: otherwise a model that is rewritten tensor by
/// tensor would fill the memory with pages that nobody looks at again.
pub(crate) fn release(data: &TensorData) {
    /// Below this, asking costs more than the memory is worth.
    const LARGE: usize = 1 << 20;
    if data.bytes.len() >= LARGE {
        data.bytes.release();
    }
}

fn compute(op: &Op, operands: &[Option<&TensorData>]) -> Option<Vec<TensorData>> {
    let x = |n: usize| operands.get(n).copied().flatten();
    let one = match op {
        Op::Unary(op) => elementwise::unary(*op, x(0)?),
        Op::Binary(op) => elementwise::binary(*op, x(0)?, x(1)?),
        Op::Compare(op) => elementwise::compare(*op, x(0)?, x(1)?),
        Op::Where => elementwise::select(x(0)?, x(1)?, x(2)?),
        Op::Activation(activation) => elementwise::activation(*activation, x(0)?),
        Op::Clamp { min, max } => elementwise::clamp(*min, *max, x(0)?),
        Op::Cast { to } => Some(elementwise::cast(x(0)?, *to)),
        Op::Elementwise(expression) => {
            let operands: Vec<&TensorData> = operands.iter().copied().collect::<Option<_>>()?;
            elementwise::expression(expression, &operands)
        }
        Op::Reshape { dims } => {
            let (x, shape) = (x(0)?, sizes(dims)?);
            TensorData::from_bytes(x.bytes.clone(), shape, x.dtype).ok()
        }
        Op::Permute { axes } => {
            let x = x(0)?;
            movement::view(x, Strided::new(&x.shape).permute(axes))
        }
        Op::Expand { dims } => {
            let (x, shape) = (x(0)?, sizes(dims)?);
            movement::view(x, Strided::new(&x.shape).expand(&shape)?)
        }
        Op::Slice { ranges } => movement::slice(x(0)?, ranges),
        Op::Concat { axis } => {
            let operands: Vec<&TensorData> = operands.iter().copied().collect::<Option<_>>()?;
            movement::concat(&operands, *axis)
        }
        Op::Pad { padding, mode, value } => movement::pad(x(0)?, padding, *mode, *value),
        Op::Repeat { times } => movement::repeat(x(0)?, &sizes(times)?),
        Op::Fill { dims, value, dtype } => fill(&sizes(dims)?, *value, *dtype),
        Op::Arange { start, end, step } => arange(start.as_constant()?, end.as_constant()?, *step),
        Op::HostTensor { values, dims } => {
            let values = values.iter().map(Dim::as_constant).map(|v| v.map(i128::from));
            Some(Elements::Int(values.collect::<Option<_>>()?).store(DType::I64, dims.clone()))
        }
        Op::Take { axis, .. } => indexing::take(x(0)?, x(1)?, *axis),
        Op::Gather { axis } => indexing::gather(x(0)?, x(1)?, *axis),
        Op::Scatter { axis, op } => indexing::scatter(x(0)?, x(1)?, x(2)?, *axis, *op),
        Op::Reduce { op, axes, keep_dims } => reduce::reduce(*op, x(0)?, axes, *keep_dims),
        Op::ArgReduce { op, axis, keep_dims, select_last } => {
            reduce::arg_reduce(*op, x(0)?, *axis, *keep_dims, *select_last)
        }
        Op::Cumulative { op, axis, exclusive, reverse } => {
            reduce::cumulative(*op, x(0)?, *axis, *exclusive, *reverse)
        }
        Op::Trilu { upper, k } => movement::trilu(x(0)?, *upper, *k),
        Op::MatMul => linear::matmul(x(0)?, x(1)?),
        Op::Linear { activation } => linear::linear(x(0)?, x(1)?, x(2), *activation),
        Op::Attention(options) => linear::attention(x(0)?, x(1)?, x(2)?, x(3), options),
        Op::Conv { options, activation } => spatial::conv(x(0)?, x(1)?, x(2), options, *activation),
        Op::ConvTranspose(options) => spatial::conv_transpose(x(0)?, x(1)?, x(2), options),
        Op::Pool(op, options) => spatial::pool(*op, x(0)?, options),
        Op::AdaptiveAvgPool { output_size } => spatial::adaptive_pool(x(0)?, output_size),
        Op::Softmax { axis } => norm::softmax(x(0)?, *axis, false),
        Op::LogSoftmax { axis } => norm::softmax(x(0)?, *axis, true),
        Op::LayerNorm { epsilon } => norm::layer_norm(x(0)?, x(1)?, x(2), *epsilon),
        Op::RmsNorm { epsilon } => norm::rms_norm(x(0)?, x(1)?, *epsilon),
        Op::GroupNorm { groups, epsilon } => norm::group_norm(x(0)?, x(1), x(2), *groups, *epsilon),
        Op::BatchNorm { epsilon } => norm::batch_norm(x(0)?, [x(1)?, x(2)?, x(3)?, x(4)?], *epsilon),
        Op::Dropout { .. } => Some(x(0)?.clone()),
        Op::Rnn(options) => return rnn::rnn(operands, options),
        Op::Interpolate { .. }
        | Op::MaxPoolWithIndices(_)
        | Op::HostRead { .. }
        | Op::If { .. }
        | Op::Call(_) => None,
    };
    one.map(|data| vec![data])
}

/// The number that all elements of a tensor are.
pub fn uniform(data: &TensorData) -> Option<f64> {
    let size = data.dtype.size();
    let first = data.bytes.get(..size)?;
    if !data.bytes.chunks_exact(size).all(|element| element == first) {
        return None;
    }
    let first = TensorData::from_bytes(data.bytes.slice(0..size)?, vec![1], data.dtype).ok()?;
    scalar(&first).map(|scalar| scalar.to_f64())
}

/// Number of elements; saturates, since one empty axis lets the others be of any size.
pub(crate) fn elements(shape: &[usize]) -> usize {
    if shape.contains(&0) { 0 } else { shape.iter().fold(1, |count, &dim| count.saturating_mul(dim)) }
}

/// Whether a shape without elements has axes so long that walking along them takes time, which no byte of a file paid for.
/// Nothing is computed of such tensors at build time: every loop over an axis is one over elements then.
pub(crate) fn is_long_and_empty(shape: &[usize]) -> bool {
    const LONG: usize = 1 << 12;
    shape.contains(&0) && shape.iter().fold(1usize, |area, &dim| area.saturating_mul(dim.max(1))) > LONG
}

/// How many elements are looked at to compute a result of `count` elements.
pub(crate) fn cost(op: &Op, operands: &[Option<&TensorData>], count: usize) -> u64 {
    let all = operands.iter().flatten().map(|data| data.num_elements() as u64);
    let [count, all] = [count as u64, all.fold(0, u64::saturating_add)];
    match op {
        // The same bytes.
        Op::Reshape { .. } => 0,
        // What they leave out is not looked at.
        Op::Slice { .. } => count,
        Op::Take { .. } => {
            let indices = operands.get(1).copied().flatten().map_or(0, TensorData::num_elements);
            count.saturating_add(indices as u64)
        }
        Op::MatMul | Op::Linear { .. } => {
            let terms = operands.first().copied().flatten().and_then(|x| x.shape.last().copied());
            count.saturating_mul(terms.unwrap_or(1) as u64).saturating_add(all)
        }
        Op::Elementwise(expression) => {
            count.saturating_mul(expression.steps.len() as u64).saturating_add(all)
        }
        // All others pass over their operands and their result.
        _ => all.saturating_add(count),
    }
}

/// Whether an operation is worth computing at build time. Layers of constants are not; their options, which come from
/// a file, can be of any size.
pub(crate) fn is_foldable(op: &Op) -> bool {
    !matches!(
        op,
        Op::Conv { .. }
            | Op::ConvTranspose(_)
            | Op::Pool(..)
            | Op::AdaptiveAvgPool { .. }
            | Op::Rnn(_)
            | Op::Attention(_)
    )
}

/// Sizes, when all are known.
fn sizes(dims: &[Dim]) -> Option<Vec<usize>> {
    dims.iter().map(Dim::as_size).collect()
}

/// A tensor of one value.
pub(crate) fn fill(shape: &[usize], value: Scalar, dtype: DType) -> Option<TensorData> {
    let count = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
    let element = match value {
        Scalar::Float(x) => Elements::Float(vec![x]),
        Scalar::Int(x) => Elements::Int(vec![x.into()]),
        Scalar::UInt(x) => Elements::Int(vec![x.into()]),
        Scalar::Bool(x) => Elements::Int(vec![x.into()]),
    };
    let bytes = element.store(dtype, vec![1]).bytes.repeat(count);
    TensorData::from_bytes(kiln_types::Bytes::from_vec(bytes), shape.to_vec(), dtype).ok()
}

fn arange(start: i64, end: i64, step: i64) -> Option<TensorData> {
    /// More is not worth keeping as data.
    const LIMIT: u64 = 1 << 24;
    let span = if step > 0 { end.checked_sub(start)? } else { start.checked_sub(end)? };
    let count = (span.max(0) as u64).div_ceil(step.unsigned_abs().max(1));
    if count > LIMIT {
        return None;
    }
    let values = (0..count as i64).map(|i| start.wrapping_add(i.wrapping_mul(step))).collect::<Vec<i64>>();
    let count = values.len();
    Some(TensorData::new(values, [count]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_types::{CumulativeOp, PadMode, UnaryOp};

    fn empty(shape: &[usize]) -> TensorData {
        TensorData { bytes: kiln_types::Bytes::default(), shape: shape.to_vec(), dtype: DType::F32 }
    }

    #[test]
    fn nothing_walks_along_a_long_axis_without_elements() {
        const LONG: usize = 1 << 40;
        let (rows, columns) = (empty(&[LONG, 0]), empty(&[0, LONG]));
        let indices = TensorData { dtype: DType::I64, ..rows.clone() };
        let running = |axis| Op::Cumulative { op: CumulativeOp::Sum, axis, exclusive: false, reverse: false };
        let edges =
            Op::Pad { padding: vec![(1.into(), 0.into()); 2], mode: PadMode::Edge, value: Scalar::Int(0) };
        for (op, operands) in [
            (Op::Concat { axis: 1 }, vec![&rows, &rows]),
            (running(0), vec![&rows]),
            (running(1), vec![&rows]),
            (running(0), vec![&columns]),
            (Op::Softmax { axis: 1 }, vec![&rows]),
            (Op::LogSoftmax { axis: 0 }, vec![&rows]),
            (Op::Take { axis: 0, wrapped: true }, vec![&columns, &indices]),
            (Op::Take { axis: 1, wrapped: true }, vec![&rows, &indices]),
            (Op::MatMul, vec![&rows, &columns]),
            (Op::MatMul, vec![&columns, &rows]),
            (Op::Reduce { op: kiln_types::ReduceOp::Sum, axes: vec![1], keep_dims: false }, vec![&rows]),
            (edges, vec![&rows]),
            (Op::Trilu { upper: true, k: 0 }, vec![&rows]),
            (Op::Unary(UnaryOp::Neg), vec![&rows]),
        ] {
            let operands: Vec<Option<&TensorData>> = operands.into_iter().map(Some).collect();
            assert_eq!(evaluate(&op, &operands), None, "{op:?}");
        }
    }

    #[test]
    fn edges_of_nothing_are_not_repeated() {
        let padding = vec![(2.into(), 0.into())];
        let op = Op::Pad { padding, mode: PadMode::Edge, value: Scalar::Int(0) };
        assert_eq!(evaluate(&op, &[Some(&empty(&[0]))]), None);
    }

    #[test]
    fn products_cost_their_terms() {
        let (a, b) = (empty(&[3, 5]), empty(&[5, 7]));
        assert_eq!(cost(&Op::MatMul, &[Some(&a), Some(&b)], 21), 3 * 5 * 7 + 3 * 5 + 5 * 7);
        assert_eq!(cost(&Op::Take { axis: 0, wrapped: false }, &[Some(&a), Some(&empty(&[1]))], 5), 6);
    }
}
