//! What the device is asked to do: few launches, none of them waited for, no memory but the first time.

#![cfg(target_os = "linux")]

mod host;

use kiln_autodiff::Autodiff;
use kiln_cuda::{Cuda, CudaDevice, statistics};
use kiln_ndarray::NdArray;
use kiln_tensor::backend::{AutodiffBackend, Backend, SliceRange};
use kiln_tensor::compose::{ElementwiseProgram, RnnOperands};
use kiln_tensor::{
    Activation, BinaryOp, CompareOp, ConvOptions, CumulativeOp, DType, Distribution, Expression, ReduceOp,
    RnnDirection, RnnKind, RnnOptions, Scalar, ScatterOp, Shape, Step, TensorData,
};
use std::sync::{Mutex, MutexGuard, PoisonError};

type B = Cuda;
type T = <B as Backend>::Primitive;

/// Counts are the device's, which the tests share.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn numbers<B: Backend>(shape: &[usize], seed: usize) -> B::Primitive {
    let count = shape.iter().product::<usize>();
    let values: Vec<f32> = (0..count).map(|n| ((n * 31 + seed * 17) % 1009 % 9) as f32 - 4.0).collect();
    B::from_data(TensorData::new(values, shape), &B::Device::default())
}

fn floats<B: Backend>(tensor: B::Primitive) -> Vec<f32> {
    B::into_data(tensor).expect("a device").to_vec().expect("floats")
}

/// A layer whose residual, activation and factor follow the product.
fn layer<B: Backend>([x, weight, bias, residual]: [B::Primitive; 4]) -> B::Primitive {
    let y = B::linear(x, &weight, Some(&bias), None);
    let y = B::activation(Activation::Relu, B::binary(BinaryOp::Add, y, residual));
    B::binary_scalar(BinaryOp::Mul, y, Scalar::Float(0.5))
}

fn operands<B: Backend>() -> [B::Primitive; 4] {
    [numbers::<B>(&[5, 12], 1), numbers::<B>(&[12, 40], 2), numbers::<B>(&[40], 3), numbers::<B>(&[5, 40], 4)]
}

#[test]
fn what_follows_a_product_is_done_by_it() {
    let _alone = alone();
    let own = operands::<B>();
    B::sync(&CudaDevice::default()).expect("a device");
    let before = statistics(&CudaDevice::default()).launches;
    let y = layer::<B>(own);
    assert_eq!(statistics(&CudaDevice::default()).launches - before, 1);
    assert_eq!(floats::<B>(y), floats::<NdArray>(layer::<NdArray>(operands::<NdArray>())));
}

/// A loss that is weighted and bounded by a number of its own in each step.
#[test]
fn another_number_is_no_other_kernel() {
    type A = Autodiff<B>;
    let _alone = alone();
    let step = |number: f64| {
        let x = A::set_require_grad(numbers::<A>(&[5, 7], 1), true);
        let number = Scalar::Float(number);
        let scaled = [BinaryOp::Mul, BinaryOp::Div, BinaryOp::Sub, BinaryOp::Fmod]
            .into_iter()
            .fold(A::unary(kiln_tensor::UnaryOp::Tanh, x.clone()), |y, op| A::binary_scalar(op, y, number));
        // Within these it stays.
        let [low, high] = [-8.0, 8.0].map(|factor| Scalar::Float(factor * number.to_f64()));
        let bounded = A::binary_scalar(BinaryOp::Min, A::clamp(scaled, Some(low), Some(high)), high);
        let beyond = A::compare_scalar(CompareOp::Greater, bounded.clone(), high);
        let filled = A::mask_fill(bounded, beyond, number);
        let loss = A::reduce(ReduceOp::Sum, filled, &[0, 1]);
        let found = A::backward(loss);
        floats::<B>(A::grad(&x, &found).expect("a gradient"))
    };
    let kernels = || {
        let statistics = statistics(&CudaDevice::default());
        statistics.compiled + statistics.loaded
    };
    let first = step(0.5);
    let known = kernels();
    for number in [0.25, 0.75, 1.5] {
        // Multiplied and divided by the same.
        for (found, first) in step(number).iter().zip(&first) {
            assert!((found - first).abs() < 1e-6);
        }
    }
    assert_eq!(kernels(), known);
}

#[test]
fn another_exponent_is_no_other_kernel() {
    let _alone = alone();
    let kernels = |exponent: f64| {
        let power = B::binary_scalar(BinaryOp::Pow, numbers::<B>(&[4], 1), Scalar::Float(exponent));
        drop(floats::<B>(power));
        let statistics = statistics(&CudaDevice::default());
        statistics.compiled + statistics.loaded
    };
    let first = kernels(0.3);
    assert_eq!(kernels(1.7), first);
    // Those that are products have kernels of their own.
    assert_eq!(kernels(2.0), first + 1);
}

