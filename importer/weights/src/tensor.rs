//! Tensors whose bytes are read when they are asked for.

mod gather;

use crate::{ErrorKind, Result, WeightsError, limits};
use flate2::bufread::DeflateDecoder;
use gather::{Gather, Unaligned, View, Whole};
use kiln_record::Stored;
use kiln_types::{Bytes, DType, TensorData};
use std::io::Read;
use std::sync::{Arc, OnceLock};

/// The memory that one or more tensors view.
#[derive(Debug)]
pub struct Storage {
    name: String,
    source: Source,
    /// The bytes of a compressed source, once they were needed: many tensors may view one storage.
    inflated: OnceLock<Bytes>,
    /// Whether elements are stored in the order that is not little-endian.
    big_endian: bool,
}

/// Where a storage's bytes are.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// In the map, as they are.
    Mapped(Bytes),
    /// In the map, compressed.
    Deflated {
        /// The compressed bytes.
        packed: Bytes,
        /// What they inflate to.
        size: usize,
        /// The checksum of the inflated bytes.
        crc: u32,
    },
}

impl Source {
    /// Number of bytes, inflated.
    pub(crate) fn len(&self) -> usize {
        match self {
            Source::Mapped(bytes) => bytes.len(),
            Source::Deflated { size, .. } => *size,
        }
    }

    /// The bytes, inflated.
    pub(crate) fn bytes(&self) -> Result<Bytes> {
        match self {
            Source::Mapped(bytes) => Ok(bytes.clone()),
            Source::Deflated { packed, size, crc } => inflate(packed, *size, *crc).map(Bytes::from_vec),
        }
    }
}

/// Inflates to exactly `size` bytes, which [`limits::MAX_INFLATED`] bounds. Memory is reserved at once, since what grows is in memory twice
/// while it moves; a system gives it as bytes come, so that a size that lies costs nothing.
fn inflate(packed: &[u8], size: usize, crc: u32) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes
        .try_reserve_exact(size)
        .map_err(|_| WeightsError::archive(format!("there is no memory for its {size} bytes")))?;
    let mut decoder = DeflateDecoder::new(packed).take((size as u64).saturating_add(1));
    let read = decoder.read_to_end(&mut bytes);
    read.map_err(|error| WeightsError::archive(format!("it does not inflate: {error}")))?;
    if bytes.len() != size {
        return Err(WeightsError::archive(format!(
            "it does not inflate to the {size} bytes that it promises"
        )));
    }
    let mut sum = flate2::Crc::new();
    sum.update(&bytes);
    if sum.sum() != crc {
        return Err(WeightsError::archive("its checksum is wrong"));
    }
    Ok(bytes)
}

impl Storage {
    pub(crate) fn new(name: impl Into<String>, source: Source, big_endian: bool) -> Self {
        Self { name: name.into(), source, inflated: OnceLock::new(), big_endian }
    }

    /// All bytes.
    fn bytes(&self) -> Result<Bytes> {
        match (&self.source, self.inflated.get()) {
            (Source::Mapped(bytes), _) | (_, Some(bytes)) => Ok(bytes.clone()),
            (source, None) => {
                let bytes = source.bytes().map_err(|error| error.in_entry(&self.name))?;
                Ok(self.inflated.get_or_init(|| bytes).clone())
            }
        }
    }

