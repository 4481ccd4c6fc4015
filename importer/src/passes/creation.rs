//! Tables of integers that are raised to the creation of tensors: one number everywhere, or numbers that count up.
//!
//! Exporters fold `arange` and `zeros` into tables (position ids, token types). Nothing is learned in them, so the source
//! makes them anew instead of loading a parameter.

use super::{Rewrite, Rule};
use crate::data::Elements;
use crate::ir::{Arange, Cast, Constant, Dim, Fill, Op, Reshape, ValueId};
use kiln_types::{DType, Scalar, TensorData};

pub(super) const RULE: Rule = Rule { apply };

/// Larger tables (bytes) are loaded: to make them takes as long as to read them.
const LARGE: usize = 1 << 16;

fn apply(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let mut inputs = cx.node().inputs.clone();
    let (place, spelt) = inputs.iter().enumerate().find_map(|(place, &input)| {
        let data = &cx.constant(input?)?.data;
        if !is_table(data) {
            return None;
        }
        cx.look(data.num_elements())?;
        Some((place, spell(data)?))
    })?;
    *inputs.get_mut(place)? = Some(make(cx, spelt)?);
    let op = cx.op().clone();
    cx.replace(op, inputs)?;
    Some("table of integers")
}

/// How a table is made.
enum Table {
    /// One value everywhere.
    Uniform { value: i64, shape: Vec<usize>, dtype: DType },
    /// `start, start + step, …`, row-major.
    Sequence { start: i64, step: i64, shape: Vec<usize>, dtype: DType },
}

fn is_table(data: &TensorData) -> bool {
    matches!(data.dtype, DType::I64 | DType::I32 | DType::Bool)
        && data.bytes.len() <= LARGE
        && data.num_elements() >= 2
}

fn spell(data: &TensorData) -> Option<Table> {
    let Elements::Int(values) = Elements::load(data) else {
        return None;
    };
    let values: Vec<i64> = values.iter().map(|&value| i64::try_from(value).ok()).collect::<Option<_>>()?;
    let (&start, &second) = (values.first()?, values.get(1)?);
    let step = second.checked_sub(start)?;
    let regular = values.windows(2).all(|pair| pair[1].checked_sub(pair[0]) == Some(step));
    let (shape, dtype) = (data.shape.clone(), data.dtype);
    match step {
        _ if !regular => None,
        0 => Some(Table::Uniform { value: start, shape, dtype }),
        // Two numbers always count; that is no pattern. A short list reads better than a step.
        _ if values.len() < 3 || step < 0 || dtype.is_bool() => None,
        _ if step > 1 && Constant::are_few(data) => None,
        _ => Some(Table::Sequence { start, step, shape, dtype }),
    }
}

fn make(cx: &mut Rewrite<'_>, table: Table) -> Option<ValueId> {
    let dims = |shape: &[usize]| shape.iter().map(|&size| Dim::from(size)).collect::<Vec<Dim>>();
    match table {
        Table::Uniform { value, shape, dtype } => {
            let value = if dtype.is_bool() { Scalar::Bool(value != 0) } else { Scalar::Int(value) };
            cx.insert(Op::Fill(Fill { dims: dims(&shape), value, dtype }), &[])
        }
        Table::Sequence { start, step, shape, dtype } => {
            let count = i64::try_from(shape.iter().product::<usize>()).ok()?;
            let end = count.checked_mul(step)?.checked_add(start)?;
            let counted = Op::Arange(Arange { start: start.into(), end: end.into(), step });
            let mut made = cx.insert(counted, &[])?;
            if shape.len() != 1 {
                made = cx.insert(Op::Reshape(Reshape { dims: dims(&shape) }), &[made])?;
            }
            if dtype != DType::I64 {
                made = cx.insert(Op::Cast(Cast { to: dtype }), &[made])?;
            }
            Some(made)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Gather;
    use crate::passes::testing::{checked, graph};

    fn kinds(table: TensorData) -> Vec<String> {
        let rows = table.shape[0];
        let g = graph(&[&format!("f32[{rows}, 18]")], |b, x| {
            let table = b.graph.add_constant(Some("positions".to_owned()), table);
            vec![b.add(Op::Gather(Gather { axis: 1 }), &[x[0], table]).unwrap()]
        });
        let g = checked(g, &[]);
        g.root.nodes.iter().map(|&id| g.node(id).op.kind()).collect()
    }

    #[test]
    fn tables_that_a_few_words_say() {
        assert_eq!(kinds(TensorData::new(vec![2i64; 4], [1, 4])), ["Fill", "Gather"]);
        let odd = |count: i64| (0..count).map(|n| 1 + 2 * n).collect::<Vec<i64>>();
        assert_eq!(kinds(TensorData::new(odd(9), [1, 9])), ["Arange", "Reshape", "Gather"]);
        assert_eq!(kinds(TensorData::new(vec![0i64, 1, 2, 3], [2, 2])), ["Arange", "Reshape", "Gather"]);
    }

    #[test]
    fn other_tables_stay() {
        assert_eq!(kinds(TensorData::new(vec![0i64, 1, 3], [1, 3])), ["Gather"]);
        assert_eq!(kinds(TensorData::new(vec![1i64, 3, 5, 7], [1, 4])), ["Gather"]);
        assert_eq!(kinds(TensorData::new(vec![3i64, 2, 1], [1, 3])), ["Gather"]);
        assert_eq!(kinds(TensorData::new(vec![0i64, 1], [1, 2])), ["Gather"]);
    }
}
