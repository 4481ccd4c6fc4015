//! The plain data beside the tensors, as JSON has it.

use super::flatten::Keys;
use super::pickle::{Arena, Node, Value};
use crate::{Result, WeightsError, limits};
use serde_json::{Map, Number, Value as Json};

/// A value as JSON, with null where a tensor is. Floats that JSON does not have are texts (`"inf"`, `"-inf"`, `"nan"`),
/// integers of more than 64 bits floats, bytes lists of numbers, and sets are sorted.
pub(crate) fn to_json(arena: &Arena, value: Value) -> Result<Json> {
    convert(arena, value, 0, &mut Left { values: limits::MAX_SPELLED_OUT, keys: Keys::default() })
}

/// How much may still be spelled out.
struct Left {
    values: usize,
    keys: Keys,
}

fn convert(arena: &Arena, value: Value, depth: usize, left: &mut Left) -> Result<Json> {
    if depth > limits::MAX_DEPTH {
        return Err(WeightsError::limit("the data are nested too deeply", limits::MAX_DEPTH));
    }
    spend(left, 1)?;
    let node = match value {
        Value::None => return Ok(Json::Null),
        Value::Bool(value) => return Ok(Json::Bool(value)),
        Value::Int(value) => return Ok(Json::Number(value.into())),
        Value::Float(value) => return Ok(float(value)),
        Value::Global(global) => return Ok(Json::String(global.to_string())),
        Value::Node(_) => arena.node(value),
    };
    let list = |items: &[Value], left: &mut Left| -> Result<Vec<Json>> {
        items.iter().map(|item| convert(arena, *item, depth + 1, left)).collect()
    };
    Ok(match node {
        Some(Node::Text(text)) => {
            spend(left, text.len() / size_of::<Json>())?;
            Json::String(text.to_string())
        }
        Some(Node::Bytes(bytes)) => {
            spend(left, bytes.len())?;
            bytes.iter().map(|byte| Json::Number((*byte).into())).collect()
        }
        Some(Node::BigInt(digits)) => match digits.parse::<u64>() {
            Ok(value) => Json::Number(value.into()),
            Err(_) => float(digits.parse().unwrap_or(f64::NAN)),
        },
        Some(Node::List(items)) => Json::Array(list(items, left)?),
        Some(Node::Tuple(items)) => Json::Array(list(items, left)?),
        Some(Node::Set(items)) => {
            // Each is spelled out once: it may be large, and is compared with many.
            let placed = |item: Json| (item.as_f64().unwrap_or(f64::INFINITY), item.to_string(), item);
            let mut items: Vec<_> = list(items, left)?.into_iter().map(placed).collect();
            items.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
            items.into_iter().map(|(.., item)| item).collect()
        }
        Some(Node::Dict(_) | Node::Object(_) | Node::Namespace(_)) => {
            let mut map = Map::new();
            for (key, value) in left.keys.entries(arena, value)? {
                spend(left, 1 + key.len() / size_of::<Json>())?;
                map.insert(key, convert(arena, value, depth + 1, left)?);
            }
            Json::Object(map)
        }
        Some(Node::Foreign(foreign)) => {
            spend(left, foreign.name.len() / size_of::<Json>())?;
            Json::String(foreign.name.to_string())
        }
        Some(
            Node::Storage(..) | Node::Tensor(_) | Node::ArrayType(_) | Node::Array(_) | Node::Refused(_),
        )
        | None => Json::Null,
    })
}

fn spend(left: &mut Left, values: usize) -> Result<()> {
    let fail = || WeightsError::limit("the data beside the tensors are too large", limits::MAX_SPELLED_OUT);
    left.values = left.values.checked_sub(values).ok_or_else(fail)?;
    Ok(())
}

fn float(value: f64) -> Json {
    Number::from_f64(value).map_or_else(|| Json::String(value.to_string().to_lowercase()), Json::Number)
}
