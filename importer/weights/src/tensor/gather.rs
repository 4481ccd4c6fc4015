//! Copies of views: elements in row-major order from wherever they lie.

use core::ops::Range;
use kiln_types::Bytes;

/// Elements of a tile's side. A tile is read along the source's rows and written along the result's: both lie far apart, and
/// often by a power of two, so that they would push each other out of the cache one element at a time.
const TILE: usize = 32;

/// A view of a storage with as few dims as possible: none of size 1, and neighbours that can be walked as one merged.
pub(super) struct View {
    /// Sizes and strides, outermost first.
    dims: Vec<(usize, usize)>,
    /// The first element.
    offset: usize,
}

/// A dim: its size, its stride in the source and its stride in the result.
#[derive(Clone, Copy)]
struct Dim {
    size: usize,
    from: usize,
    to: usize,
}

impl View {
    pub(super) fn new(shape: &[usize], strides: &[usize], offset: usize) -> Self {
        let mut dims: Vec<(usize, usize)> = Vec::with_capacity(shape.len());
        for (size, stride) in shape.iter().copied().zip(strides.iter().copied()) {
            match dims.last_mut() {
                _ if size == 1 => {}
                Some((outer, jump)) if stride.checked_mul(size) == Some(*jump) => {
                    *outer *= size;
                    *jump = stride;
                }
                _ => dims.push((size, stride)),
            }
        }
        Self { dims, offset }
    }

    fn count(&self) -> usize {
        self.dims.iter().map(|(size, _)| size).product()
    }

    fn gather_to<W: Word>(
        &self,
        words: &mut [W],
        source: &[u8],
        big_endian: bool,
        done: &mut dyn FnMut(Range<usize>),
    ) -> Option<()> {
        let whole = source.len() - source.len() % size_of::<W>();
        // Aligned, as they are in most files, elements are read as such.
        match bytemuck::try_cast_slice::<u8, W>(source.get(..whole)?) {
            Ok(elements) if big_endian == cfg!(target_endian = "big") => {
                self.copy(words, &Elements(elements), done)
            }
            _ => self.copy(words, &Spelled { bytes: source, big_endian }, done),
        }
    }

    fn copy<W: Word>(
        &self,
        words: &mut [W],
        source: &impl Runs<W>,
        done: &mut dyn FnMut(Range<usize>),
    ) -> Option<()> {
        let mut step = words.len();
        let mut dims: Vec<Dim> = Vec::with_capacity(self.dims.len());
        for (size, from) in self.dims.iter().copied() {
            step = step.checked_div(size)?;
            dims.push(Dim { size, from, to: step });
        }
        let Some(row) = dims.pop() else {
            return source.run(self.offset, 1, words.get_mut(..1)?);
        };
        // The dim along which neighbours lie closest in the source, unless that is the row already.
        let closest = (0..dims.len()).rev().filter(|at| dims.get(*at).is_some_and(|dim| dim.from > 0));
        let closest = closest.min_by_key(|at| dims.get(*at).map(|dim| dim.from));
        let closer = closest.filter(|at| dims.get(*at).is_some_and(|dim| dim.from < row.from));
        let near = match closer {
            Some(at) => dims.remove(at),
            None => Dim { size: 1, from: 0, to: 0 },
        };
        // Planes may lie in each other, and then a part of one is needed for the next.
        let alone = dims.is_empty();
        let mut done = |read| {
            if alone {
                done(read);
            }
        };
        for_each(&dims, self.offset, 0, &mut |from, to| {
            copy_plane(words, source, (near, row), from, to, &mut done)
        })
    }
}

/// What gathered elements become.
pub(super) trait Gather {
    /// The bytes' type.
    type To;

    /// The elements in row-major order; `None` if one lies outside of the source. `done` is told, while large matrices are
    /// turned, which bytes will not be read again.
    fn gather<W: Word>(
        &mut self,
        view: &View,
        source: &[u8],
        big_endian: bool,
        done: &mut dyn FnMut(Range<usize>),
    ) -> Option<Self::To>;
}

/// Bytes with the alignment of their elements.
pub(super) struct Whole;

impl Gather for Whole {
    type To = Bytes;

