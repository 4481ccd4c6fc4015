//! `kiln bench --profile`: what the runtime recorded, as rows, sums, a table and a picture.

mod svg;
mod table;
mod tree;

pub(super) use svg::print as picture;
pub(super) use table::print as table;

use super::json;
use kiln_types::{Peaks, Profile, ProfiledPass};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A profile in figures: times are medians over the passes.
#[derive(Clone, Debug)]
pub(super) struct Report {
    threads: usize,
    peaks: Peaks,
    /// The number of recorded passes.
    passes: usize,
    /// A pass of which nothing was recorded.
    plain_ms: f64,
    /// A recorded pass.
    recorded_ms: f64,
    /// The operations, those first that take the most time.
    rows: Vec<Row>,
    /// The pass whose time is the median.
    pass: ProfiledPass,
    /// The row of each operation of the profile.
    row_of: Vec<Option<usize>>,
}

/// An operation at one place of the model.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// The path of its module.
    path: String,
    /// What it is.
    name: String,
    /// The dims of its result.
    shape: Vec<usize>,
    /// How often it runs in a pass.
    calls: usize,
    /// What all its calls of a pass take.
    cost: Cost,
}

impl Row {
    /// The path, or what stands for the model itself.
    fn module(&self) -> &str {
        if self.path.is_empty() { "(model)" } else { &self.path }
    }
}

/// Time and work of some calls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Cost {
    ms: f64,
    /// Of calls whose FLOPs are counted.
    flops: Option<u64>,
    bytes: Option<u64>,
    /// The least time that the machine needs for it.
    bound_ms: Option<f64>,
}

impl Cost {
    fn gflops(self) -> Option<f64> {
        self.rate(self.flops)
    }

    fn gbs(self) -> Option<f64> {
        self.rate(self.bytes)
    }

    /// 10^9 a second; nothing of no work.
    fn rate(self, work: Option<u64>) -> Option<f64> {
        work.filter(|&work| work > 0 && self.ms > 0.0).map(|work| work as f64 / self.ms / 1e6)
    }

    /// What part of the time the machine needs at least; nothing where that is nothing.
    fn of_bound(self) -> Option<f64> {
        self.bound_ms.filter(|&bound| bound > 0.0 && self.ms > 0.0).map(|bound| bound / self.ms)
    }

    /// Both together. What is not counted in one is not counted in the sum.
    fn and(self, other: Self) -> Self {
        let sum = |a: Option<u64>, b: Option<u64>| a?.checked_add(b?);
        Self {
            ms: self.ms + other.ms,
            flops: sum(self.flops, other.flops),
            bytes: sum(self.bytes, other.bytes),
            bound_ms: self.bound_ms.zip(other.bound_ms).map(|(a, b)| a + b),
        }
    }

    /// No calls.
    const NONE: Self = Self { ms: 0.0, flops: Some(0), bytes: Some(0), bound_ms: Some(0.0) };
}

/// The value in the middle; of an even number, the greater of both.
fn median<T: Copy>(values: &mut [T], order: impl Fn(&T, &T) -> std::cmp::Ordering) -> Option<T> {
    values.sort_by(order);
    values.get(values.len() / 2).copied()
}

fn median_of(mut values: Vec<f64>) -> f64 {
    median(&mut values, f64::total_cmp).unwrap_or(f64::NAN)
}

impl Report {
    /// The line that a runner printed, as a report.
    pub(super) fn parse(output: &str) -> Result<Self, String> {
        let line = output.lines().find_map(|line| line.strip_prefix("profile "));
        let profile: Profile = serde_json::from_str(line.ok_or("the runner printed no profile")?)
            .map_err(|error| format!("the runner's profile: {error}"))?;
        Self::new(profile).ok_or_else(|| "the runner recorded nothing".to_owned())
    }

