//! What asks NVIDIA's libraries themselves, or those that stand in for them (`scripts/cuda_driver.sh`). Numbers are small and whole, so that sums
//! are exact in any order, unless what they are summed by says otherwise.

mod products;
#[path = "../stand_in/mod.rs"]
mod stand_in;
mod sums;
mod tuning;

use kiln_cuda::driver::{Driver, nvidia::Nvidia};
use kiln_cuda::{Cuda, CudaDevice, Graph, reopen, set_library_relu, set_tf32, statistics};
use kiln_ndarray::NdArray;
use kiln_tensor::backend::{Backend, Primitive, SliceRange};
use kiln_tensor::{
    Activation, BinaryOp, ConvOptions, ConvTransposeOptions, DType, PoolOp, PoolOptions, ReduceOp, Scalar,
    Shape, Tensor, TensorData, TensorPrimitive,
};
use stand_in::told;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

const DEVICE: CudaDevice = CudaDevice { index: 0 };

/// Has the libraries be asked for all that they can do, before the first test runs: what they are faster at is large.
#[cfg(target_os = "linux")]
#[used]
#[unsafe(link_section = ".init_array")]
static ALWAYS: extern "C" fn() = always;

#[cfg(target_os = "linux")]
extern "C" fn always() {
    // SAFETY: there is one thread yet.
    unsafe { std::env::set_var(kiln_cuda::driver::ALWAYS, "cublaslt,cudnn") };
}

/// Counts are the device's, which the tests share.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Rows, columns and depth of products that the library is asked for.
const SIZE: [usize; 3] = [260, 264, 256];

fn numbers(shape: &[usize], seed: usize) -> TensorData {
    let count = shape.iter().product::<usize>();
    let values: Vec<f32> = (0..count).map(|n| ((n * 31 + seed * 17) % 1009 % 9) as f32 - 4.0).collect();
    TensorData::new(values, shape)
}

fn tensor<B: Backend>(shape: &[usize], seed: usize, device: &B::Device) -> B::Primitive {
    B::from_data(numbers(shape, seed), device)
}

fn floats<B: Backend>(tensor: B::Primitive) -> Vec<f32> {
    B::into_data(tensor).expect("a device").convert_dtype(DType::F32).to_vec().expect("floats")
}

/// Larger than what is copied at a time, several on their way at once, and of host memory that is used again meanwhile.
#[test]
#[ignore = "asks NVIDIA's libraries, or what stands in for them"]
fn large_tensors_arrive_whole() {
    let _alone = alone();
    let sizes = [17_000, 3 << 20, (2 << 20) + 5];
    let values = |size: usize| -> Vec<f32> { (0..size).map(|n| (n % 1_000_003) as f32).collect() };
    let tensors =
        sizes.map(|size| Cuda::<f32, i64>::from_data(TensorData::new(values(size), [size]), &DEVICE));
    for (size, tensor) in sizes.into_iter().zip(tensors) {
        assert_eq!(floats::<Cuda>(tensor), values(size));
    }
}

#[test]
#[ignore = "asks NVIDIA's libraries, or what stands in for them"]
fn memory_is_given_back_once_it_is_used() {
    let _alone = alone();
    let driver = Nvidia::open(DEVICE.index).expect("a device");
    let bytes: Vec<u8> = (0..9 << 20).map(|n: u32| (n % 251) as u8).collect();
    let [first, second] = [(); 2].map(|()| driver.allocate(bytes.len() as u64).expect("memory"));
    driver.upload(first, &bytes).expect("a copy");
    driver.copy_from(second, &driver, first, bytes.len()).expect("a copy");
    let read = driver.download(&[(second, bytes.len())]).expect("a copy");
    driver.free(first).expect("memory that was had");
    driver.free(second).expect("memory that was had");
    driver.trim().expect("what is not used");
    assert!(read.wait().expect("a copy") == [bytes]);
}

#[test]
#[ignore = "asks NVIDIA's libraries, or what stands in for them"]
fn graphs_hold_products_of_the_library() {
    let _alone = alone();
    fn matrix(shape: [usize; 2], seed: usize) -> Tensor<Cuda, 2> {
        Tensor::from_data(numbers(&shape, seed), &DEVICE)
    }
    let [rows, columns, depth] = SIZE;
    let weight = matrix([depth, columns], 2);
    let input = |seed| matrix([rows, depth], seed);
    let graph = Graph::capture(input(1), |x| x.matmul(weight.clone()).exp()).expect("a graph");
    for seed in [1, 8, 9] {
        let replayed = graph.replay(input(seed)).expect("a replay");
        let direct = input(seed).matmul(weight.clone()).exp();
        replayed.into_data().assert_eq(&direct.into_data(), true);
    }
}

/// A convolution that is large enough for the library, and how many of its three passes that computes.
struct Case {
    /// Images and their channels, height and width.
    image: [usize; 4],
    weight: [usize; 4],
    options: ConvOptions,
    dtype: DType,
    calls: u64,
}

impl Case {
    fn new(weight: [usize; 4], stride: usize, padding: [(usize, usize); 2], dilation: usize) -> Self {
        let (padding, groups) = (padding.to_vec(), 64 / weight[1]);
        let options = ConvOptions {
            stride: [stride; 2].into(),
            padding: padding.into(),
            dilation: [dilation; 2].into(),
            groups,
        };
        Self { image: [2, 64, 21, 23], weight, options, dtype: DType::F32, calls: 3 }
    }

