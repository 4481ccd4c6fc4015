// What is done along one axis.

/// The elements before an axis, along it, and behind it.
struct Axis {
    outer: usize,
    length: usize,
    inner: usize,
}

/// The places along an axis, for each of the others.
fn lines(sizes: &Axis) -> impl Iterator<Item = impl Iterator<Item = usize> + Clone + use<>> + use<> {
    let &Axis { outer, length, inner } = sizes;
    (0..outer * inner).map(move |at| {
        let first = at / inner * length * inner + at % inner;
        (0..length).map(move |n| first + n * inner)
    })
}

/// Shares along an axis that sum to 1.
fn softmax(x: &[f32], sizes: &Axis, out: &mut [f32]) {
    for line in lines(sizes) {
        let most = line.clone().map(|at| x[at]).fold(f32::NEG_INFINITY, max_pair);
        let mut sum = 0.0;
        for at in line.clone() {
            out[at] = exp(x[at] - most);
            sum += out[at];
        }
        for at in line {
            out[at] /= sum;
        }
    }
}

/// Logarithms of shares along an axis that sum to 1.
fn log_softmax(x: &[f32], sizes: &Axis, out: &mut [f32]) {
    for line in lines(sizes) {
        let most = line.clone().map(|at| x[at]).fold(f32::NEG_INFINITY, max_pair);
        let sum = log(line.clone().map(|at| exp(x[at] - most)).sum::<f32>());
        for at in line {
            out[at] = x[at] - most - sum;
        }
    }
}

/// The place of the largest element along an axis, the first of several; NaN is the largest.
fn argmax<T: Copy + PartialOrd>(x: &[T], sizes: &Axis, select_last: bool, out: &mut [i64]) {
    best(x, sizes, |new, old| new > old || (select_last && new == old), out);
}

/// The place of the smallest element along an axis, the first of several; NaN is the smallest.
fn argmin<T: Copy + PartialOrd>(x: &[T], sizes: &Axis, select_last: bool, out: &mut [i64]) {
    best(x, sizes, |new, old| new < old || (select_last && new == old), out);
}

/// Whether an element is not a number.
fn is_nan<T: PartialOrd>(x: T) -> bool {
    x.partial_cmp(&x).is_none()
}

/// The place of the element along an axis that is better than all before it.
fn best<T: Copy + PartialOrd>(x: &[T], sizes: &Axis, better: impl Fn(T, T) -> bool, out: &mut [i64]) {
    for (line, out) in lines(sizes).zip(out) {
        let mut found: Option<(i64, T)> = None;
        for (place, at) in (0..).zip(line) {
            let new = x[at];
            if found.is_none_or(|(_, old)| better(new, old) || (is_nan(new) && !is_nan(old))) {
                found = Some((place, new));
            }
        }
        *out = found.map_or(0, |(place, _)| place);
    }
}

/// Running folds along an axis, from its end where they run in reverse.
fn cumulative<T: Copy>(
    x: &[T],
    sizes: &Axis,
    [exclusive, reverse]: [bool; 2],
    (first, fold): (T, impl Fn(T, T) -> T),
    out: &mut [T],
) {
    let &Axis { outer, length, inner } = sizes;
    for line in 0..outer * inner {
        let mut folded = first;
        for n in 0..length {
            let n = if reverse { length - 1 - n } else { n };
            let at = (line / inner * length + n) * inner + line % inner;
            let next = fold(folded, x[at]);
            out[at] = if exclusive { folded } else { next };
            folded = next;
        }
    }
}

/// Running sums along an axis.
fn cumulative_sum(x: &[f32], sizes: &Axis, exclusive: bool, reverse: bool, out: &mut [f32]) {
    cumulative(x, sizes, [exclusive, reverse], (0.0, |sum, x| sum + x), out);
}

/// Running products along an axis.
fn cumulative_product(x: &[f32], sizes: &Axis, exclusive: bool, reverse: bool, out: &mut [f32]) {
    cumulative(x, sizes, [exclusive, reverse], (1.0, |product, x| product * x), out);
}

/// Running maxima along an axis.
fn cumulative_max(x: &[f32], sizes: &Axis, exclusive: bool, reverse: bool, out: &mut [f32]) {
    cumulative(x, sizes, [exclusive, reverse], (f32::NEG_INFINITY, max_pair), out);
}

/// Running minima along an axis.
fn cumulative_min(x: &[f32], sizes: &Axis, exclusive: bool, reverse: bool, out: &mut [f32]) {
    cumulative(x, sizes, [exclusive, reverse], (f32::INFINITY, min_pair), out);
}

/// The largest or smallest `k` elements along an axis in order, the first of equal ones first, and their places. NaN is the largest.
fn topk<T: Copy + PartialOrd>(
    x: &[T],
    sizes: &Axis,
    k: usize,
    largest: bool,
    out: &mut [T],
    places: &mut [i64],
) {
    let inner = sizes.inner;
    for (n, line) in lines(sizes).enumerate() {
        let first = n / inner * k * inner + n % inner;
        // Elements come one by one to where they belong among those so far.
        for (count, (place, at)) in (0..).zip(line).enumerate() {
            let new = x[at];
            let mut free = count.min(k);
            while free > 0 {
                let before = first + (free - 1) * inner;
                let old = out[before];
                let is_better = match largest {
                    true => new > old || (is_nan(new) && !is_nan(old)),
                    false => new < old || (is_nan(old) && !is_nan(new)),
                };
                if !is_better {
                    break;
                }
                if free < k {
                    out[before + inner] = out[before];
                    places[before + inner] = places[before];
                }
                free -= 1;
            }
            if free < k {
                out[first + free * inner] = new;
                places[first + free * inner] = place;
            }
        }
    }
}

/// Matrices with zeros below their `k`-th diagonal.
fn upper_triangle<T: Copy + Default>(x: &[T], rows: usize, columns: usize, k: i64, out: &mut [T]) {
    triangle(x, rows, columns, |row, column| column >= row + k, out);
}

/// Matrices with zeros above their `k`-th diagonal.
fn lower_triangle<T: Copy + Default>(x: &[T], rows: usize, columns: usize, k: i64, out: &mut [T]) {
    triangle(x, rows, columns, |row, column| column <= row + k, out);
}

/// Matrices of which some elements are kept.
fn triangle<T: Copy + Default>(
    x: &[T],
    rows: usize,
    columns: usize,
    keep: impl Fn(i64, i64) -> bool,
    out: &mut [T],
) {
    for (at, (out, &x)) in out.iter_mut().zip(x).enumerate() {
        let (row, column) = ((at / columns % rows) as i64, (at % columns) as i64);
        *out = if keep(row, column) { x } else { T::default() };
    }
}
