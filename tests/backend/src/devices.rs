//! The CPU's backend as if there were several CPUs: an operation whose operands are on different ones panics.

use kiln_ndarray::NdArray;
use kiln_tensor::backend::{Backend, DeviceId, DeviceOps, ExecutionError, Primitive, SliceRange};
use kiln_tensor::*;

/// One of many CPUs, by its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place(pub u32);

impl DeviceOps for Place {
    fn to_id(&self) -> DeviceId {
        DeviceId::new(0, self.0)
    }

    fn from_id(id: DeviceId) -> Self {
        Self(id.index_id)
    }
}

type Cpu = NdArray;

type Below = <Cpu as Backend>::Primitive;

/// A tensor on one of the CPUs.
#[derive(Clone, Debug)]
pub struct Placed {
    place: Place,
    tensor: Below,
}

impl Primitive for Placed {
    fn dims(&self) -> &[usize] {
        self.tensor.dims()
    }

    fn dtype(&self) -> DType {
        self.tensor.dtype()
    }
}

impl Placed {
    fn map(self, by: impl FnOnce(Below) -> Below) -> Self {
        Self { place: self.place, tensor: by(self.tensor) }
    }

    /// With another tensor, which has to be on the same CPU.
    fn with(self, other: Self, by: impl FnOnce(Below, Below) -> Below) -> Self {
        let place = met([&self, &other]);
        Self { place, tensor: by(self.tensor, other.tensor) }
    }
}

/// Where all of these are.
fn met<'a>(tensors: impl IntoIterator<Item = &'a Placed>) -> Place {
    let mut places = tensors.into_iter().map(|tensor| tensor.place);
    let first = places.next().unwrap_or_default();
    places.for_each(|place| assert_eq!(place, first, "the operands are on different devices"));
    first
}

/// The backend of several CPUs.
#[derive(Clone, Debug, Default)]
pub struct Several;

impl Backend for Several {
    type Device = Place;
    type Primitive = Placed;
    type FloatElem = <Cpu as Backend>::FloatElem;
    type IntElem = <Cpu as Backend>::IntElem;
    type BoolElem = <Cpu as Backend>::BoolElem;

    fn name(device: &Place) -> String {
        format!("CPU {}", device.0)
    }

    fn supports(_device: &Place, dtype: DType) -> bool {
        Cpu::supports(&Default::default(), dtype)
    }

    fn seed(_device: &Place, seed: u64) {
        Cpu::seed(&Default::default(), seed);
    }

    fn from_data(data: TensorData, device: &Place) -> Placed {
        Placed { place: *device, tensor: Cpu::from_data(data, &Default::default()) }
    }

    fn full(shape: Shape, value: Scalar, dtype: DType, device: &Place) -> Placed {
        Placed { place: *device, tensor: Cpu::full(shape, value, dtype, &Default::default()) }
    }

    fn random(shape: Shape, distribution: Distribution, dtype: DType, device: &Place) -> Placed {
        let tensor = Cpu::random(shape, distribution, dtype, &Default::default());
        Placed { place: *device, tensor }
    }

    fn arange(start: i64, end: i64, step: i64, dtype: DType, device: &Place) -> Placed {
        let tensor = Cpu::arange(start, end, step, dtype, &Default::default());
        Placed { place: *device, tensor }
    }

    fn into_data(tensor: Placed) -> Result<TensorData, ExecutionError> {
        Cpu::into_data(tensor.tensor)
    }

    fn device(tensor: &Placed) -> Place {
        tensor.place
    }

    fn to_device(tensor: Placed, device: &Place) -> Placed {
        Placed { place: *device, ..tensor }
    }

    fn cast(tensor: Placed, dtype: DType) -> Placed {
        tensor.map(|x| Cpu::cast(x, dtype))
    }

    fn unary(op: UnaryOp, tensor: Placed) -> Placed {
        tensor.map(|x| Cpu::unary(op, x))
    }

    fn binary(op: BinaryOp, lhs: Placed, rhs: Placed) -> Placed {
        lhs.with(rhs, |a, b| Cpu::binary(op, a, b))
    }

    fn binary_scalar(op: BinaryOp, lhs: Placed, rhs: Scalar) -> Placed {
        lhs.map(|x| Cpu::binary_scalar(op, x, rhs))
    }

    fn compare(op: CompareOp, lhs: Placed, rhs: Placed) -> Placed {
        lhs.with(rhs, |a, b| Cpu::compare(op, a, b))
    }

    fn compare_scalar(op: CompareOp, lhs: Placed, rhs: Scalar) -> Placed {
        lhs.map(|x| Cpu::compare_scalar(op, x, rhs))
    }