    /// Numbers that have more bits than TF32, beside small ones: sums are exact in f32.
    fn wide<B: Backend>(&self, shape: &[usize], seed: usize, device: &B::Device) -> B::Primitive {
        let most = if self.dtype == DType::F32 { 4099 } else { 3 };
        let values: Vec<f32> =
            (0..shape.iter().product()).map(|n: usize| ((n * 131 + seed) % 8191 % most) as f32).collect();
        B::cast(B::from_data(TensorData::new(values, shape), device), self.dtype)
    }

    /// How far results may be off, as a part of the sum of the magnitudes of the products that they are sums of: no factor is below 0, so that
    /// this is the result itself (but for the bias, which is at most 4).
    ///
    /// Of numbers like these sums are exact in any order, but not if they are transformed first, as cuDNN's fastest algorithms do with windows
    /// of 3 × 3 (Lavin & Gray 2015, "Fast Algorithms for Convolutional Neural Networks"), by constants that f32 has not: an H100's
    /// gradient of the weight is not the CPU's to the last bit. What is left is f32's exactness, some roundings of 2^-24 of the sum. What is not the library's is exact, and so are floats of 16 bits, which are
    /// not transformed, and what the stand-in computes.
    fn allowed(&self) -> f32 {
        let may_transform = self.calls > 0 && self.dtype == DType::F32 && !stand_in::is_there();
        if may_transform { 1e-5 } else { 0.0 }
    }

    /// Whether its passes are what they should be, as far as [may be](Self::allowed).
    fn assert_agrees(&self, own: &[Vec<f32>], expected: &[Vec<f32>]) {
        let (Self { weight, options, dtype, .. }, allowed) = (self, self.allowed());
        for (pass, (own, expected)) in own.iter().zip(expected).enumerate() {
            let of_sum = own.iter().zip(expected).map(|(x, y)| (x - y).abs() / y.max(1.0));
            // What is not a number is not within what is allowed.
            let worst = of_sum.fold(0.0, |worst: f32, x| if x <= worst { worst } else { x });
            println!("pass {pass} of {dtype} {weight:?}: off by {worst:e} of the sum");
            assert!(
                worst <= allowed,
                "{worst:e} of the sum in pass {pass} of {dtype} {weight:?} {options:?}"
            );
        }
    }

    /// The result with bias and activation, and both gradients.
    fn passes<B: Backend>(&self, device: &B::Device) -> Vec<Vec<f32>> {
        let Self { image, weight, options, dtype, .. } = self;
        let small = |shape: &[usize], seed| {
            let few = B::binary_scalar(BinaryOp::Max, tensor::<B>(shape, seed, device), Scalar::Float(2.0));
            B::cast(B::binary_scalar(BinaryOp::Sub, few, Scalar::Float(2.0)), *dtype)
        };
        let x = || self.wide::<B>(image, 1, device);
        let (w, bias) = (small(weight, 2), B::cast(tensor::<B>(&weight[..1], 3, device), *dtype));
        let y = B::conv_activated(x(), w.clone(), Some(bias), Activation::Relu, options);
        let shape = y.shape();
        let gradient = small(&shape.dims, 4);
        let back = B::conv_input_gradient(gradient.clone(), w, &Shape::from(image.to_vec()), options);
        let of_weight = B::conv_weight_gradient(x(), gradient, &Shape::from(weight.to_vec()), options);
        [y, back, of_weight].into_iter().map(floats::<B>).collect()
    }
}

/// What stands in for the library lacks a part that convolutions to so many channels are computed by, which it says when it is called.
#[test]
#[ignore = "asks what stands in for NVIDIA's libraries"]
fn what_a_part_of_the_library_is_missing_for_runs_on_a_kernel() {
    let _alone = alone();
    let case = Case::new([74, 64, 3, 3], 1, [(1, 1); 2], 1);
    if !stand_in::is_there() {
        return;
    }
    let expected = case.passes::<NdArray>(&Default::default());
    for _ in 0..2 {
        let before = statistics(&DEVICE).library_calls;
        assert_eq!(case.passes::<Cuda>(&DEVICE), expected);
        assert_eq!(statistics(&DEVICE).library_calls, before);
    }
}

#[test]
#[ignore = "asks NVIDIA's libraries, or what stands in for them"]
fn large_convolutions_and_their_gradients_agree_with_the_cpu() {
    let _alone = alone();
    let same = [(1, 1); 2];
    let half = Case { dtype: DType::F16, ..Case::new([64, 64, 3, 3], 1, same, 1) };
    let asymmetric = Case { calls: 0, ..Case::new([64, 64, 3, 3], 1, [(1, 0), (1, 2)], 1) };
    let depthwise = Case { calls: 0, ..Case::new([64, 1, 3, 3], 1, same, 1) };
    // What is left over at the end of each line is the gradient's to fill, too.
    let grouped = Case::new([128, 32, 5, 5], 2, [(3, 3), (4, 4)], 2);
    for case in [Case::new([64, 64, 3, 3], 1, same, 1), half, asymmetric, depthwise, grouped] {
        let before = statistics(&DEVICE).library_calls;
        let (own, expected) = (case.passes::<Cuda>(&DEVICE), case.passes::<NdArray>(&Default::default()));
        assert_eq!(statistics(&DEVICE).library_calls - before, case.calls, "{:?}", case.options);
        case.assert_agrees(&own, &expected);
    }
}

