//! Shortcuts for appending core operations.

use super::Lowering;
use crate::data::scalar_bytes;
use crate::ir::{
    AxisRange, Call, Constant, Dim, Effect, Op, Provenance, RuleError, RuleResult, RuntimeCall, TensorType,
    ValueId, op,
};
use crate::onnx::tensor::Narrow;
use kiln_types::{Activation, Bytes, DType, Minifloat, ReduceOp, Scalar, TensorData, UnaryOp};
use std::sync::Arc;

/// An axis that counts from the end when negative.
pub(crate) fn axis_of(axis: i64, rank: usize) -> RuleResult<usize> {
    let from_end = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
    let found = from_end.and_then(|axis| usize::try_from(axis).ok()).filter(|&axis| axis < rank);
    found.ok_or(RuleError::Axis { axis, rank })
}

/// Axes, sorted; twice the same is an error.
pub(crate) fn axes_of(axes: &[i64], rank: usize) -> RuleResult<Vec<usize>> {
    let mut found = axes.iter().map(|&axis| axis_of(axis, rank)).collect::<RuleResult<Vec<_>>>()?;
    found.sort_unstable();
    if found.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(RuleError::Attribute {
            attribute: "axes".into(),
            reason: format!("{axes:?} repeat one"),
        });
    }
    Ok(found)
}

impl Lowering<'_, '_> {
    pub(crate) fn ty(&self, value: ValueId) -> &TensorType {
        self.builder.graph.ty(value)
    }

    pub(crate) fn dims(&self, value: ValueId) -> Vec<Dim> {
        self.ty(value).dims.clone()
    }

    pub(crate) fn dtype(&self, value: ValueId) -> DType {
        self.ty(value).dtype
    }

    pub(crate) fn rank(&self, value: ValueId) -> usize {
        self.ty(value).rank()
    }

    /// An error unless the operand's rank is at least `least`.
    pub(crate) fn need_rank(&self, input: &str, value: ValueId, least: usize) -> RuleResult<usize> {
        let actual = self.rank(value);
        if actual >= least {
            return Ok(actual);
        }
        Err(RuleError::Rank {
            input: input.to_owned(),
            actual,
            expected: format!("expected at least {least}"),
        })
    }

    /// An error unless the operand has this rank.
    pub(crate) fn expect_rank(&self, input: &str, value: ValueId, rank: usize) -> RuleResult<()> {
        match self.rank(value) {
            actual if actual == rank => Ok(()),
            actual => {
                Err(RuleError::Rank { input: input.to_owned(), actual, expected: format!("expected {rank}") })
            }
        }
    }

    /// An error unless the operand can have these dims; nothing stands for any size.
    pub(crate) fn expect_dims(
        &self,
        input: &str,
        value: ValueId,
        expected: &[Option<Dim>],
    ) -> RuleResult<()> {
        let ty = self.ty(value);
        let fits = |(dim, expected): (&Dim, &Option<Dim>)| {
            expected.as_ref().is_none_or(|expected| op::may_equal(dim, expected))
        };
        if ty.rank() == expected.len() && ty.dims.iter().zip(expected).all(fits) {
            return Ok(());
        }
        let expected: Vec<String> =
            expected.iter().map(|dim| dim.as_ref().map_or("_".to_owned(), Dim::to_string)).collect();
        Err(RuleError::Misfit {
            attribute: input.to_owned(),
            reason: format!("is {ty}, must have the dims [{}]", expected.join(", ")),
        })
    }

    pub(crate) fn add(&mut self, op: Op, inputs: &[ValueId]) -> RuleResult<ValueId> {
        self.builder.add(op, inputs)
    }

    /// A node with all of its outputs.
    pub(crate) fn add_all(&mut self, op: Op, inputs: &[ValueId]) -> RuleResult<Vec<ValueId>> {
        self.builder.add_all(op, inputs.iter().copied().map(Some).collect())
    }

    /// A node of one output, some of whose operands may be absent.
    pub(crate) fn add_optional(&mut self, op: Op, inputs: &[Option<ValueId>]) -> RuleResult<ValueId> {
        self.builder.add_one(op, inputs.to_vec())
    }

    pub(crate) fn unary(&mut self, op: UnaryOp, x: ValueId) -> RuleResult<ValueId> {
        self.add(Op::Unary(op), &[x])
    }

    pub(crate) fn activation(&mut self, activation: Activation, x: ValueId) -> RuleResult<ValueId> {
        self.add(Op::Activation(activation), &[x])
    }

    /// Computes what squares of halves are part of, which may be larger than any half: in single precision.
    pub(crate) fn in_single(
        &mut self,
        x: ValueId,
        compute: impl FnOnce(&mut Self, ValueId) -> RuleResult<ValueId>,
    ) -> RuleResult<ValueId> {
        let dtype = self.dtype(x);
        if !matches!(dtype, DType::F16 | DType::BF16) {
            return compute(self, x);
        }
        let wide = self.cast(x, DType::F32)?;
        let y = compute(self, wide)?;
        self.cast(y, dtype)
    }