    fn gather<W: Word>(
        &mut self,
        view: &View,
        source: &[u8],
        big_endian: bool,
        done: &mut dyn FnMut(Range<usize>),
    ) -> Option<Bytes> {
        let mut words = vec![W::default(); view.count()];
        view.gather_to(&mut words, source, big_endian, done)?;
        Some(Bytes::from_elements(words))
    }
}

/// Bytes without an alignment that is known.
pub(super) struct Unaligned;

impl Gather for Unaligned {
    type To = Vec<u8>;

    fn gather<W: Word>(
        &mut self,
        view: &View,
        source: &[u8],
        big_endian: bool,
        done: &mut dyn FnMut(Range<usize>),
    ) -> Option<Vec<u8>> {
        let mut bytes = vec![0; view.count() * size_of::<W>()];
        match bytemuck::try_cast_slice_mut::<u8, W>(&mut bytes) {
            Ok(words) => view.gather_to(words, source, big_endian, done)?,
            // Memory is aligned, though nothing promises it.
            Err(_) => bytes.copy_from_slice(&Whole.gather::<W>(view, source, big_endian, done)?),
        }
        Some(bytes)
    }
}

/// Runs something for each place along some dims, given by its positions in the source and in the result.
fn for_each(
    dims: &[Dim],
    from: usize,
    to: usize,
    run: &mut impl FnMut(usize, usize) -> Option<()>,
) -> Option<()> {
    let Some((first, rest)) = dims.split_first() else { return run(from, to) };
    (0..first.size).try_for_each(|at| for_each(rest, from + at * first.from, to + at * first.to, run))
}

/// Copies two dims, tile by tile: rows of the source, which are columns of the result, in bands from the first to the last.
fn copy_plane<W: Word>(
    words: &mut [W],
    source: &impl Runs<W>,
    (near, row): (Dim, Dim),
    from: usize,
    to: usize,
    done: &mut dyn FnMut(Range<usize>),
) -> Option<()> {
    // A single row needs no tiles.
    if near.size == 1 {
        return source.run(from, row.from, words.get_mut(to..to + row.size)?);
    }
    let mut tile = [W::default(); TILE * TILE];
    let band = row.from * size_of::<W>();
    let mut read = from;
    for left in (0..row.size).step_by(TILE) {
        let width = TILE.min(row.size - left);
        for top in (0..near.size).step_by(TILE) {
            let height = TILE.min(near.size - top);
            for (x, run) in tile.chunks_exact_mut(TILE).take(width).enumerate() {
                let first = from + (left + x) * row.from + top * near.from;
                source.run(first, near.from, run.get_mut(..height)?)?;
            }
            for y in 0..height {
                let line = to + (top + y) * near.to + left;
                let column = tile.iter().skip(y).step_by(TILE);
                words
                    .get_mut(line..line + width)?
                    .iter_mut()
                    .zip(column)
                    .for_each(|(place, word)| *place = *word);
            }
        }
        // Bands that do not reach into each other, a few megabytes at a time.
        let end = from + (left + width) * row.from;
        let apart = near.from * near.size <= row.from;
        if apart && ((end - read) * size_of::<W>() >= DONE || left + width == row.size) && band > 0 {
            done(read * size_of::<W>()..end * size_of::<W>());
            read = end;
        }
    }
    Some(())
}

/// How many bytes are done with at once.
const DONE: usize = 8 << 20;

/// A source of elements.
trait Runs<W> {
    /// Fills `to` with the elements from a place on, each a step from the one before; `None` if one lies outside.
    fn run(&self, from: usize, step: usize, to: &mut [W]) -> Option<()>;
}

/// Elements as they are.
struct Elements<'a, W>(&'a [W]);

impl<W: Word> Runs<W> for Elements<'_, W> {
    fn run(&self, from: usize, step: usize, to: &mut [W]) -> Option<()> {
        if step == 1 {
            to.copy_from_slice(self.0.get(from..from.checked_add(to.len())?)?);
            return Some(());
        }
        for (index, place) in to.iter_mut().enumerate() {
            *place = *self.0.get(from + index * step)?;
        }
        Some(())
    }
}

/// Elements in a byte order, wherever they begin.
struct Spelled<'a> {
    bytes: &'a [u8],
    big_endian: bool,
}

