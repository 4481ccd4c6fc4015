//! Recurrent layers.

use super::{attribute, need, need_equal, need_float, of_rank, same_dtype};
use crate::ir::{Dim, Infer, RuleResult, TensorType};
use kiln_types::{RnnKind, RnnOptions};

pub(super) fn rnn(cx: &mut Infer<'_>, options: &RnnOptions) -> RuleResult<Vec<TensorType>> {
    let x = of_rank(cx, 0, "X", 3)?;
    need_float("X", x)?;
    if options.hidden_size == 0 {
        return Err(attribute("hidden_size", "is 0"));
    }
    let hidden = Dim::from(options.hidden_size);
    let rows = &Dim::from(options.kind.gates()) * &hidden;
    let (batch, seq) = if options.batch_first { (&x.dims[0], &x.dims[1]) } else { (&x.dims[1], &x.dims[0]) };
    let directions = Dim::from(options.direction.count());
    let state = [&directions, batch, &hidden];
    let state = if options.batch_first { [state[1], state[0], state[2]] } else { state };

    // Name, dims, whether it must be there.
    let two = Dim::constant(2);
    let three = Dim::constant(3);
    let operands: [(&str, Vec<Dim>, bool); 7] = [
        ("W", vec![directions.clone(), rows.clone(), x.dims[2].clone()], true),
        ("R", vec![directions.clone(), rows.clone(), hidden.clone()], true),
        ("B", vec![directions.clone(), &two * &rows], false),
        ("sequence_lens", vec![batch.clone()], false),
        ("initial_h", state.map(Clone::clone).to_vec(), false),
        ("initial_c", state.map(Clone::clone).to_vec(), false),
        ("P", vec![directions.clone(), &three * &hidden], false),
    ];
    for (n, (name, dims, required)) in operands.into_iter().enumerate() {
        let Some(ty) = cx.optional(n + 1) else {
            if required {
                cx.ty(n + 1)?;
            }
            continue;
        };
        of_rank(cx, n + 1, name, dims.len())?;
        if name == "sequence_lens" {
            need(name, ty, ty.dtype.is_int(), "expected an integer")?;
        } else {
            same_dtype("X", x, name, ty)?;
        }
        let wanted = ty.with_dims(dims);
        for (a, b) in ty.dims.iter().zip(&wanted.dims) {
            need_equal(name, a, ty, b, &wanted)?;
        }
    }
    let all = if options.batch_first {
        vec![batch.clone(), seq.clone(), directions.clone(), hidden.clone()]
    } else {
        vec![seq.clone(), directions.clone(), batch.clone(), hidden.clone()]
    };
    let state = x.with_dims(state.map(Clone::clone).to_vec());
    let mut types = vec![x.with_dims(all), state.clone()];
    if matches!(options.kind, RnnKind::Lstm { .. }) {
        types.push(state);
    }
    Ok(types)
}
