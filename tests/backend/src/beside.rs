//! Every dtype that a backend supports beside the CPU backend's, at the numbers where dtypes end, wrap and round.

mod columns;
mod duplicates;
mod positions;
mod rows;
mod windows;

pub use columns::{
    gradients_of_norms_by_columns, reductions_of_columns, statistics_of_columns, sums_of_programs,
    sums_of_what_others_read_too,
};
pub use duplicates::{
    gradients_of_tables, orders_of_long_lanes, values_of_the_same_rows, values_of_the_same_rows_of_views,
};
pub use positions::rows_that_are_not_there;
pub use rows::rows_that_others_read_too;
pub use windows::{
    convolutions_of_bytes, gradients_of_convolutions, gradients_of_convolutions_that_are_not_finite,
    gradients_of_poolings, poolings_of_integers,
};

use crate::supported;
use kiln_ndarray::NdArray;
use kiln_tensor::backend::{Backend, SliceRange};
use kiln_tensor::{
    Activation, ArgReduceOp, BinaryOp, CompareOp, ConvOptions, CumulativeOp, DType, Distribution, Expression,
    PoolOp, PoolOptions, ReduceOp, Scalar, ScatterOp, Shape, Step, TensorData, UnaryOp,
};

fn floats<B: Backend>() -> impl Iterator<Item = DType> {
    supported::<B>().filter(|dtype| dtype.is_float())
}

fn integers<B: Backend>() -> impl Iterator<Item = DType> {
    supported::<B>().filter(|dtype| dtype.is_int())
}

/// Those of some dtypes that the backend supports.
fn of<B: Backend>(dtypes: &[DType]) -> impl Iterator<Item = DType> {
    dtypes.iter().copied().filter(|&dtype| B::supports(&B::Device::default(), dtype))
}

/// What was computed, with its name.
type Results = Vec<(String, TensorData)>;

/// Asserts that numbers are equal to a relative error; NaN equals NaN.
#[track_caller]
fn assert_same(found: Results, expected: Results, error: f64) {
    assert_eq!(found.len(), expected.len());
    for ((name, found), (_, expected)) in found.into_iter().zip(expected) {
        assert_eq!((found.dtype, &found.shape), (expected.dtype, &expected.shape), "{name}");
        if !found.dtype.is_float() {
            assert_eq!(found, expected, "{name}");
            continue;
        }
        // What is almost the least number may be 0.
        let least = if found.dtype == DType::F64 { 1e-285 } else { 1e-30 };
        for (at, (a, b)) in found.iter::<f64>().zip(expected.iter::<f64>()).enumerate() {
            let close = a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= error * (b.abs() + least);
            assert!(close, "{name} {}: element {at} is {a:e}, expected {b:e}", found.dtype);
        }
    }
}

fn on<B: Backend>(data: TensorData) -> B::Primitive {
    B::from_data(data, &B::Device::default())
}

fn read<B: Backend>(tensor: B::Primitive) -> TensorData {
    B::into_data(tensor).expect("a device")
}

/// Whole numbers, as the dtype wraps them.
fn whole(numbers: &[i64], shape: &[usize], dtype: DType) -> TensorData {
    TensorData::new(numbers.to_vec(), shape).convert_dtype(dtype)
}

fn reals(numbers: &[f64], shape: &[usize], dtype: DType) -> TensorData {
    TensorData::new(numbers.to_vec(), shape).convert_dtype(dtype)
}

/// The ends of a dtype and what lies near them, none of it 0.
fn edges(dtype: DType) -> Vec<Scalar> {
    let pow = |exponent: i32| 2_f64.powi(exponent);
    if dtype.is_float() {
        let numbers = [
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            1.0,
            -1.0,
            0.5,
            2.5,
            -3.5,
            0.1,
            257.0,
            -65_504.0,
            1e10,
            3e38,
            1e300,
            -1e-300,
            pow(53) + 2.0,
            1.0 + pow(-52),
        ];
        return numbers.map(Scalar::Float).to_vec();
    }
    let (least, greatest) = dtype.integers().unwrap_or((0, 1));
    let numbers = [
        least,
        least + 1,
        -77,
        -2,
        -1,
        1,
        2,
        3,
        7,
        100,
        greatest / 2 + 1,
        greatest - 1,
        greatest,
        (1 << 53) + 1,
        0x5555_5555_5555_5555,
    ];
    let inside = |number: &i128| *number != 0 && (least..=greatest).contains(number);
    let scalar = |number: i128| match i64::try_from(number) {
        Ok(number) => Scalar::Int(number),
        Err(_) => Scalar::UInt(number as u64),
    };
    numbers.into_iter().filter(inside).map(scalar).collect()
}

