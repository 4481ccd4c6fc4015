//! Operations with index tensors.

use super::host::position;
use super::layout::pick;
use super::prelude::*;
use kiln_types::{Bytes, DType, ScatterOp};

attributes! {
    /// Parts at indices of any rank: numpy's `take` along an axis.
    pub struct Take {
        /// The axis.
        pub axis: usize,
        /// Whether indices may be negative (count from the end).
        pub wrapped: bool,
    }
}

impl Operation for Take {
    facts!(operands: ["x", "indices"], effect: Pure, folding: Picks, result: LookedUp);
    none!(derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let axis = self.axis;
        let x = at_least_rank(cx, 0, "x", 1)?;
        let indices = cx.ty(1)?;
        check_axis(axis, x.rank())?;
        need_index(indices)?;
        let dims = x.dims[..axis].iter().chain(&indices.dims).chain(&x.dims[axis + 1..]).cloned();
        Ok(vec![x.with_dims(dims.collect())])
    }

    fn host(&self, cx: &Host<'_>) -> Option<Vec<Dim>> {
        let axis = self.axis;
        let (x, indices) = (cx.operand(0)?, cx.operand(1)?);
        let size = *x.dims.get(axis)?;
        let outer: usize = elements(&x.dims[..axis]);
        let inner: usize = elements(&x.dims[axis + 1..]);
        let rows: Vec<usize> = indices.values.iter().map(|i| position(i, size)).collect::<Option<_>>()?;
        let mut values = Vec::new();
        for o in 0..outer {
            for row in &rows {
                let start = (o * size + row) * inner;
                values.extend_from_slice(x.values.get(start..start + inner)?);
            }
        }
        Some(values)
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        let (x, indices, axis) = (operands.get(0)?, operands.get(1)?, self.axis);
        let places = places(indices, *x.shape.get(axis)?)?;
        let rows = rows(x, axis, &places)?;
        let shape =
            x.shape[..axis].iter().chain(&indices.shape).chain(&x.shape[axis + 1..]).copied().collect();
        Some(vec![TensorData::from_bytes(rows.bytes, shape, x.dtype).ok()?])
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        let [outer, length, inner] = cx.around(self.axis)?;
        let sizes = KernelArg::sizes("Axis", [("outer", outer), ("length", length), ("inner", inner)]);
        Some(Loops::kernel("take", [KernelArg::Operand(0), KernelArg::Operand(1), sizes]))
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        let (axis, wrapped) = (self.axis, self.wrapped);
        let indices = Arg::Operand(1);
        if let Some(table) = embedding(axis, cx) {
            return Implementation::Layer(table);
        }
        if let Some(one) = one_index(axis, cx) {
            return Implementation::Call(one);
        }
        if cx.rank(1) == 1 && !wrapped {
            return Implementation::Call(Arg::Operand(0).then("select", [Arg::axis(axis), indices]));
        }
        let name = if wrapped { "take_wrapped" } else { "take" };
        let ranks = [Arg::Rank(cx.rank(1)), Arg::Rank(cx.output().map_or(0, |ty| ty.rank()))];
        let [of_indices, of_result] = ranks;
        Implementation::Call(Arg::Operand(0).then(name, [of_indices, of_result, Arg::axis(axis), indices]))
    }
}

attributes! {
    /// Elements at indices of equal rank (ONNX `GatherElements`), not negative.
    pub struct Gather {
        /// The axis.
        pub axis: usize,
    }
}

impl Operation for Gather {
    facts!(operands: ["x", "indices"], effect: Pure, folding: PerElement(1), result: Computed);
    none!(derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let axis = self.axis;
        let x = at_least_rank(cx, 0, "x", 1)?;
        let indices = cx.ty(1)?;
        check_axis(axis, x.rank())?;
        need_index(indices)?;
        inside(x, indices, axis)?;
        Ok(vec![x.with_dims(indices.dims.clone())])
    }

