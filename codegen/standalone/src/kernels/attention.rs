// Scaled-dot-product attention.

/// The sizes of attention: heads of queries and of keys, sizes of a key and a value, strides of the mask, and what scores are made of.
struct Attention {
    batch: usize,
    heads: [usize; 2],
    queries: usize,
    keys: usize,
    size: [usize; 2],
    mask: [usize; 4],
    scale: f32,
    softcap: Option<f32>,
    is_causal: bool,
    fully_masked: f32,
}

/// Attention whose mask is added to the scores.
fn attention(
    query: &[f32],
    key: &[f32],
    value: &[f32],
    mask: Option<&[f32]>,
    sizes: &Attention,
    scores: &mut [f32],
    out: &mut [f32],
) {
    let masked = |score: f32, at: usize| score + mask.map_or(0.0, |mask| mask[at]);
    attend([query, key, value], masked, sizes, scores, out);
}

/// Attention to the keys at which the mask is true.
fn attention_where(
    query: &[f32],
    key: &[f32],
    value: &[f32],
    mask: Option<&[bool]>,
    sizes: &Attention,
    scores: &mut [f32],
    out: &mut [f32],
) {
    let masked = |score: f32, at: usize| if mask.is_none_or(|mask| mask[at]) { score } else { f32::NEG_INFINITY };
    attend([query, key, value], masked, sizes, scores, out);
}

/// Attention of `[batch, heads, sequence, size]`, query by query; `masked` is given a score and its place in the mask.
fn attend(
    [query, key, value]: [&[f32]; 3],
    masked: impl Fn(f32, usize) -> f32,
    sizes: &Attention,
    scores: &mut [f32],
    out: &mut [f32],
) {
    let &Attention { batch, heads: [heads, key_heads], queries, keys, size: [size, out_size], .. } = sizes;
    for at in 0..batch * heads * queries {
        let (b, head, row) = (at / (heads * queries), at / queries % heads, at % queries);
        let first = (b * key_heads + head / (heads / key_heads)) * keys;
        let query = &query[at * size..][..size];
        let mut most = f32::NEG_INFINITY;
        for (n, (score, key)) in scores.iter_mut().zip(key[first * size..].chunks_exact(size)).enumerate() {
            *score = sizes.scale * dot(query, key);
            if let Some(cap) = sizes.softcap {
                *score = cap * tanh(*score / cap);
            }
            let place = [b, head, row, n].iter().zip(&sizes.mask).map(|(at, step)| at * step).sum();
            let is_later = sizes.is_causal && n + queries > row + keys;
            *score = if is_later { f32::NEG_INFINITY } else { masked(*score, place) };
            most = max_pair(most, *score);
        }
        let mut sum = 0.0;
        for score in scores.iter_mut() {
            *score = exp(*score - most);
            sum += *score;
        }
        let out = &mut out[at * out_size..][..out_size];
        out.fill(0.0);
        for (&score, value) in scores.iter().zip(value[first * out_size..].chunks_exact(out_size)) {
            let share = if most == f32::NEG_INFINITY { sizes.fully_masked } else { score / sum };
            if share != 0.0 {
                for (out, &value) in out.iter_mut().zip(value) {
                    *out += share * value;
                }
            }
        }
    }
}
