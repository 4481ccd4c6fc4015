//! Values that many indices send to the same row, and orders of long lanes: what is folded and sorted in several steps is as the CPU has it.

use super::{Results, assert_same, of, on, read, reals, whole};
use kiln_ndarray::NdArray;
use kiln_tensor::backend::Backend;
use kiln_tensor::{DType, ScatterOp, Shape, TensorData};

/// Numbers that look like chance (Marsaglia 2003, "Xorshift RNGs").
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % end
    }
}

/// How indices meet.
#[derive(Clone, Copy, Debug)]
enum Meet {
    /// As chance has it.
    Anywhere,
    /// Nine of ten in one row.
    HotRow,
    /// All of them.
    OneRow,
    /// In long runs, the last rows first.
    Runs,
}

const MEET: [Meet; 4] = [Meet::Anywhere, Meet::HotRow, Meet::OneRow, Meet::Runs];

fn rows_of(meet: Meet, count: usize, rows: usize, chance: &mut Chance) -> Vec<i64> {
    let hot = chance.below(rows);
    let row = |n: usize| match meet {
        Meet::Anywhere => chance.below(rows),
        Meet::HotRow => match chance.below(10) {
            0 => chance.below(rows),
            _ => hot,
        },
        Meet::OneRow => hot,
        Meet::Runs => (count - 1 - n) * rows / count,
    };
    (0..count).map(row).map(|row| row as i64).collect()
}

fn is_signed(dtype: DType) -> bool {
    dtype.is_float() || dtype.integers().is_some_and(|(least, _)| least < 0)
}

/// Values whose folds are exact: sums stay small, products are of one size. Of floats a few are NaN, for extremes.
fn values(op: ScatterOp, count: usize, dtype: DType, chance: &mut Chance) -> Vec<f64> {
    let value = |_| {
        let number = chance.below(5) as f64 - 2.0;
        match op {
            ScatterOp::Mul => {
                if number < 0.0 && is_signed(dtype) {
                    -1.0
                } else {
                    1.0
                }
            }
            ScatterOp::Max | ScatterOp::Min if dtype.is_float() && chance.below(500) == 0 => f64::NAN,
            _ => {
                if is_signed(dtype) {
                    number
                } else {
                    number + 2.0
                }
            }
        }
    };
    (0..count).map(value).collect()
}

/// A fold of values into rows.
#[derive(Clone, Debug)]
struct Case {
    op: ScatterOp,
    dtype: DType,
    rows: usize,
    width: usize,
    indices: Vec<i64>,
    /// Whether each column has its own indices.
    own: bool,
    values: Vec<f64>,
}

impl Case {
    fn count(&self) -> usize {
        self.values.len() / self.width
    }

    /// Into rows, and into columns of views that lie turned.
    fn compute<B: Backend>(&self) -> Results {
        let Case { op, dtype, rows, width, .. } = *self;
        let count = self.count();
        let target = || {
            let start = (0..rows * width).map(|n| (n % 3) as f64).collect::<Vec<_>>();
            on::<B>(reals(&start, &[rows, width], dtype))
        };
        let values = || on::<B>(reals(&self.values, &[count, width], dtype));
        let turned = |tensor| B::permute(tensor, &[1, 0]);
        let (by_rows, by_columns) = if self.own {
            let index = || on::<B>(whole(&self.indices, &[count, width], DType::I32));
            (
                B::scatter(target(), 0, index(), values(), op),
                B::scatter(turned(target()), 1, turned(index()), turned(values()), op),
            )
        } else {
            let index = || on::<B>(whole(&self.indices, &[count], DType::I32));
            (
                B::select_assign(target(), 0, index(), values(), op),
                B::select_assign(turned(target()), 1, index(), turned(values()), op),
            )
        };
        let name =
            || format!("{op:?} of {count} x {width} into {rows} rows, {:?}…", &self.indices[..count.min(4)]);
        vec![(name(), read::<B>(by_rows)), (name(), read::<B>(by_columns))]
    }