fn data(numbers: &[Scalar], dtype: DType) -> TensorData {
    let shape = [numbers.len()];
    match dtype {
        DType::U64 => TensorData::new(
            numbers.iter().map(|&x| kiln_tensor::Element::from_scalar(x)).collect::<Vec<u64>>(),
            shape,
        ),
        dtype if dtype.is_float() => {
            reals(&numbers.iter().map(|x| x.to_f64()).collect::<Vec<_>>(), &shape, dtype)
        }
        dtype => whole(&numbers.iter().map(|x| x.to_i64()).collect::<Vec<_>>(), &shape, dtype),
    }
}

/// A program of one result a step, on operands that are steps too; its results by the steps' names.
fn program<B: Backend>(operands: Vec<TensorData>, parameters: &[Scalar], steps: &[Step]) -> Results {
    let count = operands.len() as u16;
    let inputs = (0..count).map(Step::Input);
    let mut expression = Expression::new(inputs.chain(steps.iter().copied()).collect());
    expression.outputs = (count..count + steps.len() as u16).collect();
    let operands = operands.into_iter().map(on::<B>).collect();
    let results = B::elementwise(&expression, operands, parameters).into_iter().map(read::<B>);
    steps.iter().map(|step| format!("{step:?}")).zip(results).collect()
}

/// Every pair of edges.
fn pairs(dtype: DType) -> Vec<TensorData> {
    let numbers = edges(dtype);
    let (mut a, mut b) = (data(&numbers, dtype), data(&numbers, dtype));
    (a.shape, b.shape) = (vec![numbers.len(), 1], vec![1, numbers.len()]);
    vec![a, b]
}

const ARITHMETIC: [BinaryOp; 6] =
    [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Div, BinaryOp::Max, BinaryOp::Min];

pub fn arithmetic<B: Backend>() {
    for dtype in floats::<B>().chain(integers::<B>()) {
        let mut steps: Vec<Step> = ARITHMETIC.map(|op| Step::Binary(op, 0, 1)).to_vec();
        steps.extend(CompareOp::ALL.iter().map(|&op| Step::Compare(op, 0, 1)));
        if dtype.is_int() {
            let others = [
                BinaryOp::Pow,
                BinaryOp::Remainder,
                BinaryOp::Fmod,
                BinaryOp::BitwiseAnd,
                BinaryOp::BitwiseOr,
                BinaryOp::BitwiseXor,
                BinaryOp::ShiftLeft,
                BinaryOp::ShiftRight,
            ];
            steps.extend(others.map(|op| Step::Binary(op, 0, 1)));
            let unary = [UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Sign, UnaryOp::BitwiseNot];
            steps.extend(unary.map(|op| Step::Unary(op, 0)));
            // What wrapped is gone for the steps that follow: the sum is step 2.
            steps.extend([Step::Binary(BinaryOp::Div, 2, 1), Step::Compare(CompareOp::Lower, 2, 0)]);
        }
        if dtype == DType::F64 {
            steps.extend([BinaryOp::Remainder, BinaryOp::Fmod].map(|op| Step::Binary(op, 0, 1)));
            let unary = [UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Sign, UnaryOp::Sqrt, UnaryOp::Recip];
            steps.extend(unary.map(|op| Step::Unary(op, 0)));
            let whole = [UnaryOp::Floor, UnaryOp::Ceil, UnaryOp::Round, UnaryOp::Trunc];
            steps.extend(whole.map(|op| Step::Unary(op, 0)));
        }
        let run = (program::<B>(pairs(dtype), &[], &steps), program::<NdArray>(pairs(dtype), &[], &steps));
        assert_same(run.0, run.1, 0.0);
    }
}

