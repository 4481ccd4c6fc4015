//! `LabelEncoder` and `CategoryMapper`: numbers or strings looked up in a list of keys.

use super::super::proto::TensorProto;
use super::super::tensor::STRING;
use super::prelude::*;
use super::scores::first_of_run;
use crate::ir::op;
use crate::onnx::lowering::numbers;
use kiln_types::{ArgReduceOp, TensorData};

pub(super) struct LabelEncoder<'m> {
    keys: List<'m>,
    values: List<'m>,
    /// What stands for unknown keys, by the kind of the values.
    integer: i64,
    float: f64,
    string: String,
    tensor: Option<&'m TensorProto>,
    /// Whether the key NaN stands for NaN, as since version 4; before, nothing is equal to it.
    knows_nan: bool,
    /// Whether the keys are values of what holds no strings.
    both_ways: bool,
}

/// Keys or values of attributes.
enum List<'m> {
    Integers(Vec<i64>),
    Floats(Vec<f64>),
    Strings(Vec<String>),
    Tensor(&'m TensorProto),
}

impl<'m> List<'m> {
    /// One of the attributes `{what}_int64s`, `{what}_floats`, `{what}_strings` and `{what}_tensor`.
    fn read(node: &mut SourceNode<'m>, what: &str) -> RuleResult<Self> {
        let [integers, floats, texts, tensor] =
            ["int64s", "floats", "strings", "tensor"].map(|kind| format!("{what}_{kind}"));
        if let Some(texts) = node.strings(&texts)? {
            return Ok(Self::Strings(texts));
        }
        if let Some(numbers) = node.ints(&integers)? {
            return Ok(Self::Integers(numbers));
        }
        if let Some(numbers) = node.floats(&floats)? {
            return Ok(Self::Floats(numbers));
        }
        node.tensor(&tensor)?.map(Self::Tensor).ok_or_else(|| invalid(&integers, "is missing"))
    }

    fn are_strings(&self) -> bool {
        match self {
            Self::Strings(_) => true,
            Self::Tensor(proto) => proto.data_type == STRING,
            Self::Integers(_) | Self::Floats(_) => false,
        }
    }

