//! What follows a kernel step by step is done by it, where nobody can see the difference.

use kiln_ndarray::NdArray;
use kiln_tensor::backend::Backend;
use kiln_tensor::compose::RnnOperands;
use kiln_tensor::{
    Activation, ArgReduceOp, BinaryOp, ConvOptions, CumulativeOp, DType, PoolOp, PoolOptions, ReduceOp,
    RnnDirection, RnnKind, RnnOptions, Scalar, Shape, TensorData, UnaryOp,
};
use kiln_wgpu::{WgpuDevice, statistics, submit};
use std::sync::{Mutex, MutexGuard, PoisonError};

type Wgpu = kiln_wgpu::Wgpu;

/// Kernels are counted by the device, which the tests share.
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

/// How many kernels something records, and what it yields.
fn kernels(run: impl FnOnce() -> <Wgpu as Backend>::Primitive) -> (u64, Vec<f32>) {
    let device = WgpuDevice::default();
    submit(&device);
    let before = statistics(&device).dispatches;
    let result = run();
    (statistics(&device).dispatches - before, floats::<Wgpu>(result))
}

#[test]
fn residuals_and_activations_join_the_product() {
    let _alone = alone();
    fn block<B: Backend>(inputs: [B::Primitive; 4]) -> B::Primitive {
        let [x, weight, bias, residual] = inputs;
        let y = B::linear(x, &weight, Some(&bias), None);
        let y = B::binary(BinaryOp::Add, y, residual);
        let y = B::activation(Activation::Relu, y);
        B::binary_scalar(BinaryOp::Mul, y, Scalar::Float(0.5))
    }
    for (rows, depth, columns) in [(5, 12, 40), (1, 8, 3), (9, 7, 33)] {
        let inputs = || [[rows, depth], [depth, columns], [1, columns], [rows, columns]];
        fn made<B: Backend>(shapes: [[usize; 2]; 4]) -> [B::Primitive; 4] {
            let [x, weight, [_, columns], residual] = shapes;
            [
                numbers::<B>(&x, 1),
                numbers::<B>(&weight, 2),
                numbers::<B>(&[columns], 3),
                numbers::<B>(&residual, 4),
            ]
        }
        let own = made::<Wgpu>(inputs());
        let (count, found) = kernels(|| block::<Wgpu>(own));
        assert_eq!(found, floats::<NdArray>(block::<NdArray>(made::<NdArray>(inputs()))));
        assert_eq!(count, 1, "{rows}×{depth}×{columns}");
    }
}

#[test]
fn residuals_join_the_convolution_from_either_side() {
    let _alone = alone();
    fn block<B: Backend>([x, weight, shift]: [B::Primitive; 3]) -> B::Primitive {
        let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
        let y = B::conv(x.clone(), weight, None, &options);
        // A broadcast view in front, then the input behind.
        let y = B::binary(BinaryOp::Sub, B::reshape(shift, [1, 8, 1, 1].into()), y);
        B::binary(BinaryOp::Add, y, x)
    }
    fn made<B: Backend>() -> [B::Primitive; 3] {
        [numbers::<B>(&[2, 8, 5, 9], 1), numbers::<B>(&[8, 8, 3, 3], 2), numbers::<B>(&[8], 3)]
    }
    let own = made::<Wgpu>();
    let expected = floats::<NdArray>(block::<NdArray>(made::<NdArray>()));
    block::<Wgpu>(own.clone());
    let (count, found) = kernels(|| block::<Wgpu>(own));
    assert_eq!(found, expected);
    assert_eq!(count, 1);
}

#[test]
fn chains_are_one_kernel_and_long_ones_several() {
    let _alone = alone();
    fn chain<B: Backend>(x: B::Primitive) -> B::Primitive {
        (0..10).fold(x, |x, n| match n % 2 {
            0 => B::binary_scalar(BinaryOp::Add, x, Scalar::Float(f64::from(n))),
            _ => B::unary(UnaryOp::Abs, x),
        })
    }
    let x = numbers::<Wgpu>(&[4, 3], 1);
    let (count, found) = kernels(|| chain::<Wgpu>(x));
    assert_eq!(found, floats::<NdArray>(chain::<NdArray>(numbers::<NdArray>(&[4, 3], 1))));
    assert_eq!(count, 2);
}

