// Products of matrices.

/// The sizes of products of matrices: `count` of `[m, k]` by `[k, n]`, and how far apart those of either side are.
struct Product {
    count: usize,
    m: usize,
    k: usize,
    n: usize,
    a_step: usize,
    b_step: usize,
}

/// Products of matrices, row by row of `b`, as memory has them.
fn matmul(a: &[f32], b: &[f32], sizes: &Product, out: &mut [f32]) {
    let &Product { count, m, k, n, a_step, b_step } = sizes;
    for at in 0..count {
        let (a, b) = (&a[at * a_step..][..m * k], &b[at * b_step..][..k * n]);
        let out = &mut out[at * m * n..][..m * n];
        out.fill(0.0);
        for (row, out) in a.chunks_exact(k).zip(out.chunks_exact_mut(n)) {
            add_products(row, b, out);
        }
    }
}

/// Adds to `out` each row of `b` times its number.
fn add_products(numbers: &[f32], b: &[f32], out: &mut [f32]) {
    for (&number, row) in numbers.iter().zip(b.chunks_exact(out.len())) {
        for (out, &b) in out.iter_mut().zip(row) {
            *out += number * b;
        }
    }
}

/// A linear layer on rows of `inputs` numbers, with a weight `[inputs, outputs]`.
fn linear(
    x: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    inputs: usize,
    activation: impl Fn(f32) -> f32,
    out: &mut [f32],
) {
    for (x, out) in x.chunks_exact(inputs).zip(out.chunks_exact_mut(weight.len() / inputs)) {
        match bias {
            Some(bias) => out.copy_from_slice(bias),
            None => out.fill(0.0),
        }
        add_products(x, weight, out);
        for out in out {
            *out = activation(*out);
        }
    }
}

/// A product of matrices of integers less their zero points: one for `a`, one for `b` or one for each of its columns.
fn quantized_matmul<A: Copy + Into<i32>, B: Copy + Into<i32>>(
    a: &[A],
    b: &[B],
    a_zero: Option<&[A]>,
    b_zero: Option<&[B]>,
    sizes: &Product,
    out: &mut [i32],
) {
    let &Product { count, m, k, n, a_step, b_step } = sizes;
    let a_zero: i32 = a_zero.map_or(0, |zero| zero[0].into());
    for at in 0..count {
        let (a, b) = (&a[at * a_step..][..m * k], &b[at * b_step..][..k * n]);
        let out = &mut out[at * m * n..][..m * n];
        for (row, out) in a.chunks_exact(k).zip(out.chunks_exact_mut(n)) {
            out.fill(0);
            let mut sum = 0i32;
            for (&a, b) in row.iter().zip(b.chunks_exact(n)) {
                let a = a.into() - a_zero;
                sum = sum.wrapping_add(a);
                for (out, &b) in out.iter_mut().zip(b) {
                    *out = out.wrapping_add(a.wrapping_mul(b.into()));
                }
            }
            if let Some(zero) = b_zero {
                for (out, &zero) in out.iter_mut().zip(zero.iter().cycle()) {
                    *out = out.wrapping_sub(sum.wrapping_mul(zero.into()));
                }
            }
        }
    }
}
