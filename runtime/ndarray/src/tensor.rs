//! The tensor of this backend.

use crate::ops::{Pointwise, copy};
use crate::storage::{Buffer, Memory, SharedStorage, Work};
use crate::view::View;
use alloc::sync::Arc;
use bytemuck::Pod;
use core::fmt;
use core::ops::Range;
use kiln_kernels::InOut;
use kiln_tensor::backend::Layout;
use kiln_tensor::backend::Primitive;
use kiln_tensor::{Bytes, DType, Shape, TensorData, bf16};

/// Bytes up to which what lies in a file is copied: a bias that is read in place keeps, for each of its readers, large pages of the file in memory.
const MOST_COPIED: usize = 16 << 10;

/// A tensor in memory: a shared storage seen through a layout.
#[derive(Clone)]
pub struct NdArrayTensor {
    storage: SharedStorage,
    layout: View,
    dtype: DType,
    /// Whether it is a weight, which lives long: kernels keep prepared forms of it. It is the tensor's and not its memory's, which a model that is
    /// trained shares with the one that `valid()` makes of it: products of prepared forms may round otherwise.
    weight: bool,
}

impl Primitive for NdArrayTensor {
    fn dims(&self) -> &[usize] {
        &self.layout.shape.dims
    }

    fn dtype(&self) -> DType {
        self.dtype
    }

    fn waiting(&self) -> Option<usize> {
        self.storage.is_waiting().then(|| self.storage.address())
    }

    fn complete(&self) {
        let _: &[u8] = self.storage.slice();
    }

    fn complete_rounded(&self) {
        self.storage.complete_rounded();
    }
}

impl fmt::Debug for NdArrayTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NdArrayTensor({} {}, strides {:?})", self.dtype, self.layout.shape, self.layout.strides)
    }
}

impl NdArrayTensor {
    /// A tensor over filled memory. Every operation ends in it: compiled once, not into each.
    #[inline(never)]
    pub(crate) fn from_buffer(buffer: Buffer, shape: Shape, dtype: DType) -> Self {
        let storage = SharedStorage::new(Memory::Owned(buffer));
        Self { storage, layout: View::contiguous(shape), dtype, weight: false }
    }

    /// A row-major tensor that a convolution computes when somebody reads it.
    pub(crate) fn deferred(work: Work, shape: Shape) -> Self {
        let storage = SharedStorage::deferred(work);
        Self { storage, layout: View::contiguous(shape), dtype: DType::F32, weight: false }
    }

    /// The convolution that would compute this tensor, if nobody else can read it and the convolution is wanted; otherwise the tensor.
    pub(crate) fn into_deferred(
        mut self,
        wanted: impl FnOnce(&Pointwise) -> bool,
    ) -> Result<Pointwise, Self> {
        self.storage.get_mut().and_then(|storage| storage.take_work(wanted)).ok_or(self)
    }

    /// Whether the tensor is of f32 and held in bf16, or will be if a convolution that rounds its operands is first to read what another one yields.
    pub(crate) fn is_rounded_or_waits(&self) -> bool {
        self.storage.is_rounded_or_waits()
    }

    /// The elements of a contiguous tensor of f32 that is held in bf16.
    pub(crate) fn rounded(&self) -> Option<&[bf16]> {
        debug_assert!(self.layout.is_contiguous());
        Some(&self.storage.rounded()?[self.layout.offset..][..self.layout.len()])
    }

    /// The memory of a contiguous tensor of f32 that is held in bf16 and that nobody else can read; otherwise the tensor.
    pub(crate) fn into_rounded(mut self) -> Result<Buffer, Self> {
        debug_assert!(self.layout.is_contiguous());
        if self.storage.rounded().is_none_or(|all| all.len() != self.layout.len()) {
            return Err(self);
        }
        self.storage.get_mut().and_then(|storage| storage.take_rounded()).ok_or(self)
    }

    /// The memory of a row-major tensor: its own, if nobody else can read it, or a copy.
    pub(crate) fn into_buffer(self) -> Buffer {
        let mut tensor = self.into_contiguous();
        let len = tensor.len() * tensor.dtype.size();
        if let Some(buffer) = tensor.storage.get_mut().and_then(|storage| storage.take_buffer(len)) {
            return buffer;
        }
        let mut buffer = Buffer::new::<u8>(len);
        buffer.as_mut().copy_from_slice(tensor.bytes());
        buffer
    }