    /// What tensors hold for it.
    fn data(&self, to: &mut Lowering<'_, 'm>, what: &str) -> RuleResult<TensorData> {
        let data = match self {
            Self::Strings(texts) => TensorData::new(to.places(texts), [texts.len()]),
            Self::Tensor(proto) if proto.data_type == STRING => {
                let texts = to.read_strings(proto).map_err(|error| invalid(what, error.to_string()))?.0;
                TensorData::new(to.places(&texts), [texts.len()])
            }
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
        let keys = List::read(node, "keys")?;
        let values = List::read(node, "values")?;
        Self::with(node, keys, values, false)
    }

    /// Strings and their numbers in the list, as the first version has it.
    fn read_classes(node: &mut SourceNode<'m>) -> RuleResult<Self> {
        let classes = node.strings("classes_strings")?;
        let classes = classes.ok_or_else(|| invalid("classes_strings", "is missing"))?;
        let places = (0..classes.len() as i64).collect();
        Self::with(node, List::Strings(classes), List::Integers(places), true)
    }

    fn read_categories(node: &mut SourceNode<'m>) -> RuleResult<Self> {
        let missing = |name: &str| invalid(name, "is missing");
        let texts = node.strings("cats_strings")?.ok_or_else(|| missing("cats_strings"))?;
        let numbers = node.ints("cats_int64s")?.ok_or_else(|| missing("cats_int64s"))?;
        Self::with(node, List::Strings(texts), List::Integers(numbers), true)
    }

    fn with(
        node: &mut SourceNode<'m>,
        keys: List<'m>,
        values: List<'m>,
        both_ways: bool,
    ) -> RuleResult<Self> {
        Ok(Self {
            keys,
            values,
            integer: node.int("default_int64", -1)?,
            float: node.float("default_float", -0.0)?,
            string: node.string("default_string", "_Unused")?,
            tensor: node.tensor("default_tensor")?,
            knows_nan: node.opset >= 4,
            both_ways,
        })
    }

    /// What unknown keys become, as tensors hold it.
    fn default(&self, to: &mut Lowering<'_, 'm>, values: &List<'m>, dtype: DType) -> RuleResult<Scalar> {
        if values.are_strings() {
            let text = match self.tensor {
                Some(proto) => {
                    let strings = to.read_strings(proto);
                    let (texts, _) = strings.map_err(|error| invalid("default_tensor", error.to_string()))?;
                    texts.into_iter().next().ok_or_else(|| invalid("default_tensor", "is empty"))?
                }
                None => self.string.clone(),
            };
            return Ok(to.places(&[text]).first().copied().unwrap_or(-1).into());
        }
        let Some(proto) = self.tensor else {
            return Ok(if dtype.is_float() { self.float.into() } else { self.integer.into() });
        };
        let data = to.read(proto).map_err(|error| invalid("default_tensor", error.to_string()))?;
        numbers(&data).first().copied().ok_or_else(|| invalid("default_tensor", "is empty"))
    }
}

impl<'m> Operator<'m> for LabelEncoder<'m> {
    const FORMS: Forms<'m, Self> = &[
        Spec::ml("LabelEncoder", 2, &["X"]).reads(Self::read),
        Spec::ml("LabelEncoder", 1, &["X"]).until(1).reads(Self::read_classes),
        Spec::ml("CategoryMapper", 1, &["X"]).reads(Self::read_categories),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, 'm>) -> RuleResult<Outputs> {
        let takes_strings = matches!(args.first(), Some(Operand::Strings(_)));
        let (keys, values) = match self.both_ways && !takes_strings {
            false => (&self.keys, &self.values),
            true => (&self.values, &self.keys),
        };
        let x = if keys.are_strings() { args.strings("X")? } else { args.value("X")? };
        let yields_strings = values.are_strings();
        let (keys, data) = (keys.data(to, "keys")?, values.data(to, "values")?);
        let default = self.default(to, values, data.dtype)?;
        let values = data;
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
        let take = Op::Take(op::Take { axis: 0, wrapped: false });
        if let Some((before, table)) = dense(&keys, &values, default) {
            // What is not within the keys' range is at either end, as what is between keys.
            let last = (table.num_elements() - 1) as f64;
            let place = to.formula(|f| (f.value(x) - f.value(x).number(before)).clamp(0.0, last))?;
            let table = to.listed("values", table)?;
            let y = to.add(take, &[table, place])?;
            return Ok(Outputs(vec![if yields_strings { Operand::Strings(y) } else { Operand::Tensor(y) }]));
        }
        let (place, found) = match first_of_run(&integers(&key_numbers)).filter(|_| !keys_dtype.is_float()) {
            // Keys that follow each other say their place.
            Some(first) => {
                let [place, found] = to.formulas(|f| {
                    let x = f.value(x);
                    let place = if first == 0 { x } else { x - x.number(first) };
                    let within = place.clamp(0.0, (key_numbers.len() - 1) as f64);
                    [within, within.equals(place)]
                })?;
                (place, found)
            }
            None => {
                let keys = to.listed("keys", keys)?;
                let rank = to.rank(x);
                let each = to.unsqueeze(x, &[rank])?;
                let hits = to.compare(CompareOp::Equal, each, keys)?;
                let hits = to.cast(hits, DType::I32)?;
                let op =
                    op::ArgReduce { op: ArgReduceOp::Max, axis: rank, keep_dims: false, select_last: false };
                let place = to.add(Op::ArgReduce(op), &[hits])?;
                // Where nothing was found the place is the first, whose key is another.
                let key = to.add(take.clone(), &[keys, place])?;
                (place, to.compare(CompareOp::Equal, x, key)?)
            }
        };
        let value = if first_of_run(&integers(&numbers(&values))) == Some(0) && !values.dtype.is_float() {
            to.cast(place, values.dtype)?
        } else {
            let values = to.listed("values", values)?;
            to.add(take, &[values, place])?
        };
        let default = to.number_like(value, default);
        let mut y = to.select(found, value, default)?;
        if let Some(value) = value_of_nan {
            let is_nan = to.unary(UnaryOp::IsNan, x)?;
            let value = to.number_like(y, value);
            y = to.select(is_nan, value, y)?;
        }
        Ok(Outputs(vec![if yields_strings { Operand::Strings(y) } else { Operand::Tensor(y) }]))
    }
}

fn integers(numbers: &[Scalar]) -> Vec<i64> {
    numbers.iter().map(|number| number.to_i64()).collect()
}

/// The values of all integers from the first key to the last, with the default around and between, and the integer before the first key;
/// `None` where most would be made up, or keys that follow each other need no such table.
fn dense(keys: &TensorData, values: &TensorData, default: Scalar) -> Option<(i64, TensorData)> {
    if !matches!(keys.dtype, DType::I32 | DType::I64) {
        return None;
    }
    let keys = integers(&numbers(keys));
    if first_of_run(&keys).is_some() {
        return None;
    }
    let (first, last) = (*keys.iter().min()?, *keys.iter().max()?);
    let span = usize::try_from(last.checked_sub(first)?).ok()?.checked_add(3)?;
    if span > keys.len().saturating_mul(4) {
        return None;
    }
    let mut table = vec![default; span];
    // Of equal keys the first counts.
    for (&key, value) in keys.iter().zip(numbers(values)).rev() {
        let place = usize::try_from(key.checked_sub(first)?).ok()?.checked_add(1)?;
        *table.get_mut(place)? = value;
    }
    let table = match values.dtype {
        DType::I64 => TensorData::new(integers(&table), [span]),
        DType::F32 => TensorData::new(table.iter().map(|value| value.to_f64() as f32).collect(), [span]),
        DType::F64 => TensorData::new(table.iter().map(|value| value.to_f64()).collect(), [span]),
        _ => return None,
    };
    Some((first.checked_sub(1)?, table))
}
