//! A forward pass allocates nothing once it has run: activations, packed weights, working space and what holds them are there.

use kiln_ndarray::{NdArray, NdArrayDevice, NdArrayTensor};
use kiln_tensor::backend::Backend;
use kiln_tensor::compose::RnnOperands;
use kiln_tensor::{
    Activation, BinaryOp, ConvOptions, CoordinateTransform, InterpolateMode, InterpolateOptions,
    NearestRounding, PoolOp, PoolOptions, ReduceOp, RnnDirection, RnnKind, RnnOptions, Tensor, TensorData,
    Traced, UnaryOp, elementwise, elementwise_all,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

type B = NdArray;

/// The system's allocator, which counts what each thread asks for: the tests' own main thread allocates as well.
struct Counting;

std::thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

impl Counting {
    fn count() {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
    }
}

// SAFETY: all is the system allocator's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Self::count();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn noise(dims: &[usize], seed: usize) -> NdArrayTensor {
    let count: usize = dims.iter().product();
    let values: Vec<f32> = (0..count).map(|i| ((i + seed) * 7919 % 1009) as f32 / 1009.0 - 0.5).collect();
    B::from_data(TensorData::new(values, dims.to_vec()), &NdArrayDevice::Cpu)
}

fn weight(dims: &[usize]) -> NdArrayTensor {
    B::prepare(noise(dims, 1))
}

/// Allocations of the fourth run.
fn allocations<R>(forward: impl Fn() -> R) -> usize {
    (0..3).for_each(|_| drop(forward()));
    ALLOCATIONS.set(0);
    drop(forward());
    ALLOCATIONS.get()
}

/// On one thread, which is counted.
#[test]
fn a_steady_forward_allocates_nothing() {
    kiln_kernels::threads::set_threads(1);
    let options = |stride: usize, padding: usize, groups: usize| {
        ConvOptions::new([stride; 2], [padding; 2], [1; 2], groups)
    };
    let (image, filters, bias) = (noise(&[1, 32, 28, 28], 2), weight(&[32, 32, 3, 3]), noise(&[32], 3));
    let same = options(1, 1, 1);
    let conv = allocations(|| {
        let (filters, bias) = (filters.clone(), Some(bias.clone()));
        B::conv_activated(image.clone(), filters, bias, Activation::Relu, &same)
    });
    let (points, each) = (weight(&[64, 32, 1, 1]), weight(&[64, 1, 3, 3]));
    let (as_it_is, by_channel) = (options(1, 0, 1), options(2, 1, 64));
    let separable = allocations(|| {
        let y = B::conv(image.clone(), points.clone(), None, &as_it_is);
        B::conv(y, each.clone(), None, &by_channel)
    });
    let (rows, matrix, bias) = (noise(&[1, 64, 96], 4), weight(&[96, 96]), noise(&[96], 5));
    let linear = allocations(|| {
        let y = B::linear(rows.clone(), &matrix, Some(&bias), Some(Activation::Relu));
        B::binary(BinaryOp::Add, y, rows.clone())
    });
    let window = PoolOptions::new([3; 2], [2; 2], [1; 2], [1; 2], false);
    let pooled = allocations(|| {
        // Their channels lie last.
        let y = B::conv(image.clone(), filters.clone(), None, &same);
        let y = B::binary(BinaryOp::Mul, y.clone(), B::activation(Activation::HardSwish, y));
        B::reduce(ReduceOp::Mean, B::pool(PoolOp::Max, y, &window), &[2, 3])
    });
    let joined = allocations(|| {
        let y = B::conv(image.clone(), filters.clone(), None, &same);
        B::cat(&[y.clone(), image.clone(), y], 1)
    });
    assert_eq!([conv, separable, linear, pooled, joined], [0; 5]);
}

/// What lists positions, counts or statistics lists them in memory that is used again.
#[test]
fn lists_within_an_operation_allocate_nothing() {
    kiln_kernels::threads::set_threads(1);
    let image = noise(&[1, 12, 10, 9], 1);
    // Its channels lie last.
    let same = ConvOptions::new([1; 2], [1; 2], [1; 2], 1);
    let turned = B::conv(image.clone(), weight(&[12, 12, 3, 3]), None, &same);
    for image in [image, turned] {
        let modes = [
            InterpolateMode::Nearest(NearestRounding::Floor),
            InterpolateMode::Linear,
            InterpolateMode::Cubic { a: -0.75 },
        ];
        let resized = modes.map(|mode| {
            let options = InterpolateOptions {
                output_size: [1, 12, 17, 20].into(),
                scales: [1.0, 1.0, 1.7, 20.0 / 9.0].into(),
                mode,
                coordinates: CoordinateTransform::HalfPixel,
                antialias: false,
                exclude_outside: false,
                roi: None,
                extrapolation_value: 0.0,
            };
            allocations(|| B::interpolate(image.clone(), &options))
        });
        let window = PoolOptions::new([3; 2], [1; 2], [1; 2], [1; 2], false);
        let averages = [false, true].map(|include_pad| {
            allocations(|| B::pool(PoolOp::Average { include_pad }, image.clone(), &window))
        });
        let statistics = [2, 3, 4, 5].map(|seed| B::unary(UnaryOp::Abs, noise(&[12], seed)));
        let normalized = allocations(|| {
            let [weight, bias, mean, variance] = statistics.clone();
            B::batch_norm(image.clone(), weight, bias, mean, variance, 1e-3)
        });
        let shuffled = allocations(|| {
            let parts = B::reshape(image.clone(), [1, 3, 4, 10, 9].into());
            B::reshape(B::permute(parts, &[0, 2, 1, 3, 4]), [1, 12, 10, 9].into())
        });
        assert_eq!((resized, averages, normalized, shuffled), ([0; 3], [0; 2], 0, 0));
    }
    let (rows, columns) = (noise(&[2, 3, 8, 16], 2), noise(&[2, 1, 16, 8], 3));
    assert_eq!(allocations(|| B::matmul(rows.clone(), columns.clone())), 0);
}