    /// A new row-major tensor whose elements `fill` writes, all of them: the memory has arbitrary contents before.
    pub(crate) fn build<T: Pod>(shape: Shape, dtype: DType, fill: impl FnOnce(&mut [T])) -> Self {
        debug_assert_eq!(size_of::<T>(), dtype.size());
        Self::filled(shape, dtype, fill)
    }

    /// Like [`NdArrayTensor::build`] with the bytes of any dtype.
    pub(crate) fn build_bytes(shape: Shape, dtype: DType, fill: impl FnOnce(&mut [u8])) -> Self {
        Self::filled(shape, dtype, fill)
    }

    fn filled<T: Pod>(shape: Shape, dtype: DType, fill: impl FnOnce(&mut [T])) -> Self {
        let layout = View::contiguous(shape);
        let bytes = layout.len().checked_mul(dtype.size());
        let bytes = bytes.expect("a tensor's size overflows the address space");
        let mut storage = SharedStorage::with_room(bytes);
        fill(storage.room(bytes));
        Self { storage, layout, dtype, weight: false }
    }

    /// A tensor over given data, sharing its bytes when they are aligned for the dtype and not few of a file.
    pub(crate) fn from_data(data: TensorData) -> Self {
        let TensorData { bytes, shape, dtype } = data;
        let shape = Shape::from(shape);
        assert_eq!(
            Some(bytes.len()),
            dtype.bytes_of(&shape.dims),
            "from_data: {} bytes do not make {shape} of {dtype}",
            bytes.len()
        );
        if dtype == DType::Bool && bytes.iter().any(|&byte| byte > 1) {
            // Kernels rely on 0 and 1.
            return Self::build(shape, dtype, |out: &mut [u8]| {
                out.iter_mut().zip(&*bytes).for_each(|(out, &byte)| *out = u8::from(byte != 0));
            });
        }
        let aligned = (bytes.as_ptr() as usize).is_multiple_of(dtype.size());
        if !aligned || bytes.is_refetched() && bytes.len() <= MOST_COPIED {
            let mut buffer = Buffer::new::<u8>(bytes.len());
            buffer.as_mut().copy_from_slice(&bytes);
            return Self::from_buffer(buffer, shape, dtype);
        }
        let storage = SharedStorage::new(Memory::Shared(bytes));
        Self { storage, layout: View::contiguous(shape), dtype, weight: false }
    }

    /// The elements as data; takes the memory over when nobody else holds it.
    pub(crate) fn into_data(self) -> TensorData {
        let mut tensor = self.into_contiguous();
        let range = tensor.byte_range();
        let bytes = match tensor.storage.get_mut() {
            Some(storage) => storage.take_bytes(),
            None => Bytes::from_vec(tensor.storage.slice::<u8>()[range.clone()].to_vec()),
        };
        let (shape, dtype) = (tensor.layout.shape.dims.to_vec(), tensor.dtype);
        let bytes = if bytes.len() == range.len() { bytes } else { bytes.slice(range).unwrap_or_default() };
        TensorData { bytes, shape, dtype }
    }

    fn byte_range(&self) -> Range<usize> {
        let size = self.dtype.size();
        self.layout.offset * size..(self.layout.offset + self.layout.len()) * size
    }

