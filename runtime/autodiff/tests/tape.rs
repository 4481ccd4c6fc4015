//! The tape: leaves, detaching, freeing, and long graphs.

use kiln_autodiff::Autodiff;
use kiln_autodiff::checkpoint::BalancedCheckpointing;
use kiln_ndarray::NdArray;
use kiln_tensor::backend::{AutodiffBackend, Backend};
use kiln_tensor::module::{self, GridSampleOptions, SampleMode, SamplePadding};
use kiln_tensor::ops::FloatTensorOps;
use kiln_tensor::{CumulativeOp, DType, Distribution, Int, Tensor, TensorData, linalg};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

type Inner = NdArray<f32>;
type A = Autodiff<Inner>;

fn tensor<B: Backend>(values: &[f32]) -> Tensor<B, 1> {
    Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), &B::Device::default())
}

fn numbers<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().to_vec().expect("f32")
}

#[test]
fn gradients_of_a_tensor_that_is_used_twice_add_up() {
    let x = tensor::<A>(&[1.0, 2.0]).require_grad();
    let y = x.clone() * x.clone() + x.clone();
    let gradients = y.sum().backward();
    assert_eq!(x.grad(&gradients).map(numbers), Some(vec![3.0, 5.0]));
}

#[test]
fn backward_of_several_elements_starts_from_ones() {
    let x = tensor::<A>(&[1.0, 2.0]).require_grad();
    let gradients = (x.clone() * 3.0).backward();
    assert_eq!(x.grad(&gradients).map(numbers), Some(vec![3.0, 3.0]));
}

#[test]
fn constants_have_no_gradient() {
    let (x, c) = (tensor::<A>(&[1.0]).require_grad(), tensor::<A>(&[2.0]));
    let y = x.clone() * c.clone();
    assert!(x.is_require_grad() && !c.is_require_grad() && !y.is_require_grad());
    let gradients = y.clone().backward();
    assert!(c.grad(&gradients).is_none() && y.grad(&gradients).is_none());
    assert_eq!(x.grad(&gradients).map(numbers), Some(vec![2.0]));
}

#[test]
fn a_loss_without_leaves_has_no_gradients() {
    let x = tensor::<A>(&[1.0]);
    let gradients = (x.clone() * 2.0).backward();
    assert!(x.grad(&gradients).is_none());
}

#[test]
fn a_detached_tensor_is_a_constant() {
    let x = tensor::<A>(&[3.0]).require_grad();
    let y = x.clone() * x.clone().detach();
    assert_eq!(x.grad(&y.backward()).map(numbers), Some(vec![3.0]));
    assert!(!x.detach().is_require_grad());
}

#[test]
fn to_require_a_gradient_begins_a_new_history() {
    let x = tensor::<A>(&[3.0]).require_grad();
    let y = (x.clone() * 2.0).require_grad();
    assert!(y.is_require_grad());
    let gradients = (y.clone() * y.clone()).backward();
    assert_eq!(y.grad(&gradients).map(numbers), Some(vec![12.0]));
    assert!(x.grad(&gradients).is_none());
}

#[test]
fn gradients_can_be_taken_and_replaced() {
    let x = tensor::<A>(&[3.0]).require_grad();
    let mut gradients = (x.clone() * 2.0).backward();
    x.grad_replace(&mut gradients, tensor::<Inner>(&[7.0]));
    assert_eq!(x.grad_remove(&mut gradients).map(numbers), Some(vec![7.0]));
    assert!(x.grad(&gradients).is_none());
}

#[test]
fn inner_tensors_come_and_go_as_constants() {
    let x = tensor::<A>(&[3.0]).require_grad();
    let inner: Tensor<Inner, 1> = x.clone().inner();
    let back = Tensor::<A, 1>::from_inner(inner);
    assert!(!back.is_require_grad());
    assert_eq!(numbers(back), vec![3.0]);
}

#[test]
fn a_second_backward_says_what_was_freed() {
    let x = tensor::<A>(&[3.0]).require_grad();
    let y = x.clone().exp();
    let first = y.clone().backward();
    assert!(x.grad(&first).is_some());
    let message = catch_unwind(AssertUnwindSafe(|| (y * 2.0).backward())).expect_err("freed");
    let message = message.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(message.contains("`exp`") && message.contains("earlier `backward`"), "{message}");
}

#[test]
fn a_leaf_serves_many_graphs() {
    let x = tensor::<A>(&[3.0]).require_grad();
    for factor in [2.0, 5.0] {
        let gradients = (x.clone() * factor).backward();
        assert_eq!(x.grad(&gradients).map(numbers), Some(vec![factor]));
    }
}