    /// Nothing of a profile without passes.
    pub(super) fn new(profile: Profile) -> Option<Self> {
        let Profile { threads, peaks, plain_ms, operations, passes } = profile;
        // Of each operation the time and the number of calls in each pass.
        let mut times = vec![vec![0u64; passes.len()]; operations.len()];
        let mut calls = vec![vec![0usize; passes.len()]; operations.len()];
        for (n, pass) in passes.iter().enumerate() {
            for call in &pass.calls {
                let (time, count) = (times.get_mut(call.operation)?, calls.get_mut(call.operation)?);
                time[n] += call.end.saturating_sub(call.start);
                count[n] += 1;
            }
        }
        let mut rows: Vec<(usize, Row)> = Vec::new();
        for (n, (operation, (times, mut calls))) in
            operations.into_iter().zip(times.into_iter().zip(calls)).enumerate()
        {
            let ms = median_of(times.into_iter().map(|time| time as f64 / 1e6).collect());
            let calls = median(&mut calls, usize::cmp)?;
            // Most passes may not call it.
            if calls == 0 {
                continue;
            }
            let times = |work: u64| work.checked_mul(calls as u64);
            let (flops, bytes) = (operation.flops.and_then(times), operation.bytes.and_then(times));
            let bound = operation.flops.zip(operation.bytes).map(|(flops, bytes)| peaks.bound(flops, bytes));
            let bound_ms = bound.map(|seconds| seconds * 1e3 * calls as f64);
            let cost = Cost { ms, flops, bytes, bound_ms };
            rows.push((
                n,
                Row { path: operation.path, name: operation.name, shape: operation.shape, calls, cost },
            ));
        }
        rows.sort_by(|(_, a), (_, b)| b.cost.ms.total_cmp(&a.cost.ms));
        let known = rows.iter().map(|(n, _)| n + 1).max().unwrap_or(0);
        let mut row_of = vec![None; known];
        for (row, (operation, _)) in rows.iter().enumerate() {
            row_of[*operation] = Some(row);
        }
        let count = passes.len();
        let mut order: Vec<&ProfiledPass> = passes.iter().collect();
        let pass = median(&mut order, |a, b| a.time.cmp(&b.time))?.clone();
        Some(Self {
            threads,
            peaks,
            passes: count,
            plain_ms: median_of(plain_ms),
            recorded_ms: pass.time as f64 / 1e6,
            rows: rows.into_iter().map(|(_, row)| row).collect(),
            pass,
            row_of,
        })
    }

    /// What all operations take.
    fn operations_ms(&self) -> f64 {
        self.rows.iter().map(|row| row.cost.ms).sum()
    }

    /// What a pass takes beside its operations; less than nothing where recording slows these down by more.
    fn other_ms(&self) -> f64 {
        self.plain_ms - self.operations_ms()
    }

    /// A time's part of a pass of which nothing was recorded, in percent.
    fn percent(&self, ms: f64) -> f64 {
        100.0 * ms / self.plain_ms
    }

    /// What each kind of operation takes in all, most first, whatever its modules and sizes.
    fn by_name(&self) -> Vec<(&str, usize, Cost)> {
        let mut sums: BTreeMap<&str, (usize, Cost)> = BTreeMap::new();
        for row in &self.rows {
            let sum = sums.entry(&row.name).or_insert((0, Cost::NONE));
            *sum = (sum.0 + row.calls, sum.1.and(row.cost));
        }
        let mut sums: Vec<_> = sums.into_iter().map(|(name, (calls, cost))| (name, calls, cost)).collect();
        sums.sort_by(|a, b| b.2.ms.total_cmp(&a.2.ms));
        sums
    }

    /// The report for `--json`.
    pub(super) fn json(&self) -> Value {
        let rate = |rate: Option<f64>| rate.map_or(Value::Null, json::number);
        let row = |row: &Row| {
            json!({
                "module": row.path,
                "operation": row.name,
                "shape": row.shape,
                "calls": row.calls,
                "ms": json::number(row.cost.ms),
                "percent": json::number(self.percent(row.cost.ms)),
                "flops": row.cost.flops,
                "bytes": row.cost.bytes,
                "gflops": rate(row.cost.gflops()),
                "gbs": rate(row.cost.gbs()),
                "of_bound": rate(row.cost.of_bound()),
            })
        };
        let rows: Vec<Value> = self.rows.iter().map(row).collect();
        let mut object = Map::new();
        let Peaks { gflops, memory_gbs, memory_bytes, cache_gbs, cache_bytes } = self.peaks;
        for (key, value) in [
            ("peak_gflops", gflops),
            ("peak_memory_gbs", memory_gbs),
            ("peak_cache_gbs", cache_gbs),
            ("plain_ms", self.plain_ms),
            ("recorded_ms", self.recorded_ms),
            ("operations_ms", self.operations_ms()),
            ("other_ms", self.other_ms()),
        ] {
            object.insert(key.into(), json::number(value));
        }
        object.insert("memory_bytes".into(), json!(memory_bytes));
        object.insert("cache_bytes".into(), json!(cache_bytes));
        object.insert("passes".into(), json!(self.passes));
        object.insert("rows".into(), Value::Array(rows));
        Value::Object(object)
    }
}

#[cfg(test)]
mod tests;