impl<W: Word> Runs<W> for Spelled<'_> {
    fn run(&self, from: usize, step: usize, to: &mut [W]) -> Option<()> {
        for (index, place) in to.iter_mut().enumerate() {
            let bytes = self.bytes.get((from + index * step).checked_mul(size_of::<W>())?..)?;
            *place = if self.big_endian { W::big(bytes) } else { W::little(bytes) }?;
        }
        Some(())
    }
}

/// An element as bits.
pub(super) trait Word: bytemuck::Pod + Default + Send + Sync {
    fn little(bytes: &[u8]) -> Option<Self>;
    fn big(bytes: &[u8]) -> Option<Self>;
}

macro_rules! words {
    ($($word:ty)*) => {$(
        impl Word for $word {
            fn little(bytes: &[u8]) -> Option<Self> {
                bytes.first_chunk().map(|bytes| <$word>::from_le_bytes(*bytes))
            }
            fn big(bytes: &[u8]) -> Option<Self> {
                bytes.first_chunk().map(|bytes| <$word>::from_be_bytes(*bytes))
            }
        }
    )*};
}
words!(u8 u16 u32 u64);

#[cfg(test)]
mod tests {
    use super::*;

    /// The elements one by one, by their indices.
    fn expected(shape: &[usize], strides: &[usize], offset: usize) -> Vec<u32> {
        let count: usize = shape.iter().product();
        let position = |mut index: usize| {
            shape.iter().zip(strides).rev().fold(offset, |at, (size, stride)| {
                let here = index % size;
                index /= size;
                at + here * stride
            })
        };
        (0..count).map(|index| position(index) as u32).collect()
    }

    #[test]
    fn views_of_every_order_are_gathered() {
        let (source, big): (Vec<u32>, _) = ((0..100_000).collect(), cfg!(target_endian = "big"));
        let cases: &[(&[usize], &[usize], usize)] = &[
            (&[], &[], 7),
            (&[5], &[3], 2),
            (&[70, 45], &[1, 70], 0),
            (&[33, 65], &[200, 3], 11),
            (&[2, 40, 3, 35], &[4200, 1, 40, 120], 5),
            (&[3, 4, 5], &[1, 3, 12], 1),
            (&[3, 4], &[0, 1], 9),
            (&[4, 3], &[1, 0], 9),
            (&[6, 1, 50], &[1, 77, 6], 0),
        ];
        for (shape, strides, offset) in cases {
            let view = View::new(shape, strides, *offset);
            let expected = expected(shape, strides, *offset);
            let bytes = bytemuck::cast_slice::<u32, u8>(&source);
            let native = Whole.gather::<u32>(&view, bytes, big, &mut |_| {}).unwrap();
            let again = Unaligned.gather::<u32>(&view, bytes, big, &mut |_| {}).unwrap();
            assert_eq!(again, native.to_vec(), "{shape:?}");
            assert_eq!(bytemuck::pod_collect_to_vec::<u8, u32>(&native), expected, "{shape:?}");
            let mut shifted = vec![0; 1];
            shifted.extend_from_slice(bytes);
            let unaligned = Whole.gather::<u32>(&view, &shifted[1..], big, &mut |_| {}).unwrap();
            assert_eq!(unaligned.to_vec(), native.to_vec(), "{shape:?}");
        }
        let beyond = View::new(&[2], &[1], 99_999);
        assert!(Whole.gather::<u32>(&beyond, bytemuck::cast_slice(&source), big, &mut |_| {}).is_none());
    }

    /// What is done with is all of a matrix, once each and in order.
    #[test]
    fn what_was_read_is_told() {
        let (rows, columns) = (3000, 1100);
        let source: Vec<u32> = (0..rows * columns).collect();
        let bytes = bytemuck::cast_slice::<u32, u8>(&source);
        let view = View::new(&[columns as usize, rows as usize], &[1, columns as usize], 0);
        let mut ranges: Vec<Range<usize>> = Vec::new();
        let big = cfg!(target_endian = "big");
        Whole.gather::<u32>(&view, bytes, big, &mut |range| ranges.push(range)).unwrap();
        assert!(ranges.len() > 1 && ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
        assert_eq!((ranges[0].start, ranges[ranges.len() - 1].end), (0, bytes.len()));
    }
}