/// Long sums of few results, and what follows them: of 32-bit floats, of 16-bit ones, of windows.
fn deep<B: Backend>() -> [Box<dyn Fn() -> B::Primitive>; 3] {
    let [x, weight] = [numbers::<B>(&[8, 2048], 1), numbers::<B>(&[2048, 40], 2)];
    let [bias, residual] = [numbers::<B>(&[40], 3), numbers::<B>(&[8, 40], 4)];
    let halves = [&x, &weight].map(|tensor| B::cast(tensor.clone(), DType::BF16));
    let images = [&[1, 64, 6, 6], &[32, 64, 3, 3]].map(|shape| numbers::<B>(shape, 5));
    let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
    [
        Box::new(move || layer::<B>([&x, &weight, &bias, &residual].map(Clone::clone))),
        Box::new(move || B::linear(halves[0].clone(), &halves[1], None, Some(Activation::Relu))),
        Box::new(move || {
            let [image, weight] = images.clone();
            B::conv_activated(image, weight, None, Activation::Relu, &options)
        }),
    ]
}

#[test]
fn long_sums_of_few_results_are_done_in_parts() {
    let _alone = alone();
    for (own, expected) in deep::<B>().iter().zip(deep::<NdArray>()) {
        B::sync(&CudaDevice::default()).expect("a device");
        let before = statistics(&CudaDevice::default()).launches;
        let y = own();
        // The parts, and their sum with what follows.
        assert_eq!(statistics(&CudaDevice::default()).launches - before, 2);
        let single = |data: TensorData| data.convert_dtype(DType::F32).to_vec::<f32>().expect("floats");
        let [found, wanted] = [
            B::into_data(y).expect("a device"),
            NdArray::<f32, i64>::into_data(expected()).expect("a device"),
        ]
        .map(single);
        assert_eq!(found, wanted);
    }
}

/// Programs of 16-bit floats behind a product and before a reduction, and how many launches they take. Where somebody holds what is between them, each is
/// a kernel of its own.
fn often_rounded(dtype: DType, is_held: bool) -> ([Vec<f32>; 2], u64) {
    let thirds = |shape: &[usize], seed| {
        let third = B::binary_scalar(BinaryOp::Div, numbers::<B>(shape, seed), Scalar::Float(3.0));
        B::cast(third, dtype)
    };
    let [x, weight] = [thirds(&[40, 20], 1), thirds(&[20, 24], 2)];
    let others = [thirds(&[40, 24], 3), thirds(&[1, 24], 4), thirds(&[40, 1], 5)];
    B::sync(&CudaDevice::default()).expect("a device");
    let before = statistics(&CudaDevice::default()).launches;
    let mut held = Vec::new();
    let mut hold = |tensor: &T| held.extend(is_held.then(|| tensor.clone()));
    let mut y = B::matmul(x, weight);
    for (op, other) in [BinaryOp::Add, BinaryOp::Mul, BinaryOp::Sub].into_iter().zip(others) {
        hold(&y);
        y = B::binary(op, y, other);
    }
    let product = B::binary(BinaryOp::Mul, y.clone(), y.clone());
    hold(&product);
    let sums = B::reduce(ReduceOp::Sum, product, &[1]);
    let launches = statistics(&CudaDevice::default()).launches - before;
    ([y, sums].map(|tensor| floats::<B>(B::cast(tensor, DType::F32))), launches)
}

#[test]
fn kernels_that_do_more_round_as_often() {
    let _alone = alone();
    for dtype in [DType::F16, DType::BF16] {
        let (alone, launches) = often_rounded(dtype, true);
        let (together, fewer) = often_rounded(dtype, false);
        assert_eq!((launches, fewer), (6, 2), "{dtype}");
        // To the last bit.
        assert_eq!(together, alone, "{dtype}");
    }
}

/// A reduction, or a softmax, of a product that nobody else holds, and what follows it.
fn reduced<B: Backend>([a, b, factor]: [B::Primitive; 3], rows: bool) -> B::Primitive {
    let product = B::binary(BinaryOp::Mul, a, b);
    let y = if rows { B::softmax(product, 1) } else { B::reduce(ReduceOp::Sum, product, &[1]) };
    B::binary(BinaryOp::Mul, y, factor)
}

#[test]
fn reductions_compute_what_they_read() {
    let _alone = alone();
    fn own<B: Backend>(rows: bool) -> [B::Primitive; 3] {
        let factor = if rows { [3, 70] } else { [3, 1] };
        [numbers::<B>(&[3, 70], 1), numbers::<B>(&[1, 70], 2), numbers::<B>(&factor, 3)]
    }
    for rows in [false, true] {
        let operands = own::<B>(rows);
        B::sync(&CudaDevice::default()).expect("a device");
        let before = statistics(&CudaDevice::default()).launches;
        let y = reduced::<B>(operands, rows);
        assert_eq!(statistics(&CudaDevice::default()).launches - before, 1);
        let (found, expected) =
            (floats::<B>(y), floats::<NdArray>(reduced::<NdArray>(own::<NdArray>(rows), rows)));
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-5, "{found} and {expected}, rows: {rows}");
        }
    }
}

