//! Lookups that yield what they look into, or one value; assignments of whole rows.

use crate::ir::{Cast, Constant, Dim, Fill, Op, Reshape, SelectAssign, Take, ValueId};
use crate::passes::Rewrite;
use crate::passes::counters::counter;
use kiln_types::{BinaryOp, DType, ScatterOp};

/// A lookup in a tensor of one value.
pub(super) fn in_one_value(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let Op::Fill(Fill { value, dtype, .. }) = cx.producer(cx.input(0)?)?.op else {
        return None;
    };
    let dims = cx.ty(cx.output()?).dims.clone();
    cx.replace(Op::Fill(Fill { dims, value, dtype }), Vec::new())?;
    Some("lookup in one value")
}

/// Integers that are looked up in a short list, as classifiers do with labels, and only cast and reshaped then: the list is cast before.
pub(super) fn in_list(cx: &mut Rewrite<'_>, to: DType) -> Option<&'static str> {
    let (mut casts, mut value) = (vec![to], cx.input(0)?);
    let mut steps = 0..MAX_STEPS;
    let (table, axis, indices, wrapped) = loop {
        steps.next()?;
        if !cx.used_once(value) {
            return None;
        }
        let node = cx.producer(value)?;
        let operand = |n: usize| node.inputs.get(n).copied().flatten();
        match node.op {
            Op::Cast(Cast { to }) => casts.push(to),
            Op::Reshape(_) => {}
            Op::Take(Take { axis, wrapped }) => break (operand(0)?, axis, operand(1)?, wrapped),
            _ => return None,
        }
        value = operand(0)?;
    };
    let data = &cx.constant(table)?.data;
    let is_list = data.shape.iter().enumerate().all(|(other, &size)| other == axis || size == 1);
    if !is_list || !to.is_int() || !data.dtype.is_int() || !Constant::are_few(data) {
        return None;
    }
    let count = Dim::from(data.num_elements());
    let mut list = cx.insert(Op::Reshape(Reshape { dims: vec![count] }), &[table])?;
    for to in casts.into_iter().rev() {
        list = cx.insert(Op::Cast(Cast { to }), &[list])?;
    }
    let found = cx.insert(Op::Take(Take { axis: 0, wrapped }), &[list, indices])?;
    let dims = cx.ty(cx.output()?).dims.clone();
    cx.replace(Op::Reshape(Reshape { dims }), vec![Some(found)])?;
    Some("cast of what is in a list")
}

/// An assignment of elements whose indices are spread out from one for each part of the axis: parts are assigned, by a list of indices.
pub(super) fn assigned(cx: &mut Rewrite<'_>, axis: usize, op: ScatterOp) -> Option<&'static str> {
    let (x, indices, updates) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let others = |dims: &[Dim]| -> Vec<Dim> {
        dims.iter().enumerate().filter(|&(n, _)| n != axis).map(|(_, dim)| dim.clone()).collect()
    };
    let count = cx.ty(updates).dims.get(axis)?.clone();
    if others(&cx.ty(x).dims) != others(&cx.ty(updates).dims) {
        return None;
    }
    let node = cx.producer(indices)?;
    let list = match node.op {
        Op::Expand(_) => {
            let list = node.inputs.first().copied().flatten()?;
            let of_list = &cx.ty(list).dims;
            let is_list = of_list.len() == cx.ty(x).rank()
                && of_list.get(axis) == Some(&count)
                && others(of_list).iter().all(|dim| dim.is(1));
            if !is_list {
                return None;
            }
            cx.insert(Op::Reshape(Reshape { dims: vec![count] }), &[list])?
        }
        // The same part of each: `x[:, 2] = y`.
        Op::Fill(Fill { value, dtype, .. }) if count.is(1) && cx.ty(indices).dims == cx.ty(updates).dims => {
            cx.insert(Op::Fill(Fill { dims: vec![count], value, dtype }), &[])?
        }
        _ => return None,
    };
    let inputs = vec![Some(x), Some(list), Some(updates)];
    cx.replace(Op::SelectAssign(SelectAssign { axis, op }), inputs)?;
    Some("assignment of parts")
}

/// Whether an index names each row of an axis once, in order.
pub(super) fn takes_all(cx: &Rewrite<'_>, x: ValueId, index: ValueId, axis: usize) -> bool {
    let Some(size) = cx.ty(x).dims.get(axis) else { return false };
    if cx.ty(index).num_elements() != *size {
        return false;
    }
    if let Some(index) = cx.constant(index) {
        if cx.look(index.data.num_elements()).is_none() {
            return false;
        }
        let rows = crate::data::Elements::load(&index.data).floats();
        return rows.iter().enumerate().all(|(row, &taken)| taken == row as f64);
    }
    // `column + row · columns`, as an exporter writes `x[row, column]` of all rows and columns.
    let Some(strides) = strides(cx, index, &mut { MAX_STEPS }) else { return false };
    let mut expected = Dim::constant(1);
    for (stride, dim) in strides.iter().zip(&cx.ty(index).dims).rev() {
        if dim.is(1) {
            continue;
        }
        if *stride != expected {
            return false;
        }
        expected = &expected * dim;
    }
    true
}

/// An index is made of so many operations at most: of two or three for each axis. A file may have longer ones, and sums that add the
/// same to itself again and again.
const MAX_STEPS: usize = 64;

/// For a sum of counters from 0, each along its own axis and times a number: by how much the value grows along each axis. `steps` more
/// operations are looked at.
fn strides(cx: &Rewrite<'_>, id: ValueId, steps: &mut usize) -> Option<Vec<Dim>> {
    *steps = steps.checked_sub(1)?;
    let dims = &cx.ty(id).dims;
    if let Some(found) = counter(cx, id) {
        let starts = found.start.is(0) && found.end == cx.ty(id).num_elements();
        let stride = |dim: &Dim| Dim::constant(i64::from(!dim.is(1)));
        return starts.then(|| dims.iter().map(stride).collect());
    }
    let node = cx.producer(id)?;
    let operand = |n: usize| node.inputs.get(n).copied().flatten();
    match node.op {
        Op::Binary(BinaryOp::Mul) => {
            let (a, b) = (operand(0)?, operand(1)?);
            let (x, factor) =
                number(cx, b).map(|factor| (a, factor)).or_else(|| Some((b, number(cx, a)?)))?;
            let strides = strides(cx, x, steps).filter(|strides| strides.len() == dims.len())?;
            Some(strides.iter().map(|stride| stride * &factor).collect())
        }
        Op::Binary(BinaryOp::Add) => {
            let (a, b) = (strides(cx, operand(0)?, steps)?, strides(cx, operand(1)?, steps)?);
            let disjoint = a.iter().zip(&b).all(|(a, b)| a.is(0) || b.is(0));
            (disjoint && a.len() == b.len()).then(|| a.iter().zip(&b).map(|(a, b)| a + b).collect())
        }
        Op::Cast(Cast { to: DType::I64 }) => strides(cx, operand(0)?, steps),
        _ => None,
    }
}

/// The one integer that a value holds, on the host or as a constant.
fn number(cx: &Rewrite<'_>, id: ValueId) -> Option<Dim> {
    match cx.graph().value(id).host.as_deref() {
        Some([one]) => Some(one.clone()),
        _ => cx.graph().number(id).map(|number| Dim::constant(number.to_i64())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Arange, ArgReduce, AxisRange, Expand, Fill, Reshape, Slice, Take};
    use crate::passes::testing::{checked, graph, kinds};
    use kiln_types::{ArgReduceOp, TensorData};

    /// `x[row, column]` of a mask, as tuples of positions in the flat mask.
    fn flat_lookup(columns_first: bool) -> crate::ir::Graph {
        graph(&["f32[b, s]"], |g, x| {
            let (b, s) = (Dim::symbol("b"), Dim::symbol("s"));
            let flat = g.add(Op::Reshape(Reshape { dims: vec![&b * &s, 1.into()] }), &[x[0]]).unwrap();
            let mut count = |dim: &Dim, dims: [Dim; 3]| {
                let counted = Op::Arange(Arange { start: 0.into(), end: dim.clone(), step: 1 });
                let counted = g.add(counted, &[]).unwrap();
                g.add(Op::Reshape(Reshape { dims: dims.to_vec() }), &[counted]).unwrap()
            };
            let rows = count(&b, [b.clone(), 1.into(), 1.into()]);
            let columns = count(&s, [1.into(), 1.into(), s.clone()]);
            let size = g.host_tensor(vec![s.clone()], vec![1, 1, 1]).unwrap();
            let scaled = if columns_first { columns } else { rows };
            let far = g.add(Op::Binary(BinaryOp::Mul), &[scaled, size]).unwrap();
            let near = if columns_first { rows } else { columns };
            let index = g.add(Op::Binary(BinaryOp::Add), &[far, near]).unwrap();
            vec![g.add(Op::Take(Take { axis: 0, wrapped: true }), &[flat, index]).unwrap()]
        })
    }

    #[test]
    fn a_lookup_of_everything_is_a_reshape() {
        let g = checked(flat_lookup(false), &[("b", 2), ("s", 3)]);
        assert_eq!(kinds(&g), ["Reshape"], "{g}");
    }

    #[test]
    fn another_order_is_looked_up() {
        let mut g = flat_lookup(true);
        crate::passes::optimize(&mut g, &crate::passes::Options::default());
        assert!(kinds(&g).contains(&"Take".to_owned()), "{g}");
    }

    #[test]
    fn a_short_list_is_cast_before_it_is_looked_up() {
        let labels = |wide: DType| {
            let g = graph(&["f32[b, 3]"], |g, x| {
                let best = ArgReduce { op: ArgReduceOp::Max, axis: 1, keep_dims: false, select_last: false };
                let best = g.add(Op::ArgReduce(best), &[x[0]]).unwrap();
                let list = g.constant(TensorData::new(vec![3i32, 7, -11], [1, 3]));
                let found = g.add(Op::Take(Take { axis: 1, wrapped: false }), &[list, best]).unwrap();
                let found = g.add(Op::Cast(Cast { to: DType::F32 }), &[found]).unwrap();
                let dims = vec![Dim::symbol("b")];
                let found = g.add(Op::Reshape(Reshape { dims }), &[found]).unwrap();
                vec![g.add(Op::Cast(Cast { to: wide }), &[found]).unwrap()]
            });
            kinds(&checked(g, &[("b", 4)]))
        };
        assert_eq!(labels(DType::I64), ["ArgReduce", "Take"]);
        // Several floats are no list, but weights.
        assert_eq!(labels(DType::F64), ["ArgReduce", "Take", "Cast", "Reshape", "Cast"]);
    }

    /// Elements assigned along an axis, by one index for each part of it that is spread over so many of the other.
    fn scattered(columns: i64) -> crate::ir::Graph {
        graph(&["f32[5, b]", "f32[2, b]"], |g, x| {
            let list = Op::Arange(Arange { start: 1.into(), end: 3.into(), step: 1 });
            let list = g.add(list, &[]).unwrap();
            let list = g.add(Op::Reshape(Reshape { dims: vec![2.into(), 1.into()] }), &[list]).unwrap();
            let updates = match columns {
                0 => x[1],
                columns => {
                    let dims = vec![2.into(), columns.into()];
                    let one =
                        Op::Fill(Fill { dims, value: kiln_types::Scalar::Float(1.5), dtype: DType::F32 });
                    g.add(one, &[]).unwrap()
                }
            };
            let dims = g.graph.value(updates).ty.dims.clone();
            let indices = g.add(Op::Expand(Expand { dims }), &[list]).unwrap();
            let scatter = crate::ir::Scatter { axis: 0, op: ScatterOp::Add };
            vec![g.add(Op::Scatter(scatter), &[x[0], indices, updates]).unwrap()]
        })
    }

    #[test]
    fn indices_that_are_spread_out_name_rows() {
        let g = checked(scattered(0), &[("b", 3)]);
        assert!(kinds(&g).contains(&"SelectAssign".to_owned()), "{g}");
    }

    #[test]
    fn elements_of_one_index_are_a_part() {
        for (columns, expected) in [(Dim::symbol("b"), "SelectAssign"), (2.into(), "Scatter")] {
            let g = graph(&["f32[5, b]", "f32[1, b]"], |g, x| {
                let whole = columns == Dim::symbol("b");
                let part = AxisRange { start: 0.into(), end: columns.clone(), step: 1 };
                let row = AxisRange { start: 0.into(), end: 1.into(), step: 1 };
                let slice = Op::Slice(Slice { ranges: vec![row, part] });
                let updates = if whole { x[1] } else { g.add(slice, &[x[1]]).unwrap() };
                let (value, dtype) = (kiln_types::Scalar::Int(3), DType::I64);
                let index = Op::Fill(Fill { dims: vec![1.into(), columns.clone()], value, dtype });
                let index = g.add(index, &[]).unwrap();
                let scatter = crate::ir::Scatter { axis: 0, op: ScatterOp::Assign };
                vec![g.add(Op::Scatter(scatter), &[x[0], index, updates]).unwrap()]
            });
            let g = checked(g, &[("b", 3)]);
            assert!(kinds(&g).contains(&expected.to_owned()), "{g}");
        }
    }

    #[test]
    fn parts_of_rows_are_elements() {
        let g = checked(scattered(2), &[("b", 3)]);
        assert!(kinds(&g).contains(&"Scatter".to_owned()), "{g}");
    }

    #[test]
    fn one_value_is_not_looked_up() {
        let g = graph(&["i64[n]"], |b, x| {
            let full = Op::Fill(Fill {
                dims: vec![4.into(), 2.into()],
                value: kiln_types::Scalar::Bool(true),
                dtype: DType::Bool,
            });
            let full = b.add(full, &[]).unwrap();
            vec![b.add(Op::Take(Take { axis: 0, wrapped: false }), &[full, x[0]]).unwrap()]
        });
        let g = crate::passes::testing::optimized(g);
        assert_eq!(kinds(&g), ["Fill"], "{g}");
    }
}
