//! `LinearAttention`: attention with a state of one size, as Gated DeltaNet, RetNet and RWKV have it.

use super::heads::head_count;
use super::prelude::*;
use crate::ir::op::may_equal;
use kiln_types::Activation;

pub(super) struct LinearAttention {
    query_heads: i64,
    key_value_heads: i64,
    /// 0 stands for one over the root of a key's size.
    scale: f64,
    decays: bool,
    corrects: bool,
}

impl LinearAttention {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        // How many tokens an implementation takes at once.
        node.ignore(&["chunk_size"]);
        let rules = [
            ("linear", (false, false)),
            ("gated", (true, false)),
            ("delta", (false, true)),
            ("gated_delta", (true, true)),
        ];
        let (decays, corrects) = node.choice("update_rule", "gated_delta", &rules)?;
        let (query_heads, key_value_heads) =
            (head_count(node, "q_num_heads")?, head_count(node, "kv_num_heads")?);
        if query_heads % key_value_heads != 0 {
            let reason = format!("is {query_heads}, must be a multiple of `kv_num_heads`, {key_value_heads}");
            return Err(invalid("q_num_heads", reason));
        }
        Ok(Self { query_heads, key_value_heads, scale: node.float("scale", 0.0)?, decays, corrects })
    }

    /// ONNX Runtime's form, which can return states of several tokens.
    fn read_contrib(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        match node.int("state_window", 0)? {
            0 => Self::read(node),
            window => Err(RuleError::Unsupported { what: format!("`state_window` of {window}") }),
        }
    }

    /// An input that the update rule needs, and others must not have.
    fn gate(&self, args: &Args, name: &str, needed: bool) -> RuleResult<Option<ValueId>> {
        match (args.optional(name)?, needed) {
            (None, true) => Err(RuleError::MissingInput { input: name.to_owned() }),
            (Some(_), false) => Err(invalid("update_rule", format!("does not go with `{name}`"))),
            (gate, _) => Ok(gate),
        }
    }
}

const INPUTS: &[&str] = &["query", "key", "value", "past_state?", "decay?", "beta?"];

impl<'m> Operator<'m> for LinearAttention {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("LinearAttention", 27, INPUTS).reads(Self::read),
        Spec::microsoft("LinearAttention", INPUTS).reads(Self::read_contrib),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let [query, key, value] = [args.value("query")?, args.value("key")?, args.value("value")?];
        let past = args.optional("past_state")?;
        let decay = self.gate(args, "decay", self.decays)?;
        let beta = self.gate(args, "beta", self.corrects)?;
        to.expect_rank("query", query, 3)?;
        let mut dims = to.dims(query);
        let token = [Some(dims[0].clone()), Some(dims[1].clone())];
        let of_tokens = |size: Option<Dim>| [token.as_slice(), &[size]].concat();
        to.expect_dims("key", key, &of_tokens(None))?;
        to.expect_dims("value", value, &of_tokens(None))?;
        let size = |input: &str, value: ValueId, heads: i64| {
            let width = to.dims(value)[2].as_constant();
            let width = width
                .ok_or_else(|| RuleError::NotConstant { input: format!("the last size of `{input}`") })?;
            if width < 1 || width % heads != 0 {
                return Err(misfit(input, format!("has {width} numbers a token for {heads} heads")));
            }
            Ok(width / heads)
        };
        let key_size = size("query", query, self.query_heads)?;
        let value_size = size("value", value, self.key_value_heads)?;
        if size("key", key, self.key_value_heads)? != key_size {
            return Err(misfit("key", format!("has heads of another size than the queries', {key_size}")));
        }
        let scale = if self.scale == 0.0 { 1.0 / (key_size as f64).sqrt() } else { self.scale };
        let batch = dims[0].clone();
        let heads = Dim::from(self.key_value_heads);
        // A gate has a number for each head, or for more of them (decays), or one for all of them.
        let gates = [("decay", decay, &heads * &Dim::from(key_size)), ("beta", beta, Dim::constant(1))];
        for (input, gate, other) in gates {
            let Some(gate) = gate else { continue };
            to.expect_rank(input, gate, 3)?;
            let fits = may_equal(&to.dims(gate)[2], &other);
            to.expect_dims(input, gate, &of_tokens(Some(if fits { other } else { heads.clone() })))?;
        }
        if let Some(past) = past {
            let state = [batch.clone(), heads.clone(), Dim::from(key_size), Dim::from(value_size)];
            to.expect_dims("past_state", past, &state.map(Some))?;
        }
        dims[2] = &Dim::from(self.query_heads) * &Dim::from(value_size);
        let result = to.ty(query).with_dims(dims);
        let state_dims = vec![batch, heads, Dim::from(key_size), Dim::from(value_size)];
        let state = to.ty(past.unwrap_or(query)).with_dims(state_dims);
        let mut operands = vec![query, key, value];
        let mut option = |value: Option<_>| {
            Arg::option(value.map(|value| {
                operands.push(value);
                Arg::Operand(operands.len() - 1)
            }))
        };
        let [past, decay, beta] = [past, decay, beta].map(&mut option);
        let options = Arg::fields(
            "tensor::module::LinearAttentionOptions",
            [
                ("query_heads", Arg::Int(self.query_heads)),
                ("key_value_heads", Arg::Int(self.key_value_heads)),
                ("scale", Arg::Float(scale)),
            ],
        );
        let arguments = [Arg::Operand(0), Arg::Operand(1), Arg::Operand(2), past, decay, beta, options];
        let call = Call::new("tensor::module::linear_attention", arguments);
        Ok(to.call_all(call, &operands, vec![result, state])?.into())
    }
}

/// The gates of `LinearAttention` from their projections.
pub(super) struct LinearAttentionGate;

impl<'m> Operator<'m> for LinearAttentionGate {
    const FORMS: Forms<'m, Self> =
        &[Spec::microsoft("LinearAttentionGate", &["a", "dt_bias", "decay_scale", "b?"]).reads(|_| Ok(Self))];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (a, bias, scale) = (args.value("a")?, args.value("dt_bias")?, args.value("decay_scale")?);
        let dtype = to.dtype(a);
        // A sum of decays is what an exponential is taken of.
        let decay = to.formula(|f| {
            let [a, bias, scale] = f.values([a, bias, scale]).map(|value| value.cast(DType::F32));
            (scale * (a + bias).activation(Activation::Softplus)).cast(dtype)
        })?;
        let mut outputs = vec![decay];
        if let Some(b) = args.optional("b")? {
            outputs.push(to.activation(Activation::Sigmoid, b)?);
        }
        Ok(outputs.into())
    }
}