pub fn functions<B: Backend>() {
    let numbers = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        0.0,
        1e-9,
        -1e-9,
        0.3,
        -0.3,
        0.999,
        1.0,
        -1.0,
        1.5,
        -2.75,
        6.5,
        40.0,
        -40.0,
        700.0,
        -700.0,
        1e5,
    ];
    let unary = UnaryOp::ALL.iter().filter(|op| !matches!(op, UnaryOp::Not | UnaryOp::BitwiseNot));
    let mut steps: Vec<Step> = unary.map(|&op| Step::Unary(op, 0)).collect();
    steps.extend([BinaryOp::Pow, BinaryOp::Atan2].map(|op| Step::Binary(op, 0, 1)));
    let activations = [
        Activation::LeakyRelu { slope: 0.1 },
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::Sigmoid,
        Activation::Silu,
        Activation::Mish,
        Activation::Softplus,
        Activation::HARD_SIGMOID,
        Activation::HardSwish,
        Activation::Elu { alpha: 0.3 },
        Activation::Clamp { min: -0.1, max: 0.7 },
        Activation::Affine { alpha: 0.1, beta: 0.7 },
        Activation::ScaledTanh { alpha: 1.7, beta: 0.6 },
        Activation::Softsign,
    ];
    for dtype in of::<B>(&[DType::F64, DType::BF16]) {
        let halves = steps.chunks(16).map(<[Step]>::to_vec);
        let activations: Vec<Step> = activations.map(|activation| Step::Activation(activation, 0)).to_vec();
        for steps in halves.chain([activations]) {
            // On the CPU an exponential less 1 has few bits near 0, and what activations make of -∞ differs from dtype to dtype.
            let differs = |x: f64| x.abs() == 1e-9 || x == f64::NEG_INFINITY;
            let is_activation = matches!(steps.first(), Some(Step::Activation(..)));
            let numbers: Vec<f64> = numbers.into_iter().filter(|&x| !(is_activation && differs(x))).collect();
            let operands = || {
                let (mut x, mut y) =
                    (reals(&numbers, &[numbers.len()], dtype), reals(&[0.7, -3.0, 2.0], &[3], dtype));
                (x.shape, y.shape) = (vec![numbers.len(), 1], vec![1, 3]);
                vec![x, y]
            };
            let run = (program::<B>(operands(), &[], &steps), program::<NdArray>(operands(), &[], &steps));
            assert_same(run.0, run.1, if dtype == DType::F64 { 4e-15 } else { 0.009 });
        }
    }
}

/// What is rounded to 16 bits may be computed by functions that are less exact: these, and what is made of them.
pub fn functions_of_halves<B: Backend>() {
    let numbers =
        [f64::NAN, f64::INFINITY, 700.0, 11.0, 2.5, 0.999, 0.3, 1e-3, 0.0, -1e-3, -0.3, -1.5, -6.0, -700.0];
    let steps: Vec<Step> = [UnaryOp::Exp, UnaryOp::Erf]
        .map(|op| Step::Unary(op, 0))
        .into_iter()
        .chain(
            [Activation::Sigmoid, Activation::Silu, Activation::Softplus, Activation::Mish]
                .map(|activation| Step::Activation(activation, 0)),
        )
        .collect();
    for dtype in of::<B>(&[DType::F16]) {
        let operands = || vec![reals(&numbers, &[numbers.len()], dtype)];
        let run = (program::<B>(operands(), &[], &steps), program::<NdArray>(operands(), &[], &steps));
        assert_same(run.0, run.1, 0.002);
    }
}

pub fn casts<B: Backend>() {
    for from in supported::<B>() {
        let mut numbers = edges(from);
        if from.is_float() {
            let rounded =
                [1.0 + 0.5_f64.powi(8), 1.0 + 3.0 * 0.5_f64.powi(8), -300.7, 127.9, 128.0, -128.9, 4e9, -0.7];
            // Just beside a tie of bf16, where rounding to f32 in between would make it one.
            let beside = 1.0 + 0.5_f64.powi(7) + 0.5_f64.powi(8) - 0.5_f64.powi(30);
            numbers.extend(rounded.into_iter().chain([beside, 0.0]).map(Scalar::Float));
        } else {
            numbers.extend([Scalar::Int(0), Scalar::Int(1)]);
        }
        let operands = || vec![data(&numbers, from)];
        let steps: Vec<Step> = supported::<B>().map(|to| Step::Cast(to, 0)).collect();
        let run = (program::<B>(operands(), &[], &steps), program::<NdArray>(operands(), &[], &steps));
        let named =
            |results: Results| results.into_iter().map(|(name, x)| (format!("{from}: {name}"), x)).collect();
        assert_same(named(run.0), named(run.1), 0.0);
    }
}