/// Both directions' outputs of a layer without biases, of so many steps of two rows.
fn recurrent<B: Backend>(kind: RnnKind, hidden: usize, steps: usize) -> B::Primitive {
    let options = RnnOptions {
        kind,
        direction: RnnDirection::Bidirectional,
        hidden_size: hidden,
        activations: kind.activations().repeat(2).into(),
        clip: None,
        state_clip: None,
        batch_first: false,
    };
    let scaled = |x| B::binary_scalar(BinaryOp::Mul, x, Scalar::Float(0.01));
    let operands = RnnOperands::<B> {
        input: numbers::<B>(&[steps, 2, 3], 1),
        weight: scaled(numbers::<B>(&[2, kind.gates() * hidden, 3], 2)),
        recurrent: scaled(numbers::<B>(&[2, kind.gates() * hidden, hidden], 3)),
        bias: None,
        sequence_lengths: None,
        initial_hidden: None,
        initial_cell: None,
        peepholes: None,
    };
    B::rnn(operands, &options).output
}

/// A launch for all steps, or for each where many workgroups share its product: two, where a product needs the other's results.
#[test]
fn wide_recurrent_layers_take_a_launch_for_each_step() {
    let _alone = alone();
    let gru = |linear_before_reset| RnnKind::Gru { linear_before_reset };
    let lstm = RnnKind::Lstm { input_forget: false };
    for (kind, hidden, each) in
        [(lstm, 90, 0), (lstm, 91, 1), (gru(true), 105, 1), (gru(false), 105, 2), (RnnKind::Rnn, 182, 1)]
    {
        let launches = |steps| {
            B::sync(&CudaDevice::default()).expect("a device");
            let before = statistics(&CudaDevice::default()).launches;
            let y = recurrent::<B>(kind, hidden, steps);
            B::sync(&CudaDevice::default()).expect("a device");
            let launches = statistics(&CudaDevice::default()).launches - before;
            let (found, expected) =
                (floats::<B>(y), floats::<NdArray>(recurrent::<NdArray>(kind, hidden, steps)));
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(&expected) {
                assert!((found - expected).abs() < 1e-5, "{found} and {expected} of {kind:?}, {steps} steps");
            }
            launches
        };
        assert_eq!(launches(7) - launches(2), 5 * each, "{kind:?} of {hidden}");
    }
}

#[test]
fn what_others_hold_stays_as_it_was() {
    let _alone = alone();
    let [a, b] = [numbers::<B>(&[3, 4], 1), numbers::<B>(&[3, 4], 2)];
    let sum = B::binary(BinaryOp::Add, a, b);
    let kept = sum.clone();
    let halved = B::binary_scalar(BinaryOp::Mul, sum, Scalar::Float(0.5));
    let (kept, halved) = (floats::<B>(kept), floats::<B>(halved));
    assert_eq!(halved, kept.iter().map(|x| x * 0.5).collect::<Vec<_>>());
}

#[test]
fn a_second_pass_allocates_nothing_and_waits_for_nothing() {
    let _alone = alone();
    let device = CudaDevice::default();
    let own: [T; 4] = operands::<B>();
    let first = layer::<B>(own.clone());
    drop(layer::<B>(own.clone()));
    drop(first);
    let before = statistics(&device);
    let y = layer::<B>(own);
    let after = statistics(&device);
    assert!(after.launches > before.launches);
    assert_eq!(after.waits, before.waits, "something was read back");
    assert_eq!(after.buffers, before.buffers, "memory was allocated");
    assert_eq!((after.compiled, after.loaded), (before.compiled, before.loaded), "a kernel was compiled");
    assert_eq!(after.uploaded_bytes, before.uploaded_bytes, "something was sent to the device");
    drop(y);
}

