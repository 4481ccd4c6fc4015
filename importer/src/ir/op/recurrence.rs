//! Recurrent layers, in ONNX's layouts.

use super::activation::activate;
use super::prelude::*;
use kiln_types::{Activation, DType, RnnDirection, RnnKind, RnnOptions};

/// Yields all outputs, the last hidden state, and for an LSTM the last cell state.
impl Operation for RnnOptions {
    facts!(operands: ["input", "weight", "recurrent", "bias?", "sequence_lengths?", "initial_hidden?", "initial_cell?", "peepholes?"], parameters: [1, 2, 3, 7], effect: Pure, folding: Never);
    none!(host);

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

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        rnn(operands.operands, self)
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        let call = || Implementation::Call(function(self, cx));
        layer(self, cx).map_or_else(call, Implementation::Layer)
    }
}

/// Operands as numbers; one direction's part of each is a run of rows.
struct Cell<'a> {
    options: &'a RnnOptions,
    activations: Vec<Activation>,
    input: usize,
    weight: &'a [f64],
    recurrent: &'a [f64],
    bias: &'a [f64],
    peepholes: &'a [f64],
}

impl Cell<'_> {
    fn act(&self, n: usize, x: f64) -> f64 {
        let x = self.options.clip.map_or(x, |clip| x.clamp(-clip, clip));
        self.activations.get(n).map_or(x, |&activation| activate(activation, x))
    }

    /// What the cell carries on.
    fn bounded(&self, state: f64) -> f64 {
        self.options.state_clip.map_or(state, |clip| state.clamp(-clip, clip))
    }

    /// `W x + Wb` (or `R h + Rb`) of one gate's unit.
    fn dot(&self, matrix: &[f64], row: usize, x: &[f64], bias: usize) -> f64 {
        let row = &matrix[row * x.len()..(row + 1) * x.len()];
        row.iter().zip(x).map(|(a, b)| a * b).sum::<f64>() + self.bias.get(bias).copied().unwrap_or(0.0)
    }

    /// The next hidden state; `cell` is updated in place.
    fn step(&self, x: &[f64], h: &[f64], cell: &mut [f64]) -> Vec<f64> {
        let size = self.options.hidden_size;
        let gates = self.weight.len() / size / self.input.max(1);
        let from_x = |gate: usize, i: usize| self.dot(self.weight, gate * size + i, x, gate * size + i);
        let from_h = |gate: usize, i: usize, h: &[f64]| {
            self.dot(self.recurrent, gate * size + i, h, (gates + gate) * size + i)
        };
        let peep = |part: usize, i: usize| self.peepholes.get(part * size + i).copied().unwrap_or(0.0);
        match self.options.kind {
            RnnKind::Rnn => {
                (0..size).map(|i| self.bounded(self.act(0, from_x(0, i) + from_h(0, i, h)))).collect()
            }
            RnnKind::Gru { linear_before_reset } => {
                let reset: Vec<f64> =
                    (0..size).map(|i| self.act(0, from_x(1, i) + from_h(1, i, h))).collect();
                let faded: Vec<f64> = h.iter().zip(&reset).map(|(h, r)| h * r).collect();
                let unit = |i: usize| {
                    let z = self.act(0, from_x(0, i) + from_h(0, i, h));
                    let past =
                        if linear_before_reset { reset[i] * from_h(2, i, h) } else { from_h(2, i, &faded) };
                    let new = self.act(1, from_x(2, i) + past);
                    self.bounded((1.0 - z) * new + z * h[i])
                };
                (0..size).map(unit).collect()
            }
            RnnKind::Lstm { input_forget } => {
                let mut next = Vec::with_capacity(size);
                for (i, state) in cell.iter_mut().enumerate() {
                    let old = *state;
                    let input = self.act(0, from_x(0, i) + from_h(0, i, h) + peep(0, i) * old);
                    let forget = match input_forget {
                        true => 1.0 - input,
                        false => self.act(0, from_x(2, i) + from_h(2, i, h) + peep(2, i) * old),
                    };
                    let new = self.act(1, from_x(3, i) + from_h(3, i, h));
                    let c = self.bounded(forget * old + input * new);
                    let output = self.act(0, from_x(1, i) + from_h(1, i, h) + peep(1, i) * c);
                    *state = c;
                    next.push(output * self.activations.get(2).map_or(c, |&a| activate(a, c)));
                }
                next
            }
        }
    }
}

