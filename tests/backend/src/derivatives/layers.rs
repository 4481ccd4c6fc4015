//! What layers are made of: convolution, pooling, normalization, attention, recurrence.

use kiln_tensor::backend::Backend;
use kiln_tensor::compose::{CrossEntropyOptions, RnnOperands, RnnOutput};
use kiln_tensor::linalg::{
    Columns, Diagonal, Triangle, cholesky, det, eigh, householder_product, inverse, lu_decomposition,
    lu_factor, matrix_exp, qr, solve_triangular, svd,
};
use kiln_tensor::module::{LinearAttentionOptions, linear_attention};
use kiln_tensor::{
    Activation, AttentionOptions, BinaryOp, ConvOptions, ConvTransposeOptions, CoordinateTransform,
    InterpolateMode, InterpolateOptions, PoolOp, PoolOptions, RnnDirection, RnnKind, RnnOptions, Shape,
    Tensor, TensorData,
};

/// A causal mask, as bools.
fn below_diagonal<B: Backend>(size: usize) -> B::Primitive {
    let mask: Vec<bool> = (0..size * size).map(|i| i % size <= i / size).collect();
    B::from_data(TensorData::new(mask, [1, 1, size, size]), &B::Device::default())
}

fn targets<B: Backend>() -> B::Primitive {
    B::from_data(TensorData::from([2_i64, 0, 1]).convert::<B::IntElem>(), &B::Device::default())
}

/// Results and state of linear attention with two heads of keys in one.
fn attended<B: Backend>(
    tokens: [B::Primitive; 3],
    state: Option<B::Primitive>,
    decay: Option<B::Primitive>,
    beta: Option<B::Primitive>,
) -> B::Primitive {
    let [query, key, value] = tokens.map(Tensor::<B, 3>::from_backend);
    let query_heads = 2 * query.dims()[2] / key.dims()[2];
    let options = LinearAttentionOptions { query_heads, key_value_heads: 2, scale: 0.6 };
    let state = state.map(Tensor::from_backend);
    let [decay, beta] = [decay, beta].map(|gate| gate.map(Tensor::from_backend));
    let (result, state) = linear_attention(query, key, value, state, decay, beta, options);
    let [result, state] = [result.flatten::<1>(0, 2), state.flatten(0, 3)];
    Tensor::cat(vec![result, state], 0).into_backend()
}

/// Symmetric positive definite matrices.
fn definite<B: Backend>(x: B::Primitive) -> Tensor<B, 3> {
    let x = Tensor::<B, 3>::from_backend(x);
    let size = x.dims()[1];
    let identity = Tensor::<B, 2>::eye_with([size, size], 0, x.dtype(), &x.device()).unsqueeze::<3>();
    x.clone().matmul(x.swap_dims(1, 2)) + identity
}

/// All parts of matrices by singular values in one.
fn decomposed<B: Backend>(x: B::Primitive) -> B::Primitive {
    let (u, values, vt) = svd(Tensor::<B, 3>::from_backend(x), Columns::Reduced);
    let parts = [u, values, vt].map(|part| part.flatten::<1>(0, 2));
    Tensor::cat(parts.to_vec(), 0).into_backend()
}

/// All results of a recurrent layer in one.
fn joined<B: Backend>(output: RnnOutput<B>) -> B::Primitive {
    let flat = |tensor: B::Primitive| {
        let count = kiln_tensor::backend::Primitive::shape(&tensor).num_elements();
        B::reshape(tensor, Shape::from([count]))
    };
    let parts = [Some(output.output), Some(output.hidden), output.cell];
    B::cat(&parts.into_iter().flatten().map(flat).collect::<Vec<_>>(), 0)
}

