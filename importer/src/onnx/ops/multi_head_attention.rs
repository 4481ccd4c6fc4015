//! `MultiHeadAttention`, and `Attention` of ONNX Runtime's domain, which computes queries, keys and values first; `QAttention`
//! computes them of integers.

use super::heads::{dims_of, head_count, positions, scaled, split_heads, together, without_heads};
use super::matmul::product;
use super::matmul_integer::integer_product;
use super::prelude::*;
use super::quantization::single;
use kiln_types::AttentionOptions;

pub(super) struct MultiHeadAttention {
    heads: i64,
    options: AttentionOptions,
    /// What is added to the scores of keys that the mask hides.
    hidden: f64,
    kind: Kind,
}

/// What its inputs are.
enum Kind {
    Projected,
    /// One input, and how wide queries, keys and values are that a product makes of it; a third of all each unless given.
    Projects {
        sizes: Option<Vec<i64>>,
    },
    /// Likewise, where the product is one of integers under scales.
    ProjectsIntegers,
}

impl MultiHeadAttention {
    fn read(node: &mut SourceNode<'_>, kind: Kind) -> RuleResult<Self> {
        Ok(Self {
            heads: head_count(node, "num_heads")?,
            options: AttentionOptions { is_causal: node.flag("unidirectional", false)?, ..scaled(node)? },
            hidden: node.float("mask_filter_value", -10_000.0)?,
            kind,
        })
    }

    fn read_projected(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        if node.is_read(3) {
            return Err(RuleError::Unsupported { what: "the scores as an output".to_owned() });
        }
        Self::read(node, Kind::Projected)
    }

    fn read_projecting(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let sizes = node.ints("qkv_hidden_sizes")?.filter(|sizes| !sizes.is_empty());
        Self::read_with_product(node, Kind::Projects { sizes })
    }

    fn read_with_product(node: &mut SourceNode<'_>, kind: Kind) -> RuleResult<Self> {
        for name in ["do_rotary", "past_present_share_buffer"] {
            if node.flag(name, false)? {
                return Err(RuleError::Unsupported { what: format!("`{name}`") });
            }
        }
        node.ignore(&["rotary_embedding_dim"]);
        Self::read(node, kind)
    }
}

impl<'m> Operator<'m> for MultiHeadAttention {
    const FORMS: Forms<'m, Self> = &[
        Spec::microsoft(
            "Attention",
            &[
                "input",
                "weights",
                "bias?",
                "mask_index?",
                "past?",
                "attention_bias?",
                "past_sequence_length?",
            ],
        )
        .reads(Self::read_projecting),
        Spec::microsoft(
            "MultiHeadAttention",
            &[
                "query",
                "key?",
                "value?",
                "bias?",
                "key_padding_mask?",
                "attention_bias?",
                "past_key?",
                "past_value?",
                "past_sequence_length?",
                "cache_indirection?",
            ],
        )
        .reads(Self::read_projected),
        Spec::microsoft(
            "QAttention",
            &[
                "input",
                "weight",
                "bias",
                "input_scale",
                "weight_scale",
                "mask_index?",
                "input_zero_point?",
                "weight_zero_point?",
                "past?",
            ],
        )
        .reads(|node| Self::read_with_product(node, Kind::ProjectsIntegers)),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        for name in ["past_sequence_length", "cache_indirection"] {
            if args.optional(name)?.is_some() {
                return Err(RuleError::Unsupported { what: format!("the input `{name}`") });
            }
        }
        let (all, sizes) = match &self.kind {
            Kind::Projected => {
                let [q, k, v] = self.projected(args, to)?;
                let past = together(args, ["past_key", "past_value"])?;
                let [y, k, v] = self.attend(args, to, [q, k, v], past, "key_padding_mask")?;
                return Ok(vec![y, k, v].into());
            }
            Kind::Projects { sizes } => {
                let (input, weights) = (args.value("input")?, args.value("weights")?);
                last(to, "input", input, 3)?;
                last(to, "weights", weights, 2)?;
                (product(to, input, weights)?, sizes.as_deref())
            }
            Kind::ProjectsIntegers => (product_of_integers(args, to)?, None),
        };
        let projected = self.projections(args, to, all, sizes)?;
        let past = args.optional("past")?.map(|past| halves(to, past)).transpose()?;
        let [y, k, v] = self.attend(args, to, projected, past, "mask_index")?;
        if to.dims(k) != to.dims(v) {
            return Ok(y.into());
        }
        let (k, v) = (to.unsqueeze(k, &[0])?, to.unsqueeze(v, &[0])?);
        Ok(vec![y, to.concat(&[k, v], 0)?].into())
    }
}

/// The last dim of an input of some rank.
fn last(to: &Lowering<'_, '_>, name: &str, value: ValueId, rank: usize) -> RuleResult<Dim> {
    let mut dims = to.dims(value);
    let actual = dims.len();
    match dims.pop() {
        Some(last) if actual == rank => Ok(last),
        _ => Err(RuleError::Rank { input: name.to_owned(), actual, expected: format!("expected {rank}") }),
    }
}

