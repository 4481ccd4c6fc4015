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

/// Folds the elements of each window that are inside the image; `fold` is given them and how many of the window are in the padded image.
fn pool2d<T: Copy>(
    x: &[T],
    sizes: &Pool2d,
    fold: impl Fn(&mut dyn Iterator<Item = T>, usize) -> T,
    out: &mut [T],
) {
    let &Pool2d { planes, size, result, kernel, stride, before, after, dilation } = sizes;
    let (image, plane) = (size[0] * size[1], result[0] * result[1]);
    for (at, out) in out.iter_mut().enumerate().take(planes * plane) {
        let x = &x[at / plane * image..][..image];
        let place = [at / result[1] % result[0], at % result[1]];
        let taps = |axis: usize| (0..kernel[axis]).map(move |tap| place[axis] * stride[axis] + tap * dilation[axis]);
        let padded = |axis: usize| taps(axis).filter(|&at| at < before[axis] + size[axis] + after[axis]).count();
        let inside = |axis: usize| {
            taps(axis).map(move |at| at.wrapping_sub(before[axis])).filter(move |&at| at < size[axis])
        };
        let mut seen = inside(0).flat_map(|row| inside(1).map(move |column| x[row * size[1] + column]));
        *out = fold(&mut seen, padded(0) * padded(1));
    }
}

/// The largest element of each window; NaN if any is.
fn max_pool2d<T: Copy + PartialOrd>(x: &[T], sizes: &Pool2d, out: &mut [T]) {
    let larger = |most: T, x: T| if x > most || x.partial_cmp(&x).is_none() { x } else { most };
    // A window lies at least partly in the image: without an element of its own it has the first.
    pool2d(x, sizes, |seen, _| seen.reduce(larger).unwrap_or(x[0]), out);
}

/// The mean of each window; padding may count as zeros.
fn average_pool2d(x: &[f32], sizes: &Pool2d, include_pad: bool, out: &mut [f32]) {
    let mean = |seen: &mut dyn Iterator<Item = f32>, padded: usize| {
        let (sum, count) = seen.fold((0.0, 0), |(sum, count), x| (sum + x, count + 1));
        sum / (if include_pad { padded } else { count }) as f32
    };
    pool2d(x, sizes, mean, out);
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
