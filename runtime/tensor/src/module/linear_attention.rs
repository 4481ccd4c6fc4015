//! Attention whose keys and values are summed up in a state of one size, however many there were.

use crate::Tensor;
use crate::backend::Backend;
use crate::check::ensure;
use crate::compose::calc;
use alloc::vec::Vec;

/// Options of [`linear_attention`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearAttentionOptions {
    /// Heads of the queries, a multiple of those of the keys.
    pub query_heads: usize,
    /// Heads of keys and values, each with a state.
    pub key_value_heads: usize,
    /// What results are multiplied by.
    pub scale: f64,
}

/// Linear attention, token by token (ONNX `LinearAttention`; Yang et al. 2024, "Gated Delta Networks"): the state of a head is a matrix
/// from keys to values, to which each token adds `k ⊗ v`, and of which a query reads `scale · qᵀ S`.
///
/// With `decay` the state is multiplied by `exp(decay)` before. With `beta` the token's value is what it changes: `beta · (v - kᵀ S)`.
///
/// Shapes: queries `[batch, tokens, query_heads · key_size]`, keys `[batch, tokens, heads · key_size]`, values
/// `[batch, tokens, heads · value_size]`, the state `[batch, heads, key_size, value_size]` (zeros if there is none), decays
/// `[batch, tokens, heads · key_size]` or `[batch, tokens, heads]`, betas `[batch, tokens, heads]` or `[batch, tokens, 1]`.
/// Yields results `[batch, tokens, query_heads · value_size]` and the state after the last token. Computes in f32, or f64.
///
/// # Panics
/// When shapes do not fit.
pub fn linear_attention<B: Backend>(
    query: Tensor<B, 3>,
    key: Tensor<B, 3>,
    value: Tensor<B, 3>,
    state: Option<Tensor<B, 4>>,
    decay: Option<Tensor<B, 3>>,
    beta: Option<Tensor<B, 3>>,
    options: LinearAttentionOptions,
) -> (Tensor<B, 3>, Tensor<B, 4>) {
    let LinearAttentionOptions { query_heads, key_value_heads: heads, scale } = options;
    let dtype = query.dtype();
    let wide = calc::wide(dtype);
    let ([batch, tokens, queries], [.., keys], [.., values]) = (query.dims(), key.dims(), value.dims());
    ensure!(
        heads > 0 && query_heads > 0 && query_heads.is_multiple_of(heads),
        "linear_attention",
        "{query_heads} heads of queries are no multiple of {heads} heads of keys"
    );
    let (key_size, value_size) = (keys / heads, values / heads);
    let fits = queries == query_heads * key_size && keys == heads * key_size && values == heads * value_size;
    let alike = [&key, &value].iter().all(|tensor| tensor.dims()[..2] == [batch, tokens]);
    ensure!(
        fits && alike,
        "linear_attention",
        "{}, {} and {} are no queries of {query_heads} heads and keys and values of {heads}",
        query.shape(),
        key.shape(),
        value.shape()
    );
    let gate = |name: &str, tensor: Option<Tensor<B, 3>>, sizes: [usize; 2]| {
        tensor.inspect(|tensor| {
            let [of_batch, of_tokens, size] = tensor.dims();
            let fits = [of_batch, of_tokens] == [batch, tokens] && sizes.contains(&size);
            let [one, other] = sizes;
            ensure!(
                fits,
                "linear_attention",
                "the {name} is {}, it should be [{batch}, {tokens}, {one}] or [{batch}, {tokens}, {other}]",
                tensor.shape()
            );
        })
    };
    let decay = gate("decay", decay, [heads, keys]);
    let beta = gate("beta", beta, [heads, 1]);
    // A token's part of a tensor as a matrix for each head.
    let matrices = |tensor: Tensor<B, 3>, heads: usize, rows: usize| {
        let columns = tensor.dims()[2] / (heads * rows).max(1);
        tensor.cast(wide).reshape([batch, tokens, heads, rows, columns])
    };
    let at = |tensor: &Tensor<B, 5>, token: usize| tensor.clone().narrow(1, token, 1).squeeze_dim::<4>(1);
    // Queries that share a state are the rows of a matrix.
    let query = matrices(query, heads, query_heads / heads);
    let key = matrices(key, heads, 1);
    let value = matrices(value, heads, 1);
    let decay = decay.map(|decay| matrices(decay.exp(), heads, 1).swap_dims(3, 4));
    let beta = beta.map(|beta| {
        let of_heads = beta.dims()[2];
        matrices(beta, of_heads, 1)
    });
    let state_dims = [batch, heads, key_size, value_size];
    let state_dtype = state.as_ref().map_or(dtype, Tensor::dtype);
    let mut state = match state {
        Some(state) => {
            let (dims, shape) = (state.dims(), state.shape());
            ensure!(dims == state_dims, "linear_attention", "a state {shape} is not {state_dims:?}");
            state.cast(wide)
        }
        None => Tensor::zeros(state_dims, (&query.device(), wide)),
    };
    let mut results = Vec::with_capacity(tokens);
    for token in 0..tokens {
        let (key, mut change) = (at(&key, token), at(&value, token));
        if let Some(decay) = &decay {
            state = state.mul(at(decay, token));
        }
        if let Some(beta) = &beta {
            change = change.sub(key.clone().matmul(state.clone())).mul(at(beta, token));
        }
        state = state.add(key.swap_dims(2, 3).mul(change));
        results.push(at(&query, token).matmul(state.clone()).unsqueeze_dim::<5>(1));
    }
    let dims = [batch, tokens, query_heads * value_size];
    let result = match results.is_empty() {
        true => Tensor::zeros(dims, (&query.device(), dtype)),
        false => Tensor::cat(results, 1).mul_scalar(scale).reshape(dims).cast(dtype),
    };
    (result, state.cast(state_dtype))
}