    fn host(&self, cx: &Host<'_>) -> Option<Vec<Dim>> {
        let axis = self.axis;
        let (x, indices) = (cx.operand(0)?, cx.operand(1)?);
        if x.dims.len() != indices.dims.len() {
            return None;
        }
        let size = *x.dims.get(axis)?;
        let stride: usize = elements(&x.dims[axis + 1..]);
        // The rows of `x` that the indices run over.
        let mut rows = Strided::new(&x.dims).slice(axis, 0, size.min(1), 1)?;
        for (i, &count) in indices.dims.iter().enumerate() {
            if i != axis {
                rows = rows.slice(i, 0, count, 1)?;
            }
        }
        let rows = rows.expand(&indices.dims)?;
        let mut values = Vec::with_capacity(rows.len());
        let mut wanted = indices.values.iter();
        rows.for_each(|at| {
            let place = wanted.next().and_then(|i| position(i, size));
            values.push(place.and_then(|row| x.values.get(at + row * stride)).cloned());
        });
        values.into_iter().collect()
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        let (x, indices, axis) = (operands.get(0)?, operands.get(1)?, self.axis);
        let places = gather_places(x, indices, axis)?;
        Some(vec![pick(x, indices.shape.clone(), places.len(), |visit| {
            places.iter().for_each(|&at| visit(at))
        })?])
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        let args = [
            KernelArg::Operand(0),
            KernelArg::Operand(1),
            along(self.axis, cx)?,
            count_along(self.axis, cx)?,
        ];
        Some(Loops::kernel("gather", args))
    }

    fn implementation(&self, _: &Site<'_>) -> Implementation {
        Implementation::Call(Arg::Operand(0).then("gather", [Arg::axis(self.axis), Arg::Operand(1)]))
    }
}

attributes! {
    /// Elements replaced at indices of equal rank (ONNX `ScatterElements`), not negative.
    pub struct Scatter {
        /// The axis.
        pub axis: usize,
        /// How values meet.
        pub op: ScatterOp,
    }
}

impl Operation for Scatter {
    facts!(operands: ["x", "indices", "updates"], effect: Pure, folding: PerElement(1), result: Computed);
    none!(host, derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let axis = self.axis;
        let x = at_least_rank(cx, 0, "x", 1)?;
        let (indices, updates) = (cx.ty(1)?, cx.ty(2)?);
        check_axis(axis, x.rank())?;
        need_index(indices)?;
        same_dtype("x", x, "updates", updates)?;
        inside(x, indices, axis)?;
        let equal = indices.rank() == updates.rank()
            && indices.dims.iter().zip(&updates.dims).all(|(a, b)| may_equal(a, b));
        if equal { Ok(vec![x.clone()]) } else { Err(dims_error("indices and updates", indices, updates)) }
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        let (x, indices, updates, axis, op) =
            (operands.get(0)?, operands.get(1)?, operands.get(2)?, self.axis, self.op);
        Some(vec![replaced(x, &gather_places(x, indices, axis)?, updates, op)?])
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        let function = match self.op {
            ScatterOp::Assign => "scatter_assign",
            ScatterOp::Add => "scatter_add",
            ScatterOp::Mul | ScatterOp::Max | ScatterOp::Min => return None,
        };
        let operands = [KernelArg::Operand(0), KernelArg::Operand(1), KernelArg::Operand(2)];
        let [x, indices, updates] = operands;
        Some(Loops::kernel(
            function,
            [x, indices, updates, along(self.axis, cx)?, count_along(self.axis, cx)?],
        ))
    }

    fn implementation(&self, _: &Site<'_>) -> Implementation {
        let args = [Arg::axis(self.axis), Arg::Operand(1), Arg::Operand(2), Arg::options(&self.op)];
        Implementation::Call(Arg::Operand(0).then("scatter", args))
    }
}

attributes! {
    /// Parts of an axis replaced at the indices in a list, not negative: the inverse of looking these parts up.
    pub struct SelectAssign {
        /// The axis.
        pub axis: usize,
        /// How values meet.
        pub op: ScatterOp,
    }
}

impl Operation for SelectAssign {
    facts!(operands: ["x", "indices", "updates"], effect: Pure, folding: PerElement(1), result: Computed);
    none!(host, derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let axis = self.axis;
        let x = at_least_rank(cx, 0, "x", 1)?;
        let (indices, updates) = (of_rank(cx, 1, "indices", 1)?, of_rank(cx, 2, "updates", x.rank())?);
        check_axis(axis, x.rank())?;
        need_index(indices)?;
        same_dtype("x", x, "updates", updates)?;
        for (n, (size, given)) in x.dims.iter().zip(&updates.dims).enumerate() {
            match n == axis {
                true => need_equal("indices and updates", &indices.dims[0], indices, given, updates)?,
                false => need_equal("x and updates", size, x, given, updates)?,
            }
        }
        Ok(vec![x.clone()])
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        let (x, indices, updates, axis) = (operands.get(0)?, operands.get(1)?, operands.get(2)?, self.axis);
        let named = places(indices, *x.shape.get(axis)?)?;
        let inner: usize = elements(&x.shape[axis + 1..]);
        let (size, outer) = (x.shape[axis], elements(&x.shape[..axis]));
        let row = |o: usize, at: usize| (0..inner).map(move |i| (o * size + at) * inner + i);
        let all = (0..outer).flat_map(|o| named.iter().flat_map(move |&at| row(o, at)));
        Some(vec![replaced(x, &all.collect::<Vec<_>>(), updates, self.op)?])
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        let function = match self.op {
            ScatterOp::Assign => "select_assign",
            ScatterOp::Add => "select_add",
            ScatterOp::Mul | ScatterOp::Max | ScatterOp::Min => return None,
        };
        let operands = [KernelArg::Operand(0), KernelArg::Operand(1), KernelArg::Operand(2)];
        let [x, indices, updates] = operands;
        Some(Loops::kernel(function, [x, indices, updates, along(self.axis, cx)?]))
    }

