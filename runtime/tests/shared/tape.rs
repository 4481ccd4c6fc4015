//! A backend that computes nothing of its own but tells leaves, what was computed from them, and constants apart, as one
//! that records gradients does; it counts what that one would have to record. Only what moving, casting and loading
//! parameters takes is here.

use kiln::tensor::backend::{AutodiffBackend, Backend, ExecutionError, Primitive, SliceRange};
use kiln::tensor::{
    ArgReduceOp, BinaryOp, CompareOp, ConvOptions, ConvTransposeOptions, CumulativeOp, DType, Distribution,
    PoolOp, PoolOptions, ReduceOp, Scalar, ScatterOp, Shape, TensorData, UnaryOp,
};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The backend that computes.
pub type Cpu = kiln::backend::NdArray;

/// The backend that tells.
#[derive(Clone, Debug, Default)]
pub struct Tape;

/// A tensor of [`Cpu`] with what it is.
#[derive(Clone, Debug)]
pub struct Tracked {
    inner: Inner,
    /// Of a leaf.
    pub leaf: Option<usize>,
    computed: bool,
}

type Inner = <Cpu as Backend>::Primitive;
type Device = <Cpu as Backend>::Device;
type Pair = (Tracked, Tracked);

thread_local! {
    static RECORDED: Cell<usize> = const { Cell::new(0) };
}

/// How often this thread computed with a tracked tensor.
pub fn recorded() -> usize {
    RECORDED.get()
}

/// Runs something that does not count.
pub fn uncounted<T>(run: impl FnOnce() -> T) -> T {
    let before = recorded();
    let result = run();
    RECORDED.set(before);
    result
}

impl Tracked {
    fn constant(inner: Inner) -> Self {
        Self { inner, leaf: None, computed: false }
    }

    fn is_tracked(&self) -> bool {
        self.leaf.is_some() || self.computed
    }

    fn compute(self, run: impl FnOnce(Inner) -> Inner) -> Self {
        let computed = self.is_tracked();
        RECORDED.set(recorded() + usize::from(computed));
        Self { inner: run(self.inner), leaf: None, computed }
    }
}

impl Primitive for Tracked {
    fn dims(&self) -> &[usize] {
        self.inner.dims()
    }

    fn dtype(&self) -> DType {
        self.inner.dtype()
    }
}

/// Operations that no test needs.
macro_rules! absent {
    ($(fn $name:ident($($argument:ident: $ty:ty),*) -> $result:ty;)*) => {
        $(fn $name($($argument: $ty),*) -> $result {
            unreachable!("`{}` is not among what the tests do", stringify!($name))
        })*
    };
}

#[allow(unused_variables)]
impl Backend for Tape {
    type Device = Device;
    type Primitive = Tracked;
    type FloatElem = <Cpu as Backend>::FloatElem;
    type IntElem = <Cpu as Backend>::IntElem;
    type BoolElem = <Cpu as Backend>::BoolElem;

    fn name(device: &Device) -> String {
        format!("tape<{}>", Cpu::name(device))
    }

    fn seed(device: &Device, seed: u64) {
        Cpu::seed(device, seed);
    }

    fn ad_enabled() -> bool {
        true
    }

    fn set_require_grad(tensor: Tracked, require_grad: bool) -> Tracked {
        static LEAVES: AtomicUsize = AtomicUsize::new(0);
        let leaf = require_grad.then(|| LEAVES.fetch_add(1, Ordering::Relaxed));
        Tracked { leaf, ..Tracked::constant(tensor.inner) }
    }

    fn is_require_grad(tensor: &Tracked) -> bool {
        tensor.leaf.is_some()
    }

    fn is_tracked(tensor: &Tracked) -> bool {
        tensor.is_tracked()
    }

    fn detach(tensor: Tracked) -> Tracked {
        Tracked::constant(tensor.inner)
    }

    fn from_data(data: TensorData, device: &Device) -> Tracked {
        Tracked::constant(Cpu::from_data(data, device))
    }

    fn into_data(tensor: Tracked) -> Result<TensorData, ExecutionError> {
        Cpu::into_data(tensor.inner)
    }

    fn device(tensor: &Tracked) -> Device {
        Cpu::device(&tensor.inner)
    }

