//! `MoE`: each token goes through a few of many small networks, its experts, which a router's scores choose.
//!
//! Tokens are sorted by their experts, so that the matrices of each are multiplied by the rows of its own tokens alone.

use super::grouped_matmul::grouped_product;
use super::prelude::*;
use super::top_k::{Order, first_of_order};
use crate::ir::{AxisRange, op};
use kiln_types::{Activation, ArgReduceOp, ScatterOp};

pub(super) struct Moe(Mixture);

impl<'m> Operator<'m> for Moe {
    const FORMS: Forms<'m, Self> = &[Spec::microsoft(
        "MoE",
        &[
            "input",
            "router_probs",
            "fc1_experts_weights",
            "fc1_experts_bias?",
            "fc2_experts_weights",
            "fc2_experts_bias?",
            "fc3_experts_weights?",
            "fc3_experts_bias?",
        ],
    )
    .reads(|node| Mixture::read(node).map(Self))];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let sizes = self.0.sizes(args, to)?;
        let matrices = Matrices {
            first: args.value("fc1_experts_weights")?,
            second: args.value("fc2_experts_weights")?,
            third: args.optional("fc3_experts_weights")?,
            // What chooses the experts weighs them, too.
            router_weights: None,
        };
        self.0.lower(args, to, sizes, matrices)
    }
}

/// How scores choose experts, and how much each of them counts.
enum Routing {
    /// A softmax over all experts; whether those of the chosen ones are made to add up to 1.
    Softmax { normalized: bool },
    /// Phi-3.5's: two experts, each by a softmax over those whose scores come close to its own.
    SparseMixer,
}

/// What is computed between the two products of an expert.
#[derive(Clone, Copy)]
enum Inner {
    /// An activation; of the third matrix's product, if there is one, that many parts are let through.
    Plain(Option<Activation>),
    SquaredRelu,
    /// One half gates the other.
    Gated(Gate, Halves),
}

#[derive(Clone, Copy)]
enum Gate {
    SwiGlu { alpha: f64, beta: f64, limit: Option<f64>, limits_activated: bool },
    GeGlu,
}

/// Where the half that gates and the half that is gated are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Halves {
    /// Products of the first and the third matrix.
    Apart,
    /// Rows of the first matrix in turn.
    InTurn,
    /// One behind the other in the first matrix.
    Joined,
}

/// What says how tokens go through experts, whatever the matrices of these are kept as.
pub(super) struct Mixture {
    /// Experts for each token.
    k: usize,
    routing: Routing,
    inner: Inner,
}

/// Sizes of a mixture of experts.
pub(super) struct Sizes {
    tokens: Dim,
    experts: Dim,
    /// Numbers of a token.
    hidden: Dim,
    /// Rows of the first matrix.
    first: Dim,
    /// Numbers between the two products.
    inner: Dim,
}

/// Matrices of all experts, `[experts, out, in]`.
pub(super) struct Matrices {
    pub(super) first: ValueId,
    pub(super) second: ValueId,
    pub(super) third: Option<ValueId>,
    /// What experts are weighed by, if not by what chooses them.
    pub(super) router_weights: Option<ValueId>,
}

/// Which rows go through which expert: a row for each token and each of its experts.
struct Rows {
    /// `[rows]`, sorted.
    expert: ValueId,
    /// `[rows]`: the token of each.
    token: ValueId,
    /// `[experts]`: where the rows of each end.
    ends: ValueId,
    /// `[rows, 1]`: how much each counts.
    weight: ValueId,
}

