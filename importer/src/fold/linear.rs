//! Matrix products and attention.

use super::elementwise::activate;
use super::{Elements, Strided, elements};
use kiln_types::{Activation, AttentionOptions, DType, FullyMasked, Shape, TensorData};

/// `[m, k] · [k, n]` on row-major slices.
fn product(a: &[f64], b: &[f64], m: usize, k: usize, n: usize) -> Vec<f64> {
    let mut out = vec![0.0; m * n];
    for i in 0..m {
        let row = &mut out[i * n..(i + 1) * n];
        for p in 0..k {
            let x = a[i * k + p];
            row.iter_mut().zip(&b[p * n..(p + 1) * n]).for_each(|(out, &y)| *out += x * y);
        }
    }
    out
}

pub(super) fn matmul(a: &TensorData, b: &TensorData) -> Option<TensorData> {
    let (lead_a, [m, k]) = a.shape.split_last_chunk::<2>()?;
    let (lead_b, [k_b, n]) = b.shape.split_last_chunk::<2>()?;
    let lead = Shape::from(lead_a).broadcast(&lead_b.into())?.dims;
    if k != k_b {
        return None;
    }
    let (x, y) = (Elements::load(a), Elements::load(b));
    let floats = matches!(x, Elements::Float(_));
    let (x, y) = (x.floats(), y.floats());
    let count: usize = elements(&lead);
    let matrices = |lead_dims: &[usize]| {
        let mut places = Vec::with_capacity(count);
        Strided::new(lead_dims).expand(&lead)?.for_each(|at| places.push(at));
        Some(places)
    };
    let mut out = Vec::with_capacity(count * m * n);
    for (i, j) in matrices(lead_a)?.into_iter().zip(matrices(lead_b)?) {
        let a = &x[i * m * k..(i + 1) * m * k];
        let b = &y[j * k * n..(j + 1) * k * n];
        out.extend(product(a, b, *m, *k, *n));
    }
    let shape = [lead.as_slice(), &[*m, *n]].concat();
    let exact = |x: f64| x.abs() < 9e15;
    if !floats && !out.iter().all(|&x| exact(x)) {
        return None;
    }
    Some(Elements::Float(out).store(a.dtype, shape))
}

pub(super) fn linear(
    x: &TensorData,
    weight: &TensorData,
    bias: Option<&TensorData>,
    activation: Option<Activation>,
) -> Option<TensorData> {
    let [k, n] = *weight.shape.as_slice() else {
        return None;
    };
    let (last, lead) = x.shape.split_last()?;
    if *last != k {
        return None;
    }
    let m = elements(lead);
    let mut out = product(&Elements::load(x).floats(), &Elements::load(weight).floats(), m, k, n);
    let bias = bias.map(|bias| Elements::load(bias).floats());
    for (i, value) in out.iter_mut().enumerate() {
        if let Some(bias) = &bias {
            *value += bias.get(i % n)?;
        }
        if let Some(activation) = activation {
            *value = activate(activation, *value);
        }
    }
    Some(Elements::Float(out).store(x.dtype, [lead, &[n]].concat()))
}

pub(super) fn attention(
    q: &TensorData,
    k: &TensorData,
    v: &TensorData,
    mask: Option<&TensorData>,
    options: &AttentionOptions,
) -> Option<TensorData> {
    let [batch, heads, rows, size] = *q.shape.as_slice() else {
        return None;
    };
    let [_, key_heads, keys, _] = *k.shape.as_slice() else {
        return None;
    };
    let out_size = *v.shape.get(3)?;
    let group = heads.checked_div(key_heads)?;
    let (qs, ks, vs) = (Elements::load(q).floats(), Elements::load(k).floats(), Elements::load(v).floats());
    let is_added = mask.is_some_and(|mask| mask.dtype.is_float());
    let mask = match mask {
        None => None,
        Some(mask) => {
            let view = Strided::new(&mask.shape).expand(&[batch, heads, rows, keys])?;
            let added = match Elements::load(mask) {
                Elements::Float(x) => x,
                Elements::Int(x) => x.iter().map(|&x| if x != 0 { 0.0 } else { f64::NEG_INFINITY }).collect(),
            };
            Some(view.gather(&added))
        }
    };
    let scale = options.scale.unwrap_or(1.0 / (size as f64).sqrt());
    // Beside a low number, scores vanish by rounding: in a row that it hides throughout, all weigh the same.
    let rounded = |score: f64| if q.dtype == DType::F32 { f64::from(score as f32) } else { score };
    let mut out = Vec::with_capacity(batch * heads * rows * out_size);
    for row in 0..batch * heads * rows {
        let (b, h, i) = (row / (heads * rows), row / rows % heads, row % rows);
        let key_head = b * key_heads + h / group.max(1);
        let query = &qs[row * size..(row + 1) * size];
        let mut scores: Vec<f64> = (0..keys)
            .map(|j| {
                let key = &ks[(key_head * keys + j) * size..][..size];
                let mut score = scale * query.iter().zip(key).map(|(a, b)| a * b).sum::<f64>();
                if let Some(cap) = options.softcap {
                    score = cap * (score / cap).tanh();
                }
                let hidden = options.is_causal && j + rows > i + keys;
                if hidden {
                    f64::NEG_INFINITY
                } else {
                    rounded(rounded(score) + mask.as_ref().map_or(0.0, |m| m[row * keys + j]))
                }
            })
            .collect();
        let nothing = scores.iter().all(|&score| score == f64::NEG_INFINITY);
        softmax(&mut scores);
        if nothing {
            scores.fill(match options.fully_masked {
                Some(FullyMasked::Mean) => 1.0 / keys as f64,
                Some(FullyMasked::Zeros) => 0.0,
                None if is_added => f64::NAN,
                None => 0.0,
            });
        }
        for d in 0..out_size {
            let value = |j: usize| vs[(key_head * keys + j) * out_size + d];
            out.push(
                scores.iter().enumerate().map(|(j, p)| if *p == 0.0 { 0.0 } else { p * value(j) }).sum(),
            );
        }
    }
    Some(Elements::Float(out).store(q.dtype, vec![batch, heads, rows, out_size]))
}

/// Softmax in place; all zeros where everything is masked.
pub(super) fn softmax(scores: &mut [f64]) {
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if most == f64::NEG_INFINITY {
        scores.fill(0.0);
        return;
    }
    scores.iter_mut().for_each(|x| *x = (*x - most).exp());
    let sum: f64 = scores.iter().sum();
    scores.iter_mut().for_each(|x| *x /= sum);
}