/// The same images with their channels last in memory.
fn channels_last<B: Backend>(images: B::Primitive) -> B::Primitive {
    let rank = images.shape().rank();
    let to_last: Vec<usize> = [0].into_iter().chain(2..rank).chain([1]).collect();
    let to_first: Vec<usize> = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
    let device = B::device(&images);
    let data = B::into_data(B::permute(images, &to_last)).expect("a device");
    B::permute(B::from_data(data, &device), &to_first)
}

/// A convolution, of 3 along each dim, with what follows it.
#[derive(Clone, Copy)]
struct Followed {
    dims: &'static [usize],
    dtype: DType,
    bias: bool,
    residual: bool,
    activation: Option<Activation>,
}

impl Followed {
    const CHANNELS: usize = 32;
    /// Large enough for the library.
    const FLAT: Self =
        Self { dims: &[31, 31], dtype: DType::F32, bias: true, residual: false, activation: None };
    const DEEP: Self = Self { dims: &[7, 7, 7], ..Self::FLAT };
    const ADDED: Self = Self { residual: true, ..Self::FLAT };

    fn with_relu(self) -> Self {
        Self { activation: Some(Activation::Relu), ..self }
    }

    /// Images, weights, bias and residual: factors are 0 or 1, so that sums are exact in any dtype.
    fn operands<B: Backend>(self, device: &B::Device) -> [B::Primitive; 4] {
        let whole = |shape: &[usize], seed| tensor::<B>(shape, seed, device);
        let few = |shape: &[usize], seed| {
            let few = B::binary_scalar(BinaryOp::Max, whole(shape, seed), Scalar::Float(3.0));
            B::binary_scalar(BinaryOp::Sub, few, Scalar::Float(3.0))
        };
        let image = [&[2, Self::CHANNELS], self.dims].concat();
        let weight = [[Self::CHANNELS; 2].as_slice(), &vec![3; self.dims.len()]].concat();
        let [x, residual] = [few(&image, 1), whole(&image, 4)].map(|image| match self.dtype {
            DType::F32 => image,
            // Tensor cores take images so.
            _ => channels_last::<B>(image),
        });
        [x, few(&weight, 2), whole(&[Self::CHANNELS], 3), residual].map(|tensor| B::cast(tensor, self.dtype))
    }

    fn run<B: Backend>(self, [x, weight, bias, residual]: [B::Primitive; 4]) -> B::Primitive {
        let rank = self.dims.len();
        let options = ConvOptions {
            stride: vec![1; rank].into(),
            padding: vec![(1, 1); rank].into(),
            dilation: vec![1; rank].into(),
            groups: 1,
        };
        let bias = self.bias.then_some(bias);
        match (self.residual, self.activation) {
            (true, activation) => B::conv_added(x, weight, bias, residual, activation, &options),
            (false, Some(activation)) => B::conv_activated(x, weight, bias, activation, &options),
            (false, None) => B::conv(x, weight, bias, &options),
        }
    }

    /// Its results are the CPU's, of one call of the library and so many launches with that.
    fn agrees(self, launches: u64) {
        self.agrees_in(launches..=launches);
    }

    /// Likewise, of one of several numbers of launches.
    fn agrees_in(self, launches: RangeInclusive<u64>) {
        let what = format!(
            "{} {:?}, bias: {}, residual: {}, {:?}",
            self.dtype, self.dims, self.bias, self.residual, self.activation
        );
        let expected = floats::<NdArray>(self.run::<NdArray>(self.operands::<NdArray>(&Default::default())));
        let operands = self.operands::<Cuda>(&DEVICE);
        if self.dtype != DType::F32 {
            // Weights are turned around once.
            self.run::<Cuda>(operands.clone());
        }
        Cuda::<f32, i64>::sync(&DEVICE).expect("a device");
        let before = statistics(&DEVICE);
        let y = self.run::<Cuda>(operands);
        let after = statistics(&DEVICE);
        let counts = (after.library_calls - before.library_calls, after.launches - before.launches);
        assert!(counts.0 == 1 && launches.contains(&counts.1), "{counts:?} and not {launches:?}: {what}");
        assert!(floats::<Cuda>(y) == expected, "{what}");
    }
}

/// Whether the library may compute ReLU, while this is there.
struct LibraryRelu;

impl LibraryRelu {
    fn allowed() -> Self {
        set_library_relu(&DEVICE, true).expect("a device");
        Self
    }
}

/// What the library's ReLU makes of NaN: 0 is allowed, and what the stand-in does. NVIDIA does not state what its libraries do; on an H100,
/// cuDNN 9 and cuBLASLt 13 kept it here.
#[track_caller]
fn assert_may_be_lost(relu_of_nan: f32) {
    let is_kept = relu_of_nan.is_nan() && !stand_in::is_there();
    assert!(relu_of_nan == 0.0 || is_kept, "{relu_of_nan}");
}

impl Drop for LibraryRelu {
    fn drop(&mut self) {
        let _ = set_library_relu(&DEVICE, false);
    }
}

#[test]
#[ignore = "asks NVIDIA's libraries, or what stands in for them"]
fn what_follows_convolutions_is_done_in_the_same_call() {
    let _alone = alone();
    for followed in [Followed::FLAT, Followed::ADDED, Followed { dtype: DType::F16, ..Followed::ADDED }] {
        followed.agrees(1);
        // NaN might not be kept.
        followed.with_relu().agrees(2);
    }
    let _allowed = LibraryRelu::allowed();
    for followed in [Followed::FLAT, Followed::ADDED, Followed { dtype: DType::F16, ..Followed::ADDED }] {
        followed.with_relu().agrees(1);
    }
    Followed::DEEP.with_relu().agrees(1);
}