#[test]
fn what_others_hold_or_see_stays_as_it_was() {
    let _alone = alone();
    let a = numbers::<Wgpu>(&[3, 4], 1);
    let sum = Wgpu::binary(BinaryOp::Add, a.clone(), a.clone());
    // Held by someone else.
    let kept = sum.clone();
    let negated = Wgpu::unary(UnaryOp::Neg, sum);
    let (sum, negated) = (floats::<Wgpu>(kept), floats::<Wgpu>(negated));
    assert!(sum.iter().zip(&negated).all(|(a, b)| *a == -b), "{sum:?} {negated:?}");
    assert_eq!(sum, floats::<Wgpu>(a.clone()).iter().map(|x| x + x).collect::<Vec<_>>());

    // Seen otherwise: as a view, broadcast, or in another dtype.
    let sum = Wgpu::binary(BinaryOp::Add, a.clone(), a.clone());
    let turned = Wgpu::unary(UnaryOp::Neg, Wgpu::permute(sum, &[1, 0]));
    let expected: Vec<f32> = (0..12).map(|n| negated[n % 3 * 4 + n / 3]).collect();
    assert_eq!(floats::<Wgpu>(turned), expected);
    let row = Wgpu::unary(UnaryOp::Neg, numbers::<Wgpu>(&[1, 4], 1));
    let grown = Wgpu::binary(BinaryOp::Add, row, numbers::<Wgpu>(&[3, 4], 2));
    let row = NdArray::<f32>::unary(UnaryOp::Neg, numbers::<NdArray>(&[1, 4], 1));
    let expected = NdArray::<f32>::binary(BinaryOp::Add, row, numbers::<NdArray>(&[3, 4], 2));
    assert_eq!(floats::<Wgpu>(grown), floats::<NdArray>(expected));
    let whole = Wgpu::cast(Wgpu::unary(UnaryOp::Neg, a), DType::I32);
    let found: Vec<i32> = Wgpu::into_data(whole).expect("a device").to_vec().expect("integers");
    assert_eq!(found, negated.iter().map(|x| *x as i32 / 2).collect::<Vec<_>>());
}

#[test]
fn another_kernel_in_between_ends_it() {
    let _alone = alone();
    let (a, b) = (numbers::<Wgpu>(&[7], 1), numbers::<Wgpu>(&[7], 2));
    let run = || {
        let first = Wgpu::unary(UnaryOp::Neg, a.clone());
        let second = Wgpu::unary(UnaryOp::Abs, b.clone());
        // The first is not the last any more, the second is.
        Wgpu::binary(BinaryOp::Sub, first, second)
    };
    let (count, found) = kernels(run);
    let (a, b) = (floats::<Wgpu>(a.clone()), floats::<Wgpu>(b.clone()));
    assert_eq!(found, a.iter().zip(&b).map(|(a, b)| -a - b.abs()).collect::<Vec<_>>());
    assert_eq!(count, 2);
}

/// A product of a tensor and a row, less a number.
fn scaled<B: Backend>(shape: &[usize]) -> B::Primitive {
    let row = numbers::<B>(&[1, shape[1]], 2);
    let product = B::binary(BinaryOp::Mul, numbers::<B>(shape, 1), row);
    B::binary_scalar(BinaryOp::Sub, product, Scalar::Float(1.0))
}

#[test]
fn reductions_compute_what_they_read_and_go_on() {
    let _alone = alone();
    fn reduced<B: Backend>(shape: &[usize], op: ReduceOp, axes: &[usize]) -> B::Primitive {
        let x = B::reduce(op, scaled::<B>(shape), axes);
        let x = B::binary_scalar(BinaryOp::Mul, x, Scalar::Float(0.5));
        B::activation(Activation::Relu, x)
    }
    // Along rows, columns and both; by workgroups and by invocations; in parts.
    for (shape, axes, expected) in [
        ([3, 70], &[1][..], 1),
        ([70, 3], &[0], 1),
        ([5, 9], &[0, 1], 1),
        ([2, 1500], &[0], 1),
        ([1, 300_000], &[1], 2),
    ] {
        for op in [ReduceOp::Sum, ReduceOp::Max] {
            let (count, found) = kernels(|| reduced::<Wgpu>(&shape, op, axes));
            assert_eq!(found, floats::<NdArray>(reduced::<NdArray>(&shape, op, axes)), "{shape:?}, {axes:?}");
            assert_eq!(count, expected, "{shape:?}, {axes:?}");
        }
    }
    // Which column is the largest: of what was turned, too.
    let largest = |turned: bool| {
        let x = scaled::<Wgpu>(&[6, 40]);
        let x = if turned { Wgpu::permute(x, &[1, 0]) } else { x };
        Wgpu::cast(Wgpu::arg_reduce(ArgReduceOp::Max, x, 1, false), DType::F32)
    };
    for turned in [false, true] {
        let (count, found) = kernels(|| largest(turned));
        let x = scaled::<NdArray>(&[6, 40]);
        let x = if turned { NdArray::<f32>::permute(x, &[1, 0]) } else { x };
        let expected =
            NdArray::<f32>::cast(NdArray::<f32>::arg_reduce(ArgReduceOp::Max, x, 1, false), DType::F32);
        assert_eq!((count, found), (2, floats::<NdArray>(expected)));
    }
}

