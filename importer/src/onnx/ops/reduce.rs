//! Reductions: axes as an attribute first, as an input since version 13 (`ReduceSum`) or 18 (the others).

use super::prelude::*;
use crate::ir::{Region, op};

const OLD: &[&str] = &["data"];
const NEW: &[&str] = &["data", "axes?"];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain(ReduceOp),
    L1,
    L2,
    LogSum,
    LogSumExp,
    SumSquare,
}

pub(super) struct Reduce {
    kind: Kind,
    axes: Option<Vec<i64>>,
    keep_dims: bool,
    /// Without axes: reduce none, rather than all.
    noop: bool,
}

impl Reduce {
    /// The form with axes as an attribute.
    fn read_old(node: &mut SourceNode<'_>, kind: Kind) -> RuleResult<Self> {
        Ok(Self { kind, axes: node.ints("axes")?, keep_dims: node.flag("keepdims", true)?, noop: false })
    }

    /// The form with axes as an input.
    fn read_new(node: &mut SourceNode<'_>, kind: Kind) -> RuleResult<Self> {
        let noop = node.flag("noop_with_empty_axes", false)?;
        Ok(Self { kind, axes: None, keep_dims: node.flag("keepdims", true)?, noop })
    }
}

/// Both forms of each reduction.
macro_rules! forms {
    ($($name:literal since $since:literal => $kind:expr,)*) => {
        &[$(
            Spec::onnx($name, 1, OLD).until($since - 1).reads(|node| Self::read_old(node, $kind)),
            Spec::onnx($name, $since, NEW).reads(|node| Self::read_new(node, $kind)),
        )*]
    };
}

impl<'m> Operator<'m> for Reduce {
    const FORMS: Forms<'m, Self> = forms! {
        "ReduceL1" since 18 => Kind::L1,
        "ReduceL2" since 18 => Kind::L2,
        "ReduceLogSum" since 18 => Kind::LogSum,
        "ReduceLogSumExp" since 18 => Kind::LogSumExp,
        "ReduceMax" since 18 => Kind::Plain(ReduceOp::Max),
        "ReduceMean" since 18 => Kind::Plain(ReduceOp::Mean),
        "ReduceMin" since 18 => Kind::Plain(ReduceOp::Min),
        "ReduceProd" since 18 => Kind::Plain(ReduceOp::Prod),
        "ReduceSum" since 13 => Kind::Plain(ReduceOp::Sum),
        "ReduceSumSquare" since 18 => Kind::SumSquare,
    };

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("data")?;
        let rank = to.rank(x);
        let given = match args.optional("axes")? {
            Some(axes) if matches!(to.dims(axes).as_slice(), [count] if count.is(0)) => None,
            Some(axes) if to.constant(axes).is_none() && self.keep_dims => {
                let axes = to.host(axes, "axes")?;
                return Ok(self.compute(to, x, &Axes::Read(conditions(&axes, rank)))?.into());
            }
            Some(axes) => Some(to.known_ints(axes, "axes")?),
            None => self.axes.clone(),
        };
        let axes = match given.filter(|axes| !axes.is_empty()) {
            Some(axes) => axes_of(&axes, rank)?,
            None if self.noop => Vec::new(),
            None => (0..rank).collect(),
        };
        Ok(self.compute(to, x, &Axes::Known(axes))?.into())
    }
}

/// Which axes are reduced.
enum Axes {
    Known(Vec<usize>),
    /// For each axis of the operand, whether it is among those that the run gives (0: not).
    Read(Vec<Dim>),
}

/// For each axis: how often it is named, from the start or from the end.
fn conditions(axes: &[Dim], rank: usize) -> Vec<Dim> {
    let named = |axis: usize| {
        let places = [axis as i64, axis as i64 - rank as i64].map(Dim::constant);
        let hits = axes
            .iter()
            .flat_map(|given| places.each_ref().map(|at| Dim::compare(CompareOp::Equal, given, at)));
        hits.fold(Dim::constant(0), |sum, hit| &sum + &hit)
    };
    (0..rank).map(named).collect()
}

fn reduce(
    to: &mut Lowering<'_, '_>,
    op: ReduceOp,
    x: ValueId,
    axes: &Axes,
    keep: bool,
) -> RuleResult<ValueId> {
    match axes {
        Axes::Known(axes) => to.reduce(op, x, axes, keep),
        Axes::Read(conditions) => {
            let mut result = x;
            for (axis, condition) in conditions.iter().enumerate() {
                let outer = to.builder.open_region();
                let reduced = to.reduce(op, result, &[axis], true);
                let then_region = to.builder.close_region(outer, reduced.iter().copied().collect());
                reduced?;
                let else_region = Region { outputs: vec![result], ..Region::default() };
                let choice = Op::If(op::If { condition: condition.clone(), then_region, else_region });
                result = to.add(choice, &[])?;
            }
            Ok(result)
        }
    }
}