    /// The storage's name in its file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its size in bytes.
    pub fn len(&self) -> usize {
        self.source.len()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A tensor of a checkpoint: what it is, and where its bytes lie.
#[derive(Clone, Debug)]
pub struct LazyTensor {
    stored: Stored,
    shape: Vec<usize>,
    strides: Vec<usize>,
    offset: usize,
    storage: Arc<Storage>,
}

impl LazyTensor {
    /// A view of a storage. Offset and strides count elements; that all of them lie inside is checked.
    pub(crate) fn new(
        stored: Stored,
        shape: Vec<usize>,
        strides: Vec<usize>,
        offset: usize,
        storage: Arc<Storage>,
    ) -> Result<Self> {
        let elements = storage.len() / stored.size();
        check_view(&shape, &strides, offset, elements)?;
        Ok(Self { stored, shape, strides, offset, storage })
    }

    /// Whether two tensors are one and the same under two keys, as parameters are that layers share: the file has their elements once.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.storage, &other.storage)
            && self.offset == other.offset
            && self.stored == other.stored
            && (&self.shape, &self.strides) == (&other.shape, &other.strides)
            && !self.shape.contains(&0)
    }

    /// Where its first element is in memory or in the file: equal for tensors that are [the same](Self::is_same).
    pub fn place(&self) -> (usize, usize) {
        (Arc::as_ptr(&self.storage).addr(), self.offset)
    }

    /// A tensor that is all of its storage, under the name that the storage has in messages.
    pub fn whole(data: TensorData, name: &str) -> Self {
        let strides = contiguous_strides(&data.shape);
        let storage = Arc::new(Storage::new(name, Source::Mapped(data.bytes), false));
        Self { stored: data.dtype.into(), shape: data.shape, strides, offset: 0, storage }
    }

    /// The element type. Floats of eight bits become ones of 16.
    pub fn dtype(&self) -> DType {
        self.stored.dtype()
    }

    /// What the file keeps of each element.
    pub fn stored(&self) -> Stored {
        self.stored
    }

    /// The dims, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The distance between neighbours along each dim, in elements of the storage.
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// The first element's position in the storage, in elements.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The memory that the tensor views; tensors with the same one share it.
    pub fn storage(&self) -> &Arc<Storage> {
        &self.storage
    }

    /// Number of elements.
    pub fn num_elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Number of bytes of the elements, each counted once for every index that leads to it.
    pub fn num_bytes(&self) -> usize {
        self.num_elements().saturating_mul(self.dtype().size())
    }

    /// The last element's position in the storage, of a tensor with elements.
    fn last(&self) -> usize {
        let steps = self.shape.iter().zip(&self.strides).map(|(dim, stride)| dim.saturating_sub(1) * stride);
        self.offset + steps.sum::<usize>()
    }

    /// Whether the elements lie one after the other in row-major order.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        self.shape.iter().zip(&self.strides).rev().all(|(dim, stride)| {
            let fits = *dim == 1 || *stride == expected;
            expected = expected.saturating_mul(*dim);
            fits
        })
    }

    /// A part of the tensor along a dim: `length` indices from `start`. `None` when it has not that many.
    #[must_use]
    pub fn narrow(&self, dim: usize, start: usize, length: usize) -> Option<Self> {
        let mut part = self.clone();
        let size = part.shape.get_mut(dim)?;
        if start.checked_add(length)? > *size {
            return None;
        }
        *size = length;
        part.offset += start * self.strides.get(dim)?;
        Some(part)
    }

    /// The one element of a tensor without dims as `[1]`, or that of `[1]` without dims, if that is the rank; else the tensor
    /// as it is. Modules that know no tensors without dims have `[1]` for PyTorch's scalars.
    #[must_use]
    pub fn scalar_of_rank(mut self, rank: usize) -> Self {
        match (self.shape.as_slice(), rank) {
            ([], 1) => (self.shape, self.strides) = (vec![1], vec![1]),
            ([1], 0) => (self.shape, self.strides) = (Vec::new(), Vec::new()),
            _ => {}
        }
        self
    }

    /// The tensor with its last two dims exchanged. `None` when it has not two.
    #[must_use]
    pub fn transposed(&self) -> Option<Self> {
        let mut turned = self.clone();
        let last = self.shape.len().checked_sub(2)?;
        turned.shape.get_mut(last..)?.reverse();
        turned.strides.get_mut(last..)?.reverse();
        Some(turned)
    }

    /// The elements in row-major order. They share the file's bytes where they lie there in that order; where they are
    /// copied, the file's pages leave memory again.
    ///
    /// # Errors
    /// When a compressed storage does not inflate, or the view repeats its storage's elements beyond
    /// [`limits::MAX_EXPANDED`].
    pub fn data(&self) -> Result<TensorData> {
        let bytes = match self.run()? {
            Some(bytes) => bytes,
            None => self.gathered(&mut Whole)?,
        };
        let bytes = if self.dtype() == DType::Bool { only_bools(bytes) } else { self.stored.widened(bytes) };
        TensorData::from_bytes(bytes, self.shape.clone(), self.dtype())
            .map_err(|error| ErrorKind::Tensor(error.to_string()).into())
    }

    /// The bytes of [`LazyTensor::data`] in memory of their own. The file's pages leave memory while they are copied.
    ///
    /// # Errors
    /// As [`LazyTensor::data`].
    pub fn to_vec(&self) -> Result<Vec<u8>> {
        let mut bytes = match self.run()? {
            Some(run) => {
                let mut bytes = Vec::with_capacity(self.num_bytes());
                for start in (0..run.len()).step_by(COPIED_AT_ONCE) {
                    let part = run.slice(start..run.len().min(start + COPIED_AT_ONCE)).unwrap_or_default();
                    bytes.extend_from_slice(&self.stored.widened(part.clone()));
                    part.release();
                }
                bytes
            }
            None => match self.stored {
                Stored::DType(_) => self.gathered(&mut Unaligned)?,
                Stored::Minifloat(_) => self.stored.widened(self.gathered(&mut Whole)?).to_vec(),
            },
        };
        if self.dtype() == DType::Bool {
            bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
        }
        Ok(bytes)
    }

    /// The bytes where they lie, if they are one run in the machine's order.
    fn run(&self) -> Result<Option<Bytes>> {
        let (count, width) = (self.num_elements(), self.stored.size());
        if count == 0 {
            return Ok(Some(Bytes::default()));
        }
        if !self.is_contiguous() || (width > 1 && self.storage.big_endian != cfg!(target_endian = "big")) {
            return Ok(None);
        }
        let (start, size) = (self.offset * width, count * width);
        let bytes = self.storage.bytes()?.slice(start..start + size);
        bytes.map(Some).ok_or_else(|| WeightsError::tensor("it lies outside of its storage"))
    }

    /// The bytes, copied from wherever they lie.
    fn gathered<G: Gather>(&self, gather: &mut G) -> Result<G::To> {
        let width = self.stored.size();
        let spelled_out = self.num_elements().saturating_mul(width);
        if spelled_out > self.storage.len().max(limits::MAX_EXPANDED) {
            let what = format!("the view would be spelled out into {spelled_out} bytes");
            return Err(WeightsError::limit(what, limits::MAX_EXPANDED));
        }
        let source = self.storage.bytes()?;
        let view = View::new(&self.shape, &self.strides, self.offset);
        let big_endian = self.storage.big_endian;
        // A transposed model would else be in memory twice. Whoever reads the same pages next has them fetched again.
        let release = |range| source.slice(range).unwrap_or_default().release();
        let done = &mut { release };
        let gathered = match width {
            1 => gather.gather::<u8>(&view, &source, big_endian, done),
            2 => gather.gather::<u16>(&view, &source, big_endian, done),
            4 => gather.gather::<u32>(&view, &source, big_endian, done),
            _ => gather.gather::<u64>(&view, &source, big_endian, done),
        };
        release(self.offset * width..(self.last() + 1) * width);
        gathered.ok_or_else(|| WeightsError::tensor("it lies outside of its storage"))
    }
}