    pub(crate) fn cast(&mut self, x: ValueId, to: DType) -> RuleResult<ValueId> {
        if self.dtype(x) == to { Ok(x) } else { self.add(Op::Cast(op::Cast { to }), &[x]) }
    }

    pub(crate) fn round_to(&mut self, x: ValueId, format: Minifloat, saturate: bool) -> RuleResult<ValueId> {
        let rounded = self.add(Op::RoundTo(op::RoundTo { format, saturate }), &[x])?;
        self.narrow.insert(rounded, Narrow::Floats(format));
        Ok(rounded)
    }

    pub(crate) fn reshape(&mut self, x: ValueId, dims: Vec<Dim>) -> RuleResult<ValueId> {
        if self.ty(x).dims == dims { Ok(x) } else { self.add(Op::Reshape(op::Reshape { dims }), &[x]) }
    }

    pub(crate) fn permute(&mut self, x: ValueId, axes: Vec<usize>) -> RuleResult<ValueId> {
        let identity = axes.iter().copied().eq(0..axes.len());
        if identity && axes.len() == self.rank(x) {
            Ok(x)
        } else {
            self.add(Op::Permute(op::Permute { axes }), &[x])
        }
    }

    /// The channels, which are the last axis, behind that of the batch, where ONNX has them.
    pub(crate) fn channels_first(&mut self, x: ValueId) -> RuleResult<ValueId> {
        let channels = self.need_rank("X", x, 3)? - 1;
        self.permute(x, [0, channels].into_iter().chain(1..channels).collect())
    }

    /// The channels, which are behind the axis of the batch, as the last axis.
    pub(crate) fn channels_last(&mut self, x: ValueId) -> RuleResult<ValueId> {
        let rank = self.need_rank("X", x, 3)?;
        self.permute(x, [0].into_iter().chain(2..rank).chain([1]).collect())
    }

    pub(crate) fn expand(&mut self, x: ValueId, dims: Vec<Dim>) -> RuleResult<ValueId> {
        if self.ty(x).dims == dims { Ok(x) } else { self.add(Op::Expand(op::Expand { dims }), &[x]) }
    }

    /// The integers from `start` up to `end` along one of so many axes; the others are of size 1.
    pub(crate) fn range_along(
        &mut self,
        [start, end]: [Dim; 2],
        axis: usize,
        rank: usize,
    ) -> RuleResult<ValueId> {
        let mut dims = vec![Dim::constant(1); rank];
        *dims.get_mut(axis).ok_or(RuleError::Axis { axis: axis as i64, rank })? = &end - &start;
        let line = self.add(Op::Arange(op::Arange { start, end, step: 1 }), &[])?;
        self.reshape(line, dims)
    }

    /// Adds axes of size 1 where `axes` (sorted positions in the result) say.
    pub(crate) fn unsqueeze(&mut self, x: ValueId, axes: &[usize]) -> RuleResult<ValueId> {
        let mut dims = self.dims(x);
        for &axis in axes {
            if axis > dims.len() {
                return Err(RuleError::Axis { axis: axis as i64, rank: dims.len() + 1 });
            }
            dims.insert(axis, Dim::constant(1));
        }
        self.reshape(x, dims)
    }

    /// Drops axes of size 1.
    pub(crate) fn squeeze(&mut self, x: ValueId, axes: &[usize]) -> RuleResult<ValueId> {
        let dims = self.dims(x);
        let kept =
            dims.iter().enumerate().filter(|(axis, _)| !axes.contains(axis)).map(|(_, dim)| dim.clone());
        self.reshape(x, kept.collect())
    }

    /// The ranges that keep everything.
    pub(crate) fn full_ranges(&self, x: ValueId) -> Vec<AxisRange> {
        let dims = self.dims(x).into_iter();
        dims.map(|end| AxisRange { start: Dim::constant(0), end, step: 1 }).collect()
    }

    /// A part of one axis, inside its bounds.
    pub(crate) fn slice(&mut self, x: ValueId, axis: usize, start: Dim, end: Dim) -> RuleResult<ValueId> {
        let mut ranges = self.full_ranges(x);
        let rank = ranges.len();
        let range = ranges.get_mut(axis).ok_or(RuleError::Axis { axis: axis as i64, rank })?;
        if start.is(0) && range.end == end {
            return Ok(x);
        }
        *range = AxisRange { start, end, step: 1 };
        self.add(Op::Slice(op::Slice { ranges }), &[x])
    }

    pub(crate) fn concat(&mut self, values: &[ValueId], axis: usize) -> RuleResult<ValueId> {
        match values {
            [] => Err(RuleError::MissingInput { input: "inputs".to_owned() }),
            [one] => Ok(*one),
            _ => self.add(Op::Concat(op::Concat { axis }), values),
        }
    }