#[test]
fn rows_compute_what_they_read_and_go_on() {
    let _alone = alone();
    fn softmax<B: Backend>(function: bool) -> B::Primitive {
        let factor = numbers::<B>(&[5, 33], 4);
        let x = scaled::<B>(&[5, 33]);
        let x = if function { B::unary(UnaryOp::Sin, x) } else { x };
        B::binary(BinaryOp::Mul, B::softmax(x, 1), factor)
    }
    fn norm<B: Backend>() -> B::Primitive {
        let [weight, bias] = [5, 6].map(|seed| numbers::<B>(&[33], seed));
        let sum = B::binary(BinaryOp::Add, numbers::<B>(&[5, 33], 1), numbers::<B>(&[5, 33], 2));
        B::activation(Activation::Relu, B::layer_norm(sum, weight, Some(bias), 1e-5))
    }
    let close = |found: Vec<f32>, expected: Vec<f32>| {
        assert_eq!(found.len(), expected.len());
        for (n, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert!((found - expected).abs() < 1e-5, "{found} and {expected} at {n}");
        }
    };
    // What takes long to compute is computed once, though rows are read several times.
    for (function, expected) in [(false, 1), (true, 2)] {
        let (count, found) = kernels(|| softmax::<Wgpu>(function));
        close(found, floats::<NdArray>(softmax::<NdArray>(function)));
        assert_eq!(count, expected, "with a function: {function}");
    }
    let (count, found) = kernels(norm::<Wgpu>);
    close(found, floats::<NdArray>(norm::<NdArray>()));
    assert_eq!(count, 1);
}

#[test]
fn rows_of_a_table_join_what_is_added_to_them() {
    let _alone = alone();
    fn embedded<B: Backend>() -> B::Primitive {
        let (table, summand) = (numbers::<B>(&[9, 12], 2), numbers::<B>(&[7, 12], 3));
        let indices = B::cast(numbers::<B>(&[7], 1), DType::I32);
        let indices = B::binary_scalar(BinaryOp::Add, indices, Scalar::Int(4));
        B::binary(BinaryOp::Add, B::select(table, 0, indices), summand)
    }
    let (count, found) = kernels(embedded::<Wgpu>);
    assert_eq!(found, floats::<NdArray>(embedded::<NdArray>()));
    // The indices; the sum.
    assert_eq!(count, 2);
}

#[test]
fn memory_that_is_read_later_is_not_written_before() {
    let _alone = alone();
    fn means<B: Backend>() -> B::Primitive {
        // The product's operand is given back at once, and is as large as each result.
        let mut sum = numbers::<B>(&[64, 1], 1);
        for seed in 0..20 {
            let x = B::binary(BinaryOp::Add, numbers::<B>(&[64, 1], seed), numbers::<B>(&[64, 1], 7));
            let doubled = B::binary(BinaryOp::Mul, x.clone(), numbers::<B>(&[64, 1], 9));
            drop(x);
            let y = B::reduce(ReduceOp::Sum, B::expand(doubled, [64, 1].into()), &[1]);
            sum = B::binary(BinaryOp::Add, y, sum);
        }
        sum
    }
    for _ in 0..3 {
        assert_eq!(floats::<Wgpu>(means::<Wgpu>()), floats::<NdArray>(means::<NdArray>()));
    }
    // A sum over rows in place of what it sums: whether it takes the memory of an operand follows from the pool alone.
    fn rows<B: Backend>(x: B::Primitive) -> B::Primitive {
        let negated = B::unary(UnaryOp::Neg, B::unary(UnaryOp::Abs, x));
        B::softmax(negated, 1)
    }
    for columns in [16, 64, 256] {
        let own = |seed| numbers::<Wgpu>(&[64, columns], seed);
        for seed in 0..4 {
            let (found, expected) =
                (rows::<Wgpu>(own(seed)), rows::<NdArray>(numbers::<NdArray>(&[64, columns], seed)));
            let (found, expected) = (floats::<Wgpu>(found), floats::<NdArray>(expected));
            let differs = found.iter().zip(&expected).position(|(a, b)| (a - b).abs() > 1e-6);
            assert_eq!(differs, None, "{columns} columns");
        }
    }
}