    fn to_device(tensor: Tracked, device: &Device) -> Tracked {
        tensor.compute(|inner| Cpu::to_device(inner, device))
    }

    fn full(shape: Shape, value: Scalar, dtype: DType, device: &Device) -> Tracked {
        Tracked::constant(Cpu::full(shape, value, dtype, device))
    }

    fn random(shape: Shape, distribution: Distribution, dtype: DType, device: &Device) -> Tracked {
        Tracked::constant(Cpu::random(shape, distribution, dtype, device))
    }

    fn cast(tensor: Tracked, dtype: DType) -> Tracked {
        tensor.compute(|inner| Cpu::cast(inner, dtype))
    }

    fn binary_scalar(op: BinaryOp, lhs: Tracked, rhs: Scalar) -> Tracked {
        lhs.compute(|inner| Cpu::binary_scalar(op, inner, rhs))
    }

    fn permute(tensor: Tracked, axes: &[usize]) -> Tracked {
        tensor.compute(|inner| Cpu::permute(inner, axes))
    }

    absent! {
        fn arange(start: i64, end: i64, step: i64, dtype: DType, device: &Device) -> Tracked;
        fn unary(op: UnaryOp, tensor: Tracked) -> Tracked;
        fn binary(op: BinaryOp, lhs: Tracked, rhs: Tracked) -> Tracked;
        fn compare(op: CompareOp, lhs: Tracked, rhs: Tracked) -> Tracked;
        fn compare_scalar(op: CompareOp, lhs: Tracked, rhs: Scalar) -> Tracked;
        fn select_where(mask: Tracked, on_true: Tracked, on_false: Tracked) -> Tracked;
        fn reshape(tensor: Tracked, shape: Shape) -> Tracked;
        fn expand(tensor: Tracked, shape: Shape) -> Tracked;
        fn slice(tensor: Tracked, ranges: &[SliceRange]) -> Tracked;
        fn slice_assign(tensor: Tracked, ranges: &[SliceRange], value: Tracked) -> Tracked;
        fn cat(tensors: &[Tracked], dim: usize) -> Tracked;
        fn select(tensor: Tracked, dim: usize, indices: Tracked) -> Tracked;
        fn select_assign(tensor: Tracked, dim: usize, indices: Tracked, value: Tracked, op: ScatterOp) -> Tracked;
        fn gather(tensor: Tracked, dim: usize, indices: Tracked) -> Tracked;
        fn scatter(tensor: Tracked, dim: usize, indices: Tracked, value: Tracked, op: ScatterOp) -> Tracked;
        fn nonzero(tensor: Tracked) -> Result<Tracked, ExecutionError>;
        fn sort(tensor: Tracked, dim: usize, descending: bool) -> Pair;
        fn reduce(op: ReduceOp, tensor: Tracked, axes: &[usize]) -> Tracked;
        fn arg_reduce(op: ArgReduceOp, tensor: Tracked, dim: usize, select_last: bool) -> Tracked;
        fn cumulative(op: CumulativeOp, tensor: Tracked, dim: usize, exclusive: bool, reverse: bool) -> Tracked;
        fn matmul(lhs: Tracked, rhs: Tracked) -> Tracked;
        fn conv(x: Tracked, weight: Tracked, bias: Option<Tracked>, options: &ConvOptions) -> Tracked;
        fn conv_transpose(x: Tracked, weight: Tracked, bias: Option<Tracked>, options: &ConvTransposeOptions) -> Tracked;
        fn pool(op: PoolOp, x: Tracked, options: &PoolOptions) -> Tracked;
        fn max_pool_with_indices(x: Tracked, options: &PoolOptions) -> Pair;
    }
}

impl AutodiffBackend for Tape {
    type InnerBackend = Cpu;
    type Gradients = ();

    fn backward(_tensor: Tracked) {}

    fn grad(_tensor: &Tracked, _gradients: &()) -> Option<Inner> {
        None
    }

    fn grad_remove(_tensor: &Tracked, _gradients: &mut ()) -> Option<Inner> {
        None
    }

    fn grad_replace(_tensor: &Tracked, _gradients: &mut (), _gradient: Inner) {}

    fn inner(tensor: Tracked) -> Inner {
        tensor.inner
    }

    fn from_inner(tensor: Inner) -> Tracked {
        Tracked::constant(tensor)
    }
}
