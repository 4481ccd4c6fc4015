// Pooling.

/// The sizes of a pooling, each of height and width; images of one line have height 1.
struct Pool2d {
    planes: usize,
    size: [usize; 2],
    result: [usize; 2],
    kernel: [usize; 2],
    stride: [usize; 2],
    before: [usize; 2],
    after: [usize; 2],
    dilation: [usize; 2],
}

/// The elements of a window at a place along an axis that are inside the image, and how many are in the padded image.
fn taps_inside(sizes: &Pool2d, axis: usize, place: usize) -> (core::ops::Range<usize>, usize) {
    let (size, before, dilation) = (sizes.size[axis], sizes.before[axis], sizes.dilation[axis]);
    let start = place * sizes.stride[axis];
    let up_to = |end: usize| end.saturating_sub(start).div_ceil(dilation).min(sizes.kernel[axis]);
    (up_to(before)..up_to(before + size), up_to(before + size + sizes.after[axis]))
}

/// Folds the elements of each window that are inside the image; `finish` is also given how many these are, and how many are in the padded image.
fn pool2d<T: Copy, A: Copy>(
    x: &[T],
    sizes: &Pool2d,
    (start, fold): (A, impl Fn(A, T) -> A),
    finish: impl Fn(A, usize, usize) -> T,
    out: &mut [T],
) {
    let &Pool2d { planes, size, result, stride, before, dilation, .. } = sizes;
    let image = size[0] * size[1];
    for (line, out) in out.chunks_exact_mut(result[1]).enumerate().take(planes * result[0]) {
        let x = &x[line / result[0] * image..][..image];
        let row = line % result[0];
        let (down, padded_down) = taps_inside(sizes, 0, row);
        for (column, out) in out.iter_mut().enumerate() {
            let (across, padded_across) = taps_inside(sizes, 1, column);
            let mut folded = start;
            for tap in down.clone() {
                let line = &x[(row * stride[0] + tap * dilation[0] - before[0]) * size[1]..][..size[1]];
                for tap in across.clone() {
                    folded = fold(folded, line[column * stride[1] + tap * dilation[1] - before[1]]);
                }
            }
            *out = finish(folded, down.len() * across.len(), padded_down * padded_across);
        }
    }
}

/// The largest element of each window; NaN if any is.
fn max_pool2d<T: Copy + PartialOrd>(x: &[T], sizes: &Pool2d, out: &mut [T]) {
    let larger = |most: Option<T>, x: T| match most {
        Some(most) if !(x > most || x.partial_cmp(&x).is_none()) => Some(most),
        _ => Some(x),
    };
    // Each window sees some of the image.
    pool2d(x, sizes, (None, larger), |most, _, _| most.unwrap_or(x[0]), out);
}

/// The mean of each window; padding may count as zeros.
fn average_pool2d(x: &[f32], sizes: &Pool2d, include_pad: bool, out: &mut [f32]) {
    let mean = |sum: f32, inside: usize, padded: usize| sum / (if include_pad { padded } else { inside }) as f32;
    pool2d(x, sizes, (0.0, |sum, x| sum + x), mean, out);
}

/// The sizes of a pooling to a wanted size.
struct AdaptivePool2d {
    planes: usize,
    size: [usize; 2],
    result: [usize; 2],
}

/// Means of windows that cover the image and yield the wanted size.
fn adaptive_average_pool2d(x: &[f32], sizes: &AdaptivePool2d, out: &mut [f32]) {
    let &AdaptivePool2d { planes, size, result } = sizes;
    let image = size[0] * size[1];
    for (at, out) in out.iter_mut().enumerate().take(planes * result[0] * result[1]) {
        let (plane, row, column) = (at / (result[0] * result[1]), at / result[1] % result[0], at % result[1]);
        let window = |axis: usize, at: usize| {
            at * size[axis] / result[axis]..((at + 1) * size[axis]).div_ceil(result[axis])
        };
        let (rows, columns) = (window(0, row), window(1, column));
        let count = rows.len() * columns.len();
        let x = &x[plane * image..][..image];
        let sum: f32 = rows.map(|y| x[y * size[1]..][columns.clone()].iter().sum::<f32>()).sum();
        *out = sum / count as f32;
    }
}
