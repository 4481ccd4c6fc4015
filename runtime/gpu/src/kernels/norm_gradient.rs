//! Gradients of norms over the last dims: a row's gradient and its statistics from one look at it.

use super::epilogue::{self, EpilogueProgram};
use super::reduce::{Group, Reducer, subgroups_of};
use super::rows::{Division, Elements, Sums};
use super::{elementwise, launch_open, program};
use crate::language::{Builder, Kernel, Value};
use crate::runtime::{Runtime, Subgroups};
use crate::tensor::{GpuTensor, computed_in, held_as};
use core::ops::Range;
use kiln_tensor::backend::Primitive;
use kiln_tensor::compose::RowStatistics;
use kiln_tensor::{DType, Scalar};

/// The gradient of the rows that a norm was computed of: with `y = (x - mean) · inverse` and `g` the gradient times the weight,
/// `(g - mean(g) - y · mean(g · y)) · inverse`, without the means of `x` and `g` where nothing was centered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NormGradient {
    /// Whether the mean was taken away.
    pub centered: bool,
    /// The elements' dtype.
    pub dtype: DType,
    /// Invocations of a row.
    pub lanes: u32,
    /// Rows of a workgroup.
    pub rows: u32,
    /// Elements of a row that an invocation keeps, if it keeps them.
    pub kept: Option<u32>,
    /// What joins the numbers of a row's invocations.
    pub subgroups: Subgroups,
    /// What is done to each result after that.
    pub epilogues: Vec<EpilogueProgram>,
}

impl NormGradient {
    /// The kernel. Buffers: the gradient, the rows, the weight; of each row the mean, if it was taken away, and the inverse of what it was divided by; the
    /// result. Parameters: the number of rows, their length, where gradient, rows and weight start; ε.
    pub fn kernel(&self) -> Kernel {
        Builder::kernel("norm_gradient", [self.lanes * self.rows, 1], |k| self.write(k))
    }

    /// Its buffers of what it finds of each row: behind gradient, rows and weight.
    pub(super) fn statistics(&self) -> Range<usize> {
        if self.centered { 3..5 } else { 3..4 }
    }

    fn write<'k>(&self, k: &'k Builder) {
        let (storage, wide) = (held_as(self.dtype), held_as(computed_in(self.dtype)));
        let ty = storage.value();
        let (gradient, x, weight) = (k.input(storage), k.input(storage), k.input(storage));
        let centers = self.centered.then(|| k.output(wide));
        let (inverses, output) = (k.output(wide), k.output(storage));
        let (rows, length) = (k.parameter(), k.parameter());
        let [of_gradient, of_x, of_weight] = [(); 3].map(|()| k.parameter());
        let epsilon = k.parameter_of(ty);
        let epilogues = epilogue::declare(k, &self.epilogues);

        let (local, number) = Division::place(k, self.lanes, self.rows);
        // What is beyond the last row repeats it, so that no invocation leaves before numbers are joined.
        let row = number.min(rows - 1_u32);
        let start = row * length;
        let group =
            Group::of_several(k, ty, local, self.lanes, self.subgroups, if self.centered { 2 } else { 1 });
        let read = |at: Value<'k>| {
            [x.at(of_x + start + at), gradient.at(of_gradient + start + at) * weight.at(of_weight + at)]
        };
        let elements = match self.kept {
            Some(kept) => Elements::kept(kept, &group, length, read),
            None => Elements::Read(&read),
        };
        let sums = Sums { group, ty, length };
        let count = length.to(ty);
        let (center, variance) = sums.moments(&elements, self.centered, |[x, _]| x);
        let inverse = k.whole(1, ty) / (variance + epsilon).sqrt();
        let normalized = |x: Value<'k>| center.map_or(x, |center| center.from(x)) * inverse;
        let (slope, level) = if self.centered {
            let [slope, level] = sums.sum_all(&elements, |[x, g]| [g * normalized(x), g]);
            (slope / count, Some(level / count))
        } else {
            (sums.reduce_all(Reducer::Sum, &elements, |[x, g]| g * normalized(x)) / count, None)
        };
        k.when(number.below(rows), || {
            k.when(local.equals(0_u32), || {
                if let (Some(centers), Some(center)) = (centers, center) {
                    centers.set(row, center.value());
                }
                inverses.set(row, inverse);
            });
            sums.each(&elements, |at, [x, g]| {
                let g = level.map_or(g, |level| g - level);
                let found = (g - normalized(x) * slope) * inverse;
                output.set(start + at, epilogue::apply(&epilogues, start + at, found));
            });
        });
    }
}

/// The gradient of what a norm over the last dims was computed of, and the statistics of its rows; nothing where dtypes differ, or
/// there are no elements.
pub(crate) fn norm_gradient<R: Runtime>(
    centered: bool,
    gradient: &GpuTensor<R>,
    x: &GpuTensor<R>,
    weight: &GpuTensor<R>,
    epsilon: f64,
) -> Option<(GpuTensor<R>, RowStatistics<GpuTensor<R>>)> {
    let (dtype, wide, device) = (x.dtype, computed_in(x.dtype), &x.device);
    let read = [gradient, x, weight].map(|tensor| elementwise::contiguous(tensor.clone()));
    let fits = |tensor: &GpuTensor<R>| tensor.dtype == dtype && tensor.is_visible() && !tensor.is_empty();
    if !read.iter().all(fits) {
        return None;
    }
    let (length, mut per_row) = (weight.len(), x.shape());
    let covered = per_row.rank() - weight.shape().rank()..;
    per_row.dims[covered].fill(1);
    let rows = per_row.num_elements();
    let mut words = [rows, length].map(|n| n as u32).to_vec();
    words.extend(read.iter().map(|tensor| tensor.layout.offset as u32));
    words.extend(program::scalar_words(Scalar::Float(epsilon), wide));
    let of_each_row = || GpuTensor::<R>::empty(per_row.clone(), wide, device);
    let statistics = RowStatistics { center: centered.then(of_each_row), inverse: of_each_row() };
    let output = GpuTensor::empty(x.shape(), dtype, device);
    let Division { lanes, rows, kept, groups } = Division::of::<R>(device, dtype, rows, length);
    let subgroups = subgroups_of::<R>(device, dtype);
    let template = NormGradient { centered, dtype, lanes, rows, kept, subgroups, epilogues: Vec::new() };
    let written = statistics.center.iter().chain([&statistics.inverse, &output]);
    let tensors: Vec<_> = read.iter().chain(written).collect();
    launch_open::<R>(device, template, &tensors, &words, groups);
    Some((output, statistics))
}