impl Mixture {
    pub(super) fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let k = node.size("k", 1)?;
        if k == 0 {
            return Err(invalid("k", "is 0, must be at least 1"));
        }
        let normalized = node.flag("normalize_routing_weights", false)?;
        let routing = match node.flag("use_sparse_mixer", false)? {
            true if k != 2 => {
                return Err(invalid("use_sparse_mixer", format!("chooses 2 experts, and `k` is {k}")));
            }
            true => Routing::SparseMixer,
            false => Routing::Softmax { normalized },
        };
        let swi_glu = Gate::SwiGlu {
            alpha: node.float("activation_alpha", 1.0)?,
            beta: node.float("activation_beta", 0.0)?,
            limit: node.optional_float("swiglu_limit")?,
            limits_activated: node.flag("swiglu_limit_after_activation", false)?,
        };
        let halves = match node.int("swiglu_fusion", 0)? {
            0 => Halves::Apart,
            1 => Halves::InTurn,
            2 => Halves::Joined,
            other => return Err(invalid("swiglu_fusion", format!("is {other}, must be 0, 1 or 2"))),
        };
        let plain = |activation| Inner::Plain(Some(activation));
        let kinds = [
            ("relu", plain(Activation::Relu)),
            ("gelu", plain(Activation::GeluTanh)),
            ("silu", plain(Activation::Silu)),
            ("identity", Inner::Plain(None)),
            ("relu2", Inner::SquaredRelu),
            ("swiglu", Inner::Gated(swi_glu, halves)),
            ("geglu", Inner::Gated(Gate::GeGlu, halves)),
        ];
        let inner = node.choice("activation_type", "relu", &kinds)?;
        if matches!(inner, Inner::Gated(Gate::GeGlu, Halves::Apart)) {
            return Err(invalid("swiglu_fusion", "is 0, must be 1 or 2 for `geglu`"));
        }
        Ok(Self { k, routing, inner })
    }

    /// The sizes that tokens, scores and the first matrix tell; all other operands must have them.
    pub(super) fn sizes(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Sizes> {
        let (x, scores) = (args.value("input")?, args.value("router_probs")?);
        if !matches!(to.rank(x), 2 | 3) {
            let expected = "expected 2 or 3".to_owned();
            return Err(RuleError::Rank { input: "input".to_owned(), actual: to.rank(x), expected });
        }
        for name in ["fc1_experts_weights", "fc2_experts_weights"] {
            to.expect_rank(name, args.value(name)?, 3)?;
        }
        to.expect_rank("router_probs", scores, 2)?;
        let (dims, first) = (to.dims(x), to.dims(args.value("fc1_experts_weights")?)[1].clone());
        let experts = to.dims(scores)[1].clone();
        if experts.as_size().is_some_and(|experts| self.k > experts) {
            return Err(misfit("k", format!("is {}, and there are {experts} experts", self.k)));
        }
        let halves = match self.inner {
            Inner::Gated(_, Halves::InTurn | Halves::Joined) => 2,
            Inner::Gated(_, Halves::Apart) | Inner::Plain(_) | Inner::SquaredRelu => 1,
        };
        let inner = match (first.as_size(), halves) {
            (_, 1) => first.clone(),
            (Some(size), _) if size % halves == 0 => Dim::from(size / halves),
            _ => {
                return Err(misfit("fc1_experts_weights", format!("has {first} rows, which have no halves")));
            }
        };
        let tokens = Dim::product(&dims[..dims.len() - 1]);
        let sizes = Sizes { tokens, experts, hidden: dims[dims.len() - 1].clone(), first, inner };
        to.expect_dims(
            "router_probs",
            scores,
            &[&sizes.tokens, &sizes.experts].map(|dim| Some(dim.clone())),
        )?;
        Ok(sizes)
    }

    pub(super) fn lower(
        &self,
        args: &Args,
        to: &mut Lowering<'_, '_>,
        sizes: Sizes,
        matrices: Matrices,
    ) -> RuleResult<Outputs> {
        let input = args.value("input")?;
        let Sizes { tokens, experts, hidden, first, inner } = &sizes;
        let x = to.reshape(input, vec![tokens.clone(), hidden.clone()])?;
        let rows = self.rows(args, to, &sizes, &matrices)?;
        let of_rows = to.add(Op::Take(op::Take { axis: 0, wrapped: false }), &[x, rows.token])?;
        let product = |to: &mut Lowering<'_, '_>, name: &str, x, weight, [columns, depth]: [&Dim; 2]| {
            let dims = [experts, columns, depth].map(|dim| Some(dim.clone()));
            to.expect_dims(&format!("{name}_experts_weights"), weight, &dims)?;
            let weight = to.permute(weight, vec![0, 2, 1])?;
            let y = grouped_product(to, x, weight, rows.ends)?;
            let bias_name = format!("{name}_experts_bias");
            let Some(bias) = args.optional(&bias_name)? else { return Ok(y) };
            to.expect_dims(&bias_name, bias, &[experts, columns].map(|dim| Some(dim.clone())))?;
            let bias = to.add(Op::Take(op::Take { axis: 0, wrapped: false }), &[bias, rows.expert])?;
            to.binary(BinaryOp::Add, y, bias)
        };
        let y = product(to, "fc1", of_rows, matrices.first, [first, hidden])?;
        let third = match matrices.third {
            Some(_) if matches!(self.inner, Inner::Gated(_, Halves::InTurn | Halves::Joined)) => {
                return Err(invalid("swiglu_fusion", "does not go with `fc3_experts_weights`"));
            }
            Some(third) => Some(product(to, "fc3", of_rows, third, [inner, hidden])?),
            None => None,
        };
        let y = self.inner.lower(to, y, third, inner)?;
        let y = product(to, "fc2", y, matrices.second, [hidden, inner])?;
        let y = to.binary(BinaryOp::Mul, y, rows.weight)?;
        let zeros = to.fill(vec![tokens.clone(), hidden.clone()], 0.0, to.dtype(x))?;
        let add = op::SelectAssign { axis: 0, op: ScatterOp::Add };
        let y = to.add(Op::SelectAssign(add), &[zeros, rows.token, y])?;
        let dims = to.dims(input);
        Ok(to.reshape(y, dims)?.into())
    }

    /// Sorts tokens by the experts that their scores choose.
    fn rows(
        &self,
        args: &Args,
        to: &mut Lowering<'_, '_>,
        sizes: &Sizes,
        matrices: &Matrices,
    ) -> RuleResult<Rows> {
        let (input, scores) = (args.value("input")?, args.value("router_probs")?);
        let (weights, chosen) = self.chosen(to, scores, matrices.router_weights)?;
        let count = &sizes.tokens * &Dim::from(self.k);
        let chosen = to.reshape(chosen, vec![count.clone()])?;
        let [expert, order] = first_of_order(to, chosen, count.clone(), 0, Order::Rising)?;
        let weights = to.reshape(weights, vec![count, Dim::constant(1)])?;
        let weight = to.add(Op::Take(op::Take { axis: 0, wrapped: false }), &[weights, order])?;
        let weight = to.cast(weight, to.dtype(input))?;
        let token = match self.k {
            1 => order,
            k => {
                let k = to.number_like(order, k as i64);
                to.binary(BinaryOp::Div, order, k)?
            }
        };
        // How many rows are those of this expert and those before it.
        let next = to.range_along([Dim::constant(1), &sizes.experts + &Dim::constant(1)], 0, 2)?;
        let line = to.unsqueeze(expert, &[0])?;
        let ends = to.formula(|f| {
            f.value(line).less(f.value(next)).cast(DType::I64).reduce_squeezed(ReduceOp::Sum, &[1])
        })?;
        Ok(Rows { expert, token, ends, weight })
    }

    /// How much each expert of a token counts, and which they are, `[tokens, k]` both. Of experts with equal scores the first is taken;
    /// ONNX Runtime takes that on a GPU, and the last on a CPU.
    fn chosen(
        &self,
        to: &mut Lowering<'_, '_>,
        scores: ValueId,
        other_weights: Option<ValueId>,
    ) -> RuleResult<(ValueId, ValueId)> {
        let scores = match to.dtype(scores) {
            DType::F16 | DType::BF16 => to.cast(scores, DType::F32)?,
            _ => scores,
        };
        let normalized = match (&self.routing, other_weights) {
            (Routing::Softmax { normalized }, _) => *normalized,
            (Routing::SparseMixer, None) => return sparse_mixer(to, scores),
            (Routing::SparseMixer, Some(_)) => {
                return Err(invalid("use_sparse_mixer", "does not go with `router_weights`"));
            }
        };
        let probabilities = to.add(Op::Softmax(op::Softmax { axis: 1 }), &[scores])?;
        let [weights, chosen] = first_of_order(to, probabilities, Dim::from(self.k), 1, Order::Falling)?;
        let weights = match other_weights {
            Some(all) => {
                let dims: Vec<Option<Dim>> = to.dims(scores).into_iter().map(Some).collect();
                to.expect_dims("router_weights", all, &dims)?;
                let all = to.cast(all, to.dtype(weights))?;
                to.add(Op::Gather(op::Gather { axis: 1 }), &[all, chosen])?
            }
            None => weights,
        };
        let weights = match normalized {
            true => to.formula(|f| f.value(weights) / f.value(weights).sum(&[1]))?,
            false => weights,
        };
        Ok((weights, chosen))
    }
}