/// The library has no such activation, it has to be told of a bias, and it adds nothing else by any algorithm but one.
#[test]
#[ignore = "asks NVIDIA's libraries, or what stands in for them"]
fn what_the_library_does_not_do_is_a_launch_of_its_own() {
    let _alone = alone();
    let _allowed = LibraryRelu::allowed();
    Followed { bias: false, ..Followed::FLAT }.with_relu().agrees(2);
    Followed { activation: Some(Activation::HardSwish), ..Followed::FLAT }.agrees(2);
    Followed { activation: Some(Activation::Clamp { min: 0.0, max: 6.0 }), ..Followed::ADDED }.agrees(2);
}

/// What stands in for the library has another algorithm for images of three dims, and refuses bf16: the first is found by asking what it advises,
/// the second by calling it. NVIDIA's may do both in the same call: an H100's does the first.
#[test]
#[ignore = "asks what stands in for NVIDIA's libraries"]
fn what_the_library_refuses_to_do_is_a_launch_of_its_own() {
    let _alone = alone();
    let _allowed = LibraryRelu::allowed();
    let least = |launches| if stand_in::is_there() { launches } else { 1 };
    Followed::DEEP.agrees_in(least(2)..=2);
    let refused = Followed { dtype: DType::BF16, ..Followed::FLAT };
    let added = Followed { residual: true, ..refused }.with_relu();
    for followed in [refused, refused.with_relu(), added] {
        // Also where that is known.
        for _ in 0..2 {
            followed.agrees_in(least(2)..=2);
        }
    }
}

#[test]
#[ignore = "asks NVIDIA's libraries, or what stands in for them"]
fn nan_is_kept_unless_the_library_may_compute_relu() {
    let _alone = alone();
    let followed = Followed::FLAT.with_relu();
    let first = || {
        let [x, weight, _, residual] = followed.operands::<Cuda>(&DEVICE);
        let bias =
            Cuda::<f32, i64>::full([Followed::CHANNELS].into(), Scalar::Float(f64::NAN), DType::F32, &DEVICE);
        floats::<Cuda>(followed.run::<Cuda>([x, weight, bias, residual]))[0]
    };
    assert!(first().is_nan());
    let _allowed = LibraryRelu::allowed();
    assert_may_be_lost(first());
}

/// What a user gives up who [allows](set_library_relu) libraries to compute ReLU, told for each dtype and order of images: NVIDIA's reference has
/// `cudnnConvolutionBiasActivationForward` take `CUDNN_NOT_PROPAGATE_NAN` alone, and does not state what becomes of NaN then.
#[test]
#[ignore = "asks NVIDIA's libraries, or what stands in for them"]
fn what_the_librarys_relu_makes_of_nan_is_told() {
    let _alone = alone();
    let _allowed = LibraryRelu::allowed();
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for residual in [false, true] {
            let followed = Followed { dtype, residual, ..Followed::FLAT }.with_relu();
            let [x, weight, bias, residual] = followed.operands::<Cuda>(&DEVICE);
            let nan = |x: &<Cuda as Backend>::Primitive| {
                Cuda::<f32, i64>::full(x.shape(), Scalar::Float(f64::NAN), dtype, &DEVICE)
            };
            let sources = [
                ("the image", [nan(&x), weight.clone(), bias.clone(), residual.clone()]),
                ("the bias", [x, weight, nan(&bias), residual]),
            ];
            for (source, operands) in sources {
                Cuda::<f32, i64>::sync(&DEVICE).expect("a device");
                let before = statistics(&DEVICE);
                let y = followed.run::<Cuda>(operands);
                let after = statistics(&DEVICE);
                let launches = after.launches - before.launches;
                let y = floats::<Cuda>(y);
                let kept = y.iter().filter(|y| y.is_nan()).count();
                println!(
                    "{dtype}, added: {}, NaN in {source}: {kept} of {} kept, {launches} launches",
                    followed.residual,
                    y.len()
                );
                assert!(y.iter().all(|y| y.is_nan() || *y == 0.0), "{dtype}: neither NaN nor 0");
            }
        }
    }
}

#[test]
#[ignore = "asks NVIDIA's libraries, or what stands in for them"]
fn convolutions_of_tf32_are_those_that_were_asked_for() {
    let _alone = alone();
    let case = Case::new([64, 64, 3, 3], 1, [(1, 1); 2], 1);
    let exact = case.passes::<Cuda>(&DEVICE);
    set_tf32(&DEVICE, true).expect("a device");
    let rounded = case.passes::<Cuda>(&DEVICE);
    set_tf32(&DEVICE, false).expect("a device");
    assert!(exact[0] != rounded[0]);
    assert!(case.passes::<Cuda>(&DEVICE) == exact);
}

