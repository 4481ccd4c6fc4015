//! A tensor seen along one dim: `outer × size × inner`.

/// Sizes before, of and after a dim of a row-major tensor.
#[derive(Clone, Copy)]
pub(crate) struct Lanes {
    /// Product of the dims before.
    pub(crate) outer: usize,
    /// The dim.
    pub(crate) size: usize,
    /// Product of the dims after.
    pub(crate) inner: usize,
}

impl Lanes {
    /// Along `dim`.
    pub(crate) fn along(dims: &[usize], dim: usize) -> Self {
        Self::over(dims, dim, dim + 1)
    }

    /// Along the dims `from..to` together.
    pub(crate) fn over(dims: &[usize], from: usize, to: usize) -> Self {
        let product = |dims: &[usize]| dims.iter().product();
        Self { outer: product(&dims[..from]), size: product(&dims[from..to]), inner: product(&dims[to..]) }
    }

    /// Calls `f` with the position of the first element of every lane; its elements are `inner` apart.
    pub(crate) fn for_each(&self, mut f: impl FnMut(usize)) {
        if self.inner == 0 {
            return;
        }
        for outer in 0..self.outer {
            for inner in 0..self.inner {
                f(outer * self.size * self.inner + inner);
            }
        }
    }
}