/// Recurrent layers of both kinds of weights: those of all gates together, and those of a gate that stand apart.
#[test]
fn a_recurrent_layer_allocates_nothing() {
    kiln_kernels::threads::set_threads(1);
    let lstm = RnnKind::Lstm { input_forget: false };
    for kind in
        [lstm, RnnKind::Gru { linear_before_reset: true }, RnnKind::Gru { linear_before_reset: false }]
    {
        let options = RnnOptions {
            kind,
            direction: RnnDirection::Bidirectional,
            hidden_size: 24,
            activations: kind.activations().repeat(2).into(),
            clip: None,
            state_clip: None,
            batch_first: false,
        };
        let rows = kind.gates() * 24;
        let (weights, recurrent) = (weight(&[2, rows, 16]), weight(&[2, rows, 24]));
        let (input, bias) = (noise(&[7, 3, 16], 6), noise(&[2, 2 * rows], 7));
        let layer = allocations(|| {
            let operands = RnnOperands {
                input: input.clone(),
                weight: weights.clone(),
                recurrent: recurrent.clone(),
                bias: Some(bias.clone()),
                sequence_lengths: None,
                initial_hidden: None,
                initial_cell: None,
                peepholes: None,
            };
            B::rnn(operands, &options).output
        });
        assert_eq!(layer, 0, "{kind:?}");
    }
}

/// Neither its recording nor what the kernel needs to know of it.
#[test]
fn a_steady_program_allocates_nothing() {
    kiln_kernels::threads::set_threads(1);
    let images = |dims: [usize; 4], seed| Tensor::<B, 4>::from_backend(noise(&dims, seed));
    let (image, channels) = (images([2, 8, 7, 7], 1), images([1, 8, 1, 1], 2));
    let broadcast = allocations(|| {
        elementwise([image.clone(), channels.clone()], |[image, scale]| (image * scale + 1.0).sqrt() - 0.5)
    });
    let parameter = allocations(|| {
        elementwise([image.clone()], |[x]| {
            x.clone() - x.activation(Activation::Silu) * Traced::parameter(0.1)
        })
    });
    let (gradient, momentum, average) =
        (images([2, 8, 7, 7], 3), images([2, 8, 7, 7], 4), images([2, 8, 7, 7], 5));
    let several = allocations(|| {
        let operands = [&image, &gradient, &momentum, &average].map(Tensor::clone);
        elementwise_all(operands, |[x, gradient, momentum, average]| {
            let momentum = momentum * 0.9 + gradient.clone() * 0.1;
            let average = average * 0.99 + gradient.clone() * gradient * 0.01;
            let step = momentum.clone() / (average.clone().abs().sqrt() + 1e-8);
            [x - step * Traced::parameter(0.01), momentum, average]
        })
    });
    // The second runs in the first one's result, and so does the third, beside an operand of another shape.
    let in_place = allocations(|| {
        let x = elementwise([image.clone()], |[x]| x.clone() * x + 1.0);
        let x = elementwise([x], |[x]| x.clone().exp() / (x + 1.0));
        elementwise([channels.clone(), x], |[scale, x]| scale * x - 1.0)
    });
    // Its channels lie last.
    let (filters, same) = (weight(&[8, 8, 3, 3]), ConvOptions::new([1; 2], [1; 2], [1; 2], 1));
    let convolved = allocations(|| {
        let y = B::conv(image.clone().into_backend(), filters.clone(), None, &same);
        elementwise([Tensor::<B, 4>::from_backend(y), image.clone()], |[y, x]| y.clone() * y + x)
    });
    // Sixty steps.
    let long = allocations(|| {
        elementwise([image.clone()], |[x]| (0..15).fold(x, |sum, n| sum * 0.5 + f64::from(n)))
    });
    assert_eq!([broadcast, parameter, several, in_place, convolved, long], [0; 6]);
}
