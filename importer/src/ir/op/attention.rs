//! Scaled-dot-product attention on `[batch, heads, seq, size]`; see `Backend::attention`.

use super::broadcast::broadcasts_to;
use super::prelude::*;
use kiln_types::{AttentionOptions, DType, FullyMasked};

impl Operation for AttentionOptions {
    facts!(operands: ["query", "key", "value", "mask?"], effect: Pure, folding: Never, result: Computed);
    none!(host, derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let q = of_rank(cx, 0, "q", 4)?;
        let k = of_rank(cx, 1, "k", 4)?;
        let v = of_rank(cx, 2, "v", 4)?;
        need_float("q", q)?;
        same_dtype("q", q, "k", k)?;
        same_dtype("q", q, "v", v)?;
        need_equal("batch of q and k", &q.dims[0], q, &k.dims[0], k)?;
        need_equal("batch of k and v", &k.dims[0], k, &v.dims[0], v)?;
        need_equal("head size of q and k", &q.dims[3], q, &k.dims[3], k)?;
        need_equal("sequence of k and v", &k.dims[2], k, &v.dims[2], v)?;
        need_equal("heads of k and v", &k.dims[1], k, &v.dims[1], v)?;
        let groups = q.dims[1].as_size().zip(k.dims[1].as_size());
        if groups.is_some_and(|(q, k)| q.checked_rem(k) != Some(0)) {
            return Err(dims_error("heads of q and k", q, k));
        }
        if let Some(mask) = cx.optional(3) {
            need(
                "mask",
                mask,
                mask.dtype.is_bool() || mask.dtype == q.dtype,
                "expected bool or the dtype of q",
            )?;
            let scores: Vec<Dim> =
                vec![q.dims[0].clone(), q.dims[1].clone(), q.dims[2].clone(), k.dims[2].clone()];
            broadcasts_to(mask, &scores)?;
        }
        let mut dims = q.dims.clone();
        dims[3] = v.dims[3].clone();
        Ok(vec![q.with_dims(dims)])
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        let [q, k, v] = [operands.get(0)?, operands.get(1)?, operands.get(2)?];
        let (mask, options) = (operands.get(3), self);
        let [batch, heads, rows, size] = *q.shape.as_slice() else {
            return None;
        };
        let [_, key_heads, keys, _] = *k.shape.as_slice() else {
            return None;
        };
        let out_size = *v.shape.get(3)?;
        let group = heads.checked_div(key_heads)?;
        let (qs, ks, vs) =
            (Elements::load(q).floats(), Elements::load(k).floats(), Elements::load(v).floats());
        let is_added = mask.is_some_and(|mask| mask.dtype.is_float());
        let mask = match mask {
            None => None,
            Some(mask) => {
                let view = Strided::new(&mask.shape).expand(&[batch, heads, rows, keys])?;
                let added = match Elements::load(mask) {
                    Elements::Float(x) => x,
                    Elements::Int(x) => {
                        x.iter().map(|&x| if x != 0 { 0.0 } else { f64::NEG_INFINITY }).collect()
                    }
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
        Some(vec![Elements::Float(out).store(q.dtype, vec![batch, heads, rows, out_size])])
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        let (q, k, v) = (cx.shape(0)?, cx.shape(1)?, cx.shape(2)?);
        let (&[batch, heads, queries, size], &[_, key_heads, keys, _]) = (q.as_slice(), k.as_slice()) else {
            return None;
        };
        let is_bool = cx.input(3).is_some() && cx.dtype(3).is_bool();
        let mask = match cx.shape(3) {
            Some(mask) => Strided::new(&mask).expand(&[batch, heads, queries, keys])?.steps()?,
            None => vec![0; 4],
        };
        // What a query yields that sees no key: the mean, zeros, or what softmax makes of nothing.
        let masked = match self.fully_masked {
            Some(FullyMasked::Mean) => 1.0 / keys as f64,
            Some(FullyMasked::Zeros) => 0.0,
            None if cx.input(3).is_some() && !is_bool => f64::NAN,
            None => 0.0,
        };
        let sizes = KernelArg::Fields(
            "Attention",
            vec![
                ("batch", KernelArg::Size(batch)),
                ("heads", KernelArg::Sizes(vec![heads, key_heads])),
                ("queries", KernelArg::Size(queries)),
                ("keys", KernelArg::Size(keys)),
                ("size", KernelArg::Sizes(vec![size, *v.get(3)?])),
                ("mask", KernelArg::Sizes(mask)),
                ("scale", KernelArg::Float(self.scale.unwrap_or(1.0 / (size as f64).sqrt()))),
                ("softcap", KernelArg::OptionalFloat(self.softcap)),
                ("is_causal", KernelArg::Bool(self.is_causal)),
                ("fully_masked", KernelArg::Float(masked)),
            ],
        );
        let function = if is_bool { "attention_where" } else { "attention" };
        let operands =
            [KernelArg::Operand(0), KernelArg::Operand(1), KernelArg::Operand(2), KernelArg::Optional(3)];
        let [query, key, value, mask] = operands;
        Some(Loops::kernel(function, [query, key, value, mask, sizes, KernelArg::Scratch(keys)]))
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        Implementation::Call(call(self, cx))
    }
}

/// Softmax in place; all zeros where everything is masked.
fn softmax(scores: &mut [f64]) {
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if most == f64::NEG_INFINITY {
        scores.fill(0.0);
        return;
    }
    scores.iter_mut().for_each(|x| *x = (*x - most).exp());
    let sum: f64 = scores.iter().sum();
    scores.iter_mut().for_each(|x| *x /= sum);
}

fn call(options: &AttentionOptions, cx: &Site<'_>) -> Arg {
    let named = |name: &'static str, operand| Arg::role(name, Arg::Operand(operand));
    // A bool mask keeps, a float mask is added.
    let mask = Arg::option(cx.input(3).map(|_| Arg::Operand(3).then("into", [])));
    Arg::call(
        "tensor::module::attention",
        [named("query", 0), named("key", 1), named("value", 2), mask, Arg::options(options)],
    )
}
