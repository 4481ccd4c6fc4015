// Recurrent layers, whose weights have ONNX's layouts: `[directions, gates * hidden, input]`.

/// The sizes of a recurrent layer, and how far apart batches and steps are in the input, batches, steps and directions in the results,
/// batches and directions in the states.
struct Recurrent {
    batch: usize,
    steps: usize,
    input: usize,
    hidden: usize,
    directions: usize,
    reverse: bool,
    of_input: [usize; 2],
    of_result: [usize; 3],
    of_state: [usize; 2],
}

/// Adds to each of `out` the product of its row of `weight` with `x`.
fn add_rows(x: &[f32], weight: &[f32], out: &mut [f32]) {
    for (out, row) in out.iter_mut().zip(weight.chunks_exact(x.len())) {
        *out += dot(row, x);
    }
}

/// Walks over directions, batches and steps. `gates` are given what of the weights is added up before a cell: for the input with its bias, and for the hidden
/// state with its bias; `cell` makes of them, and of its place in the states, the next hidden state.
fn recur(
    x: &[f32],
    [weight, recurrent]: [&[f32]; 2],
    bias: Option<&[f32]>,
    sizes: &Recurrent,
    gates: &mut [f32],
    mut cell: impl FnMut(&[f32], &[f32], usize, &mut [f32]),
    [out, state]: [&mut [f32]; 2],
) {
    let &Recurrent { batch, steps, input, hidden, directions, reverse, of_input, of_result, of_state } = sizes;
    let rows = gates.len() / 2;
    let (from_input, from_state) = gates.split_at_mut(rows);
    for direction in 0..directions {
        let weight = &weight[direction * rows * input..][..rows * input];
        let recurrent = &recurrent[direction * rows * hidden..][..rows * hidden];
        let bias = bias.map(|bias| bias[direction * 2 * rows..][..2 * rows].split_at(rows));
        for n in 0..batch {
            let place = n * of_state[0] + direction * of_state[1];
            let state = &mut state[place..][..hidden];
            for step in 0..steps {
                let step = if reverse || direction == 1 { steps - 1 - step } else { step };
                match bias {
                    Some((of_input, of_state)) => {
                        from_input.copy_from_slice(of_input);
                        from_state.copy_from_slice(of_state);
                    }
                    None => {
                        from_input.fill(0.0);
                        from_state.fill(0.0);
                    }
                }
                add_rows(&x[n * of_input[0] + step * of_input[1]..][..input], weight, from_input);
                add_rows(state, recurrent, from_state);
                cell(from_input, from_state, place, state);
                let at = n * of_result[0] + step * of_result[1] + direction * of_result[2];
                out[at..][..hidden].copy_from_slice(state);
            }
        }
    }
}

/// Sets a state to the given one, or to zero.
fn set_state(state: &mut [f32], initial: Option<&[f32]>) {
    match initial {
        Some(initial) => state.copy_from_slice(initial),
        None => state.fill(0.0),
    }
}

/// A simple recurrent layer: `h = tanh(W x + R h + b)`. It yields all states, and the last.
#[allow(clippy::too_many_arguments, reason = "a recurrent layer has as many operands")]
fn rnn(
    x: &[f32],
    weight: &[f32],
    recurrent: &[f32],
    bias: Option<&[f32]>,
    initial_hidden: Option<&[f32]>,
    sizes: &Recurrent,
    gates: &mut [f32],
    out: &mut [f32],
    hidden: &mut [f32],
) {
    set_state(hidden, initial_hidden);
    let cell = |x: &[f32], h: &[f32], _: usize, state: &mut [f32]| {
        for (n, state) in state.iter_mut().enumerate() {
            *state = tanh(x[n] + h[n]);
        }
    };
    recur(x, [weight, recurrent], bias, sizes, gates, cell, [out, hidden]);
}

/// Gated recurrent units (Cho et al. 2014), whose reset gate is applied behind the recurrent matrix. It yields all states, and the last.
#[allow(clippy::too_many_arguments, reason = "a recurrent layer has as many operands")]
fn gru(
    x: &[f32],
    weight: &[f32],
    recurrent: &[f32],
    bias: Option<&[f32]>,
    initial_hidden: Option<&[f32]>,
    sizes: &Recurrent,
    gates: &mut [f32],
    out: &mut [f32],
    hidden: &mut [f32],
) {
    set_state(hidden, initial_hidden);
    let size = sizes.hidden;
    let cell = |x: &[f32], h: &[f32], _: usize, state: &mut [f32]| {
        for (n, state) in state.iter_mut().enumerate() {
            let update = sigmoid(x[n] + h[n]);
            let reset = sigmoid(x[size + n] + h[size + n]);
            let new = tanh(x[2 * size + n] + reset * h[2 * size + n]);
            *state = (1.0 - update) * new + update * *state;
        }
    };
    recur(x, [weight, recurrent], bias, sizes, gates, cell, [out, hidden]);
}

/// Long short-term memory (Hochreiter & Schmidhuber 1997). It yields all hidden states, the last, and the last cell state.
#[allow(clippy::too_many_arguments, reason = "a recurrent layer has as many operands")]
fn lstm(
    x: &[f32],
    weight: &[f32],
    recurrent: &[f32],
    bias: Option<&[f32]>,
    initial_hidden: Option<&[f32]>,
    initial_cell: Option<&[f32]>,
    sizes: &Recurrent,
    gates: &mut [f32],
    out: &mut [f32],
    hidden: &mut [f32],
    cell: &mut [f32],
) {
    set_state(hidden, initial_hidden);
    set_state(cell, initial_cell);
    let size = sizes.hidden;
    let step = |x: &[f32], h: &[f32], place: usize, state: &mut [f32]| {
        for (n, (state, cell)) in state.iter_mut().zip(&mut cell[place..]).enumerate() {
            let [input, output, forget, new] = [0, size, 2 * size, 3 * size].map(|gate| x[gate + n] + h[gate + n]);
            *cell = sigmoid(forget) * *cell + sigmoid(input) * tanh(new);
            *state = sigmoid(output) * tanh(*cell);
        }
    };
    recur(x, [weight, recurrent], bias, sizes, gates, step, [out, hidden]);
}
