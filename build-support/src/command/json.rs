//! The objects that `--json` prints, one line each.

use kiln_types::is_invisible;
use serde_json::{Map, Value, json};

/// An object as a line. Characters that a person would not see are escaped, which JSON allows for any.
pub(crate) fn line(object: &Value) -> String {
    let text = object.to_string();
    let mut line = String::with_capacity(text.len() + 1);
    for c in text.chars() {
        if is_invisible(c) {
            // Outside strings there are none.
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| line.push_str(&format!("\\u{unit:04x}")));
        } else {
            line.push(c);
        }
    }
    line.push('\n');
    line
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_the_same_and_show_all() {
        let object = json!({ "a\u{1b}[2J\u{9b}\u{202e}": "\u{e0041}\n\u{7f}\"\\ü" });
        let text = line(&object);
        assert!(!text.trim_end().contains(is_invisible), "{text:?}");
        assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), object);
    }
}
