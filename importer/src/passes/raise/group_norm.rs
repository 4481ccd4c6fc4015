//! Group normalization from an instance normalization between two reshapes.

use crate::ir::{Dim, GroupNorm, Op, Reshape};
use crate::passes::{Rewrite, Rule};

pub(in crate::passes) const RULE: Rule = Rule { apply };

fn apply(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let Op::Reshape(Reshape { dims }) = cx.op().clone() else {
        return None;
    };
    let y = cx.input(0)?;
    let norm = cx.producer(y).filter(|_| cx.used_once(y))?;
    let Op::GroupNorm(GroupNorm { groups, epsilon }) = norm.op else {
        return None;
    };
    let number = |n: usize, missing: f64| {
        norm.inputs.get(n).copied().flatten().map_or(Some(missing), |id| cx.uniform(id))
    };
    let plain = number(1, 1.0) == Some(1.0) && number(2, 0.0) == Some(0.0);
    let grouped = norm.inputs.first().copied().flatten()?;
    let reshape = cx.producer(grouped).filter(|node| matches!(node.op, Op::Reshape(_)))?;
    let source = reshape.inputs.first().copied().flatten()?;
    let x = cx.ty(source);
    let grouped = cx.ty(grouped);
    // `[batch, groups, …]`, one group a channel, of what was `[batch, channels, …]`, and back.
    let fits = x.rank() >= 2
        && x.dims == dims
        && grouped.dims.first() == x.dims.first()
        && grouped.dims.get(1) == Some(&Dim::from(groups))
        && x.dims[1].as_size().is_some_and(|channels| channels.checked_rem(groups) == Some(0));
    if !fits || !plain {
        return None;
    }
    cx.replace(Op::GroupNorm(GroupNorm { groups, epsilon }), vec![Some(source)])?;
    Some("group_norm")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{GroupNorm, Reshape};
    use crate::passes::testing::{checked, constant, graph, single};
    use kiln_types::BinaryOp;

    #[test]
    fn group_norm_of_torch_is_raised() {
        let g = graph(&["f32[n, 4, 3, 3]"], |b, x| {
            let ones = constant(b, None, &[2], &[1.0, 1.0]);
            let zeros = constant(b, None, &[2], &[0.0, 0.0]);
            let n = Dim::symbol("n");
            let grouped =
                b.add(Op::Reshape(Reshape { dims: vec![n.clone(), 2.into(), 18.into()] }), &[x[0]]).unwrap();
            let y = b
                .add(Op::GroupNorm(GroupNorm { groups: 2, epsilon: 1e-5 }), &[grouped, ones, zeros])
                .unwrap();
            let dims = vec![n, 4.into(), 3.into(), 3.into()];
            let y = b.add(Op::Reshape(Reshape { dims }), &[y]).unwrap();
            let weight = constant(b, Some("w"), &[1, 4, 1, 1], &[1.0, 2.0, 3.0, 4.0]);
            let bias = constant(b, Some("b"), &[1, 4, 1, 1], &[0.1, 0.2, 0.3, 0.4]);
            let y = b.add(Op::Binary(BinaryOp::Mul), &[y, weight]).unwrap();
            vec![b.add(Op::Binary(BinaryOp::Add), &[y, bias]).unwrap()]
        });
        let g = checked(g, &[("n", 2)]);
        let node = single(&g);
        assert_eq!(
            (&node.op, node.inputs.len()),
            (&Op::GroupNorm(GroupNorm { groups: 2, epsilon: 1e-5 }), 3),
            "{g}"
        );
    }
}
