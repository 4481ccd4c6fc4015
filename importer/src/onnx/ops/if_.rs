//! `If`: one branch inlined when the condition is known, else both as regions.

use super::super::lowering::{Choice, Snapshot};
use super::super::proto::GraphProto;
use super::prelude::*;
use crate::ir::{Region, Symbol, op};

pub(super) struct If<'m> {
    then_branch: &'m GraphProto,
    else_branch: &'m GraphProto,
}

impl<'m> If<'m> {
    fn read(node: &mut SourceNode<'m>) -> RuleResult<Self> {
        let branches =
            Self { then_branch: node.graph("then_branch")?, else_branch: node.graph("else_branch")? };
        for (name, branch) in [("then_branch", branches.then_branch), ("else_branch", branches.else_branch)] {
            if !branch.input.is_empty() {
                return Err(invalid(name, "has inputs"));
            }
            if branch.output.len() < node.output_count() {
                return Err(invalid(name, format!("yields {} values", branch.output.len())));
            }
        }
        Ok(branches)
    }
}

impl<'m> Operator<'m> for If<'m> {
    const FORMS: Forms<'m, Self> = &[Spec::onnx("If", 1, &["cond"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, 'm>) -> RuleResult<Outputs> {
        let condition = to.host_integer(args.value("cond")?, "cond")?;
        if let Some(known) = condition.as_constant() {
            let taken = if known != 0 { self.then_branch } else { self.else_branch };
            let result = to.subgraph(taken);
            return to.inner(result).map(Outputs);
        }
        let before = to.snapshot();
        let mut ranks = Vec::new();
        loop {
            let then_region = to.region(self.then_branch, &ranks);
            let regions = then_region.and_then(|region| Ok((region, to.region(self.else_branch, &ranks)?)));
            match regions {
                Ok((a, b)) => match common_ranks(to, &a, &b) {
                    Some(common) if both_have(to, &common, [&a, &b]) => {
                        return finish(to, condition, a, b, &before);
                    }
                    Some(common) if ranks.is_empty() => {
                        to.restore(&before);
                        ranks = common;
                    }
                    // The ranks differ: what follows decides.
                    _ => break,
                },
                // The other branch may be the one that runs.
                Err(_) if to.failed_on_shapes() => break,
                Err(error) => return Err(error),
            }
        }
        to.restore(&before);
        to.request_choice(Choice { condition, branches: [self.then_branch, self.else_branch] });
        let what = "an If whose branches yield tensors of different ranks or dtypes".to_owned();
        Err(RuleError::Unsupported { what })
    }
}

/// The ranks of what both branches yield, where these are the same. A condition or a count may have another rank in either, the
/// greater one then: PaddlePaddle's exporter adds numbers of rank 1 to those of rank 0 in one of them.
fn common_ranks(to: &Lowering<'_, '_>, a: &Region, b: &Region) -> Option<Vec<usize>> {
    let common = |(&a, &b): (&ValueId, &ValueId)| {
        let (a, b) = (to.ty(a), to.ty(b));
        let is_one = |dims: &[Dim]| dims.iter().all(|dim| dim.is(1));
        let counts = !a.dtype.is_float() && is_one(&a.dims) && is_one(&b.dims);
        (a.dtype == b.dtype && (counts || a.rank() == b.rank())).then(|| a.rank().max(b.rank()))
    };
    (a.outputs.len() == b.outputs.len()).then(|| a.outputs.iter().zip(&b.outputs).map(common).collect())?
}

fn both_have(to: &Lowering<'_, '_>, ranks: &[usize], regions: [&Region; 2]) -> bool {
    let mut outputs = regions.iter().flat_map(|region| region.outputs.iter().zip(ranks));
    outputs.all(|(&value, &rank)| to.rank(value) == rank)
}

fn finish(
    to: &mut Lowering<'_, '_>,
    condition: Dim,
    then_region: Region,
    else_region: Region,
    before: &Snapshot,
) -> RuleResult<Outputs> {
    let hosts: Vec<Option<Vec<Dim>>> = then_region
        .outputs
        .iter()
        .zip(&else_region.outputs)
        .map(|(&a, &b)| host_of(to, &condition, a, b, before))
        .collect();
    let outputs = to.builder.add_all(Op::If(op::If { condition, then_region, else_region }), Vec::new())?;
    for (&output, host) in outputs.iter().zip(hosts) {
        if host.is_some() {
            to.builder.graph.value_mut(output).host = host;
        }
    }
    Ok(outputs.into())
}

/// Integers that both branches know, chosen by arithmetic: shapes behind an `If` stay on the host.
fn host_of(
    to: &Lowering<'_, '_>,
    condition: &Dim,
    a: ValueId,
    b: ValueId,
    before: &Snapshot,
) -> Option<Vec<Dim>> {
    let graph = &*to.builder.graph;
    let (a, b) = (graph.value(a), graph.value(b));
    if a.ty.dims != b.ty.dims {
        return None;
    }
    let there = |symbol: &Symbol| graph.symbols.get(symbol).is_some_and(|origin| before.has(origin));
    let outside = |dim: &&Dim| dim.symbols().iter().all(there);
    let (a, b) = (a.host.as_ref()?, b.host.as_ref()?);
    if a.len() != b.len() || !a.iter().chain(b).all(|dim| outside(&dim)) {
        return None;
    }
    Some(a.iter().zip(b).map(|(a, b)| if a == b { a.clone() } else { b + &(condition * &(a - b)) }).collect())
}
