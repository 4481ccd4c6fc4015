//! The tensor of GPU backends.

use crate::kernels::elementwise;
use crate::language::{Storage, Type};
use crate::runtime::{Limits, Runtime};
use kiln_tensor::backend::{Layout, Primitive, SliceRange};
use kiln_tensor::{DType, Shape};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A tensor on a device: shared memory seen through a layout.
///
/// Users' own kernels take the [`memory`](Self::memory) of tensors that are
/// [row-major](Self::into_contiguous), and write to that of [new](Self::empty) ones.
#[derive(Clone)]
pub struct GpuTensor<R: Runtime> {
    pub(crate) memory: R::Memory,
    /// Shared, since every operation is handed clones.
    pub(crate) layout: Arc<Layout>,
    pub(crate) dtype: DType,
    pub(crate) device: R::Device,
}

impl<R: Runtime> fmt::Debug for GpuTensor<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GpuTensor({} {}, strides {:?})", self.dtype, self.layout.shape, self.layout.strides)
    }
}

impl<R: Runtime> Primitive for GpuTensor<R> {
    fn dims(&self) -> &[usize] {
        &self.layout.shape.dims
    }

    fn dtype(&self) -> DType {
        self.dtype
    }
}

/// How elements of a dtype stand in memory, on devices whose runtime supports that; nothing for a dtype that no GPU computes with here.
#[inline]
pub(crate) fn storage(dtype: DType) -> Option<Storage> {
    match dtype {
        DType::F64 => Some(Storage::F64),
        DType::F32 => Some(Storage::F32),
        DType::F16 => Some(Storage::F16),
        DType::BF16 => Some(Storage::BF16),
        DType::I64 => Some(Storage::I64),
        DType::I32 => Some(Storage::I32),
        DType::I16 => Some(Storage::I16),
        DType::I8 => Some(Storage::I8),
        DType::U64 => Some(Storage::U64),
        DType::U32 => Some(Storage::U32),
        DType::U16 => Some(Storage::U16),
        DType::U8 => Some(Storage::U8),
        DType::Bool => Some(Storage::Bool),
        DType::I4 | DType::U4 => None,
    }
}

/// [`storage`] of a dtype that a tensor has: the device was asked whether it supports it.
///
/// # Panics
/// When it does not.
#[track_caller]
pub(crate) fn held_as(dtype: DType) -> Storage {
    storage(dtype).unwrap_or_else(|| panic!("the device has no {dtype}"))
}

/// Whether a device computes with a dtype.
pub(crate) fn supports<R: Runtime>(device: &R::Device, dtype: DType) -> bool {
    storage(dtype).is_some_and(|storage| R::supports(device, storage))
}

/// Stops at a dtype that the device has not, before there is a kernel with it: not every language has all numbers.
#[track_caller]
pub(crate) fn require<R: Runtime>(device: &R::Device, dtype: DType) {
    assert!(supports::<R>(device, dtype), "the device has no {dtype}");
}

/// The dtype whose elements are what those of a dtype are computed as.
pub(crate) fn computed_in(dtype: DType) -> DType {
    match held_as(dtype).value() {
        Type::F64 => DType::F64,
        Type::F32 => DType::F32,
        Type::I64 => DType::I64,
        Type::I32 => DType::I32,
        Type::U64 => DType::U64,
        Type::U32 => DType::U32,
        Type::Bool => DType::Bool,
    }
}

/// Bytes of one element in memory.
#[inline]
pub(crate) fn element_bytes(dtype: DType) -> usize {
    held_as(dtype).bytes()
}

/// Elements of what kernels write, at most.
pub(crate) const MOST_WRITTEN: usize = (1 << 31) - 1;
/// Likewise of what they only read: as many as 32 bits count, less what a loop's last step goes beyond them.
pub(crate) const MOST_READ: usize = u32::MAX as usize - (1 << 24);

/// How many elements a shape has: a view may broadcast a few to any number.
///
/// # Panics
/// When there are more than `most`.
#[track_caller]
pub(crate) fn counted(shape: &Shape, most: usize) -> usize {
    let elements = shape.dims.iter().try_fold(1_usize, |product, &dim| product.checked_mul(dim));
    // In browsers, what counts elements has no more than 32 bits itself.
    let Some(elements) = elements.filter(|&elements| elements <= most) else {
        panic!("a tensor of shape {shape} has more elements than the {most} that kernels on a GPU count")
    };
    elements
}

impl<R: Runtime> GpuTensor<R> {
    /// A row-major tensor with arbitrary contents, for a kernel to write.
    ///
    /// # Panics
    /// When the device has no such dtype, or the tensor more elements than kernels count.
    #[track_caller]
    pub fn empty(shape: Shape, dtype: DType, device: &R::Device) -> Self {
        let elements = counted(&shape, MOST_WRITTEN);
        require::<R>(device, dtype);
        let memory = R::allocate(device, elements * element_bytes(dtype));
        Self { memory, layout: Layout::contiguous(shape).into(), dtype, device: device.clone() }
    }

    /// The row-major tensor whose elements a memory is, from its start.
    pub fn from_memory(memory: R::Memory, shape: Shape, dtype: DType, device: R::Device) -> Self {
        Self { memory, layout: Layout::contiguous(shape).into(), dtype, device }
    }

    /// The memory that it is a view of: its own elements, and others where it is a part of a tensor.
    pub fn viewed_memory(&self) -> &R::Memory {
        &self.memory
    }

    /// The device that holds it.
    pub fn device(&self) -> &R::Device {
        &self.device
    }

    /// The same elements row-major, from a start at which kernels can see them: itself where it is so, or a copy.
    pub fn into_contiguous(self) -> Self {
        if self.bytes().is_some() { self } else { elementwise::copy(&self) }
    }

