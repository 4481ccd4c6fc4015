//! PEFT's patterns: numbers of layers by expressions for the ends of their paths.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use kiln_weights::{PathPattern, WeightsError};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Numbers by pattern, in the order of the file: the first pattern that matches a path counts.
#[derive(Clone, Debug)]
pub(super) struct Patterns<T>(Vec<(String, T)>);

impl<T> Default for Patterns<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Copy> Patterns<T> {
    /// Patterns that match these paths and no others.
    pub(super) fn of<'a>(numbers: impl Iterator<Item = (&'a str, T)>) -> Self {
        Self(numbers.map(|(path, number)| (PathPattern::exact(path), number)).collect())
    }

    /// Finds numbers by path.
    ///
    /// # Errors
    /// When something is no pattern, or has what Python's patterns have beyond ours: it may match what PEFT matches it with.
    pub(super) fn matcher(&self) -> Result<Matcher<T>, WeightsError> {
        let compiled = self.0.iter().map(|(pattern, number)| Ok((PathPattern::new(pattern)?, *number)));
        Ok(Matcher(compiled.collect::<Result<_, WeightsError>>()?))
    }
}

/// Numbers by compiled pattern.
pub(super) struct Matcher<T>(Vec<(PathPattern, T)>);

impl<T: Copy> Matcher<T> {
    /// The number of a layer's path.
    pub(super) fn of(&self, path: &str) -> Option<T> {
        self.0.iter().find(|(pattern, _)| pattern.is_match(path)).map(|(_, number)| *number)
    }
}

impl<T: Serialize> Serialize for Patterns<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(pattern, number)| (pattern, number)))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Patterns<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for InOrder<T> {
            type Value = Patterns<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of numbers")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Patterns<T>, A::Error> {
                let (mut numbers, mut places) = (Vec::new(), BTreeMap::new());
                while let Some((pattern, number)) = access.next_entry::<String, T>()? {
                    let place = *places.entry(pattern.clone()).or_insert(numbers.len());
                    match numbers.get_mut(place) {
                        // As in a dict of Python, the last number of a key counts, at the place of the first.
                        Some((_, known)) => *known = number,
                        None => numbers.push((pattern, number)),
                    }
                }
                Ok(Patterns(numbers))
            }
        }
        deserializer.deserialize_map(InOrder(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::ToString;

    fn matcher(text: &str) -> Result<Matcher<f64>, String> {
        let patterns = serde_json::from_str::<Patterns<f64>>(text).expect("an object");
        patterns.matcher().map_err(|error| error.to_string())
    }

    /// Compared with what `re.match(rf"(.*\.)?({pattern})$", path)` finds first, as PEFT does.
    #[test]
    fn the_first_pattern_in_the_file_counts() {
        let numbers = matcher(r#"{"x.fc": 4, "fc": 8, "layers\\.[02]\\.up": 16, "^down|q": 32, "fc": 9}"#)
            .expect("patterns");
        let cases = [
            ("x.fc", Some(4.0)),
            ("a.x.fc", Some(4.0)),
            ("y.fc", Some(9.0)),
            ("fc", Some(9.0)),
            ("afc", None),
            ("fc.a", None),
            ("model.layers.2.up", Some(16.0)),
            ("layers.1.up", None),
            ("down", Some(32.0)),
            ("x.down", None),
            ("x.q", Some(32.0)),
        ];
        for (path, expected) in cases {
            assert_eq!(numbers.of(path), expected, "{path}");
        }
        let numbers = matcher(r#"{"fc": 8, "x.fc": 4}"#).expect("patterns");
        assert_eq!(numbers.of("x.fc"), Some(8.0));
    }

    #[test]
    fn what_is_no_pattern_of_ours_is_refused() {
        for (pattern, reason) in [("a(?=b)", "look-around"), ("(", "unclosed group")] {
            let error = matcher(&format!("{{{pattern:?}: 1}}")).err().expect("an error");
            assert!(
                error.contains(&format!("{pattern:?} cannot be used")) && error.contains(reason),
                "{error}"
            );
        }
    }

    /// Of two layers of which one path is the end of the other, each has its own number.
    #[test]
    fn written_patterns_match_one_path_each() {
        let written = Patterns::of([("fc", 1.0), ("x.fc", 2.0), ("layers.0.fc", 3.0)].into_iter());
        let text = serde_json::to_string(&written).expect("JSON");
        assert_eq!(text, r#"{"^fc":1.0,"^x\\.fc":2.0,"^layers\\.0\\.fc":3.0}"#);
        let read = matcher(&text).expect("patterns");
        let found = ["fc", "x.fc", "layers.0.fc", "y.fc", "layers.0.x.fc"].map(|path| read.of(path));
        assert_eq!(found, [Some(1.0), Some(2.0), Some(3.0), None, None]);
    }
}