#[test]
fn the_same_seed_draws_the_same_numbers_as_on_the_cpu() {
    let _alone = alone();
    fn drawn<B: Backend>() -> Vec<TensorData> {
        let device = B::Device::default();
        B::seed(&device, 7);
        let draw = |distribution, dtype| {
            B::into_data(B::random(Shape::from([3, 50]), distribution, dtype, &device)).expect("a device")
        };
        let ones = B::full(Shape::from([200]), 1.0.into(), DType::F32, &device);
        let uploaded = statistics(&CudaDevice::default()).uploaded_bytes;
        let mut drawn = vec![
            draw(Distribution::Normal(1.0, 2.0), DType::F32),
            draw(Distribution::Uniform(-3.0, 0.1), DType::F32),
            draw(Distribution::Uniform(-3.0, 0.1), DType::F64),
            draw(Distribution::Default, DType::F32),
            draw(Distribution::Default, DType::BF16),
            draw(Distribution::Default, DType::F64),
            draw(Distribution::Default, DType::Bool),
            draw(Distribution::Bernoulli(0.3), DType::F32),
            draw(Distribution::Bernoulli(1.0), DType::I64),
        ];
        let integers =
            [DType::I64, DType::I32, DType::I16, DType::I8, DType::U64, DType::U32, DType::U16, DType::U8];
        for dtype in integers {
            drawn.push(draw(Distribution::Default, dtype));
            drawn.push(draw(Distribution::Uniform(-3.0, 9.5), dtype));
            // More than some of them have.
            drawn.push(draw(Distribution::Uniform(-70_000.0, 5e9), dtype));
            drawn.push(draw(Distribution::Normal(4.0, 20.0), dtype));
        }
        for dtype in [DType::F16, DType::BF16] {
            drawn.push(draw(Distribution::Default, dtype));
            drawn.push(draw(Distribution::Uniform(-3.0, 0.1), dtype));
            drawn.push(draw(Distribution::Uniform(0.0, 1e-9), dtype));
            drawn.push(draw(Distribution::Normal(1.0, 2.0), dtype));
        }
        // Its f64 logarithm may have other last bits.
        let doubles = draw(Distribution::Normal(1.0, 2.0), DType::F64);
        drawn.push(doubles.convert_dtype(DType::F32));
        // The device drew them itself.
        assert_eq!(statistics(&CudaDevice::default()).uploaded_bytes, uploaded);
        let key = B::random_key(&device);
        drawn.into_iter().chain([B::into_data(B::dropout(ones, 0.4, key)).expect("a device")]).collect()
    }
    assert_eq!(drawn::<B>(), drawn::<NdArray>());
}

#[test]
fn tensors_go_from_device_to_device() {
    let _alone = alone();
    let (here, other) = (CudaDevice::default(), CudaDevice::new(1));
    let x = B::permute(numbers::<B>(&[4, 3], 1), &[1, 0]);
    let before = statistics(&here).waits;
    let there = B::to_device(B::binary_scalar(BinaryOp::Add, x, Scalar::Float(0.0)), &other);
    // What the source's memory is used for next does not overtake the copy.
    let next: Vec<T> =
        (0..4).map(|n| B::full(Shape::from([3, 4]), Scalar::Float(n.into()), DType::F32, &here)).collect();
    assert_eq!(statistics(&here).waits, before, "bytes go from device to device");
    assert_eq!(B::device(&there), other);
    drop(next);
    let twice = B::binary_scalar(BinaryOp::Mul, there, Scalar::Float(2.0));
    let expected = floats::<B>(B::permute(numbers::<B>(&[4, 3], 1), &[1, 0]));
    assert_eq!(floats::<B>(twice), expected.iter().map(|x| x * 2.0).collect::<Vec<_>>());
}

/// What an optimizer does for one parameter: a new parameter and a new average, in one program.
fn step<B: Backend>(theta: B::Primitive, gradient: B::Primitive, average: B::Primitive) -> [B::Primitive; 2] {
    let mut program = Expression::new(vec![
        Step::Input(0),
        Step::Input(1),
        Step::Input(2),
        Step::Parameter(0, DType::F32),
        Step::Binary(BinaryOp::Mul, 2, 3),
        Step::Binary(BinaryOp::Add, 4, 1),
        Step::Binary(BinaryOp::Sub, 0, 5),
    ]);
    program.outputs = vec![6, 5];
    let results = B::elementwise(&program, [theta, gradient, average].into(), &[Scalar::Float(0.5)]);
    results.try_into().unwrap_or_else(|_| panic!("two results"))
}

/// Parameters of many sizes, some equal, some with gradients that lie in another order, one whose average is its gradient.
fn parameters<B: Backend>() -> Vec<[B::Primitive; 3]> {
    let parameter = |n: usize| {
        let (rows, columns) = (n % 5 + 1, if n == 30 { 700 } else { n % 3 + 2 });
        let theta = numbers::<B>(&[rows, columns], n);
        let gradient = match n % 4 {
            1 => B::permute(numbers::<B>(&[columns, rows], n + 1), &[1, 0]),
            _ => numbers::<B>(&[rows, columns], n + 1),
        };
        let average = if n == 7 { gradient.clone() } else { numbers::<B>(&[rows, columns], n + 2) };
        [theta, gradient, average]
    };
    (0..60).map(parameter).collect()
}

/// All parameters after two steps.
fn stepped<B: Backend>() -> Vec<Vec<f32>> {
    let mut all = parameters::<B>();
    for _ in 0..2 {
        all = all
            .into_iter()
            .map(|[theta, gradient, average]| {
                let [theta, average] = step::<B>(theta, gradient.clone(), average);
                [theta, gradient, average]
            })
            .collect();
    }
    all.into_iter().flat_map(|[theta, _, average]| [theta, average]).map(floats::<B>).collect()
}