#[test]
fn few_long_lanes_are_reduced_in_parts() {
    let _alone = alone();
    // What the parts make, what stands before each, and each from there on; else lane by lane.
    for (shape, expected) in [([1, 70_001], 3), ([3, 5_000], 3), ([1, 2_000], 1), ([600, 5_000], 1)] {
        for (exclusive, reverse) in [(false, false), (true, true)] {
            let x = numbers::<Wgpu>(&shape, 1);
            let sums = |x| Wgpu::cumulative(CumulativeOp::Sum, x, 1, exclusive, reverse);
            let (count, found) = kernels(|| sums(x));
            let own = numbers::<NdArray>(&shape, 1);
            let sums = <NdArray>::cumulative(CumulativeOp::Sum, own, 1, exclusive, reverse);
            assert_eq!(found, floats::<NdArray>(sums), "{shape:?}");
            assert_eq!(count, expected, "{shape:?}");
        }
    }
}

#[test]
fn a_recurrent_layer_takes_as_many_kernels_for_few_steps_as_for_many() {
    let _alone = alone();
    fn layer<B: Backend>(steps: usize) -> B::Primitive {
        let (kind, hidden) = (RnnKind::Lstm { input_forget: false }, 5);
        let options = RnnOptions {
            kind,
            direction: RnnDirection::Bidirectional,
            hidden_size: hidden,
            activations: kind.activations().repeat(2).into(),
            clip: None,
            state_clip: None,
            batch_first: false,
        };
        let scaled = |x| B::binary_scalar(BinaryOp::Mul, x, Scalar::Float(0.1));
        let operands = RnnOperands::<B> {
            input: numbers::<B>(&[steps, 2, 3], 1),
            weight: scaled(numbers::<B>(&[2, 4 * hidden, 3], 2)),
            recurrent: scaled(numbers::<B>(&[2, 4 * hidden, hidden], 3)),
            bias: None,
            sequence_lengths: None,
            initial_hidden: None,
            initial_cell: None,
            peepholes: None,
        };
        B::rnn(operands, &options).output
    }
    let count = |steps| {
        let (count, found) = kernels(|| layer::<Wgpu>(steps));
        let expected = floats::<NdArray>(layer::<NdArray>(steps));
        assert_eq!(found.len(), expected.len());
        for (n, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert!((found - expected).abs() < 1e-4, "{steps} steps: {found} and {expected} at {n}");
        }
        count
    };
    let few = count(2);
    assert_eq!(count(400), few);
    // So that none runs for seconds, long sequences take several, each of which goes on where the last ended.
    assert_eq!(count(600), few + 1);
}

/// Backward passes of convolutions and poolings are kernels of their own: one, or two where a sum is done in parts or weights are read in
/// another order. Those of maxima are found and written where kernels run on a CPU, in three steps.
#[test]
fn gradients_of_windows_are_few_kernels() {
    let _alone = alone();
    fn run<B: Backend>(op: usize) -> B::Primitive {
        let options = ConvOptions::new([2, 2], [1, 1], [1, 1], 1);
        let (x, weight) = (numbers::<B>(&[2, 8, 12, 12], 1), numbers::<B>(&[8, 8, 3, 3], 2));
        let gradient = numbers::<B>(&[2, 8, 6, 6], 3);
        let pool = PoolOptions::new([3, 3], [2, 2], [1, 1], [1, 1], false);
        let shape = Shape::from([2, 8, 12, 12]);
        match op {
            0 => B::conv_input_gradient(gradient, weight, &shape, &options),
            1 => B::conv_weight_gradient(x, gradient, &[8, 8, 3, 3].into(), &options),
            2 => {
                let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
                let (x, gradient) = (numbers::<B>(&[2, 8, 32, 32], 1), numbers::<B>(&[2, 8, 32, 32], 2));
                B::conv_weight_gradient(x, gradient, &[8, 8, 3, 3].into(), &options)
            }
            3 => {
                let y = B::pool(PoolOp::Max, x.clone(), &pool);
                B::pool_gradient(PoolOp::Max, gradient, x, y, &pool)
            }
            4 => B::pool_gradient(PoolOp::Average { include_pad: true }, gradient, x.clone(), x, &pool),
            _ => B::adaptive_avg_pool_gradient(gradient, &shape),
        }
    }
    // One of the maxima's is the pooling itself.
    for (op, expected) in [2, 1, 2, 4, 1, 1].into_iter().enumerate() {
        let (count, found) = kernels(|| run::<Wgpu>(op));
        assert_eq!(count, expected, "operation {op}");
        let cpu = floats::<NdArray>(run::<NdArray>(op));
        let close = found.iter().zip(&cpu).all(|(a, b)| (a - b).abs() <= 1e-5);
        assert!(found.len() == cpu.len() && close, "operation {op}");
    }
}