    pub(crate) fn reduce(
        &mut self,
        op: ReduceOp,
        x: ValueId,
        axes: &[usize],
        keep: bool,
    ) -> RuleResult<ValueId> {
        if axes.is_empty() {
            return Ok(x);
        }
        self.add(Op::Reduce(op::Reduce { op, axes: axes.to_vec(), keep_dims: keep }), &[x])
    }

    /// A number as a constant of rank 0, which broadcasts to any rank.
    pub(crate) fn scalar(&mut self, value: impl Into<Scalar>, dtype: DType) -> ValueId {
        let bytes = Bytes::from_vec(scalar_bytes(value.into(), dtype));
        self.builder.graph.add_constant(None, TensorData { bytes, shape: Vec::new(), dtype })
    }

    /// A number that tensors of any dtype take: `f(x, number)`.
    pub(crate) fn number_like(&mut self, x: ValueId, value: impl Into<Scalar>) -> ValueId {
        let dtype = self.dtype(x);
        self.scalar(value, dtype)
    }

    /// Learned floats of an attribute, in f32: a parameter under the name of the node.
    pub(crate) fn parameter(&mut self, name: &str, numbers: &[f64], shape: &[usize]) -> RuleResult<ValueId> {
        let numbers: Vec<f32> = numbers.iter().map(|&number| number as f32).collect();
        self.parameter_of(name, TensorData::new(numbers, shape))
    }

    /// What was learned and stands in attributes, as a parameter under the name of the node.
    pub(crate) fn parameter_of(&mut self, name: &str, data: TensorData) -> RuleResult<ValueId> {
        let name = self.beside_node(name);
        // No checkpoint has it under this name.
        let provenance = Provenance::Exporter { name: name.clone(), keys: Vec::new() };
        self.reserve(data.bytes.len())?;
        Ok(self.builder.graph.add_derived(Some(name), data, Some(Arc::new(provenance))))
    }

    /// What stands in attributes and no training changes, under the name of the node.
    pub(crate) fn fixed(&mut self, name: &str, data: TensorData) -> RuleResult<ValueId> {
        let name = self.beside_node(name);
        self.reserve(data.bytes.len())?;
        Ok(self.builder.graph.add_constant(Some(name), data))
    }

    /// Likewise, of a list that has a name only when it is long.
    pub(crate) fn listed(&mut self, name: &str, data: TensorData) -> RuleResult<ValueId> {
        if !Constant::are_few(&data) {
            return self.fixed(name, data);
        }
        Ok(self.builder.graph.add_constant(None, data))
    }

    fn beside_node(&self, name: &str) -> String {
        let node = &self.builder.origin.name;
        if node.is_empty() { name.to_owned() } else { format!("{node}.{name}") }
    }

    pub(crate) fn fill(
        &mut self,
        dims: Vec<Dim>,
        value: impl Into<Scalar>,
        dtype: DType,
    ) -> RuleResult<ValueId> {
        self.add(Op::Fill(op::Fill { dims, value: value.into(), dtype }), &[])
    }

    /// A call of a runtime function with one output.
    pub(crate) fn call(&mut self, call: Call, inputs: &[ValueId], output: TensorType) -> RuleResult<ValueId> {
        let effect = Effect::Pure;
        self.add(Op::Call(RuntimeCall { call, outputs: vec![output], effect }), inputs)
    }

    /// A call of a runtime function that waits for the device.
    pub(crate) fn call_reading(
        &mut self,
        call: Call,
        inputs: &[ValueId],
        output: TensorType,
    ) -> RuleResult<ValueId> {
        let effect = Effect::ReadsDevice;
        self.add(Op::Call(RuntimeCall { call, outputs: vec![output], effect }), inputs)
    }

    /// A call of a runtime function that yields a tuple.
    pub(crate) fn call_all(
        &mut self,
        call: Call,
        inputs: &[ValueId],
        outputs: Vec<TensorType>,
    ) -> RuleResult<Vec<ValueId>> {
        let inputs = inputs.iter().copied().map(Some).collect();
        self.builder.add_all(Op::Call(RuntimeCall { call, outputs, effect: Effect::Pure }), inputs)
    }

    /// A size that only the run tells; the value's axis becomes its origin.
    pub(crate) fn fresh(&self, hint: &str) -> Dim {
        Dim::symbol(self.builder.graph.fresh_symbol(hint))
    }

    /// Declares that a symbol is the size of an axis.
    pub(crate) fn declare(&mut self, value: ValueId, axis: usize) {
        if let Some(symbol) = self.ty(value).dims.get(axis).and_then(Dim::as_symbol).cloned() {
            let origin = crate::ir::SymbolOrigin::Dim { value, axis };
            self.builder.graph.symbols.entry(symbol).or_insert(origin);
        }
    }
}