#[test]
fn an_optimizer_steps_all_parameters_with_few_launches() {
    let _alone = alone();
    let device = CudaDevice::default();
    let all = parameters::<B>();
    B::sync(&device).expect("a device");
    let before = statistics(&device).launches;
    // Nobody holds what a step takes: its memory must not be another's before all have run.
    let results: Vec<_> =
        all.into_iter().map(|[theta, gradient, average]| step::<B>(theta, gradient, average)).collect();
    B::sync(&device).expect("a device");
    let launches = statistics(&device).launches - before;
    assert!(launches <= 10, "{launches} launches for {} parameters", results.len());
    assert_eq!(stepped::<B>(), stepped::<NdArray>());
}

#[test]
fn steps_that_depend_on_each_other_stay_in_order() {
    let _alone = alone();
    fn chain<B: Backend>() -> Vec<f32> {
        let (mut theta, mut average) = (numbers::<B>(&[3, 4], 1), numbers::<B>(&[3, 4], 2));
        for _ in 0..5 {
            [theta, average] = step::<B>(theta.clone(), average.clone(), theta);
        }
        let sum = B::binary(BinaryOp::Add, theta.clone(), average);
        [floats::<B>(theta), floats::<B>(sum)].concat()
    }
    assert_eq!(chain::<B>(), chain::<NdArray>());
}

/// What is computed of an image while statistics move, as batch normalization does, and of what these programs yield.
fn beside_an_image<B: Backend>(reads_image: bool, count: impl Fn() -> u64) -> (Vec<Vec<f32>>, u64) {
    let image = numbers::<B>(&[64, 12], 1);
    let [theta, average, of_batch] = [2, 3, 4].map(|seed| numbers::<B>(&[1, 12], seed));
    B::sync(&B::Device::default()).expect("a device");
    let before = count();
    // The image's own memory is nobody's from here on, and could be what the next results are written to.
    let y = B::binary(BinaryOp::Mul, image, of_batch.clone());
    let gradient = if reads_image { B::reduce(ReduceOp::Max, y.clone(), &[0]) } else { of_batch };
    let [theta, average] = step::<B>(theta, gradient, average);
    let y = B::activation(Activation::Relu, y);
    let y = B::binary(BinaryOp::Add, y, theta.clone());
    B::sync(&B::Device::default()).expect("a device");
    ([y, theta, average].map(floats::<B>).into(), count() - before)
}

/// What becomes of some tensors when they are computed of each other, written over and dropped, in an order that follows from a seed. All numbers are exact.
fn shuffled<B: Backend>(seed: u64) -> Vec<Vec<f32>> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = |n: usize| {
        // xorshift64 (Marsaglia, "Xorshift RNGs", 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % n
    };
    let dims = [72, 40];
    let mut tensors: Vec<B::Primitive> = (0..4).map(|seed| numbers::<B>(&dims, seed)).collect();
    let steps = vec![
        Step::Input(0),
        Step::Input(1),
        Step::Parameter(0, DType::F32),
        Step::Binary(BinaryOp::Mul, 1, 2),
        Step::Binary(BinaryOp::Add, 0, 3),
        Step::Binary(BinaryOp::Max, 0, 3),
    ];
    let both = Expression { steps, outputs: vec![4, 5] };
    for _ in 0..60 {
        let [a, b] = [0; 2].map(|_| tensors[below(tensors.len())].clone());
        match below(10) {
            // Waits for others of its kind.
            0..=2 => {
                let factor = [Scalar::Float([0.5, -1.0][below(2)])];
                tensors.extend(B::elementwise(&both, [a, b].into(), &factor));
            }
            3 => tensors.push(B::binary(BinaryOp::Sub, a, b)),
            // Kernels that wait for none.
            4 => tensors.push(B::cumulative(CumulativeOp::Max, a, 1, false, false)),
            5 => tensors.push(B::binary(BinaryOp::Min, B::reduce(ReduceOp::Max, a, &[0]), b)),
            // Written in place, where nobody else holds it.
            6 => {
                drop(a);
                let place = below(tensors.len());
                let (row, over) = (below(dims[0]), tensors.swap_remove(place));
                let ranges = [row..row + 1, 0..dims[1]].map(|range| SliceRange {
                    start: range.start,
                    end: range.end,
                    step: 1,
                });
                let value = B::slice(b, &ranges);
                tensors.push(B::slice_assign(over, &ranges, value));
            }
            // Computed by the kernels of sums and rows, which are not exact.
            7 => {
                let x = B::binary(BinaryOp::Sub, a, b.clone());
                let operands = [x.clone(), b].into();
                drop(B::elementwise_sums(
                    ElementwiseProgram { expression: &both, operands, parameters: &[Scalar::Float(0.5)] },
                    &[0],
                    None,
                ));
                tensors.push(x);
            }
            8 => {
                let x = B::binary(BinaryOp::Max, a, b);
                drop(B::softmax(x.clone(), 1));
                tensors.push(x);
            }
            _ => tensors.push(B::binary(BinaryOp::Add, B::activation(Activation::Relu, a), b)),
        }
        while tensors.len() > 6 {
            // Memory that is dropped is what is written next.
            drop(tensors.swap_remove(below(tensors.len())));
        }
    }
    tensors.into_iter().map(floats::<B>).collect()
}

