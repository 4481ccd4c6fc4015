//! Shape arithmetic: the contents of small integer tensors, as dims.

use crate::fold::{Strided, elements, is_long_and_empty};
use crate::ir::builder::MAX_HOST_ELEMENTS;
use crate::ir::{AxisRange, Dim, Graph, Op, ValueId};
use kiln_types::{BinaryOp, CompareOp, CumulativeOp, DType, PadMode, ReduceOp, Scalar, UnaryOp};

/// An operand whose contents are known.
struct Host<'a> {
    dims: Vec<usize>,
    values: &'a [Dim],
    dtype: DType,
}

impl Op {
    /// The contents of the single output as dims, when the operands' contents (or types) determine them.
    pub fn host(&self, graph: &Graph, inputs: &[Option<ValueId>]) -> Option<Vec<Dim>> {
        let cx = Cx { graph, inputs };
        let values = cx.evaluate(self)?;
        (values.len() <= MAX_HOST_ELEMENTS).then_some(values)
    }
}

struct Cx<'a> {
    graph: &'a Graph,
    inputs: &'a [Option<ValueId>],
}

impl<'a> Cx<'a> {
    fn operand(&self, n: usize) -> Option<Host<'a>> {
        let value = self.graph.value((*self.inputs.get(n)?)?);
        let (values, dims) = (value.host.as_deref()?, value.ty.shape()?);
        let count = elements(&dims);
        (count == values.len() && !is_long_and_empty(&dims)).then_some(Host {
            dims,
            values,
            dtype: value.ty.dtype,
        })
    }

    fn evaluate(&self, op: &Op) -> Option<Vec<Dim>> {
        match op {
            Op::HostTensor { values, .. } => Some(values.clone()),
            Op::Fill { dims, value, dtype } => fill(dims, *value, *dtype),
            Op::Arange { start, end, step } => self.arange(start, end, *step),
            Op::Dropout { .. } => Some(self.operand(0)?.values.to_vec()),
            Op::Unary(op) => {
                let x = self.operand(0)?;
                let one = |value| self.unary(*op, value).filter(|result| fits(x.dtype, result));
                x.values.iter().map(one).collect()
            }
            Op::Clamp { min, max } => self.clamp(*min, *max),
            Op::Cast { to } => self.cast(*to),
            Op::Binary(op) => {
                let dtype = self.operand(0)?.dtype;
                self.elementwise(&[0, 1], |v| self.binary(*op, v[0], v[1]).filter(|d| fits(dtype, d)))
            }
            Op::Compare(op) => self.elementwise(&[0, 1], |v| Some(self.graph.compare(*op, v[0], v[1]))),
            Op::Where => self.elementwise(&[0, 1, 2], |v| Some(select(v[0], v[1], v[2]))),
            // Known contents have a known shape; a symbolic one, as hostile files ask for, cannot be told to fit.
            Op::Reshape { dims } if dims.iter().all(|dim| dim.as_size().is_some()) => {
                Some(self.operand(0)?.values.to_vec())
            }
            Op::Permute { axes } => self.view(|x| Some(x.permute(axes))),
            Op::Expand { dims } => {
                let dims: Vec<usize> = dims.iter().map(Dim::as_size).collect::<Option<_>>()?;
                self.view(|x| x.expand(&dims))
            }
            Op::Slice { ranges } => self.slice(ranges),
            Op::Repeat { times } => {
                let times: Vec<usize> = times.iter().map(Dim::as_size).collect::<Option<_>>()?;
                self.view(|x| Some(x.repeat(&times)))
            }
            Op::Concat { axis } => self.concat(*axis),
            Op::Pad { padding, mode: PadMode::Constant, value } => self.pad(padding, *value),
            Op::Take { axis, .. } => self.take(*axis),
            Op::Gather { axis } => self.gather(*axis),
            Op::Reduce { op, axes, .. } => self.reduce(*op, axes),
            Op::Cumulative { op, axis, exclusive, reverse } => {
                self.cumulative(*op, *axis, *exclusive, *reverse)
            }
            _ => None,
        }
    }

    fn arange(&self, start: &Dim, end: &Dim, step: i64) -> Option<Vec<Dim>> {
        let span = (end - start).as_constant()?;
        let span = if step > 0 { span } else { span.checked_neg()? };
        let count = span.max(0) as u64;
        let count = count.div_ceil(step.unsigned_abs().max(1));
        if count > MAX_HOST_ELEMENTS as u64 {
            return None;
        }
        (0..count as i64).map(|i| exact(start + &Dim::constant(i.checked_mul(step)?))).collect()
    }

    /// The elements of a view of the first operand.
    fn view(&self, make: impl FnOnce(Strided) -> Option<Strided>) -> Option<Vec<Dim>> {
        let x = self.operand(0)?;
        let view = make(Strided::new(&x.dims))?;
        (view.len() <= MAX_HOST_ELEMENTS).then(|| view.gather(x.values))
    }

    fn slice(&self, ranges: &[AxisRange]) -> Option<Vec<Dim>> {
        self.view(|mut view| {
            for (axis, range) in ranges.iter().enumerate() {
                view = view.slice(axis, range.start.as_size()?, range.end.as_size()?, range.step)?;
            }
            Some(view)
        })
    }

    fn unary(&self, op: UnaryOp, x: &Dim) -> Option<Dim> {
        let zero = Dim::constant(0);
        match op {
            UnaryOp::Neg => exact(-x),
            UnaryOp::Abs => Some(self.graph.maximum(x, &exact(-x)?)),
            UnaryOp::Not => Some(self.graph.compare(CompareOp::Equal, x, &zero)),
            UnaryOp::Sign => Some(Dim::constant(x.as_constant()?.signum())),
            _ => None,
        }
    }

    fn binary(&self, op: BinaryOp, a: &Dim, b: &Dim) -> Option<Dim> {
        let known = a.as_constant().zip(b.as_constant());
        let integer = |f: fn(i64, i64) -> Option<i64>| known.and_then(|(a, b)| f(a, b)).map(Dim::constant);
        let not_negative = |dim: &Dim| self.graph.least(dim, 1).is_some_and(|least| least >= 0);
        let positive = |dim: &Dim| self.graph.least(dim, 1).is_some_and(|least| least > 0);
        match op {
            BinaryOp::Add => exact(a + b),
            BinaryOp::Sub => exact(a - b),
            BinaryOp::Mul | BinaryOp::And => exact(a * b),
            BinaryOp::Div if known.is_some() => integer(i64::checked_div),
            BinaryOp::Div if a.modulo(b).is(0) && !b.is(0) => Some(a.floor_div(b)),
            // Truncation is a floor where nothing is negative. Sizes count as at least 1 here: of an empty tensor,
            // `(size - 1) / 2` is asked in vain anyway.
            BinaryOp::Div if not_negative(a) && positive(b) => Some(a.floor_div(b)),
            BinaryOp::Remainder if known.is_some() && !b.is(0) => Some(a.modulo(b)),
            // At run time, dims are taken modulo sizes.
            BinaryOp::Remainder if positive(b) => Some(a.modulo(b)),
            BinaryOp::Fmod if known.is_some() => integer(i64::checked_rem),
            BinaryOp::Fmod if not_negative(a) && positive(b) => Some(a.modulo(b)),
            BinaryOp::Pow => power(a, b),
            BinaryOp::Max | BinaryOp::Or => Some(self.graph.maximum(a, b)),
            BinaryOp::Min => Some(self.graph.minimum(a, b)),
            BinaryOp::Xor => Some(self.graph.compare(CompareOp::NotEqual, a, b)),
            BinaryOp::BitwiseAnd => integer(|a, b| Some(a & b)),
            BinaryOp::BitwiseOr => integer(|a, b| Some(a | b)),
            BinaryOp::BitwiseXor => integer(|a, b| Some(a ^ b)),
            _ => None,
        }
    }

    fn clamp(&self, min: Option<Scalar>, max: Option<Scalar>) -> Option<Vec<Dim>> {
        let x = self.operand(0)?;
        let clamped = x.values.iter().map(|value| {
            let low = min
                .map_or_else(|| value.clone(), |min| self.graph.maximum(value, &Dim::constant(min.to_i64())));
            max.map_or(low.clone(), |max| self.graph.minimum(&low, &Dim::constant(max.to_i64())))
        });
        Some(clamped.collect())
    }

    fn cast(&self, to: DType) -> Option<Vec<Dim>> {
        if to.is_float() {
            return None;
        }
        if (*self.inputs.first()?).is_some_and(|id| self.graph.ty(id).dtype.is_float()) {
            return self.known_cast(to);
        }
        let x = self.operand(0)?;
        if to.is_bool() && !x.dtype.is_bool() {
            let zero = Dim::constant(0);
            return Some(
                x.values.iter().map(|v| self.graph.compare(CompareOp::NotEqual, v, &zero)).collect(),
            );
        }
        x.values.iter().all(|value| fits(to, value)).then(|| x.values.to_vec())
    }

    /// Known floats as integers: sizes that went through a scale or a square root.
    fn known_cast(&self, to: DType) -> Option<Vec<Dim>> {
        let id = (*self.inputs.first()?)?;
        let count = self.graph.ty(id).num_elements().as_size();
        if count.is_none_or(|count| count > MAX_HOST_ELEMENTS) {
            return None;
        }
        let known = crate::fold::known(self.graph, id)?;
        let cast = crate::fold::evaluate(&Op::Cast { to }, &[Some(&known)])?.pop()?;
        crate::ir::builder::host_of(&cast)
    }

    /// Applies `f` to broadcast operands.
    fn elementwise(&self, operands: &[usize], f: impl Fn(&[&Dim]) -> Option<Dim>) -> Option<Vec<Dim>> {
        let operands: Vec<Host<'a>> = operands.iter().map(|&n| self.operand(n)).collect::<Option<_>>()?;
        let mut dims: Vec<usize> = Vec::new();
        for operand in &operands {
            dims = kiln_types::Shape::from(dims).broadcast(&operand.dims.as_slice().into())?.dims;
        }
        let mut columns: Vec<Vec<&Dim>> = Vec::new();
        for operand in &operands {
            let view = Strided::new(&operand.dims).expand(&dims)?;
            if view.len() > MAX_HOST_ELEMENTS {
                return None;
            }
            let mut column = Vec::with_capacity(view.len());
            view.for_each(|at| column.push(&operand.values[at]));
            columns.push(column);
        }
        let count = columns.first()?.len();
        (0..count).map(|i| f(&columns.iter().map(|column| column[i]).collect::<Vec<_>>())).collect()
    }

    fn concat(&self, axis: usize) -> Option<Vec<Dim>> {
        let parts: Vec<Host<'a>> = (0..self.inputs.len()).map(|n| self.operand(n)).collect::<Option<_>>()?;
        let first = parts.first()?;
        let outer = elements(first.dims.get(..axis)?);
        let mut values = Vec::new();
        for row in 0..outer {
            for part in &parts {
                let run = elements(part.dims.get(axis..)?);
                values.extend_from_slice(part.values.get(row * run..(row + 1) * run)?);
            }
        }
        Some(values)
    }

    fn pad(&self, padding: &[(Dim, Dim)], value: Scalar) -> Option<Vec<Dim>> {
        let x = self.operand(0)?;
        let mut dims = Vec::with_capacity(padding.len());
        let mut inner: Vec<(usize, usize)> = Vec::with_capacity(padding.len());
        for ((before, after), &size) in padding.iter().zip(&x.dims) {
            let (before, after) = (before.as_size()?, after.as_size()?);
            dims.push(size.checked_add(before)?.checked_add(after)?);
            inner.push((before, before + size));
        }
        let count = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
        if count > MAX_HOST_ELEMENTS {
            return None;
        }
        let mut values = vec![Dim::constant(value.to_i64()); count];
        let mut view = Strided::new(&dims);
        for (axis, &(start, end)) in inner.iter().enumerate() {
            view = view.slice(axis, start, end, 1)?;
        }
        let mut source = x.values.iter();
        view.for_each(|at| values[at] = source.next().cloned().unwrap_or_else(|| Dim::constant(0)));
        Some(values)
    }

    fn take(&self, axis: usize) -> Option<Vec<Dim>> {
        let (x, indices) = (self.operand(0)?, self.operand(1)?);
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

    fn gather(&self, axis: usize) -> Option<Vec<Dim>> {
        let (x, indices) = (self.operand(0)?, self.operand(1)?);
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

    fn reduce(&self, op: ReduceOp, axes: &[usize]) -> Option<Vec<Dim>> {
        let x = self.operand(0)?;
        let kept = (0..x.dims.len()).filter(|axis| !axes.contains(axis));
        let order: Vec<usize> = kept.chain(axes.iter().copied()).collect();
        let ordered = Strided::new(&x.dims).permute(&order).gather(x.values);
        let run = elements(&axes.iter().filter_map(|&axis| x.dims.get(axis).copied()).collect::<Vec<_>>());
        if run == 0 {
            return None;
        }
        let folded = |chunk| self.fold(op, chunk).filter(|result| fits(x.dtype, result));
        ordered.chunks(run).map(folded).collect()
    }

    fn fold(&self, op: ReduceOp, values: &[Dim]) -> Option<Dim> {
        let (first, rest) = values.split_first()?;
        let combine: fn(&Graph, &Dim, &Dim) -> Option<Dim> = match op {
            ReduceOp::Sum => |_, a, b| exact(a + b),
            ReduceOp::Prod | ReduceOp::All => |_, a, b| exact(a * b),
            ReduceOp::Max | ReduceOp::Any => |graph, a, b| Some(graph.maximum(a, b)),
            ReduceOp::Min => |graph, a, b| Some(graph.minimum(a, b)),
            ReduceOp::Mean => return None,
        };
        rest.iter().try_fold(first.clone(), |folded, value| combine(self.graph, &folded, value))
    }

    fn cumulative(&self, op: CumulativeOp, axis: usize, exclusive: bool, reverse: bool) -> Option<Vec<Dim>> {
        let x = self.operand(0)?;
        if x.dims.len() != 1 || axis != 0 || exclusive || reverse {
            return None;
        }
        let op = match op {
            CumulativeOp::Sum => ReduceOp::Sum,
            CumulativeOp::Prod => ReduceOp::Prod,
            CumulativeOp::Max => ReduceOp::Max,
            CumulativeOp::Min => ReduceOp::Min,
        };
        let folded = |n: usize| self.fold(op, &x.values[..n]).filter(|result| fits(x.dtype, result));
        (1..=x.values.len()).map(folded).collect()
    }
}

fn fill(dims: &[Dim], value: Scalar, dtype: DType) -> Option<Vec<Dim>> {
    let count = Dim::product(dims).as_size().filter(|&n| n <= MAX_HOST_ELEMENTS)?;
    let value = if dtype.is_bool() { i64::from(value.to_bool()) } else { value.to_i64() };
    (!dtype.is_float()).then(|| vec![Dim::constant(value); count])
}

/// `condition ? a : b`, where the condition is 0 or 1.
fn select(condition: &Dim, a: &Dim, b: &Dim) -> Dim {
    match condition.as_constant() {
        Some(0) => b.clone(),
        Some(_) => a.clone(),
        None if a == b => a.clone(),
        None => &(condition * &(a - b)) + b,
    }
}

/// `a` to a small known power.
fn power(a: &Dim, b: &Dim) -> Option<Dim> {
    let exponent = b.as_constant().filter(|e| (0..=8).contains(e))?;
    (0..exponent).try_fold(Dim::constant(1), |product, _| exact(&product * a))
}

/// A known index, counted from the end when negative; `None` outside.
fn position(index: &Dim, size: usize) -> Option<usize> {
    let index = index.as_constant()?;
    let size_i = i64::try_from(size).ok()?;
    let index = if index < 0 { index.checked_add(size_i)? } else { index };
    usize::try_from(index).ok().filter(|&i| i < size)
}

/// The result of arithmetic; `None` when a number in it came to the end of its range: there tensors wrap around, and dims
/// do not.
fn exact(dim: Dim) -> Option<Dim> {
    (!dim.is_saturated()).then_some(dim)
}

/// Whether a dtype holds a value; what is not known counts as a size, which all but the smallest dtypes hold.
fn fits(dtype: DType, value: &Dim) -> bool {
    let Some(value) = value.as_constant() else {
        return !matches!(dtype, DType::I8 | DType::U8 | DType::I16 | DType::U16);
    };
    match dtype {
        DType::I64 => true,
        DType::I32 => i32::try_from(value).is_ok(),
        DType::I16 => i16::try_from(value).is_ok(),
        DType::I8 => i8::try_from(value).is_ok(),
        DType::U64 => value >= 0,
        DType::U32 => u32::try_from(value).is_ok(),
        DType::U16 => u16::try_from(value).is_ok(),
        DType::U8 => u8::try_from(value).is_ok(),
        DType::Bool => value == 0 || value == 1,
        _ => false,
    }
}