impl Inner {
    fn lower(
        self,
        to: &mut Lowering<'_, '_>,
        y: ValueId,
        third: Option<ValueId>,
        size: &Dim,
    ) -> RuleResult<ValueId> {
        let y = match self {
            Self::Plain(None) => y,
            Self::Plain(Some(activation)) => to.activation(activation, y)?,
            Self::SquaredRelu => to.formula(|f| f.value(y).activation(Activation::Relu).square())?,
            Self::Gated(gate, Halves::Apart) => {
                let input = "fc3_experts_weights".to_owned();
                return gate.lower(to, [y, third.ok_or(RuleError::MissingInput { input })?]);
            }
            Self::Gated(gate, halves) => {
                let halves = halves.of(to, y, size)?;
                return gate.lower(to, halves);
            }
        };
        third.map_or(Ok(y), |third| to.binary(BinaryOp::Mul, y, third))
    }
}

impl Halves {
    /// The gate, and what it gates.
    fn of(self, to: &mut Lowering<'_, '_>, y: ValueId, size: &Dim) -> RuleResult<[ValueId; 2]> {
        let ranges = to.full_ranges(y);
        let end = &ranges[1].end;
        let mut part = |start: Dim, end: &Dim, step: i64| {
            let ranges = vec![ranges[0].clone(), AxisRange { start, end: end.clone(), step }];
            to.add(Op::Slice(op::Slice { ranges }), &[y])
        };
        let [zero, one] = [0, 1].map(Dim::constant);
        Ok(match self {
            Self::InTurn => [part(zero, end, 2)?, part(one, end, 2)?],
            Self::Joined | Self::Apart => [part(zero, size, 1)?, part(size.clone(), end, 1)?],
        })
    }
}