/// Layers of a network in 16 bits: once images have their channels last they stay so, whoever computes.
#[test]
#[ignore = "asks NVIDIA's libraries, or what stands in for them"]
fn images_are_turned_around_once() {
    let _alone = alone();
    struct Layers<B: Backend>([B::Primitive; 5]);
    impl<B: Backend> Layers<B> {
        fn new(device: &B::Device) -> Self {
            let few = |shape: &[usize], seed: usize| {
                let few =
                    B::binary_scalar(BinaryOp::Max, tensor::<B>(shape, seed, device), Scalar::Float(3.0));
                B::cast(B::binary_scalar(BinaryOp::Sub, few, Scalar::Float(3.0)), DType::F16)
            };
            let shapes: [&[usize]; 5] =
                [&[1, 16, 12, 14], &[32, 16, 3, 3], &[32, 1, 3, 3], &[64, 32, 1, 1], &[64, 16, 2, 2]];
            Self(std::array::from_fn(|n| few(shapes[n], n)))
        }

        fn run(&self) -> B::Primitive {
            let options = |padding: usize, groups: usize| ConvOptions {
                stride: [1; 2].into(),
                padding: [(padding, padding); 2].into(),
                dilation: [1; 2].into(),
                groups,
            };
            let pooling = PoolOptions {
                kernel: [2; 2].into(),
                stride: [2; 2].into(),
                padding: [(0, 0); 2].into(),
                dilation: [1; 2].into(),
                ceil_mode: false,
            };
            let back = ConvTransposeOptions {
                stride: [2; 2].into(),
                padding: [(0, 0); 2].into(),
                output_padding: [0; 2].into(),
                dilation: [1; 2].into(),
                groups: 1,
            };
            let [x, all, depthwise, pointwise, up] = &self.0;
            let y = B::conv(x.clone(), all.clone(), None, &options(1, 1));
            let y = B::conv(y, depthwise.clone(), None, &options(1, 32));
            let y = B::pool(PoolOp::Max, y, &pooling);
            let y = B::conv(y, pointwise.clone(), None, &options(0, 1));
            let gate = B::reduce(ReduceOp::Max, y.clone(), &[2, 3]);
            let y = B::binary(BinaryOp::Min, y, gate);
            let y = B::conv_transpose(y, up.clone(), None, &back);
            B::cat(&[x.clone(), y.clone(), y], 1)
        }
    }
    let expected = floats::<NdArray>(Layers::<NdArray>::new(&Default::default()).run());
    let layers = Layers::<Cuda>::new(&DEVICE);
    assert_eq!(floats::<Cuda>(layers.run()), expected);
    Cuda::<f32, i64>::sync(&DEVICE).expect("a device");
    let before = statistics(&DEVICE);
    let y = layers.run();
    let after = statistics(&DEVICE);
    // The image is turned around, and of weights nothing once that was done. Joined are three.
    assert_eq!(after.library_calls - before.library_calls, 3);
    assert_eq!(after.launches - before.launches, 1 + 7 + 3);
    assert_eq!(floats::<Cuda>(y), expected);
}

/// A convolution of 16 channels with a bias, by tensor cores.
#[derive(Clone, Copy, Debug)]
struct ByTensorCores {
    image: &'static [usize],
    window: &'static [usize],
    stride: usize,
    padding: usize,
    dilation: usize,
    /// F32 is TF32.
    dtype: DType,
    /// Of images with their channels last.
    channels_last: bool,
}

impl ByTensorCores {
    const FEW: Self = Self {
        image: &[2, 3, 12, 14],
        window: &[3, 3],
        stride: 2,
        padding: 1,
        dilation: 1,
        dtype: DType::F16,
        channels_last: false,
    };

    fn operands<B: Backend>(&self, device: &B::Device) -> [B::Primitive; 3] {
        let few = |shape: &[usize], seed| {
            let few = B::binary_scalar(BinaryOp::Max, tensor::<B>(shape, seed, device), Scalar::Float(2.0));
            B::binary_scalar(BinaryOp::Sub, few, Scalar::Float(2.0))
        };
        let weight = [&[16, self.image[1]], self.window].concat();
        let all = [few(self.image, 1), few(&weight, 2), few(&[16], 3)];
        let [x, weight, bias] = all.map(|tensor| B::cast(tensor, self.dtype));
        [if self.channels_last { channels_last::<B>(x) } else { x }, weight, bias]
    }

    fn options(&self) -> ConvOptions {
        let rank = self.window.len();
        ConvOptions {
            stride: vec![self.stride; rank].into(),
            padding: vec![(self.padding, self.padding); rank].into(),
            dilation: vec![self.dilation; rank].into(),
            groups: 1,
        }
    }

    fn run<B: Backend>(&self, [x, weight, bias]: [B::Primitive; 3]) -> B::Primitive {
        let options = self.options();
        B::conv(x, weight, Some(bias), &options)
    }
}

/// One call each, of images with zeros behind their channels where these are few.
#[test]
#[ignore = "asks NVIDIA's libraries, or what stands in for them"]
fn gradients_of_first_weights_are_the_librarys() {
    let _alone = alone();
    fn gradient<B: Backend>(case: ByTensorCores, device: &B::Device) -> B::Primitive {
        let [x, weight, bias] = case.operands::<B>(device);
        let (shape, options) = (weight.shape(), case.options());
        let y = case.run::<B>([x.clone(), weight, bias]);
        // Whatever it is, all of it is small, and in the order of the results.
        let gradient = B::binary_scalar(BinaryOp::Min, y, Scalar::Float(1.0));
        B::conv_weight_gradient(x, gradient, &shape, &options)
    }
    let few = ByTensorCores::FEW;
    for case in
        [few, ByTensorCores { channels_last: true, ..few }, ByTensorCores { dtype: DType::F32, ..few }]
    {
        set_tf32(&DEVICE, true).expect("a device");
        let before = statistics(&DEVICE).library_calls;
        let y = gradient::<Cuda>(case, &DEVICE);
        let calls = statistics(&DEVICE).library_calls - before;
        set_tf32(&DEVICE, false).expect("a device");
        // NVIDIA's may have no such gradient.
        assert!(calls == 2 || calls == 1 && !stand_in::is_there(), "{calls}: {case:?}");
        let expected = floats::<NdArray>(gradient::<NdArray>(case, &Default::default()));
        assert_eq!(floats::<Cuda>(y), expected, "{case:?}");
    }
}