fn recurrent<B: Backend>(
    kind: RnnKind,
    direction: RnnDirection,
    [input, weight, recurrent, bias, hidden]: [B::Primitive; 5],
    initial_cell: Option<B::Primitive>,
    peepholes: Option<B::Primitive>,
) -> B::Primitive {
    let options = RnnOptions {
        kind,
        direction,
        hidden_size: 2,
        activations: kind.activations().repeat(direction.count()).into(),
        clip: None,
        state_clip: None,
        batch_first: false,
    };
    let operands = RnnOperands::<B> {
        input,
        weight,
        recurrent,
        bias: Some(bias),
        sequence_lengths: None,
        initial_hidden: Some(hidden),
        initial_cell,
        peepholes,
    };
    joined::<B>(B::rnn(operands, &options))
}

const GRU: RnnKind = RnnKind::Gru { linear_before_reset: true };
const LSTM: RnnKind = RnnKind::Lstm { input_forget: false };

functions! { ($) layers:
    conv [[2, 2, 5, 4], [3, 2, 3, 2], [3]] |B, [x, w, b]| {
        B::conv(x, w, Some(b), &ConvOptions::new([2, 1], [1, 0], [1, 2], 1))
    };
    conv_in_groups [[1, 4, 6], [4, 2, 3]] |B, [x, w]| {
        B::conv(x, w, None, &ConvOptions::new([1], [1], [1], 2))
    };
    conv_activated [[1, 2, 4, 4], [2, 1, 3, 3], [2]] |B, [x, w, b]| {
        let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 2);
        B::conv_activated(x, w, Some(b), Activation::Silu, &options)
    };
    conv_added [[1, 1, 4, 4], [2, 1, 3, 3], [2], [1, 2, 4, 4]] |B, [x, w, b, residual]| {
        let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
        B::conv_added(x, w, Some(b), residual, Some(Activation::Silu), &options)
    };
    conv_transpose [[2, 2, 3, 3], [2, 3, 3, 2], [3]] |B, [x, w, b]| {
        B::conv_transpose(x, w, Some(b), &ConvTransposeOptions::new([2, 1], [1, 0], [1, 0], [1, 1], 1))
    };
    max_pool [[1, 2, 5, 4]] |B, [x]| {
        B::pool(PoolOp::Max, x, &PoolOptions::new([2, 2], [2, 1], [1, 0], [1, 1], false))
    };
    average_pool [[1, 2, 5, 4]] |B, [x]| {
        let op = PoolOp::Average { include_pad: false };
        B::pool(op, x, &PoolOptions::new([3, 2], [2, 2], [1, 1], [1, 1], true))
    };
    lp_pool (0.3, 2.0) [[1, 2, 5, 4]] |B, [x]| {
        B::pool(PoolOp::Lp { p: 2 }, x, &PoolOptions::new([2, 2], [1, 2], [0, 0], [1, 1], false))
    };
    max_pool_with_indices [[1, 2, 5, 4]] |B, [x]| {
        B::max_pool_with_indices(x, &PoolOptions::new([2, 2], [2, 2], [0, 0], [1, 1], false)).0
    };
    adaptive_avg_pool [[1, 2, 5, 4]] |B, [x]| B::adaptive_avg_pool(x, &[3, 2]);
    interpolate [[1, 2, 3, 4]] |B, [x]| {
        let options = InterpolateOptions {
            output_size: [1, 2, 5, 6].into(),
            scales: [1.0, 1.0, 5.0 / 3.0, 1.5].into(),
            mode: InterpolateMode::Linear,
            coordinates: CoordinateTransform::HalfPixel,
            antialias: false,
            exclude_outside: false,
            roi: None,
            extrapolation_value: 0.0,
        };
        B::interpolate(x, &options)
    };

    softmax [[2, 3, 2]] |B, [x]| B::softmax(x, 1);
    log_softmax [[2, 3, 2]] |B, [x]| B::log_softmax(x, 2);
    cross_entropy [[3, 4]] |B, [x]| {
        B::cross_entropy(x, targets::<B>(), None, &CrossEntropyOptions::default())
    };
    cross_entropy_smoothed [[3, 4]] |B, [x]| {
        let weights = TensorData::from([0.5, 1.0, 2.0, 0.25]).convert::<B::FloatElem>();
        let weights = B::from_data(weights, &B::Device::default());
        B::cross_entropy(x, targets::<B>(), Some(weights), &CrossEntropyOptions { ignored: vec![1], smoothing: 0.2 })
    };
    cross_entropy_of_weights (0.5, 2.0) [[3, 4], [4]] |B, [x, w]| {
        B::cross_entropy(x, targets::<B>(), Some(w), &CrossEntropyOptions { ignored: vec![], smoothing: 0.2 })
    };
    layer_norm [[2, 3, 4], [4], [4]] |B, [x, w, b]| B::layer_norm(x, w, Some(b), 1e-5);
    layer_norm_of_two_dims [[2, 3, 4], [3, 4]] |B, [x, w]| B::layer_norm(x, w, None, 1e-5);
    rms_norm [[2, 3, 4], [4]] |B, [x, w]| B::rms_norm(x, w, 1e-5);
    group_norm [[2, 4, 3], [4], [4]] |B, [x, w, b]| B::group_norm(x, Some(w), Some(b), 2, 1e-5);
    group_norm_of_bias_alone [[2, 4, 3], [4]] |B, [x, b]| B::group_norm(x, None, Some(b), 2, 1e-5);
    batch_norm (0.5, 2.0) [[2, 3, 4], [3], [3], [3], [3]] |B, [x, w, b, m, v]| B::batch_norm(x, w, b, m, v, 1e-5);
    batch_norm_train [[3, 2, 4], [2], [2]] |B, [x, w, b]| B::batch_norm_train(x, w, b, 1e-5).output;
    linear_of_an_input_with_other_uses [[2, 3, 4], [4, 4], [4, 4], [4]] |B, [x, w, v, b]| {
        let y = B::linear(x.clone(), &w, Some(&b), None);
        let z = B::linear(x.clone(), &v, None, None);
        B::binary(BinaryOp::Mul, B::binary(BinaryOp::Add, x, y), z)
    };
    batch_norm_train_and_relu [[3, 2, 4], [2], [2]] |B, [x, w, b]| {
        B::activation(Activation::Relu, B::batch_norm_train(x, w, b, 1e-5).output)
    };
    batch_norm_train_and_silu [[3, 2, 2, 2], [2], [2]] |B, [x, w, b]| {
        B::activation(Activation::Silu, B::batch_norm_train(x, w, b, 1e-5).output)
    };
    batch_norm_train_used_thrice [[3, 2, 4], [2], [2]] |B, [x, w, b]| {
        let y = B::batch_norm_train(x, w, b, 1e-5).output;
        let activated = [Activation::Silu, Activation::Tanh].map(|of| B::activation(of, y.clone()));
        activated.into_iter().fold(y, |product, factor| B::binary(BinaryOp::Mul, product, factor))
    };
    batch_norm_train_of_one [[3, 2, 4], [2], [2]] |B, [x, w, b]| {
        let y = B::batch_norm_train(x, w.clone(), b.clone(), 1e-5).output;
        B::activation(Activation::Silu, B::batch_norm_train(y, w, b, 1e-5).output)
    };
    dropout [[4, 5]] |B, [x]| B::dropout(B::unary(kiln_tensor::UnaryOp::Exp, x), 0.4, 77);

    attention [[1, 2, 3, 4], [1, 2, 5, 4], [1, 2, 5, 2]] |B, [q, k, v]| {
        B::attention(q, k, v, None, &AttentionOptions::default())
    };
    attention_added_mask [[2, 2, 3, 4], [2, 2, 3, 4], [2, 2, 3, 4], [1, 1, 3, 3]] |B, [q, k, v, mask]| {
        B::attention(q, k, v, Some(mask), &AttentionOptions { softcap: Some(2.0), ..Default::default() })
    };
    attention_bool_mask [[1, 2, 3, 4], [1, 1, 3, 4], [1, 1, 3, 4]] |B, [q, k, v]| {
        let mask = below_diagonal::<B>(3);
        B::attention(q, k, v, Some(mask), &AttentionOptions { scale: Some(0.7), ..Default::default() })
    };
    attention_causal [[1, 1, 3, 2], [1, 1, 3, 2], [1, 1, 3, 2]] |B, [q, k, v]| {
        B::attention(q, k, v, None, &AttentionOptions { is_causal: true, ..Default::default() })
    };

    plain_rnn [[3, 2, 3], [1, 2, 3], [1, 2, 2], [1, 4], [1, 2, 2]] |B, [x, w, r, b, h]| {
        recurrent::<B>(RnnKind::Rnn, RnnDirection::Reverse, [x, w, r, b, h], None, None)
    };
    gru [[3, 2, 3], [2, 6, 3], [2, 6, 2], [2, 12], [2, 2, 2]] |B, [x, w, r, b, h]| {
        recurrent::<B>(GRU, RnnDirection::Bidirectional, [x, w, r, b, h], None, None)
    };
    lstm [[3, 2, 3], [1, 8, 3], [1, 8, 2], [1, 16], [1, 2, 2], [1, 2, 2], [1, 6]] |B, [x, w, r, b, h, c, p]| {
        recurrent::<B>(LSTM, RnnDirection::Forward, [x, w, r, b, h], Some(c), Some(p))
    };

    determinants [[2, 4, 4]] |B, [x]| det::<B, 3>(Tensor::from_backend(x)).into_backend();
    decompositions [[3, 3]] |B, [x]| lu_decomposition::<B>(Tensor::from_backend(x)).0.into_backend();
    decompositions_with_pivots [[2, 3, 4]] |B, [x]| lu_factor(Tensor::<B, 3>::from_backend(x)).0.into_backend();
    inverses [[2, 3, 3]] |B, [x]| inverse::<B, 3>(Tensor::from_backend(x)).into_backend();
    triangular_systems [[2, 3, 3], [2, 3, 2]] |B, [a, b]| {
        let a = Tensor::<B, 3>::from_backend(a).add_scalar(2);
        solve_triangular(a, Tensor::from_backend(b), Triangle::Upper, Diagonal::Given).into_backend()
    };
    cholesky_factors [[2, 3, 3]] |B, [x]| cholesky(definite::<B>(x)).into_backend();
    orthogonal_factors_of_columns [[2, 4, 3]] |B, [x]| {
        let (q, r) = qr(Tensor::<B, 3>::from_backend(x), Columns::Reduced);
        Tensor::cat(vec![q, r], 1).into_backend()
    };
    orthogonal_factors_of_rows [[2, 2, 4]] |B, [x]| {
        let (q, r) = qr(Tensor::<B, 3>::from_backend(x), Columns::Complete);
        Tensor::cat(vec![q, r], 2).into_backend()
    };
    products_of_reflections [[2, 4, 2], [2, 2]] |B, [vectors, factors]| {
        let vectors = Tensor::<B, 3>::from_backend(vectors);
        householder_product(vectors, Tensor::<B, 2>::from_backend(factors)).into_backend()
    };
    eigenvalues [[2, 3, 3]] |B, [x]| {
        let (values, vectors) = eigh(definite::<B>(x), Triangle::Lower);
        Tensor::cat(vec![values, vectors], 1).into_backend()
    };
    singular_values_of_columns [[2, 4, 3]] |B, [x]| decomposed::<B>(x);
    singular_values_of_rows [[2, 2, 4]] |B, [x]| decomposed::<B>(x);
    exponentials [[2, 3, 3]] |B, [x]| matrix_exp(Tensor::<B, 3>::from_backend(x)).into_backend();
    linear_attention_with_state [[1, 3, 8], [1, 3, 4], [1, 3, 4], [1, 2, 2, 2]] |B, [q, k, v, state]| {
        attended::<B>([q, k, v], Some(state), None, None)
    };
    gated_delta_attention [[2, 3, 4], [2, 3, 4], [2, 3, 2], [2, 3, 2], [2, 3, 1]] |B, [q, k, v, decay, beta]| {
        attended::<B>([q, k, v], None, Some(decay), Some(beta))
    };
}
