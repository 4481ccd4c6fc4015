//! Convolutions of rounded operands, which hand each other rounded results and everybody else f32: whoever reads a result, and whenever, sees what it should.

use kiln_ndarray::{NdArray, NdArrayDevice, NdArrayTensor};
use kiln_tensor::backend::{Backend, Primitive};
use kiln_tensor::{Activation, BinaryOp, ConvOptions, DType, PoolOp, PoolOptions, Precision, TensorData};

type B = NdArray;

fn noise(dims: &[usize], seed: usize) -> NdArrayTensor {
    let count: usize = dims.iter().product();
    let values: Vec<f32> = (0..count).map(|i| ((i + seed) * 7919 % 1009) as f32 / 1009.0 - 0.5).collect();
    tensor(dims, values)
}

fn tensor(dims: &[usize], values: Vec<f32>) -> NdArrayTensor {
    B::from_data(TensorData::new(values, dims.to_vec()), &NdArrayDevice::Cpu)
}

fn values(x: NdArrayTensor) -> Vec<f32> {
    assert_eq!(x.dtype(), DType::F32);
    B::into_data(x).expect("the data").iter::<f32>().collect()
}

fn rounded(x: NdArrayTensor) -> NdArrayTensor {
    B::cast(B::cast(x, DType::BF16), DType::F32)
}

fn points() -> ConvOptions {
    ConvOptions::new([1; 2], [0; 2], [1; 2], 1)
}

/// A residual block without its first convolution: kept weights, so that results wait.
struct Block {
    narrow: NdArrayTensor,
    window: NdArrayTensor,
    wide: NdArrayTensor,
    bias: NdArrayTensor,
}

impl Block {
    fn new() -> Self {
        let weight = |dims: &[usize], seed| B::prepare(noise(dims, seed));
        Self {
            narrow: weight(&[32, 96, 1, 1], 1),
            window: weight(&[32, 32, 3, 3], 2),
            wide: weight(&[96, 32, 1, 1], 3),
            bias: noise(&[96], 4),
        }
    }

    /// The block, where `read` sees each result before the next operation does.
    fn run(&self, x: NdArrayTensor, read: impl Fn(&NdArrayTensor)) -> NdArrayTensor {
        let relu = Activation::Relu;
        let x = B::conv(x, self.wide.clone(), Some(self.bias.clone()), &points());
        read(&x);
        let y = B::conv_activated(x.clone(), self.narrow.clone(), None, relu, &points());
        read(&y);
        let options = ConvOptions::new([1; 2], [1; 2], [1; 2], 1);
        let y = B::conv_activated(y, self.window.clone(), None, Activation::Silu, &options);
        read(&y);
        let bias = Some(self.bias.clone());
        let y = B::conv_added(y, self.wide.clone(), bias, x, Some(relu), &points());
        read(&y);
        y
    }
}

/// What nobody but the next convolution reads may be rounded, since that rounds it anyway; what is added is rounded once more.
#[test]
fn results_are_near_those_that_were_read_between_them() {
    let (block, x) = (Block::new(), noise(&[2, 32, 9, 14], 5));
    Precision::Bf16.run(|| {
        let read = |x: &NdArrayTensor| drop(values(x.clone()));
        let (got, want) = (values(block.run(x.clone(), |_| ())), values(block.run(x.clone(), read)));
        let largest = want.iter().fold(0_f32, |most, x| most.max(x.abs()));
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            assert!((got - want).abs() <= largest / 128.0, "element {i} is {got}, not {want}");
        }
        assert!(largest > 0.1);
    });
}

/// A chain without residuals rounds each result once, whoever asks first.
#[test]
fn a_chain_does_not_depend_on_who_reads_first() {
    let (block, x) = (Block::new(), noise(&[1, 32, 9, 14], 5));
    let chain = |read: &dyn Fn(&NdArrayTensor)| {
        let x = B::conv(x.clone(), block.wide.clone(), Some(block.bias.clone()), &points());
        read(&x);
        values(B::conv(x, block.narrow.clone(), None, &points()))
    };
    Precision::Bf16.run(|| {
        let want = chain(&|_| ());
        assert_eq!(chain(&|x| drop(values(x.clone()))), want);
        assert_eq!(chain(&|x| x.complete_rounded()), want);
    });
}