/// Of 32 bits large windows over few channels are not gathered, and would be multiplied with zeros for the most part: their images stay as they lie.
#[test]
#[ignore = "asks NVIDIA's libraries, or what stands in for them"]
fn wide_images_of_few_channels_stay_where_windows_are_large() {
    let _alone = alone();
    let case = ByTensorCores { window: &[7, 7], padding: 3, dtype: DType::F32, ..ByTensorCores::FEW };
    let expected = floats::<NdArray>(case.run::<NdArray>(case.operands::<NdArray>(&Default::default())));
    set_tf32(&DEVICE, true).expect("a device");
    let y = case.run::<Cuda>(case.operands::<Cuda>(&DEVICE));
    set_tf32(&DEVICE, false).expect("a device");
    let elements = y.shape().num_elements();
    let before = statistics(&DEVICE).launches;
    drop(Cuda::<f32, i64>::reshape(y.clone(), [elements].into()));
    assert_eq!(statistics(&DEVICE).launches, before, "row-major results are a row as they lie");
    assert_eq!(floats::<Cuda>(y), expected);
}

/// Some of several images, whose first is not where their memory begins.
#[test]
#[ignore = "asks NVIDIA's libraries, or what stands in for them"]
fn large_windows_see_the_images_that_they_are_over() {
    let _alone = alone();
    fn of_two<B: Backend>(case: ByTensorCores, device: &B::Device) -> B::Primitive {
        let [x, weight, bias] = case.operands::<B>(device);
        let mut ranges: Vec<SliceRange> = x.dims().iter().map(|&size| SliceRange::full(size)).collect();
        ranges[0].start = 2;
        case.run::<B>([B::slice(x, &ranges), weight, bias])
    }
    let four = ByTensorCores { image: &[4, 3, 12, 14], window: &[7, 7], padding: 3, ..ByTensorCores::FEW };
    for case in [four, ByTensorCores { channels_last: true, ..four }] {
        let expected = floats::<NdArray>(of_two::<NdArray>(case, &Default::default()));
        assert_eq!(floats::<Cuda>(of_two::<Cuda>(case, &DEVICE)), expected, "{case:?}");
    }
}

/// Images are copied at most once, together with the zeros behind few channels or to be rows of patches or of large windows, and what is computed of them has its
/// channels last.
#[test]
#[ignore = "asks NVIDIA's libraries, or what stands in for them"]
fn images_of_few_channels_and_of_one_dim_have_their_channels_last() {
    let _alone = alone();
    let few = ByTensorCores::FEW;
    let patches = ByTensorCores { image: &[2, 3, 12, 18], window: &[4, 4], stride: 4, padding: 0, ..few };
    let large = ByTensorCores { window: &[7, 7], padding: 3, ..few };
    let wider = ByTensorCores { image: &[2, 5, 12, 18], window: &[5, 7], padding: 2, stride: 3, ..few };
    let long = ByTensorCores { image: &[3, 2, 90], window: &[17], padding: 4, ..few };
    let row = ByTensorCores { image: &[2, 24, 19], window: &[3], ..few };
    let pointwise = ByTensorCores { image: &[2, 24, 5, 7], window: &[1, 1], stride: 1, padding: 0, ..few };
    let deep = ByTensorCores { image: &[2, 5, 4, 6, 5], window: &[2, 3, 2], ..few };
    let last = |of: ByTensorCores| ByTensorCores { channels_last: true, ..of };
    let wide = |of: ByTensorCores| ByTensorCores { dtype: DType::F32, ..of };
    let filled =
        [few, last(few), wide(few), patches, last(patches), wide(patches), row, wide(row), pointwise];
    let apart = ByTensorCores { dilation: 2, padding: 5, ..large };
    let layers = ByTensorCores { image: &[2, 3, 4, 9, 8], window: &[2, 5, 5], ..few };
    let gathered = [large, wider, long, apart, layers].into_iter().flat_map(|case| [case, last(case)]);
    let cases = filled.into_iter().chain(gathered).map(|case| (case, 2..=2));
    let as_they_lie = [row, pointwise].map(|case| (last(case), 1..=1));
    // Of three dims what is added may be a launch of its own.
    for (case, launches) in cases.chain(as_they_lie).chain([(deep, 2..=3)]) {
        let expected = floats::<NdArray>(case.run::<NdArray>(case.operands::<NdArray>(&Default::default())));
        let operands = case.operands::<Cuda>(&DEVICE);
        set_tf32(&DEVICE, true).expect("a device");
        // Weights are copied once.
        case.run::<Cuda>(operands.clone());
        Cuda::<f32, i64>::sync(&DEVICE).expect("a device");
        let before = statistics(&DEVICE);
        let y = case.run::<Cuda>(operands);
        let after = statistics(&DEVICE);
        let counts = (after.library_calls - before.library_calls, after.launches - before.launches);
        // In rows, as it lies.
        let rank = y.shape().rank();
        let rows: Vec<usize> = [0].into_iter().chain(2..rank).chain([1]).collect();
        let before = statistics(&DEVICE).launches;
        let rows = Cuda::<f32, i64>::reshape(
            Cuda::<f32, i64>::permute(y.clone(), &rows),
            [y.shape().num_elements()].into(),
        );
        assert_eq!(statistics(&DEVICE).launches, before, "{case:?}");
        drop(rows);
        set_tf32(&DEVICE, false).expect("a device");
        // NVIDIA's may leave the bias to a launch of its own.
        let more = if stand_in::is_there() { 0 } else { 1 };
        let launches = *launches.start()..=launches.end() + more;
        assert!(counts.0 == 1 && launches.contains(&counts.1), "{counts:?}: {case:?}");
        assert_eq!(floats::<Cuda>(y), expected, "{case:?}");
    }
}

