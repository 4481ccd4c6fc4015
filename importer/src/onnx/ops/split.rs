//! `Split`: sizes as an attribute before version 13, as an input since; `num_outputs` since 18.

use super::prelude::*;
use super::tile::whole_numbers;

pub(super) struct Split {
    axis: i64,
    sizes: Option<Vec<i64>>,
    count: usize,
}

impl Split {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let sizes = if node.opset < 13 { node.ints("split")? } else { None };
        let outputs = node.output_count();
        let count = if node.opset >= 18 { node.size("num_outputs", outputs)? } else { outputs };
        if count != outputs {
            return Err(invalid("num_outputs", format!("is {count} for {outputs} outputs")));
        }
        Ok(Self { axis: node.int("axis", 0)?, sizes, count })
    }
}

impl<'m> Operator<'m> for Split {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Split", 1, &["input", "split?"]).until(1).moves().reads(Self::read),
        Spec::onnx("Split", 2, &["input"]).until(12).moves().reads(Self::read),
        Spec::onnx("Split", 13, &["input", "split?"]).moves().reads(Self::read),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("input")?;
        let axis = axis_of(self.axis, to.rank(x))?;
        let total = to.dims(x)[axis].clone();
        let sizes = match (args.optional("split")?, &self.sizes) {
            (Some(split), _) if to.dtype(split).is_float() => {
                whole_numbers(to, split, "split")?.into_iter().map(Dim::constant).collect()
            }
            (Some(split), _) => to.host(split, "split")?,
            (None, Some(sizes)) => sizes.iter().map(|&size| Dim::constant(size)).collect(),
            (None, None) => equal_parts(&total, self.count),
        };
        if sizes.len() != self.count {
            return Err(invalid("split", format!("has {} entries for {} outputs", sizes.len(), self.count)));
        }
        let sum = sizes.iter().fold(Dim::constant(0), |sum, size| &sum + size);
        if (&sum - &total).as_constant().is_some_and(|rest| rest != 0) {
            let mut split = to.dims(x);
            split[axis] = sum;
            return Err(RuleError::Dims {
                what: "sum of `split`".into(),
                left: to.ty(x).clone(),
                right: to.ty(x).with_dims(split),
            });
        }
        let mut start = Dim::constant(0);
        let mut parts = Vec::with_capacity(sizes.len());
        for size in &sizes {
            let end = &start + size;
            parts.push(to.slice(x, axis, start, end.clone())?);
            start = end;
        }
        Ok(parts.into())
    }
}

/// Parts of one size, the last one what is left.
fn equal_parts(total: &Dim, count: usize) -> Vec<Dim> {
    let part = total.ceil_div(&Dim::from(count.max(1)));
    let before = &part * &Dim::from(count.saturating_sub(1));
    let mut sizes = vec![part; count.saturating_sub(1)];
    sizes.push(total - &before);
    sizes
}