/// 2 MB, as the threads of a program have.
fn on_a_small_stack(test: impl FnOnce() + Send + 'static) {
    let thread = thread::Builder::new().stack_size(2 << 20).spawn(test).expect("a thread starts");
    thread.join().expect("the stack suffices");
}

fn long_chain<B: AutodiffBackend>(length: usize) -> (Tensor<B, 1>, Tensor<B, 1>) {
    let x = tensor::<B>(&[0.5]).require_grad();
    // Halves and doubles, so that the numbers stay.
    let y = (0..length).fold(x.clone(), |y, n| if n % 2 == 0 { y * 2.0 } else { y * 0.5 });
    (x, y)
}

#[test]
fn a_long_graph_is_dropped_without_recursion() {
    on_a_small_stack(|| drop(long_chain::<A>(100_000)));
    on_a_small_stack(|| drop(long_chain::<Autodiff<Inner, BalancedCheckpointing>>(100_000)));
    on_a_small_stack(|| drop(long_chain::<Autodiff<A>>(20_000)));
}

#[test]
fn a_long_graph_is_gone_back_without_recursion() {
    on_a_small_stack(|| {
        let (x, y) = long_chain::<A>(100_000);
        assert_eq!(x.grad(&y.backward()).map(numbers), Some(vec![1.0]));
    });
}

#[test]
fn a_long_chain_is_computed_again_without_recursion_and_in_linear_time() {
    on_a_small_stack(|| {
        let x = tensor::<Autodiff<Inner, BalancedCheckpointing>>(&[0.5]).require_grad();
        // The sine's derivative needs its operand, which is computed again from the start, once for all.
        let y = (0..50_000).fold(x.clone(), |y, _| y.sin());
        let gradient = x.grad(&y.backward()).map(numbers).expect("a gradient");
        assert!(gradient[0] > 0.0 && gradient[0] < 1.0, "{gradient:?}");
    });
}

#[test]
fn random_numbers_are_not_drawn_again() {
    type R = Autodiff<Inner, BalancedCheckpointing>;
    let device = Default::default();
    R::seed(&device, 7);
    let x = tensor::<R>(&[1.0, 2.0, 3.0]).require_grad();
    let noise = Tensor::<R, 1>::random([3], Distribution::Uniform(0.5, 1.5), &device);
    let y = x.clone() * noise.clone();
    let gradients = y.sin().sum().backward();
    let drawn = numbers(noise);
    let expected: Vec<f32> =
        [1.0, 2.0, 3.0].iter().zip(&drawn).map(|(x, n): (&f32, &f32)| (x * n).cos() * n).collect();
    let found = x.grad(&gradients).map(numbers).expect("a gradient");
    for (a, b) in found.iter().zip(expected) {
        assert!((a - b).abs() < 1e-6, "{found:?}");
    }
}

#[test]
fn gradients_go_to_another_thread() {
    let x = tensor::<A>(&[3.0]).require_grad();
    let gradients = (x.clone() * 2.0).backward();
    let there = thread::spawn(move || x.grad(&gradients).map(numbers));
    assert_eq!(there.join().expect("no panic"), Some(vec![2.0]));
}