#[test]
#[ignore = "asks NVIDIA's libraries, or what stands in for them"]
fn graphs_hold_convolutions_of_the_library() {
    let _alone = alone();
    let case = Case::new([64, 64, 3, 3], 1, [(1, 1); 2], 1);
    let input = |seed| Tensor::<Cuda, 4>::from_data(numbers(&case.image, seed), &DEVICE);
    let weight = tensor::<Cuda>(&case.weight, 2, &DEVICE);
    let forward = |x: Tensor<Cuda, 4>| {
        let y = Cuda::<f32, i64>::conv(x.into_primitive().tensor(), weight.clone(), None, &case.options);
        Tensor::<Cuda, 4>::from_primitive(TensorPrimitive::Float(y)).exp()
    };
    let direct = forward(input(7));
    let before = statistics(&DEVICE).library_calls;
    let graph = Graph::capture(input(1), forward).expect("a graph");
    // Once to see what is needed, once written down.
    assert_eq!(statistics(&DEVICE).library_calls - before, 2);
    graph.replay(input(7)).expect("a replay").into_data().assert_eq(&direct.into_data(), true);
}

/// Of which the channels are last, as the library takes them: in a training they are others in each replay.
#[test]
#[ignore = "asks NVIDIA's libraries, or what stands in for them"]
fn graphs_turn_the_weights_that_they_are_given() {
    let _alone = alone();
    let case = Case::new([64, 64, 3, 3], 1, [(1, 1); 2], 1);
    let given = |seed| {
        let tensor = |shape: &[usize], seed| Tensor::<Cuda, 4>::from_data(numbers(shape, seed), &DEVICE);
        (tensor(&case.image, seed), tensor(&case.weight, seed + 1))
    };
    let forward = |(x, weight): (Tensor<Cuda, 4>, Tensor<Cuda, 4>)| {
        let [x, weight] = [x, weight].map(|tensor| tensor.into_primitive().tensor());
        let y = Cuda::<f32, i64>::conv(x, weight, None, &case.options);
        Tensor::<Cuda, 4>::from_primitive(TensorPrimitive::Float(y))
    };
    set_tf32(&DEVICE, true).expect("a device");
    let graph = Graph::capture(given(1), forward).expect("a graph");
    for seed in [1, 5, 9] {
        let y = graph.replay(given(seed)).expect("a replay");
        y.into_data().assert_eq(&forward(given(seed)).into_data(), true);
    }
    set_tf32(&DEVICE, false).expect("a device");
}

#[test]
#[ignore = "asks NVIDIA's libraries, or what stands in for them"]
fn uploads_wait_for_nothing() {
    let _alone = alone();
    let values = |size: usize| TensorData::new(vec![0.5_f32; size], [size]);
    // What is behind is not done yet.
    let x = Cuda::<f32, i64>::from_data(values(1 << 10), &DEVICE);
    let waits = || told("libcuda.so", b"kiln_cuda_waits\0");
    drop(floats::<Cuda>(x.clone()));
    let y = Cuda::<f32, i64>::binary_scalar(BinaryOp::Add, x, Scalar::Float(1.0));
    let before = waits();
    // The last goes by way of staging memory in several pieces.
    let sizes = [1 << 10, 1 << 14, 1 << 20, 12 << 20];
    let large = sizes.map(|size| Cuda::<f32, i64>::from_data(values(size), &DEVICE));
    assert_eq!(waits(), before);
    for (tensor, size) in large.into_iter().zip(sizes) {
        assert_eq!(floats::<Cuda>(tensor), vec![0.5; size]);
    }
    assert_eq!(floats::<Cuda>(y), vec![1.5; 1 << 10]);
}

/// Runs tests in a process of their own where a variable is set, which is read once.
fn pass_with((variable, value): (&str, &str), tests: &[&str]) {
    let own = std::env::current_exe().expect("this program");
    let mut process = std::process::Command::new(own);
    let process = process.args(["--ignored", "--exact"]).args(tests);
    let run = process.env(variable, value).output().expect("it runs");
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && said.contains(&format!("{} passed", tests.len())), "{said}");
}

#[test]
#[ignore = "asks what stands in for NVIDIA's libraries"]
fn a_machine_without_page_locked_memory_copies_too() {
    let _alone = alone();
    pass_with(
        ("KILN_CUDA_DRIVER_PAGEABLE", "1"),
        &["large_tensors_arrive_whole", "products::large_products_agree_with_the_cpu"],
    );
}

