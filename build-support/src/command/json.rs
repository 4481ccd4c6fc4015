//! The objects that `--json` prints, one line each.

use serde_json::{Map, Value, json};

/// A number, or null for what JSON cannot say (NaN, infinity).
pub(crate) fn number(value: f64) -> Value {
    serde_json::Number::from_f64(value).map_or(Value::Null, Value::Number)
}

/// A case that could not be run.
pub(crate) fn failure(case: &str, error: &str) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("case".into(), json!(case));
    object.insert("ok".into(), json!(false));
    object.insert("error".into(), json!(error));
    object
}