    fn check<B: Backend>(&self) {
        let found = self.compute::<B>();
        assert_same(found.clone(), self.compute::<NdArray>(), 0.0);
        // The same bits each time.
        let bits = |results: Results| {
            results.into_iter().map(|(_, data)| data.as_bytes().to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(bits(found), bits(self.compute::<B>()), "{:?}", self.op);
    }
}

/// From values that are folded one after another to those whose folds take several steps.
pub fn values_of_the_same_rows<B: Backend>() {
    let mut chance = Chance(0x1234_5678_9abc_def1);
    let ops = [ScatterOp::Add, ScatterOp::Max, ScatterOp::Mul, ScatterOp::Min];
    let some = of::<B>(&[DType::F32, DType::F16, DType::BF16, DType::I32, DType::U8, DType::F64, DType::I64]);
    for dtype in some {
        let ops = if matches!(dtype, DType::F32 | DType::I32) { &ops[..] } else { &ops[..2] };
        for &op in ops {
            let cases = if dtype == DType::F32 && op == ScatterOp::Add { 24 } else { 4 };
            for n in 0..cases {
                let meet = MEET[n % MEET.len()];
                let rows = [1, 2, 40, 1000][chance.below(4)];
                let width = [1, 3, 33][chance.below(3)];
                let count = [100, 129, 513, 2049 + chance.below(900)][(n / 4 + n) % 4];
                let own = chance.below(3) == 0;
                let named = if own { count * width } else { count };
                let indices = rows_of(meet, named, rows, &mut chance);
                let values = values(op, count * width, dtype, &mut chance);
                Case { op, dtype, rows, width, indices, own, values }.check::<B>();
            }
        }
    }
    // More levels, and runs that are merged more than once.
    for meet in [Meet::HotRow, Meet::Anywhere] {
        let (rows, width, count, dtype) = (7, 1, 70_001, DType::F32);
        let indices = rows_of(meet, count, rows, &mut chance);
        let values = values(ScatterOp::Add, count, dtype, &mut chance);
        Case { op: ScatterOp::Add, dtype, rows, width, indices, own: false, values }.check::<B>();
    }
}

/// Along a dim between others, into a view, from values and indices that are broadcast.
pub fn values_of_the_same_rows_of_views<B: Backend>() {
    fn compute<B: Backend>() -> Results {
        let (outer, count, inner, rows) = (2, 700, 3, 11);
        let index: Vec<i64> = (0..count).map(|n| (n * n % 13 % rows) as i64).collect();
        let each: Vec<f64> = (0..outer * count).map(|n| (n * 7 % 5) as f64 - 2.0).collect();
        let target = || B::full(Shape::from([outer, rows, inner]), 1.into(), DType::F32, &Default::default());
        let values = || {
            let values = on::<B>(reals(&each, &[outer, count, 1], DType::F32));
            B::expand(values, Shape::from([outer, count, inner]))
        };
        let line = || on::<B>(whole(&index, &[count], DType::I32));
        let selected = B::select_assign(target(), 1, line(), values(), ScatterOp::Add);
        let broadcast =
            B::expand(B::reshape(line(), Shape::from([1, count, 1])), Shape::from([outer, count, inner]));
        let scattered = B::scatter(target(), 1, broadcast, values(), ScatterOp::Add);
        let one = B::expand(on::<B>(whole(&[4], &[1], DType::I32)), Shape::from([count]));
        let same = B::select_assign(target(), 1, one, values(), ScatterOp::Add);
        // Fewer lanes than the target has.
        let narrow = B::scatter(
            target(),
            1,
            on::<B>(whole(&index, &[1, count, 1], DType::I32)),
            on::<B>(reals(&each[..count], &[1, count, 1], DType::F32)),
            ScatterOp::Add,
        );
        [selected, scattered, same, narrow].map(|tensor| (String::from("a view"), read::<B>(tensor))).into()
    }
    assert_same(compute::<B>(), compute::<NdArray>(), 0.0);
}

/// Tables whose gradients are sums of many, and of one: of more positions than look for each other.
pub fn gradients_of_tables<B: Backend>() {
    fn compute<B: Backend>(dtype: DType, count: usize, width: usize, rows: usize, meet: Meet) -> Results {
        let mut chance = Chance(99 + count as u64);
        let indices = rows_of(meet, count, rows, &mut chance);
        let arrives = values(ScatterOp::Add, count * width, dtype, &mut chance);
        let indices = on::<B>(whole(&indices, &[count], DType::I32));
        let found = B::embedding_gradient(on::<B>(reals(&arrives, &[count, width], dtype)), indices, rows);
        vec![(format!("{count} x {width} in {rows} rows, {meet:?}"), read::<B>(found))]
    }
    for dtype in of::<B>(&[DType::F32, DType::F16, DType::BF16]) {
        for (count, width, rows) in [(1500, 40, 3000), (1500, 3, 600), (600, 300, 1), (2100, 5, 700)] {
            for meet in [Meet::Anywhere, Meet::HotRow] {
                let run = (dtype, count, width, rows, meet);
                let found = compute::<B>(run.0, run.1, run.2, run.3, run.4);
                assert_same(found, compute::<NdArray>(run.0, run.1, run.2, run.3, run.4), 0.0);
            }
        }
    }
}

/// Lanes that are sorted by one workgroup together, by one each, and in runs that are merged; of many equal numbers. Of few that are kept more are never looked at again.
pub fn orders_of_long_lanes<B: Backend>() {
    fn compute<B: Backend>(data: &TensorData, dim: usize, descending: bool, keep: &[usize]) -> Results {
        let tensor = on::<B>(data.clone());
        let name = |what: &str| format!("{what} of {:?} along {dim}", data.shape);
        let mut results = Results::new();
        let mut note = |what: String, (values, positions): (B::Primitive, B::Primitive)| {
            results.push((what.clone(), read::<B>(values)));
            results.push((what, read::<B>(positions).convert_dtype(DType::I64)));
        };
        note(name("order"), B::sort(tensor.clone(), dim, descending));
        for &k in keep {
            note(name(&format!("first {k}")), B::topk(tensor.clone(), k, dim, descending));
        }
        results
    }
    let mut chance = Chance(0x0dd_ba11);
    for dtype in of::<B>(&[DType::F32, DType::F16, DType::I8, DType::I64, DType::F64]) {
        let cases: &[(&[usize], usize)] =
            &[(&[37, 6], 1), (&[5, 1000], 1), (&[1025, 2], 0), (&[3, 2048, 1], 1), (&[2, 5000], 1)];
        let cases = if dtype == DType::F32 { cases } else { &cases[2..4] };
        for (n, &(shape, dim)) in cases.iter().enumerate() {
            let distinct = [7, 100, 3][n % 3];
            let number = |_| match chance.below(distinct + 1) {
                0 if dtype.is_float() => [f64::NAN, -0.0, f64::NEG_INFINITY][chance.below(3)],
                number => number as f64 - (distinct / 2) as f64,
            };
            let numbers: Vec<f64> = (0..shape.iter().product()).map(number).collect();
            let data = reals(&numbers, shape, dtype);
            let length = shape[dim];
            let keep: Vec<usize> = [1, 5, 50, 256, 257].into_iter().filter(|&k| k <= length).collect();
            for descending in [false, true] {
                let keep = if dtype == DType::F32 { &keep[..] } else { &keep[..2] };
                let found = compute::<B>(&data, dim, descending, keep);
                assert_same(found, compute::<NdArray>(&data, dim, descending, keep), 0.0);
            }
        }
    }
}