/// How many bytes of a file are copied before its pages leave memory.
const COPIED_AT_ONCE: usize = 8 << 20;

/// One byte for each bool, 0 or 1: PyTorch takes any byte that is not zero for true.
fn only_bools(bytes: Bytes) -> Bytes {
    if bytes.iter().all(|byte| *byte <= 1) {
        bytes
    } else {
        Bytes::from_vec(bytes.iter().map(|byte| u8::from(*byte != 0)).collect())
    }
}

/// The strides of a tensor without gaps.
pub(crate) fn contiguous_strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1_usize; shape.len()];
    let mut step = 1_usize;
    for (stride, dim) in strides.iter_mut().zip(shape).rev() {
        *stride = step;
        step = step.saturating_mul((*dim).max(1));
    }
    strides
}

/// Checks the number of a tensor's dims.
pub(crate) fn check_rank(rank: usize) -> Result<()> {
    if rank > limits::MAX_RANK {
        return Err(WeightsError::limit(format!("the tensor has {rank} dims"), limits::MAX_RANK));
    }
    Ok(())
}

/// Checks that every element of a view lies in a storage of `elements`, and that its size can be counted.
pub(crate) fn check_view(shape: &[usize], strides: &[usize], offset: usize, elements: usize) -> Result<()> {
    if shape.len() != strides.len() {
        let (dims, strides) = (shape.len(), strides.len());
        return Err(WeightsError::tensor(format!("it has {dims} dims and {strides} strides")));
    }
    check_rank(shape.len())?;
    let too_large = || WeightsError::tensor(format!("shape {shape:?} with strides {strides:?} overflows"));
    // Eight bytes is the widest element; memory of more than isize::MAX bytes does not exist.
    let count = DType::F64.bytes_of(shape).ok_or_else(too_large)? / DType::F64.size();
    let beyond = |last: usize| {
        WeightsError::tensor(format!(
            "shape {shape:?} with strides {strides:?} at offset {offset} reaches element {last} of a storage of {elements}"
        ))
    };
    if count == 0 {
        return if offset <= elements { Ok(()) } else { Err(beyond(offset)) };
    }
    let last = shape
        .iter()
        .zip(strides)
        .try_fold(offset, |last, (dim, stride)| last.checked_add((dim - 1).checked_mul(*stride)?));
    match last {
        Some(last) if last < elements => Ok(()),
        Some(last) => Err(beyond(last)),
        None => Err(too_large()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_transposed_views_share_the_storage() {
        let elements: Vec<f32> = (0..12).map(|i| i as f32).collect();
        let whole = LazyTensor::whole(TensorData::new(elements, [4, 3]), "weight");
        let part = whole.narrow(0, 2, 2).unwrap();
        assert_eq!(part.data().unwrap(), TensorData::new(vec![6.0_f32, 7.0, 8.0, 9.0, 10.0, 11.0], [2, 3]));
        let turned = part.transposed().unwrap();
        assert_eq!(turned.data().unwrap(), TensorData::new(vec![6.0_f32, 9.0, 7.0, 10.0, 8.0, 11.0], [3, 2]));
        assert!(whole.narrow(0, 3, 2).is_none());
        assert!(whole.narrow(2, 0, 1).is_none());
    }
}