#[test]
#[ignore = "asks what stands in for NVIDIA's libraries"]
fn a_device_without_memory_pools_computes_too() {
    let _alone = alone();
    pass_with(
        ("KILN_CUDA_DRIVER_WITHOUT_POOLS", "1"),
        &[
            "large_tensors_arrive_whole",
            "memory_is_given_back_once_it_is_used",
            "sums::copies_go_from_memory_to_memory",
        ],
    );
}

/// What stands in is of compute capability 9.0.
#[test]
#[ignore = "asks what stands in for NVIDIA's libraries"]
fn a_compiler_older_than_the_device_serves_it_too() {
    let _alone = alone();
    pass_with(("KILN_CUDA_DRIVER_ARCHITECTURES", "75 80 86 120"), &["large_tensors_arrive_whole"]);
}

/// A convolution behind a tensor of 28 MB that nobody uses any more.
#[test]
#[ignore = "asks NVIDIA's libraries"]
fn algorithms_may_have_what_tensors_had() {
    let _alone = alone();
    drop(<Cuda as Backend>::full([7 << 20].into(), Scalar::Float(1.0), DType::F32, &DEVICE));
    let convolved = |device: &CudaDevice| {
        let (x, weight) =
            (tensor::<Cuda>(&[2, 32, 20, 20], 1, device), tensor::<Cuda>(&[32, 32, 3, 3], 2, device));
        floats::<Cuda>(<Cuda as Backend>::conv(x, weight, None, &ConvOptions::new([1, 1], [1, 1], [1, 1], 1)))
    };
    assert!(convolved(&DEVICE).iter().all(|x| x.is_finite()));
    // In a process of its own, that was the only convolution; what stands in has no deterministic algorithm that needs less.
    if std::env::var_os("KILN_CUDA_DRIVER_MEMORY").is_some() {
        let used = told("libcudnn.so", b"kiln_cuda_convolution_algorithms\0").expect("what stands in");
        let lacks = std::env::var("KILN_CUDA_DRIVER_MEMORY").is_ok_and(|memory| memory == LITTLE);
        assert_eq!(used == 0, lacks, "{used:b}");
    }
}

/// Bytes of memory that have room for the workspace of the fastest algorithm, beside the first one, but not for what tensors had too.
const ENOUGH: &str = "115000000";
/// That have room for what it needs, but not for twice as much, which is asked for first.
const SCARCE: &str = "80000000";
/// And that have none for it.
const LITTLE: &str = "70000000";

#[test]
#[ignore = "asks what stands in for NVIDIA's libraries"]
fn algorithms_are_given_up_only_where_memory_lacks() {
    let _alone = alone();
    for memory in [ENOUGH, SCARCE, LITTLE] {
        pass_with(("KILN_CUDA_DRIVER_MEMORY", memory), &["algorithms_may_have_what_tensors_had"]);
    }
}

/// The cache's files that hold what cuBLASLt advised.
fn advice() -> Vec<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("KILN_CUDA_CACHE").expect("a folder of the tests' own"));
    let folders = std::fs::read_dir(folder).expect("a folder").flatten();
    let files = folders.flat_map(|folder| std::fs::read_dir(folder.path()).into_iter().flatten().flatten());
    let holds = |file: &PathBuf| {
        let bytes = std::fs::read(file).expect("a file");
        bytes.windows(8).any(|part| part == b"cuBLASLt")
    };
    files.map(|file| file.path()).filter(holds).collect()
}

#[test]
#[ignore = "asks what stands in for NVIDIA's libraries"]
fn what_the_library_advised_is_kept_for_the_next_start() {
    let _alone = alone();
    if !stand_in::is_there() {
        // NVIDIA's does not tell how often it was asked.
        return assert!(std::env::var_os("KILN_CUDA_TESTS").is_some_and(|value| value == "device"));
    }
    let searches =
        || told("libcublasLt.so", b"kiln_cuda_searches\0").expect("what stands in for the library");
    let product = || {
        // Once more, as a program that starts.
        reopen(&DEVICE).expect("a device");
        let before = searches();
        let [rows, columns, depth] = SIZE;
        let (x, y) =
            (tensor::<Cuda>(&[rows, depth], 1, &DEVICE), tensor::<Cuda>(&[depth, columns], 2, &DEVICE));
        (floats::<Cuda>(Cuda::<f32, i64>::matmul(x, y)), searches() - before)
    };
    advice().iter().for_each(|file| std::fs::remove_file(file).expect("a file"));
    let (expected, asked) = product();
    assert_eq!(asked, 1);
    assert_eq!(product(), (expected.clone(), 0));
    // Files that somebody else wrote, or that are not whole.
    let damages: [fn(&mut Vec<u8>); 4] = [
        |bytes| bytes.truncate(bytes.len() - 1),
        |bytes| bytes.push(0),
        |bytes| bytes.clear(),
        |bytes| bytes.iter_mut().rev().take(64).for_each(|byte| *byte = 0xff),
    ];
    for damage in damages {
        for file in advice() {
            let mut bytes = std::fs::read(&file).expect("a file");
            damage(&mut bytes);
            std::fs::write(&file, bytes).expect("a file");
        }
        assert_eq!(product(), (expected.clone(), 1));
        assert_eq!(product(), (expected.clone(), 0));
    }
}