impl Reduce {
    fn compute(&self, to: &mut Lowering<'_, '_>, x: ValueId, axes: &Axes) -> RuleResult<ValueId> {
        let dtype = to.dtype(x);
        // Roots and logarithms of integers are taken in floats: in f64, or on a device without it in f32, where a result next to an integer may
        // be taken for that.
        let float = if dtype.is_float() { dtype } else { DType::F64 };
        let x = if matches!(self.kind, Kind::L2 | Kind::LogSumExp) { to.cast(x, float)? } else { x };
        let reduce = |to: &mut Lowering<'_, '_>, op, x| reduce(to, op, x, axes, self.keep_dims);
        let result = match self.kind {
            Kind::Plain(ReduceOp::Max) if dtype.is_bool() => reduce(to, ReduceOp::Any, x)?,
            Kind::Plain(ReduceOp::Min) if dtype.is_bool() => reduce(to, ReduceOp::All, x)?,
            Kind::Plain(op) => reduce(to, op, x)?,
            Kind::L1 => {
                let magnitude = to.unary(UnaryOp::Abs, x)?;
                reduce(to, ReduceOp::Sum, magnitude)?
            }
            Kind::SumSquare | Kind::L2 => {
                to.in_single(x, |to, x| {
                    let square = to.binary(BinaryOp::Mul, x, x)?;
                    let sum = reduce(to, ReduceOp::Sum, square)?;
                    match (self.kind, axes) {
                        (Kind::L2, Axes::Known(_)) => to.unary(UnaryOp::Sqrt, sum),
                        // Passes see no sum of squares behind the choices, and would leave a root that is steep at zero.
                        (Kind::L2, Axes::Read(_)) => to.add(Op::RootOfSquares, &[sum]),
                        _ => Ok(sum),
                    }
                })?
            }
            Kind::LogSum => {
                let sum = reduce(to, ReduceOp::Sum, x)?;
                let sum = to.cast(sum, float)?;
                to.unary(UnaryOp::Log, sum)?
            }
            Kind::LogSumExp => self.log_sum_exp(to, x, axes)?,
        };
        to.cast(result, dtype)
    }

    /// The maximum is taken out first, so that no exponential overflows.
    fn log_sum_exp(&self, to: &mut Lowering<'_, '_>, x: ValueId, axes: &Axes) -> RuleResult<ValueId> {
        if matches!(axes, Axes::Known(axes) if axes.is_empty()) {
            return Ok(x);
        }
        let maximum = reduce(to, ReduceOp::Max, x, axes, true)?;
        let result = to.formula(|f| {
            let [x, maximum] = f.values([x, maximum]);
            // An infinite maximum would make NaN of `∞ - ∞`.
            let shift = maximum.unary(UnaryOp::IsInf).where_(x.number(0.0), maximum);
            let exponential = (x - shift).unary(UnaryOp::Exp);
            exponential.then(|to, x| reduce(to, ReduceOp::Sum, x, axes, true)).unary(UnaryOp::Log) + shift
        })?;
        match axes {
            Axes::Known(axes) if !self.keep_dims => to.squeeze(result, axes),
            _ => Ok(result),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::proto::*;
    use crate::onnx::{LoadOptions, load_bytes};
    use prost::Message;

    #[test]
    fn norms_over_axes_of_the_run_are_flat_at_zero() {
        let port = |name: &str, elem_type: i32, dims: &[i64]| {
            let dim = dims.iter().map(|&size| DimensionProto { value: Some(DimensionValue::Value(size)) });
            let tensor = TensorTypeProto { elem_type, shape: Some(TensorShapeProto { dim: dim.collect() }) };
            let r#type = Some(TypeProto { value: Some(TypeValue::Tensor(tensor)), ..TypeProto::default() });
            ValueInfoProto { name: name.into(), r#type, ..ValueInfoProto::default() }
        };
        let node = NodeProto {
            op_type: "ReduceL2".into(),
            input: vec!["x".into(), "axes".into()],
            output: vec!["y".into()],
            ..NodeProto::default()
        };
        let graph = GraphProto {
            node: vec![node],
            input: vec![port("x", 1, &[2, 3]), port("axes", 7, &[1])],
            output: vec![ValueInfoProto { name: "y".into(), ..ValueInfoProto::default() }],
            ..GraphProto::default()
        };
        let opset = OperatorSetIdProto { domain: String::new(), version: 18 };
        let model = ModelProto {
            ir_version: 8,
            graph: Some(graph),
            opset_import: vec![opset],
            ..ModelProto::default()
        };
        let graph = load_bytes(model.encode_to_vec(), &LoadOptions::default()).unwrap();
        assert!(graph.nodes.iter().any(|node| node.op == Op::RootOfSquares), "{graph}");
    }
}
