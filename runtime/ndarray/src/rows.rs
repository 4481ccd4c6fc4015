//! Walking several strided operands of one shape row by row.

use kiln_tensor::InlineVec;
use kiln_tensor::backend::Layout;

/// The rows of `N` operands of one shape: dims that all operands walk alike are merged, the innermost is the row.
pub(crate) struct Rows<const N: usize> {
    /// Outer dims with each operand's stride, outermost first.
    outer: InlineVec<(usize, [isize; N])>,
    /// Elements in a row.
    pub(crate) len: usize,
    /// Each operand's stride within a row.
    pub(crate) steps: [isize; N],
    start: [usize; N],
    empty: bool,
}

impl<const N: usize> Rows<N> {
    /// Rows of layouts of one shape.
    pub(crate) fn new(layouts: [&Layout; N]) -> Self {
        let dims = &layouts[0].shape.dims;
        let mut outer: InlineVec<(usize, [isize; N])> = InlineVec::new();
        for (i, &dim) in dims.iter().enumerate() {
            let strides = core::array::from_fn(|k| layouts[k].strides[i]);
            match outer.last_mut() {
                _ if dim == 1 => {}
                Some((size, steps)) if (0..N).all(|k| steps[k] == strides[k] * dim as isize) => {
                    *size *= dim;
                    *steps = strides;
                }
                _ => outer.push((dim, strides)),
            }
        }
        let (len, steps) = outer.pop().unwrap_or((1, [1; N]));
        let start = core::array::from_fn(|k| layouts[k].offset);
        Self { outer, len, steps, start, empty: dims.contains(&0) }
    }

    /// Calls `f` with each operand's position of the first element of every row, in row-major order.
    pub(crate) fn for_each(&self, mut f: impl FnMut([usize; N])) {
        if !self.empty {
            self.level(0, self.start, &mut f);
        }
    }

    /// Not generic over what is done with a row: the walk is compiled once, not once a loop.
    fn level(&self, depth: usize, at: [usize; N], f: &mut dyn FnMut([usize; N])) {
        let Some((dim, strides)) = self.outer.get(depth) else { return f(at) };
        for i in 0..*dim as isize {
            self.level(depth + 1, core::array::from_fn(|k| (at[k] as isize + i * strides[k]) as usize), f);
        }
    }
}

/// Calls `f` with the position of every element of a row.
#[inline(always)]
pub(crate) fn walk(start: usize, step: isize, len: usize, mut f: impl FnMut(usize, usize)) {
    for i in 0..len {
        f(i, (start as isize + i as isize * step) as usize);
    }
}
