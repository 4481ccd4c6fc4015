//! What `#[derive(Config)]` gives.
#![cfg(feature = "std")]
#![allow(missing_docs)]

use kiln::config::{Config, ConfigError, config_to_json};

#[derive(Config, Debug, PartialEq)]
pub struct Empty {}

#[derive(Config)]
pub struct WithoutDebug {
    size: usize,
    #[config(default = "relu")]
    activation: String,
    #[config(default = "two words")]
    words: String,
    #[config(default = "[\"a\", \"b\"].concat()")]
    computed: String,
}

#[derive(Config, Debug, PartialEq)]
pub struct Sample {
    #[config(default = 2)]
    count: i32,
    /// The rate.
    #[config(default = -0.5)]
    rate: f64,
    name: String,
    limit: Option<usize>,
    #[config(default = "Kind::Named { first: 1.5, second: String::from(\"x\") }")]
    kind: Kind,
    #[config(default = "Some(3)")]
    some: Option<usize>,
    nested: Empty,
    r#type: [usize; 2],
}

#[derive(Config, Debug, PartialEq)]
pub enum Kind {
    Nothing,
    One(f32),
    Two(f32, String),
    Named { first: f32, second: String },
}

fn sample() -> Sample {
    Sample::new("a".to_string(), Empty::new(), [1, 2])
}

#[test]
fn new_takes_what_has_no_default() {
    let config = sample();
    assert_eq!((config.count, config.rate, config.limit, config.some), (2, -0.5, None, Some(3)));
    let config = config.with_count(5).with_limit(Some(8)).with_some(None).with_kind(Kind::Nothing);
    assert_eq!((config.count, config.limit, config.some, &config.kind), (5, Some(8), None, &Kind::Nothing));
    let config = WithoutDebug::new(4).clone();
    assert_eq!(config.size, 4);
    assert_eq!([&config.activation, &config.words, &config.computed], ["relu", "two words", "ab"]);
}

#[test]
fn the_fields_of_a_file_are_in_burns_order() {
    let expected = r#"{
  "name": "a",
  "nested": {},
  "type": [
    1,
    2
  ],
  "limit": null,
  "count": 2,
  "rate": -0.5,
  "kind": {
    "Named": {
      "first": 1.5,
      "second": "x"
    }
  },
  "some": 3
}"#;
    assert_eq!(sample().to_string(), expected);
    assert_eq!(config_to_json(&sample()), expected);
}

#[test]
fn a_config_is_saved_and_loaded() {
    let path = std::env::temp_dir().join(format!("kiln-config-{}.json", std::process::id()));
    for kind in [Kind::Nothing, Kind::One(1.0), Kind::Two(2.0, "b".to_string())] {
        let config = sample().with_kind(kind);
        config.save(&path).unwrap();
        assert_eq!(Sample::load(&path).unwrap(), config);
        assert_eq!(Sample::load_binary(config.to_string().as_bytes()).unwrap(), config);
    }
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(Sample::load(&path), Err(ConfigError::FileNotFound(_))));
    // What is there and cannot be read is not said to be missing, and named.
    std::fs::write(&path, b"{\xff}").unwrap();
    for (path, expected) in [(path.clone(), "UTF-8"), (std::env::temp_dir(), "")] {
        let Err(ConfigError::InvalidFormat(error)) = Sample::load(&path) else { panic!("it was read") };
        assert!(error.starts_with(&format!("{}: ", path.display())) && error.contains(expected), "{error}");
    }
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(Sample::load_binary(b"{}"), Err(ConfigError::InvalidFormat(_))));
}
