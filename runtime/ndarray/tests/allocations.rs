//! A forward pass allocates nothing once it has run: activations, packed weights, working space and what holds them are there.

use kiln_ndarray::{NdArray, NdArrayDevice, NdArrayTensor};
use kiln_tensor::backend::Backend;
use kiln_tensor::compose::RnnOperands;
use kiln_tensor::{
    Activation, BinaryOp, ConvOptions, PoolOp, PoolOptions, ReduceOp, RnnDirection, RnnKind, RnnOptions,
    TensorData,
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
fn allocations(forward: impl Fn() -> NdArrayTensor) -> usize {
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
        let y = B::linear(rows.clone(), matrix.clone(), Some(bias.clone()), Some(Activation::Relu));
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