    fn implementation(&self, _: &Site<'_>) -> Implementation {
        let args = [Arg::axis(self.axis), Arg::Operand(1), Arg::Operand(2), Arg::options(&self.op)];
        Implementation::Call(Arg::Operand(0).then("select_assign", args))
    }
}

/// The sizes around an axis, for a kernel.
fn along(axis: usize, cx: &Site<'_>) -> Option<KernelArg> {
    let [outer, length, inner] = cx.around(axis)?;
    Some(KernelArg::sizes("Axis", [("outer", outer), ("length", length), ("inner", inner)]))
}

/// How many indices there are along an axis, where all other axes have as many as `x`.
fn count_along(axis: usize, cx: &Site<'_>) -> Option<KernelArg> {
    let (x, indices) = (cx.shape(0)?, cx.shape(1)?);
    let fits = x.len() == indices.len() && (0..x.len()).all(|n| n == axis || x[n] == indices[n]);
    fits.then(|| indices.get(axis).copied().map(KernelArg::Size)).flatten()
}

/// The sizes of two axes of the first operand, of what is before them, between them and behind them, for a kernel. One axis is the second
/// of two.
pub(super) fn two_axes(cx: &Site<'_>, axes: &[usize]) -> Option<KernelArg> {
    let shape = cx.shape(0)?;
    let (rows, columns, before, between) = match *axes {
        [axis] => (1, axis, elements(shape.get(..axis)?), 1),
        [first, second] => (
            *shape.get(first)?,
            second,
            elements(shape.get(..first)?),
            elements(shape.get(first + 1..second)?),
        ),
        _ => return None,
    };
    let behind = elements(shape.get(columns + 1..)?);
    let sizes = [
        ("before", before),
        ("rows", rows),
        ("between", between),
        ("columns", *shape.get(columns)?),
        ("behind", behind),
    ];
    Some(KernelArg::sizes("TwoAxes", sizes))
}

/// Elements at places along one or two axes, in the order of these, for a kernel.
pub(super) fn picked(cx: &Site<'_>, axes: &[(usize, Vec<usize>)]) -> Option<Loops> {
    let sizes = two_axes(cx, &axes.iter().map(|(axis, _)| *axis).collect::<Vec<_>>())?;
    let (rows, columns) = match axes {
        [(_, places)] => (KernelArg::places("rows", &[0])?, places),
        [(_, rows), (_, columns)] => (KernelArg::places("rows", rows)?, columns),
        _ => return None,
    };
    Some(Loops::kernel("pick", [KernelArg::Operand(0), rows, KernelArg::places("columns", columns)?, sizes]))
}

/// `x` with updates, in order, at places of its elements.
fn replaced(x: &TensorData, places: &[usize], updates: &TensorData, op: ScatterOp) -> Option<TensorData> {
    macro_rules! each {
        ($kind:ident, $into:expr, $from:expr, $mul:expr) => {{
            for (&at, &new) in places.iter().zip(&$from) {
                let old = *$into.get(at)?;
                $into[at] = match op {
                    ScatterOp::Assign => new,
                    ScatterOp::Add => old + new,
                    ScatterOp::Mul => $mul(old, new),
                    ScatterOp::Max => old.max(new),
                    ScatterOp::Min => old.min(new),
                };
            }
            Elements::$kind($into)
        }};
    }
    let result = match (Elements::load(x), Elements::load(updates)) {
        (Elements::Float(mut into), Elements::Float(from)) => each!(Float, into, from, |a: f64, b| a * b),
        (Elements::Int(mut into), Elements::Int(from)) => each!(Int, into, from, i128::wrapping_mul),
        _ => return None,
    };
    Some(result.store(x.dtype, x.shape.clone()))
}

