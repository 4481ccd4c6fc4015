// The rows of a dataset, with what serde has, written once for Burn's program and Kiln's test.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    title: String,
    score: f64,
    pixels: Vec<u8>,
    grid: [[f32; 2]; 2],
    #[serde(rename = "Counts")]
    counts: BTreeMap<String, i64>,
    part: Option<Part>,
    kind: Kind,
    good: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Part {
    id: usize,
    weight: Option<f32>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Kind {
    Plain,
    Of(u16),
    Named { x: i32 },
}

pub fn row(n: usize) -> Row {
    let kind = match n % 3 {
        0 => Kind::Plain,
        1 => Kind::Of(n as u16),
        _ => Kind::Named { x: -(n as i32) },
    };
    Row {
        title: format!("Zeile {n}, über"),
        score: n as f64 / 3.0,
        pixels: vec![n as u8, 255, 0],
        grid: [[0.5, -1.5], [1e-30, n as f32]],
        counts: (0..n).map(|key| (key.to_string(), -(1i64 << (8 * key)))).collect(),
        part: (n % 2 == 1).then(|| Part { id: n * 1_000_000, weight: (n == 1).then_some(0.1) }),
        kind,
        good: n == 2,
    }
}

/// The splits, and which rows they have.
pub const SPLITS: [(&str, std::ops::Range<usize>); 2] = [("train", 0..4), ("test", 4..6)];