fn rnn(operands: &[Option<&TensorData>], options: &RnnOptions) -> Option<Vec<TensorData>> {
    let data = |n: usize| operands.get(n).copied().flatten();
    let floats = |n: usize| data(n).map(|data| Elements::load(data).floats());
    let x = data(0)?;
    let [first, second, input] = *x.shape.as_slice() else {
        return None;
    };
    let (batch, seq) = if options.batch_first { (first, second) } else { (second, first) };
    let directions = options.direction.count();
    let size = options.hidden_size;
    let (xs, ws, rs) = (floats(0)?, floats(1)?, floats(2)?);
    let (bs, peeps) = (floats(3).unwrap_or_default(), floats(7).unwrap_or_default());
    let lengths = floats(4);
    let (h0, c0) = (floats(5), floats(6));
    let state_at = |d: usize, b: usize| if options.batch_first { b * directions + d } else { d * batch + b };
    let start = |state: &Option<Vec<f64>>, d: usize, b: usize| match state {
        Some(state) => state[state_at(d, b) * size..][..size].to_vec(),
        None => vec![0.0; size],
    };
    let mut all = vec![0.0; seq * directions * batch * size];
    let mut last_h = vec![0.0; directions * batch * size];
    let mut last_c = last_h.clone();
    for d in 0..directions {
        let part = |v: &[f64]| v.len() / directions * d..v.len() / directions * (d + 1);
        let per = options.activations.len() / directions;
        let cell = Cell {
            options,
            activations: options.activations[per * d..per * (d + 1)].to_vec(),
            input,
            weight: &ws[part(&ws)],
            recurrent: &rs[part(&rs)],
            bias: &bs[part(&bs)],
            peepholes: &peeps[part(&peeps)],
        };
        let backwards = d == 1 || options.direction == RnnDirection::Reverse;
        for b in 0..batch {
            let (mut h, mut c) = (start(&h0, d, b), start(&c0, d, b));
            let length = lengths.as_ref().map_or(seq, |lengths| (lengths[b] as usize).min(seq));
            for step in 0..length {
                let t = if backwards { length - 1 - step } else { step };
                let row = if options.batch_first { b * seq + t } else { t * batch + b };
                h = cell.step(&xs[row * input..(row + 1) * input], &h, &mut c);
                let at = match options.batch_first {
                    true => (b * seq + t) * directions + d,
                    false => (t * directions + d) * batch + b,
                };
                all[at * size..(at + 1) * size].copy_from_slice(&h);
            }
            let at = state_at(d, b) * size;
            last_h[at..at + size].copy_from_slice(&h);
            last_c[at..at + size].copy_from_slice(&c);
        }
    }
    let store = |v: Vec<f64>, shape: Vec<usize>, dtype: DType| Elements::Float(v).store(dtype, shape);
    let (all_shape, state) = match options.batch_first {
        true => (vec![batch, seq, directions, size], vec![batch, directions, size]),
        false => (vec![seq, directions, batch, size], vec![directions, batch, size]),
    };
    let mut outputs = vec![store(all, all_shape, x.dtype), store(last_h, state.clone(), x.dtype)];
    if matches!(options.kind, RnnKind::Lstm { .. }) {
        outputs.push(store(last_c, state, x.dtype));
    }
    Some(outputs)
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
        RnnKind::Rnn => "nn::RecurrentConfig::rnn",
        RnnKind::Gru { linear_before_reset: true } => "nn::RecurrentConfig::gru",
        RnnKind::Lstm { input_forget: false } => "nn::RecurrentConfig::lstm",
        kind => {
            sizes.push(Arg::options(&kind));
            "nn::RecurrentConfig::new"
        }
    };
    let forward = options.direction == RnnDirection::Forward;
    let bias = cx.input(3).is_some();
    let config = Config::new(constructor, sizes)
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
    Some(Layer {
        ty: "nn::Recurrent",
        generic: true,
        config,
        fields: vec![
            ("weight", LayerField::Parameter(weight)),
            ("recurrent", LayerField::Parameter(recurrent)),
            ("bias", LayerField::Optional(cx.input(3))),
            ("kind", LayerField::Constant),
            ("direction", LayerField::Constant),
            ("batch_first", LayerField::Constant),
        ],
        method,
        args,
        function: function(options, cx),
    })
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
        _ => "tensor::module::rnn",
    };
    let operands = Arg::Struct("tensor::module::RnnInputs".into(), operands);
    Arg::call(function, [operands, Arg::options(options)])
}