pub fn sixteen_bits_are_rounded_once<B: Backend>() {
    let cast = |numbers: &[f64], to| {
        let x = on::<B>(reals(numbers, &[numbers.len()], DType::F64));
        read::<B>(B::cast(x, to)).iter::<f64>().collect::<Vec<_>>()
    };
    if !B::supports(&B::Device::default(), DType::F64) {
        return;
    }
    let half = |exponent| 0.5_f64.powi(exponent);
    let near = [
        1.0 + half(11) + half(40),
        1.0 + half(11),
        1.0 + half(10) + half(11) - half(40),
        65_519.999_999,
        65_520.0,
    ];
    if B::supports(&B::Device::default(), DType::F16) {
        assert_eq!(cast(&near, DType::F16), [1.0 + half(10), 1.0, 1.0 + half(10), 65_504.0, f64::INFINITY]);
    }
    if !B::supports(&B::Device::default(), DType::BF16) {
        return;
    }
    let near = [1.0 + half(8) + half(40), 1.0 + half(8), -1.0 - half(7) - half(8) + half(40), 1e39];
    assert_eq!(cast(&near, DType::BF16), [1.0 + half(7), 1.0, -1.0 - half(7), f64::INFINITY]);
}

fn reductions<B: Backend>(dtype: DType) -> Results {
    let mut results = Results::new();
    let mut note = |name: String, x: B::Primitive| results.push((name, read::<B>(x)));
    let x = || on::<B>(whole(&[5, 1, 3, 3, 2, 9, 0, 7, 4, 6, 1, 8], &[3, 4], dtype));
    let nothing = || on::<B>(whole(&[], &[2, 0], dtype));
    let large = || {
        let mut numbers = data(&edges(dtype)[3..8], dtype);
        numbers.shape = vec![1, 5];
        on::<B>(numbers)
    };
    for op in [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min] {
        note(format!("{op:?}"), B::reduce(op, x(), &[1]));
        note(format!("{op:?} of columns"), B::reduce(op, x(), &[0]));
        note(format!("{op:?} of nothing"), B::reduce(op, nothing(), &[1]));
        note(format!("{op:?} of edges"), B::reduce(op, large(), &[1]));
    }
    note("Mean".to_owned(), B::reduce(ReduceOp::Mean, x(), &[1]));
    for op in [CumulativeOp::Sum, CumulativeOp::Prod, CumulativeOp::Max, CumulativeOp::Min] {
        note(format!("{op:?} so far"), B::cumulative(op, x(), 1, false, false));
        note(format!("{op:?} so far of edges"), B::cumulative(op, large(), 1, false, true));
    }
    note("Sum before".to_owned(), B::cumulative(CumulativeOp::Sum, x(), 0, true, false));
    for op in [ArgReduceOp::Max, ArgReduceOp::Min] {
        note(format!("position of {op:?}"), B::cast(B::arg_reduce(op, x(), 1, true), DType::I64));
        note(
            format!("position of {op:?} of edges"),
            B::cast(B::arg_reduce(op, large(), 1, false), DType::I64),
        );
    }
    for descending in [false, true] {
        let (values, places) = B::sort(large(), 1, descending);
        note(format!("sorted, {descending}"), values);
        note(format!("places, {descending}"), B::cast(places, DType::I64));
    }
    note("not 0".to_owned(), B::cast(B::nonzero(x()).expect("a device"), DType::I64));
    results
}

pub fn reductions_and_orders<B: Backend>() {
    for dtype in floats::<B>().chain(integers::<B>()) {
        assert_same(
            reductions::<B>(dtype),
            reductions::<NdArray>(dtype),
            if dtype.is_float() { 4e-3 } else { 0.0 },
        );
    }
    // Sums have all bits that their dtype has.
    let sum = |x: TensorData| read::<B>(B::reduce(ReduceOp::Sum, on::<B>(x), &[0]));
    let least = 0.5_f64.powi(52);
    if B::supports(&B::Device::default(), DType::F64) {
        assert_eq!(sum(reals(&[1.0, least], &[2], DType::F64)).iter::<f64>().next(), Some(1.0 + least));
    }
    let large = 1_i64 << 53;
    assert_eq!(sum(whole(&[large, 1], &[2], DType::I64)).iter::<i64>().next(), Some(large + 1));
}

