// Elements at places.

/// The place that an index along an axis names; a negative one counts from its end.
///
/// # Panics
/// When an index is beyond the axis that it is an index of.
fn place_of(index: i64, length: usize) -> usize {
    let place = if index < 0 { index + length as i64 } else { index };
    assert!((0..length as i64).contains(&place), "index {index} is beyond an axis of {length}");
    place as usize
}

/// Parts at indices along an axis.
fn take<T: Copy, I: Copy + Into<i64>>(x: &[T], indices: &[I], sizes: &Axis, out: &mut [T]) {
    let &Axis { outer, length, inner } = sizes;
    let wanted = (0..outer).flat_map(|first| indices.iter().map(move |&index| (first, index)));
    for ((first, index), out) in wanted.zip(out.chunks_exact_mut(inner)) {
        out.copy_from_slice(&x[(first * length + place_of(index.into(), length)) * inner..][..inner]);
    }
}

/// Elements at indices along an axis, of which there are `count` there and as many as elements along all others.
fn gather<T: Copy, I: Copy + Into<i64>>(x: &[T], indices: &[I], sizes: &Axis, count: usize, out: &mut [T]) {
    let &Axis { outer, length, inner } = sizes;
    for (at, (out, &index)) in out.iter_mut().zip(indices).enumerate().take(outer * count * inner) {
        let first = at / (count * inner) * length;
        *out = x[(first + place_of(index.into(), length)) * inner + at % inner];
    }
}

/// Has `set` change elements at indices along an axis, of which there are `count` there and as many as elements along all others.
fn scatter<T: Copy, I: Copy + Into<i64>>(
    [x, updates]: [&[T]; 2],
    indices: &[I],
    sizes: &Axis,
    count: usize,
    set: impl Fn(&mut T, T),
    out: &mut [T],
) {
    let &Axis { outer, length, inner } = sizes;
    out.copy_from_slice(x);
    for (at, (&update, &index)) in updates.iter().zip(indices).enumerate().take(outer * count * inner) {
        let first = at / (count * inner) * length;
        set(&mut out[(first + place_of(index.into(), length)) * inner + at % inner], update);
    }
}

/// Elements replaced at indices along an axis.
fn scatter_assign<T: Copy, I: Copy + Into<i64>>(
    x: &[T],
    indices: &[I],
    updates: &[T],
    sizes: &Axis,
    count: usize,
    out: &mut [T],
) {
    scatter([x, updates], indices, sizes, count, |old, new| *old = new, out);
}

/// Elements added to at indices along an axis.
fn scatter_add<I: Copy + Into<i64>>(
    x: &[f32],
    indices: &[I],
    updates: &[f32],
    sizes: &Axis,
    count: usize,
    out: &mut [f32],
) {
    scatter([x, updates], indices, sizes, count, |old, new| *old += new, out);
}

/// Has `set` change parts at a list of indices along an axis.
fn select<T: Copy, I: Copy + Into<i64>>(
    [x, updates]: [&[T]; 2],
    indices: &[I],
    sizes: &Axis,
    set: impl Fn(&mut T, T),
    out: &mut [T],
) {
    let &Axis { outer, length, inner } = sizes;
    out.copy_from_slice(x);
    let wanted = (0..outer).flat_map(|first| indices.iter().map(move |&index| (first, index)));
    for ((first, index), updates) in wanted.zip(updates.chunks_exact(inner)) {
        let out = &mut out[(first * length + place_of(index.into(), length)) * inner..];
        for (out, &update) in out.iter_mut().zip(updates) {
            set(out, update);
        }
    }
}

/// Parts replaced at a list of indices along an axis.
fn select_assign<T: Copy, I: Copy + Into<i64>>(
    x: &[T],
    indices: &[I],
    updates: &[T],
    sizes: &Axis,
    out: &mut [T],
) {
    select([x, updates], indices, sizes, |old, new| *old = new, out);
}

/// Parts added to at a list of indices along an axis.
fn select_add<I: Copy + Into<i64>>(
    x: &[f32],
    indices: &[I],
    updates: &[f32],
    sizes: &Axis,
    out: &mut [f32],
) {
    select([x, updates], indices, sizes, |old, new| *old += new, out);
}

/// The sizes of two axes, of what is before them, between them and behind them.
struct TwoAxes {
    before: usize,
    rows: usize,
    between: usize,
    columns: usize,
    behind: usize,
}

/// Elements at places along two axes.
fn pick<T: Copy>(x: &[T], rows: &[u32], columns: &[u32], sizes: &TwoAxes, out: &mut [T]) {
    let mut parts = out.chunks_exact_mut(sizes.behind);
    for before in 0..sizes.before {
        for &row in rows {
            for between in 0..sizes.between {
                let line = ((before * sizes.rows + row as usize) * sizes.between + between) * sizes.columns;
                for (&column, part) in columns.iter().zip(&mut parts) {
                    part.copy_from_slice(&x[(line + column as usize) * sizes.behind..][..sizes.behind]);
                }
            }
        }
    }
}

/// Sums of `taps` by `taps` weighted elements at places along two axes.
#[allow(clippy::too_many_arguments, reason = "each axis has its places and weights")]
fn mix(
    x: &[f32],
    rows: &[u32],
    row_weights: &[f32],
    columns: &[u32],
    column_weights: &[f32],
    sizes: &TwoAxes,
    taps: usize,
    out: &mut [f32],
) {
    let mut parts = out.chunks_exact_mut(sizes.behind);
    for before in 0..sizes.before {
        for (rows, row_weights) in rows.chunks_exact(taps).zip(row_weights.chunks_exact(taps)) {
            for between in 0..sizes.between {
                let across = columns.chunks_exact(taps).zip(column_weights.chunks_exact(taps));
                for ((columns, column_weights), part) in across.zip(&mut parts) {
                    part.fill(0.0);
                    for (&row, &row_weight) in rows.iter().zip(row_weights) {
                        let line = (before * sizes.rows + row as usize) * sizes.between + between;
                        for (&column, &weight) in columns.iter().zip(column_weights) {
                            let from = &x[(line * sizes.columns + column as usize) * sizes.behind..];
                            for (out, &x) in part.iter_mut().zip(from) {
                                *out += row_weight * weight * x;
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The sizes of trees: numbers of a sample, children of a node, and levels of the deepest tree.
struct Trees {
    features: usize,
    ways: usize,
    depth: usize,
}

/// The leaf of each tree at which each sample arrives. A sample goes on to the second of a node's children where its number is at most the node's
/// threshold, else to the first; to the third, if there is one, where it is NaN.
fn leaves(
    samples: &[f32],
    features: &[i64],
    thresholds: &[f32],
    children: &[i64],
    roots: &[i64],
    sizes: &Trees,
    out: &mut [i64],
) {
    for (sample, out) in samples.chunks_exact(sizes.features).zip(out.chunks_exact_mut(roots.len())) {
        for (&root, out) in roots.iter().zip(out) {
            let mut node = root;
            for _ in 0..sizes.depth {
                let x = sample[features[node as usize] as usize];
                let way = if x.is_nan() && sizes.ways == 3 { 2 } else { usize::from(x <= thresholds[node as usize]) };
                node = children[node as usize * sizes.ways + way];
            }
            *out = node;
        }
    }
}
