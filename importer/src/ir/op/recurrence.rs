//! Recurrent layers, in ONNX's layouts.

use super::prelude::*;
use kiln_types::{RnnDirection, RnnKind, RnnOptions};

/// Yields all outputs, the last hidden state, and for an LSTM the last cell state.
impl Operation for RnnOptions {
    facts!(operands: ["input", "weight", "recurrent", "bias?", "sequence_lengths?", "initial_hidden?", "initial_cell?", "peepholes?"], parameters: [1, 2, 3, 7], effect: Pure, folding: Never, result: Computed);
    none!(host, evaluate, derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let options = self;
        let x = of_rank(cx, 0, "X", 3)?;
        need_float("X", x)?;
        if options.hidden_size == 0 {
            return Err(attribute("hidden_size", "is 0"));
        }
        let hidden = Dim::from(options.hidden_size);
        let rows = &Dim::from(options.kind.gates()) * &hidden;
        let (batch, seq) =
            if options.batch_first { (&x.dims[0], &x.dims[1]) } else { (&x.dims[1], &x.dims[0]) };
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

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        let usual = self.kind.activations().repeat(self.direction.count());
        let plain = self.clip.is_none()
            && self.state_clip.is_none()
            && cx.input(4).is_none()
            && cx.input(7).is_none()
            && self.activations == usual;
        let function = match self.kind {
            RnnKind::Rnn => "rnn",
            RnnKind::Gru { linear_before_reset: true } => "gru",
            RnnKind::Lstm { input_forget: false } => "lstm",
            RnnKind::Gru { linear_before_reset: false } | RnnKind::Lstm { input_forget: true } => {
                return None;
            }
        };
        let (x, hidden, directions) = (cx.shape(0)?, self.hidden_size, self.direction.count());
        let (&[first, second, input], true) = (x.as_slice(), plain) else { return None };
        let (batch, steps) = if self.batch_first { (first, second) } else { (second, first) };
        // Where the next batch and the next step are in the input, the next batch, step and direction in the results, and the next batch and direction in the states.
        let (of_input, of_result, of_state) = match self.batch_first {
            true => (
                [steps * input, input],
                [steps * directions * hidden, directions * hidden, hidden],
                [directions * hidden, hidden],
            ),
            false => (
                [input, batch * input],
                [hidden, directions * batch * hidden, batch * hidden],
                [hidden, batch * hidden],
            ),
        };
        let sizes = KernelArg::Fields(
            "Recurrent",
            vec![
                ("batch", KernelArg::Size(batch)),
                ("steps", KernelArg::Size(steps)),
                ("input", KernelArg::Size(input)),
                ("hidden", KernelArg::Size(hidden)),
                ("directions", KernelArg::Size(directions)),
                ("reverse", KernelArg::Bool(self.direction == RnnDirection::Reverse)),
                ("of_input", KernelArg::Sizes(of_input.to_vec())),
                ("of_result", KernelArg::Sizes(of_result.to_vec())),
                ("of_state", KernelArg::Sizes(of_state.to_vec())),
            ],
        );
        let mut args =
            vec![KernelArg::Operand(0), KernelArg::Operand(1), KernelArg::Operand(2), KernelArg::Optional(3)];
        args.push(KernelArg::Optional(5));
        if matches!(self.kind, RnnKind::Lstm { .. }) {
            args.push(KernelArg::Optional(6));
        }
        args.extend([sizes, KernelArg::Scratch(2 * self.kind.gates() * hidden)]);
        Some(Loops::kernel(function, args))
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        let call = || Implementation::Call(function(self, cx));
        layer(self, cx).map_or_else(call, Implementation::Layer)
    }
}

/// The layer, where weights are constants and the cell is the usual one.
fn layer(options: &RnnOptions, cx: &Site<'_>) -> Option<Layer> {
    let constant = |n: usize| cx.input(n).filter(|_| cx.is_constant(n));
    let (weight, recurrent) = (constant(1)?, constant(2)?);
    let usual = options.kind.activations().repeat(options.direction.count());
    let plain = options.clip.is_none()
        && options.state_clip.is_none()
        && cx.input(7).is_none()
        && options.activations == usual;
    if !plain || cx.input(3).is_some() && constant(3).is_none() {
        return None;
    }
    let &[_, _, d_input] = cx.shape(1)?.as_slice() else { return None };
    let mut sizes = vec![Arg::named("d_input", d_input), Arg::named("d_hidden", options.hidden_size)];
    let constructor = match options.kind {
        RnnKind::Rnn => "rnn",
        RnnKind::Gru { linear_before_reset: true } => "gru",
        RnnKind::Lstm { input_forget: false } => "lstm",
        kind => {
            sizes.push(Arg::options(&kind));
            "new"
        }
    };
    let forward = options.direction == RnnDirection::Forward;
    let bias = cx.input(3).is_some();
    let config = Config::by(&layers::RECURRENT, constructor, sizes)
        .with("direction", Arg::options(&options.direction), forward)
        .with("bias", Arg::Bool(bias), bias)
        .with("batch_first", Arg::Bool(options.batch_first), !options.batch_first);
    let from_nothing = (4..7).all(|n| cx.input(n).is_none());
    let lstm = matches!(options.kind, RnnKind::Lstm { .. });
    let (method, mut args) = match (lstm, from_nothing) {
        (false, true) => ("forward", Vec::new()),
        (true, true) => ("forward_lstm", Vec::new()),
        (false, false) => ("forward_from", vec![cx.option(5), cx.option(4)]),
        (true, false) => ("forward_lstm_from", vec![cx.option(5), cx.option(6), cx.option(4)]),
    };
    args.insert(0, Arg::Operand(0));
    let parameters = [Some(weight), Some(recurrent), cx.input(3)];
    Some(Layer::new(config, parameters, function(options, cx)).called(method, args))
}

/// The same as a call with everything spelt out.
fn function(options: &RnnOptions, cx: &Site<'_>) -> Arg {
    const OPTIONAL: [&str; 5] = ["bias", "sequence_lengths", "initial_hidden", "initial_cell", "peepholes"];
    let required = ["input", "weight", "recurrent"];
    let required = required.into_iter().enumerate().map(|(n, name)| (name, Arg::Operand(n)));
    let optional = OPTIONAL.into_iter().enumerate().map(|(n, name)| (name, cx.option(n + 3)));
    let operands = required.chain(optional).map(|(name, operand)| (name.into(), operand)).collect();
    let function = match options.kind {
        RnnKind::Lstm { .. } => "tensor::module::lstm",
        RnnKind::Rnn | RnnKind::Gru { .. } => "tensor::module::rnn",
    };
    let operands = Arg::Struct("tensor::module::RnnInputs".into(), operands);
    Arg::call(function, [operands, Arg::options(options)])
}