    fn select_where(mask: Placed, on_true: Placed, on_false: Placed) -> Placed {
        let place = met([&mask, &on_true, &on_false]);
        Placed { place, tensor: Cpu::select_where(mask.tensor, on_true.tensor, on_false.tensor) }
    }

    fn reshape(tensor: Placed, shape: Shape) -> Placed {
        tensor.map(|x| Cpu::reshape(x, shape))
    }

    fn permute(tensor: Placed, axes: &[usize]) -> Placed {
        tensor.map(|x| Cpu::permute(x, axes))
    }

    fn expand(tensor: Placed, shape: Shape) -> Placed {
        tensor.map(|x| Cpu::expand(x, shape))
    }

    fn slice(tensor: Placed, ranges: &[SliceRange]) -> Placed {
        tensor.map(|x| Cpu::slice(x, ranges))
    }

    fn slice_assign(tensor: Placed, ranges: &[SliceRange], value: Placed) -> Placed {
        tensor.with(value, |x, value| Cpu::slice_assign(x, ranges, value))
    }

    fn cat(tensors: &[Placed], dim: usize) -> Placed {
        let place = met(tensors);
        let tensors: Vec<Below> = tensors.iter().map(|placed| placed.tensor.clone()).collect();
        Placed { place, tensor: Cpu::cat(&tensors, dim) }
    }

    fn select(tensor: Placed, dim: usize, indices: Placed) -> Placed {
        tensor.with(indices, |x, indices| Cpu::select(x, dim, indices))
    }

    fn select_assign(tensor: Placed, dim: usize, indices: Placed, value: Placed, op: ScatterOp) -> Placed {
        let place = met([&tensor, &indices, &value]);
        let tensor = Cpu::select_assign(tensor.tensor, dim, indices.tensor, value.tensor, op);
        Placed { place, tensor }
    }

    fn gather(tensor: Placed, dim: usize, indices: Placed) -> Placed {
        tensor.with(indices, |x, indices| Cpu::gather(x, dim, indices))
    }

    fn scatter(tensor: Placed, dim: usize, indices: Placed, value: Placed, op: ScatterOp) -> Placed {
        let place = met([&tensor, &indices, &value]);
        Placed { place, tensor: Cpu::scatter(tensor.tensor, dim, indices.tensor, value.tensor, op) }
    }

    fn nonzero(tensor: Placed) -> Result<Placed, ExecutionError> {
        Ok(Placed { place: tensor.place, tensor: Cpu::nonzero(tensor.tensor)? })
    }

    fn sort(tensor: Placed, dim: usize, descending: bool) -> (Placed, Placed) {
        let place = tensor.place;
        let (sorted, positions) = Cpu::sort(tensor.tensor, dim, descending);
        (Placed { place, tensor: sorted }, Placed { place, tensor: positions })
    }

    fn reduce(op: ReduceOp, tensor: Placed, axes: &[usize]) -> Placed {
        tensor.map(|x| Cpu::reduce(op, x, axes))
    }

    fn arg_reduce(op: ArgReduceOp, tensor: Placed, dim: usize, select_last: bool) -> Placed {
        tensor.map(|x| Cpu::arg_reduce(op, x, dim, select_last))
    }

    fn cumulative(op: CumulativeOp, tensor: Placed, dim: usize, exclusive: bool, reverse: bool) -> Placed {
        tensor.map(|x| Cpu::cumulative(op, x, dim, exclusive, reverse))
    }

    fn matmul(lhs: Placed, rhs: Placed) -> Placed {
        lhs.with(rhs, Cpu::matmul)
    }

    fn conv(x: Placed, weight: Placed, bias: Option<Placed>, options: &ConvOptions) -> Placed {
        let place = met([&x, &weight].into_iter().chain(&bias));
        let bias = bias.map(|bias| bias.tensor);
        Placed { place, tensor: Cpu::conv(x.tensor, weight.tensor, bias, options) }
    }

    fn conv_transpose(
        x: Placed,
        weight: Placed,
        bias: Option<Placed>,
        options: &ConvTransposeOptions,
    ) -> Placed {
        let place = met([&x, &weight].into_iter().chain(&bias));
        let bias = bias.map(|bias| bias.tensor);
        Placed { place, tensor: Cpu::conv_transpose(x.tensor, weight.tensor, bias, options) }
    }

    fn pool(op: PoolOp, x: Placed, options: &PoolOptions) -> Placed {
        x.map(|x| Cpu::pool(op, x, options))
    }

    fn max_pool_with_indices(x: Placed, options: &PoolOptions) -> (Placed, Placed) {
        let place = x.place;
        let (tensor, indices) = Cpu::max_pool_with_indices(x.tensor, options);
        (Placed { place, tensor }, Placed { place, tensor: indices })
    }
}