#[test]
fn what_waits_sees_what_it_would_alone() {
    let _alone = alone();
    for seed in 0..100 {
        assert_eq!(shuffled::<B>(seed), shuffled::<NdArray>(seed), "seed {seed}");
    }
}

#[test]
fn what_waits_goes_on_waiting_beside_other_kernels() {
    let _alone = alone();
    let running = |seed| [numbers::<B>(&[40], seed), numbers::<B>(&[40], seed + 1)];
    let steps = vec![
        Step::Input(0),
        Step::Input(1),
        Step::Binary(BinaryOp::Sub, 0, 1),
        Step::Binary(BinaryOp::Max, 0, 1),
    ];
    let both = Expression { steps, outputs: vec![2, 3] };
    let x = numbers::<B>(&[24, 40], 9);
    // Uploads launch what waits.
    let all: Vec<_> = (0..5).map(running).collect();
    let made = launches(|| {
        let mut kept = Vec::new();
        for running in all {
            kept.extend(B::elementwise(&both, running.into(), &[]));
            kept.push(B::cumulative(CumulativeOp::Max, x.clone(), 1, false, false));
        }
        kept
    });
    // The programs at once.
    assert_eq!(made, 1 + 5);
}

/// What a kernel that is still open read of channels is not where a program that may go before it writes.
#[test]
fn what_the_last_kernel_read_is_not_written_before_it() {
    let _alone = alone();
    let [image, factor] = [numbers::<B>(&[200, 64], 1), numbers::<B>(&[1, 64], 2)];
    let running = [3, 4].map(|seed| numbers::<B>(&[1, 64], seed));
    let steps = vec![
        Step::Input(0),
        Step::Input(1),
        Step::Binary(BinaryOp::Sub, 0, 1),
        Step::Binary(BinaryOp::Max, 0, 1),
    ];
    let both = Expression { steps, outputs: vec![2, 3] };
    let made = launches(|| {
        // Nobody holds the factor behind this.
        let scaled = B::binary(BinaryOp::Mul, image, factor);
        let mut kept: Vec<_> = B::elementwise(&both, running.into(), &[]).into_iter().collect();
        kept.push(B::activation(Activation::Relu, scaled));
        kept
    });
    assert_eq!(made, 2);
}

#[test]
fn programs_of_several_results_leave_the_last_kernel_open() {
    let _alone = alone();
    let launches = || statistics(&CudaDevice::default()).launches;
    // The statistics, and all that is done to the image; where these are made of it they come between.
    for (reads_image, most) in [(false, 2), (true, 4)] {
        let (found, count) = beside_an_image::<B>(reads_image, launches);
        assert_eq!(found, beside_an_image::<NdArray>(reads_image, || 0).0);
        assert_eq!(count, most, "{reads_image}");
    }
}

#[test]
fn a_norms_gradient_looks_at_its_rows_once() {
    let _alone = alone();
    let [gradient, x] = [1, 2].map(|seed| numbers::<B>(&[40, 24], seed));
    let weight = numbers::<B>(&[24], 3);
    B::sync(&CudaDevice::default()).expect("a device");
    let before = statistics(&CudaDevice::default()).launches;
    let found = B::layer_norm_gradient(gradient, x, weight, 1e-5);
    B::sync(&CudaDevice::default()).expect("a device");
    // Rows, and both sums at once for weight and bias.
    assert_eq!(statistics(&CudaDevice::default()).launches - before, 2);
    drop(found);
}

/// How many kernels it takes.
fn launches(run: impl FnOnce() -> Vec<<B as Backend>::Primitive>) -> u64 {
    B::sync(&CudaDevice::default()).expect("a device");
    let before = statistics(&CudaDevice::default()).launches;
    let found = run();
    B::sync(&CudaDevice::default()).expect("a device");
    drop(found);
    statistics(&CudaDevice::default()).launches - before
}

#[test]
fn a_norm_computes_what_others_read_too() {
    let _alone = alone();
    let [a, b] = [1, 2].map(|seed| numbers::<B>(&[200, 300], seed));
    let [weight, bias] = [3, 4].map(|seed| numbers::<B>(&[300], seed));
    let before = statistics(&CudaDevice::default()).moved_bytes;
    let made = launches(|| {
        let x = B::binary(BinaryOp::Add, a, b);
        vec![B::layer_norm(x.clone(), weight, Some(bias), 1e-5), x]
    });
    assert_eq!(made, 1);
    // Both are read, the sum and what is made of it are written.
    let moved = statistics(&CudaDevice::default()).moved_bytes - before;
    assert_eq!(moved, 4 * (4 * 200 * 300 + 2 * 300));
}

