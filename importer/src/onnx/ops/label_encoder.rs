//! `LabelEncoder`: numbers looked up in a list of keys.

use super::super::proto::TensorProto;
use super::prelude::*;
use super::scores::texts;
use crate::ir::op;
use crate::onnx::lowering::numbers;
use kiln_types::{ArgReduceOp, TensorData};

pub(super) struct LabelEncoder<'m> {
    keys: List<'m>,
    values: List<'m>,
    /// What stands for unknown keys, by the kind of the values.
    integer: i64,
    float: f64,
    tensor: Option<&'m TensorProto>,
    /// Whether the key NaN stands for NaN, as since version 4; before, nothing is equal to it.
    knows_nan: bool,
}

/// Numbers of attributes.
enum List<'m> {
    Integers(Vec<i64>),
    Floats(Vec<f64>),
    Tensor(&'m TensorProto),
}

impl<'m> List<'m> {
    /// One of the attributes `{what}_int64s`, `{what}_floats` and `{what}_tensor`.
    fn read(node: &mut SourceNode<'m>, what: &str) -> RuleResult<Self> {
        let [integers, floats, strings, tensor] =
            ["int64s", "floats", "strings", "tensor"].map(|kind| format!("{what}_{kind}"));
        if node.has(&strings) {
            return Err(texts(&format!("the strings of `{strings}`"), "encode labels outside the model"));
        }
        if let Some(numbers) = node.ints(&integers)? {
            return Ok(Self::Integers(numbers));
        }
        if let Some(numbers) = node.floats(&floats)? {
            return Ok(Self::Floats(numbers));
        }
        node.tensor(&tensor)?.map(Self::Tensor).ok_or_else(|| invalid(&integers, "is missing"))
    }

    fn data(&self, to: &Lowering<'_, 'm>, what: &str) -> RuleResult<TensorData> {
        let data = match self {
            Self::Integers(numbers) => TensorData::new(numbers.clone(), [numbers.len()]),
            Self::Floats(numbers) => {
                let numbers: Vec<f32> = numbers.iter().map(|&number| number as f32).collect();
                let count = numbers.len();
                TensorData::new(numbers, [count])
            }
            Self::Tensor(proto) => {
                let data = to.read(proto).map_err(|error| invalid(what, error.to_string()))?;
                TensorData { shape: vec![data.num_elements()], ..data }
            }
        };
        if data.num_elements() == 0 { Err(invalid(what, "is empty")) } else { Ok(data) }
    }
}

impl<'m> LabelEncoder<'m> {
    fn read(node: &mut SourceNode<'m>) -> RuleResult<Self> {
        node.ignore(&["default_string"]);
        Ok(Self {
            keys: List::read(node, "keys")?,
            values: List::read(node, "values")?,
            integer: node.int("default_int64", -1)?,
            float: node.float("default_float", -0.0)?,
            tensor: node.tensor("default_tensor")?,
            knows_nan: node.opset >= 4,
        })
    }

    fn default(&self, to: &Lowering<'_, 'm>, dtype: DType) -> RuleResult<Scalar> {
        let Some(proto) = self.tensor else {
            return Ok(if dtype.is_float() { self.float.into() } else { self.integer.into() });
        };
        let data = to.read(proto).map_err(|error| invalid("default_tensor", error.to_string()))?;
        numbers(&data).first().copied().ok_or_else(|| invalid("default_tensor", "is empty"))
    }
}

impl<'m> Operator<'m> for LabelEncoder<'m> {
    const FORMS: Forms<'m, Self> = &[Spec::ml("LabelEncoder", 2, &["X"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, 'm>) -> RuleResult<Outputs> {
        let x = args.value("X")?;
        let (keys, values) = (self.keys.data(to, "keys")?, self.values.data(to, "values")?);
        let default = self.default(to, values.dtype)?;
        if keys.num_elements() != values.num_elements() {
            let reason = format!("are {} for {} keys", values.num_elements(), keys.num_elements());
            return Err(invalid("values", reason));
        }
        if keys.dtype != to.dtype(x) {
            let (actual, expected) = (to.dtype(x), format!("expected {} as the keys", keys.dtype));
            return Err(RuleError::DType { input: "X".to_owned(), actual, expected });
        }
        let (keys_dtype, key_numbers) = (keys.dtype, numbers(&keys));
        let value_of_nan = key_numbers
            .iter()
            .position(|key| self.knows_nan && keys_dtype.is_float() && key.to_f64().is_nan())
            .and_then(|at| numbers(&values).get(at).copied());
        let keys = to.fixed("keys", keys)?;
        let values = to.fixed("values", values)?;

        let rank = to.rank(x);
        let each = to.unsqueeze(x, &[rank])?;
        let hits = to.compare(CompareOp::Equal, each, keys)?;
        let hits = to.cast(hits, DType::I32)?;
        let op = op::ArgReduce { op: ArgReduceOp::Max, axis: rank, keep_dims: false, select_last: false };
        let place = to.add(Op::ArgReduce(op), &[hits])?;
        // Where nothing was found the place is the first, whose key is another.
        let take = Op::Take(op::Take { axis: 0, wrapped: false });
        let (key, value) = (to.add(take.clone(), &[keys, place])?, to.add(take, &[values, place])?);
        let found = to.compare(CompareOp::Equal, x, key)?;
        let default = to.number_like(value, default);
        let mut y = to.select(found, value, default)?;
        if let Some(value) = value_of_nan {
            let is_nan = to.unary(UnaryOp::IsNan, x)?;
            let value = to.number_like(y, value);
            y = to.select(is_nan, value, y)?;
        }
        Ok(y.into())
    }
}