/// So many elements that a device may be handed several at a time, of operands that lie in all ways.
fn many<B: Backend>(dtype: DType) -> Results {
    let dims = [8, 130, 260];
    let count = dims.iter().product::<usize>();
    let numbers = |shape: &[usize], seed: usize| {
        let numbers = |n: usize| ((n + seed) * 31 % 1009 % 7) as i64;
        on::<B>(whole(&(0..shape.iter().product()).map(numbers).collect::<Vec<_>>(), shape, dtype))
    };
    let x = || numbers(&dims, 0);
    let line = numbers(&[count + 4], 1);
    let view = |start: usize| {
        let range = SliceRange { start, end: start + count, step: 1 };
        B::reshape(B::slice(line.clone(), &[range]), Shape::from(dims))
    };
    let shapes = [dims, [1, 130, 1], [1, 1, 260], [8, 130, 1], [1, 1, 1]];
    let mut others: Vec<_> =
        shapes.iter().map(|shape| (format!("with {shape:?}"), numbers(shape, 2))).collect();
    others.extend([1, 4].map(|start| (format!("with a view from {start}"), view(start))));
    others.push((String::from("turned"), B::permute(numbers(&[260, 8, 130], 3), &[1, 2, 0])));
    // How operands lie is the same question whatever they are.
    others.truncate(if dtype == DType::F32 { others.len() } else { 2 });
    let mut results = Results::new();
    let mut note = |name: &str, y: B::Primitive| results.push((name.to_owned(), read::<B>(y)));
    let (add, times) = (Step::Binary(BinaryOp::Add, 0, 1), Step::Binary(BinaryOp::Mul, 2, 1));
    let both = Expression {
        outputs: [2, 3].into(),
        ..Expression::new(vec![Step::Input(0), Step::Input(1), add, times])
    };
    for (name, other) in others {
        let y = B::binary(BinaryOp::Add, other.clone(), x());
        // Nobody else holds it: the same kernel may do this too.
        note(&name, B::binary(BinaryOp::Sub, B::binary(BinaryOp::Mul, y, other.clone()), x()));
        for y in B::elementwise(&both, [x(), other.clone()].into(), &[]) {
            note(&name, y);
        }
        note(&name, B::compare(CompareOp::Lower, x(), other.clone()));
        note(&name, B::reduce(ReduceOp::Max, B::binary(BinaryOp::Mul, x(), other), &[2]));
    }
    let place = |axis: u16| Step::Iota(axis, dtype);
    let sum = Expression::new(vec![
        Step::Input(0),
        place(1),
        Step::Binary(BinaryOp::Add, 0, 1),
        place(2),
        Step::Binary(BinaryOp::Min, 2, 3),
    ]);
    note("by places", B::elementwise(&sum, [x()].into(), &[]).remove(0));
    note("cast", B::cast(x(), DType::F32));
    note("one number", B::full(Shape::from(dims), Scalar::Int(3), dtype, &Default::default()));
    results
}

pub fn programs_over_many_elements<B: Backend>() {
    let device = B::Device::default();
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::I64, DType::U8] {
        if B::supports(&device, dtype) {
            assert_same(many::<B>(dtype), many::<NdArray>(dtype), 0.0);
        }
    }
}

/// What is reduced so far is not held in a dtype that does not hold it.
pub fn long_reductions_of_narrow_dtypes<B: Backend>() {
    let device = Default::default();
    let cases = [(DType::U8, 200), (DType::I8, -100), (DType::BF16, 3)];
    for (dtype, number) in cases.into_iter().filter(|(dtype, _)| B::supports(&device, *dtype)) {
        let long = B::full(Shape::from([300_001]), Scalar::Int(number), dtype, &device);
        let mean = read::<B>(B::reduce(ReduceOp::Mean, long.clone(), &[0]));
        assert_eq!((mean.dtype, mean.iter::<i64>().collect::<Vec<_>>()), (dtype, vec![number]), "{dtype}");
        if dtype == DType::BF16 {
            let sum = read::<B>(B::reduce(ReduceOp::Sum, long, &[0]));
            assert_eq!(sum.iter::<f64>().next(), Some(901_120.0));
        }
    }
}

