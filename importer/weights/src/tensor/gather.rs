//! Copies of views: elements in row-major order from wherever they lie.

use kiln_types::Bytes;

/// Elements of a tile's side: as many rows as columns are read before the next are, so that what one read brings into the
/// cache is used by all.
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

    /// The elements in row-major order; `None` if one lies outside of the source.
    pub(super) fn gather<W: Word>(&self, source: &[u8], big_endian: bool) -> Option<Bytes> {
        let whole = source.len() - source.len() % size_of::<W>();
        // Aligned, as they are in most files, elements are read as such.
        let words = match bytemuck::try_cast_slice::<u8, W>(source.get(..whole)?) {
            Ok(words) if big_endian == cfg!(target_endian = "big") => {
                self.copy(|at| words.get(at).copied())?
            }
            _ => self.copy(|at| {
                let bytes = source.get(at.checked_mul(size_of::<W>())?..)?;
                if big_endian { W::big(bytes) } else { W::little(bytes) }
            })?,
        };
        Some(Bytes::from_elements(words))
    }

    fn copy<W: Word>(&self, read: impl Fn(usize) -> Option<W>) -> Option<Vec<W>> {
        let mut words = vec![W::default(); self.dims.iter().map(|(size, _)| size).product()];
        let mut step = words.len();
        let mut dims: Vec<Dim> = Vec::with_capacity(self.dims.len());
        for (size, from) in self.dims.iter().copied() {
            step = step.checked_div(size)?;
            dims.push(Dim { size, from, to: step });
        }
        let Some(row) = dims.pop() else {
            *words.first_mut()? = read(self.offset)?;
            return Some(words);
        };
        // The dim along which neighbours lie closest in the source, unless that is the row already.
        let closest = (0..dims.len()).rev().filter(|at| dims.get(*at).is_some_and(|dim| dim.from > 0));
        let closest = closest.min_by_key(|at| dims.get(*at).map(|dim| dim.from));
        let closer = closest.filter(|at| dims.get(*at).is_some_and(|dim| dim.from < row.from));
        let near = match closer {
            Some(at) => dims.remove(at),
            None => Dim { size: 1, from: 0, to: 0 },
        };
        for_each(&dims, self.offset, 0, &mut |from, to| {
            copy_plane(&mut words, &read, (near, row), from, to)
        })?;
        Some(words)
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

/// Copies two dims, tile by tile.
fn copy_plane<W: Word>(
    words: &mut [W],
    read: &impl Fn(usize) -> Option<W>,
    (near, row): (Dim, Dim),
    from: usize,
    to: usize,
) -> Option<()> {
    // A single row needs no tiles.
    let width = if near.size == 1 { row.size.max(1) } else { TILE };
    for top in (0..near.size).step_by(TILE) {
        let bottom = near.size.min(top + TILE);
        for left in (0..row.size).step_by(width) {
            let right = row.size.min(left + width);
            for y in top..bottom {
                let line = to + y * near.to;
                let places = words.get_mut(line + left..line + right)?;
                let first = from + y * near.from + left * row.from;
                for (x, place) in places.iter_mut().enumerate() {
                    *place = read(first + x * row.from)?;
                }
            }
        }
    }
    Some(())
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
        let source: Vec<u32> = (0..100_000).collect();
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
            let native = view.gather::<u32>(bytes, cfg!(target_endian = "big")).unwrap();
            assert_eq!(bytemuck::pod_collect_to_vec::<u8, u32>(&native), expected, "{shape:?}");
            let mut shifted = vec![0; 1];
            shifted.extend_from_slice(bytes);
            let unaligned = view.gather::<u32>(&shifted[1..], cfg!(target_endian = "big")).unwrap();
            assert_eq!(unaligned.to_vec(), native.to_vec(), "{shape:?}");
        }
        assert!(View::new(&[2], &[1], 100_000).gather::<u32>(bytemuck::cast_slice(&source), false).is_none());
    }
}
