//! `Reshape`.

use super::prelude::*;

pub(super) struct Reshape {
    allow_zero: bool,
    /// The shape as an attribute, before version 5.
    shape: Option<Vec<i64>>,
}

impl Reshape {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { allow_zero: node.flag("allowzero", false)?, shape: None })
    }

    fn read_old(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let shape = node.ints("shape")?.ok_or_else(|| invalid("shape", "is missing"))?;
        Ok(Self { allow_zero: false, shape: Some(shape) })
    }
}

impl<'m> Operator<'m> for Reshape {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Reshape", 1, &["data"]).until(4).moves().reads(Self::read_old),
        Spec::onnx("Reshape", 5, &["data", "shape"]).moves().reads(Self::read),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("data")?;
        let mut dims = match &self.shape {
            Some(shape) => shape.iter().map(|&size| Dim::constant(size)).collect(),
            None => to.host(args.value("shape")?, "shape")?,
        };
        let old = to.dims(x);
        // Integers of the model's data may be -1 or 0 and mean what these mean; sizes may not.
        if dims.iter().any(|dim| dim.as_constant().is_none() && to.builder.graph.least(dim, 0).is_none()) {
            return Ok(self.at_run_time(to, x, &dims)?.into());
        }
        let mut inferred = None;
        for (axis, dim) in dims.iter_mut().enumerate() {
            match dim.as_constant() {
                Some(0) if !self.allow_zero => match old.get(axis) {
                    Some(same) => *dim = same.clone(),
                    None => return Err(RuleError::Axis { axis: axis as i64, rank: old.len() }),
                },
                Some(-1) if inferred.replace(axis).is_some() => {
                    return Err(invalid("shape", "holds -1 more than once"));
                }
                Some(size) if size < -1 => return Err(invalid("shape", format!("holds {size}"))),
                _ => {}
            }
        }
        if let Some(axis) = inferred {
            let rest = dims.iter().enumerate().filter(|(i, _)| *i != axis).map(|(_, dim)| dim);
            let rest = Dim::product(rest);
            let total = Dim::product(&old);
            if rest.is(0) {
                return Err(invalid("shape", "holds -1 beside 0"));
            }
            if total.as_constant().zip(rest.as_constant()).is_some_and(|(total, rest)| total % rest != 0) {
                return Err(misfit("shape", format!("needs {total} elements to divide by {rest}")));
            }
            dims[axis] = total.floor_div(&rest);
        }
        Ok(to.reshape(x, dims)?.into())
    }
}

impl Reshape {
    /// The runtime's `reshape` understands -1 and 0; the sizes of its result are read from it.
    fn at_run_time(&self, to: &mut Lowering<'_, '_>, x: ValueId, wanted: &[Dim]) -> RuleResult<ValueId> {
        let mut dims: Vec<Dim> = Vec::with_capacity(wanted.len());
        for (axis, dim) in wanted.iter().enumerate() {
            let known = dim.as_constant().filter(|&size| size > 0 || (size == 0 && self.allow_zero));
            dims.push(known.map_or_else(|| to.fresh(&format!("reshaped_{axis}")), Dim::constant));
        }
        let shape = Arg::Array(wanted.iter().cloned().map(Arg::Integer).collect());
        let ty = to.ty(x).with_dims(dims);
        let name = if self.allow_zero { "reshape_exact" } else { "reshape" };
        let result = to.call(Call::new(name, [Arg::Operand(0), shape]), &[x], ty)?;
        for axis in 0..wanted.len() {
            to.declare(result, axis);
        }
        Ok(result)
    }
}