impl Gate {
    fn lower(self, to: &mut Lowering<'_, '_>, [gate, gated]: [ValueId; 2]) -> RuleResult<ValueId> {
        to.formula(|f| {
            let [gate, gated] = f.values([gate, gated]);
            let Self::SwiGlu { alpha, beta, limit, limits_activated } = self else {
                return gate.activation(Activation::GeluTanh) * gated;
            };
            let (before, after) = if limits_activated { (None, limit) } else { (limit, None) };
            let gate = at_most(gate, before);
            let gate = match alpha {
                1.0 => gate.activation(Activation::Silu),
                _ => gate * (gate * alpha).activation(Activation::Sigmoid),
            };
            let gated = match limit {
                Some(limit) => gated.clamp(-limit, limit),
                None => gated,
            };
            let gated = if beta == 0.0 { gated } else { gated + beta };
            at_most(gate, after) * gated
        })
    }
}

fn at_most(x: Value<'_>, limit: Option<f64>) -> Value<'_> {
    limit.map_or(x, |limit| x.min(limit))
}

/// The mixer's two rounds: `softmax(scores)` of the highest one, among those that are less than two hundredths below it. The second
/// round knows nothing of the first one's expert.
fn sparse_mixer(to: &mut Lowering<'_, '_>, scores: ValueId) -> RuleResult<(ValueId, ValueId)> {
    let highest = |to: &mut Lowering<'_, '_>, left: ValueId| {
        let largest = op::ArgReduce { op: ArgReduceOp::Max, axis: 1, keep_dims: true, select_last: false };
        let chosen = to.add(Op::ArgReduce(largest), &[left])?;
        let weight = to.formula(|f| {
            let [scores, left] = f.values([scores, left]);
            let best = left.reduce(ReduceOp::Max, &[1]);
            let far = ((best - scores) / scores.abs().max(best)).greater(2.0 * MIXER_TOLERANCE);
            let close = far.where_(left.number(f64::NEG_INFINITY), left);
            close.then(|to, x| to.add(Op::Softmax(op::Softmax { axis: 1 }), &[x])).reduce(ReduceOp::Max, &[1])
        })?;
        Ok((weight, chosen))
    };
    let (weight, chosen) = highest(to, scores)?;
    let places = to.range_along([Dim::constant(0), to.dims(scores)[1].clone()], 1, 2)?;
    let others = to.formula(|f| {
        let [scores, chosen, places] = f.values([scores, chosen, places]);
        places.equals(chosen).where_(scores.number(f64::NEG_INFINITY), scores)
    })?;
    let (second_weight, second) = highest(to, others)?;
    Ok((to.concat(&[weight, second_weight], 1)?, to.concat(&[chosen, second], 1)?))
}

/// Phi-3.5's `router_jitter_noise`, which ONNX Runtime has as a constant.
const MIXER_TOLERANCE: f64 = 0.01;