/// Indices are i64 or i32.
fn need_index(ty: &TensorType) -> RuleResult<()> {
    need("indices", ty, matches!(ty.dtype, DType::I64 | DType::I32), "expected i64 or i32")
}

/// Indices may not be larger than `x` but along the axis.
fn inside(x: &TensorType, indices: &TensorType, axis: usize) -> RuleResult<()> {
    let fits = x.rank() == indices.rank()
        && x.dims.iter().zip(&indices.dims).enumerate().all(|(i, (size, count))| {
            i == axis || size.as_constant().zip(count.as_constant()).is_none_or(|(s, c)| c <= s)
        });
    if fits { Ok(()) } else { Err(dims_error("indices", x, indices)) }
}

/// Indices as places on an axis of the given size; negative ones count from the end. `None` when one is outside.
fn places(indices: &TensorData, size: usize) -> Option<Vec<usize>> {
    let Elements::Int(indices) = Elements::load(indices) else {
        return None;
    };
    let place =
        |i: i128| usize::try_from(if i < 0 { i + size as i128 } else { i }).ok().filter(|&i| i < size);
    indices.into_iter().map(place).collect()
}

/// The rows of an axis at the given places.
pub(super) fn rows(x: &TensorData, axis: usize, places: &[usize]) -> Option<TensorData> {
    let mut shape = x.shape.clone();
    let size = std::mem::replace(shape.get_mut(axis)?, places.len());
    let outer: usize = elements(&x.shape[..axis]);
    let inner: usize = elements(&x.shape[axis + 1..]).saturating_mul(x.dtype.size());
    let mut bytes = Vec::with_capacity(outer * places.len() * inner);
    for o in 0..outer {
        for &place in places {
            let start = (o * size + place) * inner;
            bytes.extend_from_slice(x.bytes.get(start..start + inner).filter(|_| place < size)?);
        }
    }
    TensorData::from_bytes(Bytes::from_vec(bytes), shape, x.dtype).ok()
}

/// For each index, the place in `x` that it names, in row-major order of the indices.
fn gather_places(x: &TensorData, indices: &TensorData, axis: usize) -> Option<Vec<usize>> {
    let size = *x.shape.get(axis)?;
    let named = places(indices, size)?;
    if x.shape.len() != indices.shape.len() {
        return None;
    }
    let stride: usize = elements(&x.shape[axis + 1..]);
    // Walk `x` along all axes but the one that is indexed.
    let mut view = Strided::new(&x.shape).slice(axis, 0, size.min(1), 1)?;
    for (i, &count) in indices.shape.iter().enumerate().filter(|&(i, _)| i != axis) {
        view = view.slice(i, 0, count, 1)?;
    }
    let view = view.expand(&indices.shape)?;
    let mut named = named.into_iter();
    let mut all = Vec::with_capacity(view.len());
    view.for_each(|at| all.push(named.next().map(|row| at + row * stride)));
    all.into_iter().collect()
}

/// One known position: a slice whose axis goes away.
fn one_index(axis: usize, cx: &Site<'_>) -> Option<Arg> {
    let Arg::Scalar(index, _) = cx.scalar(1, 0)? else { return None };
    let index = Dim::constant(index.to_i64());
    let size = cx.ty(0)?.dims.get(axis)?;
    let start = if index.as_size().is_some() { index } else { size + &index };
    let end = &start + &Dim::constant(1);
    let range = Arg::range(Arg::Size(start), Arg::Size(end));
    let sliced = Arg::Operand(0).then("slice_dim", [Arg::axis(axis), range]);
    Some(sliced.then("squeeze_dim", [Arg::Rank(cx.rank(0).checked_sub(1)?), Arg::axis(axis)]))
}

/// Rows of a constant table, looked up by `[batch, seq]` indices.
fn embedding(axis: usize, cx: &Site<'_>) -> Option<Layer> {
    let weight =
        cx.input(0).filter(|_| axis == 0 && cx.rank(0) == 2 && cx.rank(1) == 2 && cx.is_constant(0))?;
    let &[rows, size] = cx.shape(0)?.as_slice() else { return None };
    if !cx.dtype(0).is_float() {
        return None;
    }
    let layer = Layer::new(
        Config::new(&layers::EMBEDDING, [Arg::named("n_embedding", rows), Arg::named("d_model", size)]),
        [Some(weight)],
        Arg::call("tensor::module::embedding", [Arg::Operand(0), Arg::Operand(1)]),
    );
    Some(layer.called("forward", vec![Arg::Operand(1)]))
}
