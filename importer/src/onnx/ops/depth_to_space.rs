//! `DepthToSpace` and `SpaceToDepth`: blocks of pixels become channels, and back.

use super::prelude::*;

pub(super) struct DepthToSpace {
    block: i64,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    /// Channels: block row, block column, depth.
    DepthLast,
    /// Channels: depth, block row, block column.
    DepthFirst,
    /// Back to channels, laid out as either of these.
    ToDepthLast,
    ToDepthFirst,
}

impl DepthToSpace {
    fn read(node: &mut SourceNode<'_>, [depth_last, depth_first]: [Kind; 2]) -> RuleResult<Self> {
        let block = node.required_int("blocksize")?;
        if !(1..=i64::from(i32::MAX)).contains(&block) {
            return Err(invalid("blocksize", format!("is {block}")));
        }
        let kind = node.choice("mode", "DCR", &[("DCR", depth_last), ("CRD", depth_first)])?;
        Ok(Self { block, kind })
    }
}

impl<'m> Operator<'m> for DepthToSpace {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("DepthToSpace", 1, &["input"])
            .reads(|node| Self::read(node, [Kind::DepthLast, Kind::DepthFirst])),
        Spec::onnx("SpaceToDepth", 1, &["input"])
            .reads(|node| Self::read(node, [Kind::ToDepthLast, Kind::ToDepthFirst])),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("input")?;
        let dims = to.dims(x);
        let [n, c, h, w] = dims.as_slice() else {
            let expected = "expected 4".to_owned();
            return Err(RuleError::Rank { input: "input".to_owned(), actual: dims.len(), expected });
        };
        let block = Dim::constant(self.block);
        let area = &block * &block;
        let divides = |dim: &Dim, by: &Dim| {
            let rest = dim.as_constant().zip(by.as_constant()).map_or(0, |(dim, by)| dim % by);
            if rest == 0 {
                Ok(dim.floor_div(by))
            } else {
                Err(misfit("blocksize", format!("does not divide {dim}")))
            }
        };
        let [n, c, h, w] = [n, c, h, w].map(Clone::clone);
        let (split, axes, joined) = match self.kind {
            Kind::ToDepthLast | Kind::ToDepthFirst => {
                let (rows, columns) = (divides(&h, &block)?, divides(&w, &block)?);
                let depth = &c * &area;
                let split = vec![n.clone(), c, rows.clone(), block.clone(), columns.clone(), block];
                let axes = if matches!(self.kind, Kind::ToDepthLast) {
                    vec![0, 3, 5, 1, 2, 4]
                } else {
                    vec![0, 1, 3, 5, 2, 4]
                };
                (split, axes, vec![n, depth, rows, columns])
            }
            kind => {
                let depth = divides(&c, &area)?;
                let joined = vec![n.clone(), depth.clone(), &h * &block, &w * &block];
                if matches!(kind, Kind::DepthLast) {
                    (vec![n, block.clone(), block, depth, h, w], vec![0, 3, 4, 1, 5, 2], joined)
                } else {
                    (vec![n, depth, block.clone(), block, h, w], vec![0, 1, 4, 2, 5, 3], joined)
                }
            }
        };
        let blocks = to.reshape(x, split)?;
        let moved = to.permute(blocks, axes)?;
        Ok(to.reshape(moved, joined)?.into())
    }
}