    /// A row-major tensor with memory of its own and the same elements.
    pub fn copied(&self) -> Self {
        elementwise::copy(self)
    }

    /// Gives the elements the values of another tensor's; all that share the memory see them. The other's memory is not this one's.
    ///
    /// # Panics
    /// When shapes, dtypes or devices differ.
    #[track_caller]
    pub fn overwrite(&self, values: &Self) {
        let same = (self.dims(), self.dtype) == (values.dims(), values.dtype) && self.device == values.device;
        assert!(
            same,
            "{self:?} on {:?} cannot be given the values of {values:?} on {:?}",
            self.device, values.device
        );
        elementwise::copy_into(values, self);
        self.forget_derived();
    }

    /// Has what was made of its contents, and is kept with them (weights in another order), be made anew.
    pub fn forget_derived(&self) {
        R::forget_derived(&self.memory);
    }

    /// The memory of exactly its elements, in row-major order; nothing for a tensor that is not
    /// [contiguous](Self::into_contiguous).
    pub fn memory(&self) -> Option<R::Memory> {
        self.bytes().map(|bytes| R::window(&self.memory, bytes))
    }

    /// [`memory`](Self::memory) to write to; nothing where another tensor shares it, either.
    pub fn memory_mut(&mut self) -> Option<R::Memory> {
        if R::is_unique(&mut self.memory) { self.memory() } else { None }
    }

    /// Which bytes of its memory its elements are, where they are row-major and kernels can see them.
    fn bytes(&self) -> Option<Range<usize>> {
        let size = element_bytes(self.dtype);
        let start = self.layout.offset * size;
        let visible = start.is_multiple_of(R::limits(&self.device).binding_alignment);
        (visible && self.layout.is_contiguous()).then(|| start..start + self.len() * size)
    }

    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        self.layout.len()
    }

    /// Bytes that its elements take in memory, each once where it is broadcast.
    pub(crate) fn bytes_in_memory(&self) -> usize {
        let own = |(&dim, &stride): (&usize, &isize)| if stride == 0 { dim.min(1) } else { dim };
        let elements: usize = self.dims().iter().zip(&self.layout.strides).map(own).product();
        elements * element_bytes(self.dtype)
    }

    /// Whether there are no elements.
    pub(crate) fn is_empty(&self) -> bool {
        self.layout.is_empty()
    }

    /// The same memory through another layout.
    pub(crate) fn with_layout(mut self, layout: Layout) -> Self {
        // That of a tensor whose layout nobody shares is put in its place.
        match Arc::get_mut(&mut self.layout) {
            Some(own) => *own = layout,
            None => self.layout = Arc::new(layout),
        }
        self
    }

    /// Whether the memory may be written to: it is all this tensor's, and nobody else holds it.
    pub(crate) fn is_writable(&mut self) -> bool {
        self.layout.is_contiguous() && R::is_unique(&mut self.memory)
    }

    /// Whether kernels see all of the memory: its bytes, and each element by a position of 32 bits.
    pub(crate) fn is_visible(&self) -> bool {
        self.is_visible_within(&R::limits(&self.device))
    }

    /// Likewise with the device's limits at hand.
    pub(crate) fn is_visible_within(&self, limits: &Limits) -> bool {
        R::bytes(&self.memory) <= self.most_visible(limits)
    }

    /// How many bytes of such elements kernels see at most.
    fn most_visible(&self, limits: &Limits) -> usize {
        let counted = (u32::MAX as usize).saturating_mul(element_bytes(self.dtype));
        limits.binding_bytes.min(counted)
    }

    /// The tensor with no more of its memory than its elements span, where kernels do not see all of it.
    pub(crate) fn narrowed(&self) -> Self {
        if self.is_visible() || self.is_empty() {
            return self.clone();
        }
        let (mut first, mut last) = (self.layout.offset as isize, self.layout.offset as isize);
        for (&dim, &stride) in self.layout.shape.dims.iter().zip(&self.layout.strides) {
            let reach = (dim as isize - 1) * stride;
            first += reach.min(0);
            last += reach.max(0);
        }
        let (size, alignment) = (element_bytes(self.dtype), R::limits(&self.device).binding_alignment);
        let start = first as usize * size / alignment * alignment;
        let memory = R::window(&self.memory, start..(last as usize + 1) * size);
        let layout = Layout { offset: self.layout.offset - start / size, ..(*self.layout).clone() };
        Self { memory, layout: layout.into(), ..self.clone() }
    }

    /// A range of a dim.
    pub(crate) fn part(&self, dim: usize, range: Range<usize>) -> Self {
        let mut ranges: Vec<SliceRange> = self.dims().iter().map(|&size| SliceRange::full(size)).collect();
        ranges[dim] = SliceRange { start: range.start, end: range.end, step: 1 };
        let layout = self.layout.slice(&ranges);
        self.clone().with_layout(layout).narrowed()
    }

    /// Parts along a dim that kernels see, each with its first position; one part where they see all.
    pub(crate) fn parts(&self, dim: usize) -> Vec<(usize, Self)> {
        if self.is_visible() {
            return vec![(0, self.clone())];
        }
        let limits = R::limits(&self.device);
        let step = self.layout.strides[dim].unsigned_abs().max(1) * element_bytes(self.dtype);
        let most = (self.most_visible(&limits).saturating_sub(limits.binding_alignment) / step).max(1);
        let size = self.dims()[dim];
        let part = |start: usize| (start, self.part(dim, start..(start + most).min(size)));
        (0..size).step_by(most).map(part).collect()
    }

    /// The dims.
    pub(crate) fn dims(&self) -> &[usize] {
        &self.layout.shape.dims
    }
}