/// Keys and values of a cache that has both: `[2, batch, heads, seq, size]`.
fn halves(to: &mut Lowering<'_, '_>, past: ValueId) -> RuleResult<[ValueId; 2]> {
    let dims = to.dims(past);
    if dims.len() != 5 || !dims[0].is(2) {
        return Err(invalid("past", format!("is {}, must be keys and values of rank 4", to.ty(past))));
    }
    let mut half = |n: i64| {
        let half = to.slice(past, 0, Dim::constant(n), Dim::constant(n + 1))?;
        to.squeeze(half, &[0])
    };
    Ok([half(0)?, half(1)?])
}

/// `N` tensors `[batch, seq, heads · size]` that are packed into one, `[batch, seq, heads, N, size]`.
fn unpacked<const N: usize>(to: &mut Lowering<'_, '_>, name: &str, x: ValueId) -> RuleResult<[ValueId; N]> {
    let dims = to.dims(x);
    let [batch, seq, heads, count, size] = dims.as_slice() else {
        let expected = "expected 5 where several are packed into one input".to_owned();
        return Err(RuleError::Rank { input: name.to_owned(), actual: dims.len(), expected });
    };
    if !count.is(N as i64) {
        return Err(misfit(name, format!("is {}, must have {N} tensors packed into one", to.ty(x))));
    }
    let mut parts = [x; N];
    for (start, part) in (0..).zip(&mut parts) {
        let slice = to.slice(x, 3, Dim::constant(start), Dim::constant(start + 1))?;
        *part = to.reshape(slice, vec![batch.clone(), seq.clone(), heads * size])?;
    }
    Ok(parts)
}