#[test]
fn other_readers_get_f32_that_was_not_rounded() {
    let (block, x) = (Block::new(), noise(&[1, 32, 5, 6], 5));
    Precision::Bf16.run(|| {
        let conv = || B::conv(x.clone(), block.wide.clone(), Some(block.bias.clone()), &points());
        assert!(conv().waiting().is_some());
        let plain = values(conv());
        assert_ne!(values(rounded(conv())), plain, "it has more digits than bf16");
        // Of a result that a convolution has read, everybody sees the same.
        let read = conv();
        let _reader = B::conv(read.clone(), block.narrow.clone(), None, &points());
        let near = values(rounded(conv()));
        assert_eq!(values(read.clone()), near);
        assert_eq!(
            values(B::binary(BinaryOp::Add, read.clone(), read)),
            near.iter().map(|x| x + x).collect::<Vec<_>>()
        );
    });
}

/// What is added becomes the result only where nobody else has it.
#[test]
fn what_is_added_stays_as_it_was_for_others() {
    let (block, x) = (Block::new(), noise(&[1, 32, 5, 6], 5));
    Precision::Bf16.run(|| {
        let conv = || B::conv(x.clone(), block.wide.clone(), Some(block.bias.clone()), &points());
        let added = |residual: NdArrayTensor| {
            B::conv_added(x.clone(), block.wide.clone(), None, residual, None, &points())
        };
        for residual in [conv(), noise(&[1, 96, 5, 6], 6)] {
            let before = values(residual.clone());
            let sum = added(residual.clone());
            let rounds = B::conv(sum.clone(), block.narrow.clone(), None, &points());
            assert_eq!(values(residual.clone()), before);
            let near = values(sum);
            let alone = values(added(residual));
            for (i, (near, alone)) in near.iter().zip(&alone).enumerate() {
                assert!(
                    (near - alone).abs() <= alone.abs() / 64.0 + 1e-2,
                    "element {i} is {near}, not {alone}"
                );
            }
            drop(values(rounds));
        }
    });
}

/// Maxima of rounded numbers are rounded maxima: a chain through them is what it is without waiting, whoever reads what.
#[test]
fn maxima_wait_for_who_reads_them() {
    let (block, x) = (Block::new(), noise(&[2, 32, 9, 14], 5));
    let options = PoolOptions {
        kernel: [3; 2].into(),
        stride: [2; 2].into(),
        padding: [(1, 1); 2].into(),
        dilation: [1; 2].into(),
        ceil_mode: false,
    };
    let conv = || B::conv(x.clone(), block.wide.clone(), Some(block.bias.clone()), &points());
    let pool = |x: NdArrayTensor| B::pool(PoolOp::Max, x, &options);
    let last = |x: NdArrayTensor| B::conv(x, block.narrow.clone(), None, &points());
    // In memory of its own, which was never another convolution's result.
    let copied = |x: &NdArrayTensor| tensor(x.dims(), values(x.clone()));
    Precision::Bf16.run(|| {
        let maxima = values(pool(copied(&conv())));
        let want = values(last(tensor(pool(conv()).dims(), maxima.clone())));
        let waits = pool(conv());
        assert!(waits.waiting().is_some());
        assert_eq!(values(waits), maxima, "others get maxima that were not rounded");
        for (read_image, read_maxima) in [(false, false), (false, true), (true, false), (true, true)] {
            for rounded in [false, true] {
                let read = |x: &NdArrayTensor, reads: bool| match (reads, rounded) {
                    (false, _) => {}
                    (true, false) => drop(values(x.clone())),
                    (true, true) => x.complete_rounded(),
                };
                let image = conv();
                read(&image, read_image);
                let maxima = pool(image);
                read(&maxima, read_maxima);
                assert_eq!(values(last(maxima)), want, "{read_image} {read_maxima} {rounded}");
            }
        }
        // Maxima of maxima are no chain of what waits.
        assert!(pool(pool(conv())).waiting().is_none());
    });
}
