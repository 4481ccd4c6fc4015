//! Decision trees.

use super::prelude::*;
use kiln_types::DType;

attributes! {
    /// The leaf of each tree at which each sample arrives: `kiln::tensor::tree::leaves` says how tables describe trees.
    pub struct TreeLeaves {
        /// No tree has more branches on a way.
        pub depth: usize,
    }
}

impl Operation for TreeLeaves {
    facts!(
        operands: ["samples", "features", "thresholds", "children", "roots"], effect: Pure, folding: Never, result: Computed
    );
    none!(host, derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let ranks = [("samples", 2), ("features", 1), ("thresholds", 1), ("children", 2), ("roots", 1)];
        for (n, (name, rank)) in ranks.iter().copied().enumerate() {
            let actual = cx.ty(n)?.rank();
            if actual != rank {
                return Err(misfit(name, format!("has rank {actual}, not {rank}")));
            }
        }
        for n in [1, 3, 4] {
            need_int(ranks[n].0, cx.ty(n)?)?;
        }
        let (samples, roots) = (cx.ty(0)?.dims[0].clone(), cx.ty(4)?.dims[0].clone());
        Ok(vec![TensorType { dtype: DType::I64, dims: vec![samples, roots] }])
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        let floats = |n: usize| Some(Elements::load(operands.get(n)?).floats());
        let (samples, thresholds) = (floats(0)?, floats(2)?);
        let integers = |n: usize| -> Option<Vec<usize>> {
            floats(n)?.into_iter().map(|number| (number >= 0.0).then_some(number as usize)).collect()
        };
        let (features, children, roots) = (integers(1)?, integers(3)?, integers(4)?);
        let (&[count, width], &[_, ways]) =
            (operands.get(0)?.shape.as_slice(), operands.get(3)?.shape.as_slice())
        else {
            return None;
        };
        let mut leaves: Vec<i64> = Vec::with_capacity(count * roots.len());
        for sample in 0..count {
            for &root in &roots {
                let mut node = root;
                for _ in 0..self.depth {
                    let feature = *features.get(node)?;
                    let value = *samples.get(sample * width + feature).filter(|_| feature < width)?;
                    let way = match ways {
                        3 if value.is_nan() => 2,
                        _ => usize::from(value <= *thresholds.get(node)?),
                    };
                    node = *children.get(node * ways + way)?;
                }
                leaves.push(i64::try_from(node).ok()?);
            }
        }
        Some(vec![TensorData::new(leaves, [count, roots.len()])])
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        let (features, ways) = (*cx.shape(0)?.get(1)?, *cx.shape(3)?.get(1)?);
        let mut args: Vec<KernelArg> = (0..5).map(KernelArg::Operand).collect();
        let sizes = [("features", features), ("ways", ways), ("depth", self.depth)];
        args.push(KernelArg::sizes("Trees", sizes));
        Some(Loops::kernel("leaves", args))
    }

    fn implementation(&self, _: &Site<'_>) -> Implementation {
        let operands = (0..5).map(Arg::Operand);
        let args: Vec<Arg> = operands.chain([Arg::Size(Dim::from(self.depth))]).collect();
        Implementation::Call(Arg::call("tensor::tree::leaves", args))
    }
}
