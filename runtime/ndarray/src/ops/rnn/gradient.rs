//! The way back through a recurrent layer, from what its training kept.

use super::{Given, Operands, States, Weight, fresh, packed, parts, permuted, state, tensor, turned};
use crate::storage::Buffer;
use crate::tensor::NdArrayTensor;
use kiln_kernels::rnn::{self, OfResults};
use kiln_tensor::backend::Primitive;
use kiln_tensor::{RnnKind, RnnOptions};

/// Gradients of the operands, laid out like them.
pub(crate) struct Gradients {
    pub(crate) input: NdArrayTensor,
    pub(crate) weight: NdArrayTensor,
    pub(crate) recurrent: NdArrayTensor,
    pub(crate) bias: Option<NdArrayTensor>,
    pub(crate) initial_hidden: NdArrayTensor,
    pub(crate) initial_cell: Option<NdArrayTensor>,
    pub(crate) peepholes: Option<NdArrayTensor>,
}

/// Gradients of the results.
pub(crate) struct OfOutputs {
    pub(crate) output: NdArrayTensor,
    pub(crate) hidden: NdArrayTensor,
    pub(crate) cell: Option<NdArrayTensor>,
}

/// See [`kiln_tensor::backend::Backend::rnn_gradient`].
pub(crate) fn rnn(of: OfOutputs, operands: &Operands, states: States, options: &RnnOptions) -> Gradients {
    let given = Given::new(operands, options);
    let layer = given.layer(options, true);
    let [steps, batch, size] = given.input.shape().dims();
    let (directions, hidden, kind) = (options.direction.count(), options.hidden_size, options.kind);
    let is_lstm = matches!(kind, RnnKind::Lstm { .. });
    let recurrent = parts(&operands.recurrent, rnn::recurrent_parts(kind), options, Weight::often);
    let weight = operands.weight.clone().into_contiguous();
    let output = if options.batch_first { permuted(of.output, &[1, 2, 0, 3]) } else { of.output };
    let output = output.into_contiguous();
    let States { hidden: before, cell: cells, gates } = states;
    let (before, cells) = (before.into_contiguous(), cells.map(NdArrayTensor::into_contiguous));

    let last = [directions, batch, hidden];
    let mut of_hidden = state(Some(&of.hidden), options, &last);
    let mut of_cell =
        state(of.cell.as_ref().filter(|_| is_lstm), options, if is_lstm { &last } else { &[0] });
    let peepholes = [directions, 3 * hidden];
    let mut of_peepholes = operands.peepholes.as_ref().map(|_| fresh(&peepholes));
    let gates = gates.edit(|gates: &mut [f32]| {
        layer.backward(
            &packed(&recurrent),
            gates,
            [before.slice(), cells.as_ref().map_or(&[], NdArrayTensor::slice)],
            OfResults {
                output: output.slice(),
                states: rnn::States { hidden: of_hidden.as_mut(), cell: of_cell.as_mut() },
            },
            of_peepholes.as_mut().map(|of| of.as_mut()),
        );
    });

    let all = kind.gates() * hidden;
    let (weights, recurrents) = ([directions, all, size], [directions, all, hidden]);
    let mut of_input = fresh(&[steps, batch, size]);
    let (mut of_weight, mut of_recurrent) = (fresh(&weights), fresh(&recurrents));
    layer.of_input(gates.slice(), size, weight.slice(), of_input.as_mut());
    layer.of_weights(
        gates.slice(),
        given.input.slice(),
        size,
        before.slice(),
        of_weight.as_mut(),
        of_recurrent.as_mut(),
    );
    let biases = [directions, 2 * all];
    let of_biases = operands.bias.as_ref().map(|_| {
        let mut of_biases = fresh(&biases);
        layer.of_biases(gates.slice(), of_biases.as_mut());
        tensor(of_biases, &biases)
    });
    let of_first = |state: Buffer| turned(tensor(state, &last), options);
    Gradients {
        input: turned(tensor(of_input, &[steps, batch, size]), options),
        weight: tensor(of_weight, &weights),
        recurrent: tensor(of_recurrent, &recurrents),
        bias: of_biases,
        initial_hidden: of_first(of_hidden),
        initial_cell: is_lstm.then(|| of_first(of_cell)),
        peepholes: of_peepholes.map(|of| tensor(of, &peepholes)),
    }
}