    /// The layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The dims.
    pub(crate) fn dims(&self) -> &[usize] {
        &self.layout.shape.dims
    }

    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        self.layout.len()
    }

    /// Whether the elements stand in row-major order without gaps.
    pub(crate) fn is_contiguous(&self) -> bool {
        self.layout.is_contiguous()
    }

    /// Whether there are no elements.
    pub(crate) fn is_empty(&self) -> bool {
        self.layout.is_empty()
    }

    /// The same storage through another layout.
    pub(crate) fn with_layout(mut self, layout: Layout) -> Self {
        self.layout.change(|_| layout);
        self
    }

    /// The same storage through what a function makes of the layout.
    pub(crate) fn map_layout(mut self, change: impl FnOnce(Layout) -> Layout) -> Self {
        self.layout.change(change);
        self
    }

    /// Changes the layout through which the storage is seen.
    pub(crate) fn change_layout(&mut self, change: impl FnOnce(Layout) -> Layout) {
        self.layout.change(change);
    }

    /// The same bytes as another dtype of equal size.
    pub(crate) fn with_dtype(self, dtype: DType) -> Self {
        debug_assert_eq!(self.dtype.size(), dtype.size());
        Self { dtype, ..self }
    }

    /// The whole storage; positions are the layout's.
    pub(crate) fn storage<T: Pod>(&self) -> &[T] {
        self.storage.slice()
    }

    /// The elements of a contiguous tensor.
    pub(crate) fn slice<T: Pod>(&self) -> &[T] {
        debug_assert!(self.layout.is_contiguous());
        if self.is_empty() {
            return &[];
        }
        &self.storage()[self.layout.offset..][..self.layout.len()]
    }

    /// The bytes of a contiguous tensor.
    pub(crate) fn bytes(&self) -> &[u8] {
        debug_assert!(self.layout.is_contiguous());
        &self.storage()[self.byte_range()]
    }

    /// Row-major without gaps; copies when it is not.
    #[inline]
    pub(crate) fn into_contiguous(self) -> Self {
        if self.layout.is_contiguous() { self } else { copy::contiguous(&self) }
    }

    /// [`NdArrayTensor::into_contiguous`] where the tensor stands.
    pub(crate) fn make_contiguous(&mut self) {
        if !self.layout.is_contiguous() {
            *self = copy::contiguous(self);
        }
    }

    /// Whether this tensor alone holds its memory and may write to it.
    pub(crate) fn is_writable(&mut self) -> bool {
        self.layout.is_contiguous() && !self.storage.is_shared() && self.storage.get_mut().is_some()
    }

    /// The elements for writing, if [`NdArrayTensor::is_writable`].
    pub(crate) fn slice_mut<T: Pod>(&mut self) -> Option<&mut [T]> {
        if !self.layout.is_contiguous() {
            return None;
        }
        // What is written is no longer the weight that it was.
        self.weight = false;
        let buffer = self.storage.get_mut()?.buffer_mut()?;
        if self.layout.is_empty() {
            return Some(&mut []);
        }
        Some(&mut buffer.as_mut()[self.layout.offset..][..self.layout.len()])
    }

    /// Runs a kernel that maps f32 elements one by one, whatever their order, in place where possible.
    pub(crate) fn transform_each(self, kernel: impl FnOnce(InOut<'_>)) -> Self {
        if self.layout.is_channels_last() {
            return self.channels_last().transform(kernel).channels_first();
        }
        self.transform(kernel)
    }

    /// Runs a kernel that maps row-major f32 elements to as many, in place where possible.
    pub(crate) fn transform(mut self, kernel: impl FnOnce(InOut<'_>)) -> Self {
        if self.is_writable() {
            if let Some(elements) = self.slice_mut() {
                kernel(InOut::InPlace(elements));
            }
            return self;
        }
        let from = self.into_contiguous();
        Self::build(from.shape(), from.dtype, |to| kernel(InOut::Copy { from: from.slice(), to }))
    }

    /// The same tensor as a weight: prepared forms of it are kept from now on.
    pub(crate) fn into_weight(self) -> Self {
        Self { weight: true, ..self }
    }

    /// A form of a weight's contents (packed for a kernel), with the key that it was made for, that is made once and kept as long as the contents
    /// stay; `None` for what is no weight.
    pub(crate) fn prepared<K, P>(
        &self,
        is_key: impl Fn(&K) -> bool,
        make: impl Fn() -> (K, P),
    ) -> Option<&Arc<(K, P)>>
    where
        K: Send + Sync + 'static,
        P: Send + Sync + 'static,
    {
        if self.weight { self.storage.prepared(is_key, make) } else { None }
    }

    /// Lets the memory of some elements go where they can be fetched again: a weight's, of which a packed form has them. They count from the layout's first.
    pub(crate) fn release(&self, elements: Range<usize>) {
        let [start, end] =
            [elements.start, elements.end].map(|at| (self.layout.offset + at) * self.dtype.size());
        self.storage.release(start..end);
    }

    /// Contiguous and writable; copies when it is not. `edit` gets the elements.
    pub(crate) fn edit<T: Pod>(mut self, edit: impl FnOnce(&mut [T])) -> Self {
        if !self.is_writable() {
            self = copy::contiguous(&self);
        }
        if let Some(elements) = self.slice_mut() {
            edit(elements);
        }
        self
    }
}

/// Stops when operands of one operation differ in dtype: their bytes would be misread.
///
/// # Panics
/// Names the operation and both dtypes.
pub(crate) fn same_dtype(op: &str, lhs: &NdArrayTensor, rhs: &NdArrayTensor) {
    assert!(lhs.dtype == rhs.dtype, "{op}: operands of {} and {}", lhs.dtype, rhs.dtype);
}