#[test]
fn each_row_is_multiplied_by_its_groups_matrix_alone() {
    let _alone = alone();
    // Of more rows than groups, and of fewer.
    for rows in [200, 6] {
        let ends = B::from_data(TensorData::new(vec![1_i64, 3, 3, 5, 5, 5, 6], [7]), &CudaDevice::default());
        let (x, weight) = (numbers::<B>(&[rows, 30], 1), numbers::<B>(&[7, 30, 20], 2));
        assert_eq!(launches(|| vec![B::grouped_matmul(x.clone(), weight, ends.clone())]), 1);
        let gradient = numbers::<B>(&[rows, 20], 3);
        assert_eq!(launches(|| vec![B::grouped_matmul_weight_gradient(gradient, x, ends)]), 1);
    }
}

#[test]
fn columns_are_read_once() {
    let _alone = alone();
    // What is computed of so many elements that they are read four at a time is so where it is summed, in runs that the last workgroup joins.
    let [x, factor] = [numbers::<B>(&[4_100, 64], 1), numbers::<B>(&[1, 64], 2)];
    let of_product = launches(|| vec![B::reduce(ReduceOp::Sum, B::binary(BinaryOp::Mul, x, factor), &[0])]);
    assert_eq!(of_product, 1);
    // Rows, and both sums at once, in the dtype of the gradients.
    let halves = |dims: &[usize], seed| B::cast(numbers::<B>(dims, seed), DType::BF16);
    for (rows, dtype) in [(100, DType::F32), (4_100, DType::F32), (100, DType::BF16), (4_100, DType::BF16)] {
        let of = |dims: &[usize]| B::cast(halves(dims, 3), dtype);
        let [gradient, x, weight] = [&[rows, 64][..], &[rows, 64], &[64]].map(of);
        let of_layer = launches(|| {
            let found = B::layer_norm_gradient(gradient, x, weight, 1e-5);
            vec![found.input, found.weight, found.bias]
        });
        assert_eq!(of_layer, 2, "{rows} rows of {dtype}");
    }
    // What is known of the channels, both sums at once with what the input's gradient needs of them, and that.
    let images = |seed| B::permute(numbers::<B>(&[2, 64, 65, 64], seed), &[0, 3, 1, 2]);
    let [gradient, x] = [1, 2].map(images);
    let [weight, mean, variance] = [3, 4, 5].map(|seed| numbers::<B>(&[64], seed));
    let of_batch = launches(|| {
        let found = B::batch_norm_gradient(gradient, x, weight, mean, variance, 1e-5);
        vec![found.input, found.weight, found.bias]
    });
    assert_eq!(of_batch, 3);
    // A gradient that is added up just before is so where it is summed, though the input's gradient reads it later.
    let [one, other, x] = [1, 2, 3].map(images);
    let [weight, mean, variance] = [3, 4, 5].map(|seed| numbers::<B>(&[64], seed));
    let of_sum = launches(|| {
        let gradient = B::binary(BinaryOp::Add, one, other);
        let found = B::batch_norm_gradient(gradient, x, weight, mean, variance, 1e-5);
        vec![found.input, found.weight, found.bias]
    });
    assert_eq!(of_sum, of_batch);
    // Sums of rows that lie together, which are not in runs.
    let [gradient, x] = [1, 2].map(|seed| halves(&[2, 64, 65, 64], seed));
    let [weight, mean, variance] = [3, 4, 5].map(|seed| halves(&[64], seed));
    let of_rows = launches(|| {
        let found = B::batch_norm_gradient(gradient, x, weight, mean, variance, 1e-5);
        vec![found.input, found.weight, found.bias]
    });
    assert_eq!(of_rows, 3);
}

#[test]
fn activations_of_batch_norms_are_differentiated_with_them() {
    type Tape = Autodiff<B>;
    let _alone = alone();
    let device = CudaDevice::default();
    // Launches of the way back, and bytes that its kernels moved.
    let way_back = |activation: Option<Activation>| {
        let leaf = |primitive| Tape::set_require_grad(Tape::from_inner(primitive), true);
        let x = leaf(B::permute(numbers::<B>(&[2, 64, 65, 64], 1), &[0, 3, 1, 2]));
        let [weight, bias] = [2, 3].map(|seed| leaf(numbers::<B>(&[64], seed)));
        let trained = Tape::batch_norm_train(x.clone(), weight.clone(), bias, 1e-5);
        let y = match activation {
            Some(activation) => Tape::activation(activation, trained.output),
            None => trained.output,
        };
        let gradient = Tape::from_inner(B::permute(numbers::<B>(&[2, 64, 65, 64], 4), &[0, 3, 1, 2]));
        let loss = Tape::reduce(ReduceOp::Sum, Tape::binary(BinaryOp::Mul, y, gradient), &[0, 1, 2, 3]);
        B::sync(&device).expect("a device");
        let before = statistics(&device);
        let gradients = Tape::backward(loss);
        B::sync(&device).expect("a device");
        let after = statistics(&device);
        assert!(Tape::grad(&x, &gradients).is_some() && Tape::grad(&weight, &gradients).is_some());
        (after.launches - before.launches, after.moved_bytes - before.moved_bytes)
    };
    let (launches, bytes) = way_back(None);
    for activation in [Activation::Relu, Activation::Silu] {
        let (with_activation, more) = way_back(Some(activation));
        assert_eq!(with_activation, launches, "{activation:?}");
        // Parameters of the channels, but nothing as large as the images.
        assert!(more - bytes < 2 * 64 * 65 * 64, "{activation:?}: {more} bytes, {bytes} without it");
    }
}