fn places<B: Backend>(dtype: DType, indices: &[DType]) -> Results {
    let device = B::Device::default();
    let table = || on::<B>(whole(&[1, 2, 3, 4, 5, 6], &[3, 2], dtype));
    let index = |kind| on::<B>(whole(&[2, 0, 2, 1], &[2, 2], kind));
    let mut results = Results::new();
    let mut note = |name: String, x: B::Primitive| results.push((name, read::<B>(x)));
    for &kind in indices {
        note(format!("gathered by {kind}"), B::gather(table(), 0, index(kind)));
    }
    let values = || on::<B>(whole(&[100, 100, 100, 1], &[2, 2], dtype));
    for op in [ScatterOp::Assign, ScatterOp::Add, ScatterOp::Mul, ScatterOp::Max, ScatterOp::Min] {
        let single = on::<B>(whole(&[2, 0], &[1, 2], DType::I64));
        let value = on::<B>(whole(&[100, 1], &[1, 2], dtype));
        note(format!("{op:?} once"), B::scatter(table(), 0, single, value, op));
        if op != ScatterOp::Assign && dtype.is_int() {
            note(format!("{op:?}"), B::scatter(table(), 0, index(DType::I64), values(), op));
        }
    }
    note("counted".to_owned(), B::arange(-5, 400, 3, dtype, &device));
    note("counted down".to_owned(), B::arange(1_001, 995, -2, dtype, &device));
    for value in
        [Scalar::Int(300), Scalar::Float(300.7), Scalar::Int(-1), Scalar::Float(0.1), Scalar::UInt(u64::MAX)]
    {
        note(format!("filled with {value:?}"), B::full(Shape::from([2]), value, dtype, &device));
        let product = B::binary_scalar(BinaryOp::Mul, table(), value);
        note(format!("times {value:?}"), B::cast(product, dtype));
    }
    note(
        "joined".to_owned(),
        B::cat(&[table(), B::permute(table(), &[1, 0])].map(|x| B::reshape(x, Shape::from([6]))), 0),
    );
    results
}

pub fn places_and_numbers<B: Backend>() {
    for dtype in of::<B>(&[DType::F64, DType::F32, DType::BF16]).chain(integers::<B>()) {
        let indices: Vec<DType> = of::<B>(&[DType::I64, DType::U8, DType::I16, DType::U64]).collect();
        assert_same(places::<B>(dtype, &indices), places::<NdArray>(dtype, &indices), 0.0);
    }
}

pub fn parameters_have_all_their_bits<B: Backend>() {
    let large = (1_i64 << 53) + 1;
    let program = |dtype, parameter: Scalar| {
        if !B::supports(&B::Device::default(), dtype) {
            return;
        }
        let steps =
            [Step::Parameter(0, dtype), Step::Binary(BinaryOp::Add, 0, 1), Step::Constant(parameter, dtype)];
        let x = whole(&[0, 1], &[2], dtype);
        let run = (
            program::<B>(vec![x.clone()], &[parameter], &steps),
            program::<NdArray>(vec![x], &[parameter], &steps),
        );
        assert_same(run.0, run.1, 0.0);
    };
    program(DType::I64, Scalar::Int(large));
    program(DType::I64, Scalar::Int(i64::MIN));
    program(DType::U64, Scalar::UInt(u64::MAX));
    program(DType::F64, Scalar::Float(0.1));
    program(DType::F64, Scalar::Float(f64::NEG_INFINITY));
    program(DType::I8, Scalar::Int(-128));
    program(DType::U16, Scalar::Int(65_535));
}

