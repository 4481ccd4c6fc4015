//! Recurrent layers for the importer's interpreter, which has no equations of its own for them: the runtime's.

use kiln_importer::ir::Op;
use kiln_tensor::backend::Backend;
use kiln_tensor::compose::RnnOperands;
use kiln_types::TensorData;

/// The backend, with its own dtypes.
type Cpu = kiln_ndarray::NdArray;

/// What a recurrent layer yields; nothing for other operations.
pub fn evaluate(op: &Op, operands: &[Option<&TensorData>]) -> Option<Vec<TensorData>> {
    let Op::Rnn(options) = op else { return None };
    let operand = |n: usize| {
        let data = operands.get(n).copied().flatten()?;
        Some(Cpu::from_data(data.clone(), &Default::default()))
    };
    let outputs = Cpu::rnn(
        RnnOperands {
            input: operand(0)?,
            weight: operand(1)?,
            recurrent: operand(2)?,
            bias: operand(3),
            sequence_lengths: operand(4),
            initial_hidden: operand(5),
            initial_cell: operand(6),
            peepholes: operand(7),
        },
        options,
    );
    let outputs = [Some(outputs.output), Some(outputs.hidden), outputs.cell];
    outputs.into_iter().flatten().map(|output| Cpu::into_data(output).ok()).collect()
}
