//! Several tensors, or one several times, one behind the other.

use super::host::Contents;
use super::layout::view;
use super::prelude::*;
use crate::ir::Provenance;
use kiln_types::Bytes;

attributes! {
    /// Several, one behind the other.
    pub struct Concat {
        /// The joined axis.
        pub axis: usize,
    }
}

impl Operation for Concat {
    facts!(operands: ["inputs*"], effect: Pure, folding: PerElement(1), result: Joined);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let axis = self.axis;
        let first = at_least_rank(cx, 0, "inputs", 1)?;
        check_axis(axis, first.rank())?;
        let mut dims = first.dims.clone();
        for n in 1..cx.len() {
            let next = cx.ty(n)?;
            same_dtype("inputs[0]", first, &format!("inputs[{n}]"), next)?;
            if next.rank() != first.rank() {
                return Err(dims_error("ranks of a concatenation", first, next));
            }
            for (i, (dim, other)) in dims.iter_mut().zip(&next.dims).enumerate() {
                if i == axis {
                    *dim = &*dim + other;
                } else if !may_equal(dim, other) {
                    return Err(dims_error("concatenation", first, next));
                } else if dim.as_constant().is_none() {
                    // A known size says more than a symbol.
                    *dim = if other.as_constant().is_some() { other.clone() } else { dim.clone() };
                }
            }
        }
        Ok(vec![first.with_dims(dims)])
    }

    fn host(&self, cx: &Host<'_>) -> Option<Vec<Dim>> {
        let axis = self.axis;
        let parts: Vec<Contents<'_>> = (0..cx.inputs.len()).map(|n| cx.operand(n)).collect::<Option<_>>()?;
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

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        Some(vec![concat(&operands.all()?, self.axis)?])
    }

    /// Along the first axis it is said without sizes where that is possible, so that modules of other sizes are equal: the gates
    /// of recurrent layers in another order, their directions.
    fn derivation(&self, of: &Sources<'_>) -> Result<Derivation, String> {
        let parts = of.all()?;
        let first = self.axis == 0;
        let sizeless = first.then(|| stacked(&parts, of).or_else(|| reordered(&parts, of))).flatten();
        Ok(sizeless.unwrap_or(Derivation::Concat(self.axis, parts)))
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        let result = Strided::new(&cx.result_shape()?);
        let mut start = 0;
        let mut passes = Vec::new();
        for n in 0..cx.node.inputs.len() {
            let shape = cx.shape(n)?;
            let end = start + shape.get(self.axis)?;
            passes.push(ElementLoop::copy(n, Strided::new(&shape), result.slice(self.axis, start, end, 1)?));
            start = end;
        }
        Some(Loops::Elementwise(passes))
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        let operands = (0..cx.node.inputs.len()).map(Arg::Operand).collect();
        Implementation::Call(Arg::call("tensor::module::cat", [Arg::Array(operands), Arg::axis(self.axis)]))
    }
}

attributes! {
    /// Several times.
    pub struct Repeat {
        /// How often along each axis.
        pub times: Vec<Dim>,
    }
}

impl Operation for Repeat {
    facts!(operands: ["x"], effect: Pure, folding: PerElement(1), result: Repeated);
    none!(derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let (x, times) = (cx.ty(0)?, &self.times);
        if times.len() != x.rank() {
            return Err(misfit("repeats", format!("are {} for a tensor of rank {}", times.len(), x.rank())));
        }
        Ok(vec![x.with_dims(x.dims.iter().zip(times).map(|(dim, times)| dim * times).collect())])
    }

    fn host(&self, cx: &Host<'_>) -> Option<Vec<Dim>> {
        let times = sizes(&self.times)?;
        cx.view(|x| Some(x.repeat(&times)))
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        Some(vec![repeat(operands.get(0)?, &sizes(&self.times)?)?])
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        let from = Strided::new(&cx.shape(0)?).repeat(&sizes(&self.times)?);
        let result = Strided::new(from.dims());
        Some(Loops::Elementwise(vec![ElementLoop::copy(0, from, result)]))
    }

    fn implementation(&self, _: &Site<'_>) -> Implementation {
        let times = &self.times;
        let repeated: Vec<usize> = (0..times.len()).filter(|&axis| !times[axis].is(1)).collect();
        Implementation::Call(match repeated.as_slice() {
            &[axis] => Arg::Operand(0).then("repeat_dim", [Arg::axis(axis), Arg::Size(times[axis].clone())]),
            _ => Arg::Operand(0).then("repeat", [Arg::List(Arg::sizes(times))]),
        })
    }
}

/// Parts that have an axis of size 1 in front, which was put there.
fn stacked(parts: &[Derivation], of: &Sources<'_>) -> Option<Derivation> {
    let inner = parts.iter().zip(of.made()).map(|(part, made)| match (part, &**made) {
        (Derivation::Reshape(inner, Some(sizes)), Provenance::Apply { operands, .. }) => {
            let shape = operands.first()?.shape()?;
            let (&[1], rest) = sizes.split_at_checked(1)? else { return None };
            (*rest == *shape).then(|| (**inner).clone())
        }
        _ => None,
    });
    Some(Derivation::Stack(inner.collect::<Option<_>>()?))
}

/// Slices that are all the equal parts of one tensor.
fn reordered(parts: &[Derivation], of: &Sources<'_>) -> Option<Derivation> {
    let Provenance::Apply { operands: first, .. } = &**of.made().first()? else { return None };
    let size = *first.first()?.shape()?.first()?;
    let length =
        size.checked_div(parts.len()).filter(|length| length * parts.len() == size && *length > 0)?;
    let mut source: Option<&Derivation> = None;
    let order = parts.iter().map(|part| match part {
        Derivation::Slice { of, axis: 0, start, end, step: 1 } if start + length == *end => {
            let one = *source.get_or_insert(of) == &**of && start % length == 0;
            one.then_some(start / length)
        }
        _ => None,
    });
    let order: Vec<usize> = order.collect::<Option<_>>()?;
    Some(Derivation::Parts(Box::new(source?.clone()), order))
}

pub(super) fn concat(parts: &[&TensorData], axis: usize) -> Option<TensorData> {
    let first = parts.first()?;
    let mut shape = first.shape.clone();
    *shape.get_mut(axis)? = parts.iter().try_fold(0usize, |n, part| n.checked_add(*part.shape.get(axis)?))?;
    let outer: usize = elements(&shape[..axis]);
    let mut bytes = Vec::new();
    for row in 0..outer {
        for part in parts {
            let run = part.bytes.len() / outer;
            bytes.extend_from_slice(part.bytes.get(row * run..(row + 1) * run)?);
        }
    }
    TensorData::from_bytes(Bytes::from_vec(bytes), shape, first.dtype).ok()
}

fn repeat(x: &TensorData, times: &[usize]) -> Option<TensorData> {
    let shape = x.shape.iter().zip(times).map(|(&d, &t)| d.checked_mul(t)).collect::<Option<Vec<_>>>()?;
    let repeated = view(x, Strided::new(&x.shape).repeat(times))?;
    TensorData::from_bytes(repeated.bytes, shape, x.dtype).ok()
}