#[test]
fn a_batchs_statistics_take_one_look() {
    let _alone = alone();
    let x = B::permute(numbers::<B>(&[2, 64, 65, 64], 1), &[0, 3, 1, 2]);
    let [weight, bias] = [2, 3].map(|seed| numbers::<B>(&[64], seed));
    let before = statistics(&CudaDevice::default()).moved_bytes;
    let made = launches(|| {
        let trained = B::batch_norm_train(x, weight, bias, 1e-5);
        vec![trained.output, trained.mean, trained.variance]
    });
    // The statistics with what the channels are multiplied by, the result.
    assert_eq!(made, 2);
    // The images are read twice and written once.
    let moved = statistics(&CudaDevice::default()).moved_bytes - before;
    assert!(moved < 4 * (2 * 64 * 65 * 64) * 7 / 2, "{moved} bytes");
}

#[test]
fn gradients_of_several_uses_meet_in_one_kernel() {
    type Tape = Autodiff<B>;
    let _alone = alone();
    // The launches of the way back of a function of an activation and a weight.
    let way_back = |dims: &[usize], weight: &[usize], f: &dyn Fn(&[<Tape as Backend>::Primitive; 2]) -> _| {
        let leaf =
            |dims: &[usize], seed| Tape::set_require_grad(Tape::from_inner(numbers::<B>(dims, seed)), true);
        let x = leaf(dims, 1);
        let y = Tape::activation(Activation::Relu, x.clone());
        let operands = [y, leaf(weight, 2)];
        let all: Vec<usize> = (0..dims.len()).collect();
        let loss = Tape::reduce(ReduceOp::Sum, f(&operands), &all);
        drop(operands);
        launches(|| {
            let gradients = Tape::backward(loss);
            vec![Tape::grad(&x, &gradients).expect("a gradient")]
        })
    };
    let twice =
        |y, z| Tape::binary(BinaryOp::Add, Tape::binary_scalar(BinaryOp::Mul, y, Scalar::Float(3.0)), z);
    let linear =
        way_back(&[5, 12], &[12, 12], &|[y, w]| twice(y.clone(), Tape::linear(y.clone(), w, None, None)));
    let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
    let conv = way_back(&[2, 4, 6, 6], &[4, 4, 3, 3], &|[y, w]| {
        twice(y.clone(), Tape::conv(y.clone(), w.clone(), None, &options))
    });
    let matmul =
        way_back(&[5, 12], &[12, 12], &|[y, w]| twice(y.clone(), Tape::matmul(y.clone(), w.clone())));
    // The loss's gradient, a factor of it, what the weight gets (in parts, which are added up, and put in order), and what arrives at `x`: product, sum and ReLU's gradient at once.
    assert_eq!([linear, conv, matmul], [4, 6, 4]);
}

#[test]
fn few_indices_take_few_launches_and_many_not_many_more() {
    let _alone = alone();
    let index = |count: usize, rows: usize| {
        let rows: Vec<i32> = (0..count).map(|n| (n * 7919 % rows) as i32).collect();
        B::from_data(TensorData::new(rows, [count]), &CudaDevice::default())
    };
    let add = |count: usize, rows: usize| {
        let (table, values) = (numbers::<B>(&[rows, 2], 1), numbers::<B>(&[count, 2], 2));
        let index = index(count, rows);
        launches(|| vec![B::select_assign(table, 0, index, values, ScatterOp::Add)])
    };
    // Lane by lane; a sort of one block and two levels; of several, which are merged at once.
    assert_eq!([add(100, 9), add(1000, 9), add(1100, 9), add(1100, 5000)], [1, 3, 4, 4]);
    let gradient = |count: usize, rows: usize| {
        let (index, arrives) = (index(count, rows), numbers::<B>(&[count, 4], 1));
        launches(|| vec![B::embedding_gradient(arrives, index, rows)])
    };
    // Zeros, and one look at all; likewise by order.
    assert_eq!([gradient(300, 1000), gradient(1500, 3000)], [2, 5]);
    let order = |length: usize, keep: Option<usize>| {
        let x = numbers::<B>(&[2, length], 1);
        launches(|| {
            let (values, positions) = match keep {
                Some(keep) => B::topk(x, keep, 1, true),
                None => B::sort(x, 1, true),
            };
            vec![values, positions]
        })
    };
    // What is read at the positions, and these in the dtype of indices, are two of them.
    assert_eq!([order(64, None), order(5000, None)], [3, 5]);
    assert_eq!([order(64, Some(2)), order(5000, Some(50)), order(5000, Some(1))], [3, 4, 4]);
}