/// Products, and what follows them in the same kernel; and windows.
fn products<B: Backend>(dtype: DType, has_norms: bool) -> Results {
    let numbers = |count: usize, seed: i64| -> Vec<i64> {
        (0..count as i64)
            .map(|n| {
                (n * 31 + seed * 17) % 1009 % 9
                    - if dtype.integers().is_some_and(|(least, _)| least == 0) { 0 } else { 4 }
            })
            .collect()
    };
    let x = |shape: &[usize], seed| on::<B>(whole(&numbers(shape.iter().product(), seed), shape, dtype));
    let big = |shape: &[usize]| {
        let count: usize = shape.iter().product();
        let pool = edges(dtype);
        let mut data = data(&(0..count).map(|n| pool[(n * 7) % pool.len()]).collect::<Vec<_>>(), dtype);
        data.shape = shape.to_vec();
        on::<B>(data)
    };
    let mut results = Results::new();
    let mut note = |name: &str, x: B::Primitive| results.push((format!("{name} of {dtype}"), read::<B>(x)));
    note("product", B::matmul(x(&[2, 3, 5], 1), x(&[2, 5, 4], 2)));
    if dtype.is_int() {
        note("product of edges", B::matmul(big(&[3, 6]), big(&[6, 4])));
        let halved = B::binary_scalar(BinaryOp::Div, B::matmul(big(&[3, 6]), big(&[6, 4])), Scalar::Int(2));
        note("halved product of edges", halved);
    }
    let image = || x(&[1, 2, 5, 5], 3);
    let options = PoolOptions {
        kernel: [3, 3].into(),
        stride: [2, 2].into(),
        padding: [(1, 1), (1, 1)].into(),
        dilation: [1, 1].into(),
        ceil_mode: false,
    };
    note("largest", B::pool(PoolOp::Max, image(), &options));
    note("average", B::pool(PoolOp::Average { include_pad: true }, image(), &options));
    if has_norms {
        note("norm", B::pool(PoolOp::Lp { p: 1 }, image(), &options));
    }
    let (values, at) = B::max_pool_with_indices(image(), &options);
    note("largest with places", values);
    note("places", B::cast(at, DType::I64));
    let conv = ConvOptions {
        stride: [1, 1].into(),
        padding: [(1, 1), (1, 1)].into(),
        dilation: [1, 1].into(),
        groups: 1,
    };
    note("convolution", B::conv(image(), x(&[9, 2, 3, 3], 4), Some(x(&[9], 5)), &conv));
    note("narrow convolution", B::conv(image(), x(&[2, 2, 3, 3], 4), None, &conv));
    results
}

pub fn products_and_windows<B: Backend>() {
    for dtype in of::<B>(&[DType::F64, DType::BF16]).chain(integers::<B>()) {
        // Means of bf16 are rounded once on either side, thirds of sums in f32.
        // Norms of integers are computed in floats that hold them.
        let has_norms = dtype.is_float() || B::supports(&B::Device::default(), DType::F64);
        assert_same(
            products::<B>(dtype, has_norms),
            products::<NdArray>(dtype, has_norms),
            if dtype == DType::BF16 { 4e-3 } else { 4e-16 },
        );
    }
}

fn rows<B: Backend>() -> Results {
    let numbers: Vec<f64> = (0..700).map(|n| ((n * 37 % 101) as f64 - 50.0) / 7.0).collect();
    let x = || on::<B>(reals(&numbers, &[2, 350], DType::F64));
    let weight = || on::<B>(reals(&numbers[..350], &[350], DType::F64));
    let heads = |n: usize| on::<B>(reals(&numbers[n..n + 24], &[1, 2, 3, 4], DType::F64));
    let attention = B::attention(heads(0), heads(3), heads(9), None, &Default::default());
    let named = [
        ("softmax", B::softmax(x(), 1)),
        ("log_softmax", B::log_softmax(x(), 0)),
        ("layer_norm", B::layer_norm(x(), weight(), Some(weight()), 1e-7)),
        ("rms_norm", B::rms_norm(x(), weight(), 1e-7)),
        ("attention", attention),
        ("product", B::matmul(x(), B::permute(x(), &[1, 0]))),
    ];
    named.map(|(name, x)| (name.to_owned(), read::<B>(x))).to_vec()
}

pub fn rows_in_double_precision<B: Backend>() {
    if B::supports(&B::Device::default(), DType::F64) {
        assert_same(rows::<B>(), rows::<NdArray>(), 2e-12);
    }
}

fn drawn<B: Backend>(dtypes: impl Iterator<Item = DType>) -> Results {
    let device = B::Device::default();
    B::seed(&device, 11);
    let draw = |dtype: DType| {
        let distribution =
            if dtype == DType::I16 { Distribution::Uniform(-9.0, 9.0) } else { Distribution::Default };
        (dtype.to_string(), read::<B>(B::random(Shape::from([50]), distribution, dtype, &device)))
    };
    dtypes.map(draw).collect()
}

pub fn the_same_seed_draws_the_same_numbers<B: Backend>() {
    let _alone = crate::drawing();
    assert_same(drawn::<B>(supported::<B>()), drawn::<NdArray>(supported::<B>()), 0.0);
}