/// The numbers that a product of integers stands for.
fn product_of_integers(args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<ValueId> {
    let (input, weight) = (args.value("input")?, args.value("weight")?);
    last(to, "input", input, 3)?;
    last(to, "weight", weight, 2)?;
    let zeros = [args.optional("input_zero_point")?, args.optional("weight_zero_point")?];
    let sum = integer_product(to, input, weight, zeros[0], zeros[1])?;
    let input_scale = single(to, "input_scale", args.value("input_scale")?)?;
    // One for the whole weight or for each of its columns.
    let weight_scale = args.value("weight_scale")?;
    to.formula(|f| {
        let [input_scale, weight_scale] = f.values([input_scale, weight_scale]);
        f.value(sum).cast(DType::F32) * (input_scale * weight_scale)
    })
}

impl MultiHeadAttention {
    /// Queries, keys and values that are inputs.
    fn projected(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<[ValueId; 3]> {
        let query = args.value("query")?;
        let [query, key, value] = match (args.optional("key")?, args.optional("value")?) {
            (Some(key), Some(value)) => [query, key, value],
            (Some(both), None) if to.rank(both) == 5 => {
                let [key, value] = unpacked(to, "key", both)?;
                [query, key, value]
            }
            (Some(_), None) => return Err(RuleError::MissingInput { input: "value".to_owned() }),
            (None, None) => unpacked(to, "query", query)?,
            (None, Some(_)) => return Err(RuleError::MissingInput { input: "key".to_owned() }),
        };
        let names = ["query", "key", "value"];
        let mut found = [query, key, value];
        let bias = args.optional("bias")?;
        let with_heads = |to: &Lowering<'_, '_>, x: ValueId| to.rank(x) == 4;
        if let (Some(bias), false) = (bias, found.iter().any(|&x| with_heads(to, x))) {
            let mut ends = [0; 4].map(Dim::constant);
            for (n, name) in names.into_iter().enumerate() {
                ends[n + 1] = &ends[n] + &last(to, name, found[n], 3)?;
            }
            let [.., whole] = &ends;
            if to.ty(bias).dims != [whole.clone()] {
                return Err(invalid("bias", format!("is {}, must have {whole} numbers", to.ty(bias))));
            }
            for (x, part) in found.iter_mut().zip(ends.windows(2)) {
                let part = to.slice(bias, 0, part[0].clone(), part[1].clone())?;
                *x = to.binary(BinaryOp::Add, *x, part)?;
            }
        } else if bias.is_some() {
            return Err(RuleError::Unsupported { what: "a bias of keys that have their heads".to_owned() });
        }
        for (name, x) in names.into_iter().zip(&mut found) {
            // Those of an encoder may have their heads already.
            if name == "query" || !with_heads(to, *x) {
                *x = split_heads(to, name, *x, self.heads)?;
            }
        }
        Ok(found)
    }

    /// Queries, keys and values, which are beside each other in a product.
    fn projections(
        &self,
        args: &Args,
        to: &mut Lowering<'_, '_>,
        mut all: ValueId,
        sizes: Option<&[i64]>,
    ) -> RuleResult<[ValueId; 3]> {
        let whole = last(to, "input", all, 3)?;
        let sizes: [Dim; 3] = match sizes {
            None => [(); 3].map(|()| whole.floor_div(&Dim::constant(3))),
            Some(&[q, k, v]) if [q, k, v].iter().all(|&size| size > 0) => [q, k, v].map(Dim::constant),
            Some(sizes) => return Err(invalid("qkv_hidden_sizes", format!("are {sizes:?}, must be three"))),
        };
        if &(&sizes[0] + &sizes[1]) + &sizes[2] != whole {
            let [q, k, v] = sizes;
            let reason = format!("has {whole} columns, which are not {q} + {k} + {v}");
            return Err(invalid("weights", reason));
        }
        if let Some(bias) = args.optional("bias")? {
            all = to.binary(BinaryOp::Add, all, bias)?;
        }
        let mut start = Dim::constant(0);
        let mut found = [all; 3];
        for (x, size) in found.iter_mut().zip(&sizes) {
            let end = &start + size;
            let part = to.slice(all, 2, start, end.clone())?;
            *x = split_heads(to, "weights", part, self.heads)?;
            start = end;
        }
        Ok(found)
    }

    /// The result, and the keys and values that were seen.
    fn attend(
        &self,
        args: &Args,
        to: &mut Lowering<'_, '_>,
        [q, mut k, mut v]: [ValueId; 3],
        past: Option<[ValueId; 2]>,
        mask: &str,
    ) -> RuleResult<[ValueId; 3]> {
        let ([batch, _, rows, _], [_, _, new, _]) = (dims_of(to, q)?, dims_of(to, k)?);
        if self.options.is_causal && rows != new {
            let what = format!("`unidirectional` beside {rows} queries and {new} keys");
            return Err(RuleError::Unsupported { what });
        }
        if let Some([past_key, past_value]) = past {
            k = to.concat(&[past_key, k], 2)?;
            v = to.concat(&[past_value, v], 2)?;
        }
        let mut added = match args.optional(mask)? {
            Some(value) => {
                let keeps = keeps(to, mask, value, &batch, k)?;
                let [seen, hidden] = [0.0, self.hidden].map(|number| to.number_like(q, number));
                Some(to.select(keeps, seen, hidden)?)
            }
            None => None,
        };
        if let Some(bias) = args.optional("attention_bias")? {
            let bias = to.cast(bias, to.dtype(q))?;
            added = Some(match added {
                Some(mask) => to.binary(BinaryOp::Add, mask, bias)?,
                None => to.with_rank(bias, 4)?,
            });
        }
        let mut inputs = vec![q, k, v];
        inputs.extend(added);
        let y = to.add(Op::Attention(self.options), &inputs)?;
        Ok([without_heads(to, y)?, k, v])
    }
}

/// True where a mask keeps a key: `[batch, 1 or rows, keys]` with numbers above 0 there, or, without the axis of keys, where
/// each batch entry's end, and in the other half of them where they begin.
fn keeps(
    to: &mut Lowering<'_, '_>,
    name: &str,
    mask: ValueId,
    batch: &Dim,
    k: ValueId,
) -> RuleResult<ValueId> {
    let one = || Dim::constant(1);
    let dims = to.dims(mask);
    let whole = match dims.as_slice() {
        [count] => {
            let [_, _, columns, _] = dims_of(to, k)?;
            let both = &(batch + batch) == count;
            if !both && count != batch {
                let reason = format!("is {}, must have one end for each of {batch} entries", to.ty(mask));
                return Err(invalid(name, reason));
            }
            let mask = to.cast(mask, DType::I64)?;
            let column = positions(to, 3, Dim::constant(0), columns)?;
            let mut bounds = |start: Dim, end: Dim| {
                let bounds = to.slice(mask, 0, start, end)?;
                to.reshape(bounds, vec![batch.clone(), one(), one(), one()])
            };
            let end = bounds(Dim::constant(0), batch.clone())?;
            let start = if both { Some(bounds(batch.clone(), count.clone())?) } else { None };
            let ends = to.compare(CompareOp::Lower, column, end)?;
            return match start {
                Some(start) => {
                    let starts = to.compare(CompareOp::GreaterEqual, column, start)?;
                    to.binary(BinaryOp::And, starts, ends)
                }
                None => Ok(ends),
            };
        }
        [batch, columns] => vec![batch.clone(), one(), one(), columns.clone()],
        [batch, rows, columns] => vec![batch.clone(), one(), rows.clone(), columns.clone()],
        _ => {
            let expected = "expected 1 to 3".to_owned();
            return Err(RuleError::Rank { input: name.to_owned(), actual: dims.len(), expected });
        }
    };
    let mask = to.reshape(mask, whole)?;
    let zero = to.number_like(mask, 0);
    to.compare(CompareOp::Greater, mask, zero)
}