/// `torch.autograd.grad` of the sum yields the same (2.15).
#[test]
fn ties_and_edges_are_as_in_pytorch() {
    let gradient = |x: &[f32], f: fn(Tensor<A, 1>) -> Tensor<A, 1>| {
        let x = tensor::<A>(x).require_grad();
        let found = x.grad(&f(x.clone()).backward()).map(numbers);
        found.expect("a gradient")
    };
    use kiln_tensor::activation;
    assert_eq!(gradient(&[-1.0, 0.0, 1.0], activation::relu), [0.0, 0.0, 1.0]);
    assert_eq!(
        gradient(&[-1.0, 0.0, 0.5, 1.0, 2.0, f32::NAN], |x| x.clamp(0.0, 1.0)),
        [0.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    );
    assert_eq!(gradient(&[-1.0, 0.0, 0.5], |x| x.clamp_min(0.0)), [0.0, 0.0, 1.0]);
    assert_eq!(gradient(&[0.0], Tensor::abs), [0.0]);
    assert_eq!(gradient(&[0.0], Tensor::sqrt), [f32::INFINITY]);
    assert_eq!(gradient(&[0.0], |x| x.powf_scalar(0.0)), [0.0]);
    assert_eq!(gradient(&[0.0], |x| x.powf_scalar(1.0)), [1.0]);
    assert_eq!(gradient(&[0.0], |x| x.powf_scalar(2.0)), [0.0]);
    assert_eq!(gradient(&[0.0, 2.0], |x| x.clone().powf(x.zeros_like())), [0.0, 0.0]);
    assert_eq!(gradient(&[1.0, 3.0], |x| x.clone().max_pair(x.ones_like())), [0.5, 1.0]);
    assert_eq!(gradient(&[-1.0, 1.0, 3.0], |x| x.max_pair_scalar(1.0)), [0.0, 0.5, 1.0]);
    assert_eq!(gradient(&[-1.0, 1.0, 3.0], |x| x.min_pair_scalar(1.0)), [1.0, 0.5, 0.0]);
    assert_eq!(gradient(&[1.0, 3.0, 3.0], |x| x.max()), [0.0, 0.5, 0.5]);
    assert_eq!(gradient(&[0.0, 2.0, 0.0], |x| x.prod()), [0.0, 0.0, 0.0]);
    assert_eq!(gradient(&[0.0, 2.0, 5.0], |x| x.prod()), [10.0, 0.0, 0.0]);
    assert_eq!(gradient(&[2.0, 0.0, 5.0, 3.0], |x| x.cumprod(0)), [1.0, 42.0, 0.0, 0.0]);
}

/// As of PyTorch's `max` and `min` of a dim: the one of several equal elements whose index is returned has the gradient.
#[test]
fn extremes_with_indices_have_the_gradient_there() {
    type Ends = fn(Tensor<A, 2>) -> (Tensor<A, 2>, Tensor<A, 2, Int>);
    let by_trait: [Ends; 2] = [
        |x| {
            let (values, indices) = A::float_max_dim_with_indices(x.into_backend(), 1);
            (Tensor::from_backend(values), Tensor::from_backend(indices))
        },
        |x| {
            let (values, indices) = A::float_min_dim_with_indices(x.into_backend(), 1);
            (Tensor::from_backend(values), Tensor::from_backend(indices))
        },
    ];
    let by_tensor: [Ends; 2] = [|x| x.max_dim_with_indices(1), |x| x.min_dim_with_indices(1)];
    for ends in [by_trait, by_tensor] {
        for (ends, other) in ends.into_iter().zip([1.0f32, 4.0]) {
            let data = TensorData::new(vec![other, 3.0, 3.0], [1, 3]);
            let x = Tensor::<A, 2>::from_data(data, &Default::default()).require_grad();
            let (values, indices) = ends(x.clone());
            assert_eq!((numbers(values.clone()), numbers(indices.float())), (vec![3.0], vec![1.0]));
            assert_eq!(x.grad(&values.backward()).map(numbers), Some(vec![0.0, 1.0, 0.0]));
        }
    }
}

#[test]
fn a_running_maximum_is_that_of_the_last_nan() {
    let x = tensor::<A>(&[3.0, f32::NAN, 1.0, 4.0, f32::NAN, 2.0]).require_grad();
    let y = x.clone().cummax(0) * tensor(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(x.grad(&y.backward()).map(numbers), Some(vec![1.0, 9.0, 0.0, 0.0, 11.0, 0.0]));
}

/// What is read at a border itself, as by all outermost coordinates of a grid that moves nothing.
#[test]
fn borders_of_a_grid_have_no_slope() {
    let x = tensor::<A>(&[1.0, 2.0, 4.0]).reshape([1, 1, 3]);
    let grid = tensor::<A>(&[-1.0, -0.5, 0.0, 1.0, 1.5]).require_grad();
    let options = GridSampleOptions::new(SampleMode::Linear)
        .with_padding_mode(SamplePadding::Border)
        .with_align_corners(true);
    let y = module::grid_sample(x, grid.clone().reshape([1, 5, 1]), options);
    assert_eq!(numbers(y.clone().reshape::<1, _>([5])), [1.0, 1.5, 2.0, 4.0, 4.0]);
    assert_eq!(grid.grad(&y.backward()).map(numbers), Some(vec![0.0, 1.0, 2.0, 0.0, 0.0]));
}

/// Nothing flows to a vector of zeros from its norm, whatever the norm is; that of what is not zero is as it was.
#[test]
fn norms_are_flat_at_zero() {
    let rows = || -> Tensor<A, 2> {
        let values = vec![3.0f32, 0.0, -4.0, 0.0, 0.0, 0.0];
        Tensor::from_data(TensorData::new(values, [2, 3]), &Default::default()).require_grad()
    };
    let gradient_of = |function: &dyn Fn(Tensor<A, 2>) -> Tensor<A, 2>| {
        let x = rows();
        let gradients = function(x.clone()).sum().backward();
        x.grad(&gradients).map(numbers).expect("a gradient")
    };
    // By hand: sign(x) |x|^(p-1) norm^(1-p).
    let slopes = |p: f64| {
        let norm = (3f64.powf(p) + 4f64.powf(p)).powf(1.0 / p);
        let slope = |x: f64| x.signum() * (x.abs() / norm).powf(p - 1.0);
        [slope(3.0), 0.0, slope(-4.0), 0.0, 0.0, 0.0]
    };
    let close = |found: Vec<f32>, wanted: [f64; 6], name: &str| {
        let all = found.iter().zip(wanted).all(|(x, y)| (f64::from(*x) - y).abs() <= 1e-5 * y.abs().max(1.0));
        assert!(all, "{name}: {found:?}, not {wanted:?}");
    };
    for p in [0.5, 1.0, 1.5, 2.0, 3.0] {
        close(gradient_of(&|x| linalg::vector_norm(x, p, 1)), slopes(p), &format!("norm {p}"));
        close(gradient_of(&|x| linalg::lp_norm(x, p, 1)), slopes(p), &format!("lp_norm {p}"));
        let normalized = gradient_of(&|x| linalg::vector_normalize(x, p, 1, 0.5));
        assert!(normalized.iter().all(|x| x.is_finite()), "normalized {p}: {normalized:?}");
        // What the zeros are divided by is the bound.
        assert_eq!(normalized[3..], [2.0; 3], "normalized {p}");
    }
    let ones = || Tensor::<A, 2>::ones([2, 3], &Default::default());
    let cosines = gradient_of(&|x| linalg::cosine_similarity(x, ones(), 1, None));
    assert!(cosines.iter().all(|x| x.is_finite()), "cosines: {cosines:?}");
}

/// Equal rows pull each other nowhere, also where roots are taken, and rows far from the origin are pulled as those at it.
#[test]
fn distances_are_flat_where_rows_are_equal() {
    let rows = |origin: f32| -> Tensor<A, 2> {
        let values = [0.0f32, 0.0, 3.0, 4.0, 3.0, 4.0].map(|x| x + origin).to_vec();
        Tensor::from_data(TensorData::new(values, [3, 2]), &Default::default()).require_grad()
    };
    for origin in [0.0, 8192.0] {
        let x = rows(origin);
        let gradients = linalg::squared_distances(x.clone(), x.clone()).sqrt().sum().backward();
        let gradient = x.grad(&gradients).map(numbers).expect("a gradient");
        // Each pair counts twice; the first row has two others at the same place.
        let wanted = [-2.4, -3.2, 1.2, 1.6, 1.2, 1.6];
        let close = gradient.iter().zip(wanted).all(|(x, y)| (x - y).abs() < 1e-5);
        assert!(close, "at {origin}: {gradient:?}, not {wanted:?}");
    }
    // Two places far from each other, and a row that is nowhere.
    let tensor = |values: &[f32]| -> Tensor<A, 2> {
        let shape = [values.len() / 2, 2];
        Tensor::from_data(TensorData::new(values.to_vec(), shape), &Default::default())
    };
    let x = tensor(&[8192.0, 0.0, 8193.0, 0.0]).require_grad();
    let y = tensor(&[8192.25, 0.0, -8192.0, 0.0]);
    let distances = linalg::squared_distances(x.clone(), y).slice([0..2, 0..1]);
    let gradients = distances.sqrt().sum().backward();
    assert_eq!(x.grad(&gradients).map(numbers), Some(vec![-1.0, 0.0, 1.0, 0.0]));
    let y = tensor(&[8192.25, 0.0, f32::INFINITY, 0.0]).require_grad();
    let distances = linalg::squared_distances(x.detach(), y.clone()).slice([0..2, 0..1]);
    let gradients = distances.sum().backward();
    assert_eq!(y.grad(&gradients).map(|y| numbers(y)[..2].to_vec()), Some(vec![-1.0, 0.0]));
    let none = Tensor::<A, 2>::ones([0, 2], &Default::default()).require_grad();
    let x = rows(0.0);
    let gradients = linalg::squared_distances(x.clone(), none).sum().backward();
    assert_eq!(x.grad(&gradients).map(numbers), Some(vec![0.0; 6]));
}

/// So many differences that they are not made one by one: of whole numbers, by hand.
#[test]
fn many_distances_have_gradients() {
    let (count, size) = (300, 200);
    let rows =
        |seed: usize| -> Vec<f32> { (0..count * size).map(|n| ((n * 7 + seed) % 11) as f32 - 5.0).collect() };
    let whole = |values: &[f32]| -> Tensor<A, 2> {
        Tensor::from_data(TensorData::new(values.to_vec(), [count, size]), &Default::default()).require_grad()
    };
    let (a, b) = (rows(0), rows(4));
    let (x, y) = (whole(&a), whole(&b));
    let gradients = linalg::squared_distances(x.clone(), y.clone()).sum().backward();
    for (own, other, found) in [(&a, &b, x.grad(&gradients)), (&b, &a, y.grad(&gradients))] {
        let found = found.map(numbers).expect("a gradient");
        for (at, found) in found.into_iter().enumerate() {
            let sum: f32 = (0..count).map(|row| other[row * size + at % size]).sum();
            let wanted = 2.0 * (count as f32 * own[at] - sum);
            assert!((found - wanted).abs() < 0.05, "{found}, not {wanted}, at {at}");
        }
    }
}

/// The values of norms are what they always were.
#[test]
fn norms_have_all_their_bits() {
    let values = [1e-20f32, 3e-4, -0.7, 5.0, 1e18, f32::INFINITY, f32::NAN, 0.0, -0.0];
    for (a, b) in values.iter().flat_map(|a| values.map(|b| (*a, b))) {
        let x = || Tensor::<Inner, 2>::from_data(TensorData::new(vec![a, b], [1, 2]), &Default::default());
        let bits = |x: Tensor<Inner, 2>| numbers(x).into_iter().map(f32::to_bits).collect::<Vec<_>>();
        let root = bits(x().square().sum_dim(1).sqrt());
        assert_eq!(bits(linalg::l2_norm(x(), 1)), root, "of {a} and {b}");
        for p in [-2.0, -0.5, 0.5, 3.0] {
            let wanted = bits(x().abs().powf_scalar(p).sum_dim(1).powf_scalar(1.0 / p));
            assert_eq!(bits(linalg::lp_norm(x(), p, 1)), wanted, "{p} of {a} and {b}");
        }
    }
}

#[test]
fn an_empty_tensor_has_an_empty_gradient() {
    let x = tensor::<A>(&[]).require_grad();
    let gradients = (x.clone() * 2.0).exp().sum().backward();
    assert_eq!(x.grad(&gradients).map(numbers), Some(vec![]));
}

/// More equal elements than floats of 16 bits count.
#[test]
fn many_equal_extremes_share_their_gradient() {
    const COUNT: usize = 1 << 17;
    let zeros = Tensor::<A, 1>::zeros([COUNT], &Default::default()).cast(DType::F16).require_grad();
    let gradients = zeros.clone().max().backward();
    let shares = numbers(zeros.grad(&gradients).expect("a gradient").cast(DType::F32));
    assert!(shares.iter().all(|&share| (share - 1.0 / COUNT as f32).abs() < 1e-7), "{}", shares[0]);
}

#[test]
fn running_extremes_of_nothing_have_gradients_of_nothing() {
    for reverse in [false, true] {
        let empty = Tensor::<A, 2>::zeros([3, 0], &Default::default()).require_grad();
        let running =
            <A as Backend>::cumulative(CumulativeOp::Max, empty.clone().into_backend(), 1, true, reverse);
        let gradients = Tensor::<A, 2>::from_backend(running).backward();
        assert_eq!(empty.grad(&gradients).expect("a gradient").dims(), [3, 0]);
    }
}

/// A leaf over a tape is computed from a leaf of that tape.
#[test]
fn tapes_over_tapes_yield_second_derivatives() {
    let inner = tensor::<A>(&[2.0, 3.0]).require_grad();
    let x = Tensor::<Autodiff<A>, 1>::from_inner(inner.clone()).require_grad();
    let gradients = x.clone().powf_scalar(3.0).sum().backward();
    let first = x.grad(&gradients).expect("a gradient");
    assert_eq!(numbers(first.clone()), [12.0, 27.0]);
    assert_eq!(inner.grad(&first.sum().backward()).map(numbers), Some(vec![12.0, 18.0]));

    // What forgets its history does so on its own tape alone.
    let constant = x.set_require_grad(false);
    assert!(!constant.is_tracked() && constant.inner().is_tracked());
}
