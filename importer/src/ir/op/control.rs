//! Where data decides what runs: values read back from the device, and the choice between two regions.

use super::prelude::*;
use crate::ir::{Region, Symbol};

attributes! {
    /// Reads a small integer or bool tensor of known shape back, defining symbols; no outputs. Only where shapes or control
    /// flow depend on data.
    pub struct HostRead {
        /// One per element, row-major.
        pub symbols: Vec<Symbol>,
    }
}

impl Operation for HostRead {
    facts!(operands: ["x"], effect: Control, folding: Never, result: Unknown);
    none!(host, evaluate, derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let x = cx.ty(0)?;
        need("x", x, !x.dtype.is_float(), "expected an integer or bool")?;
        if !x.num_elements().is(i64::try_from(self.symbols.len()).unwrap_or(i64::MAX)) {
            return Err(RuleError::NotConstant { input: format!("shape of {x}") });
        }
        Ok(Vec::new())
    }

    fn implementation(&self, _: &Site<'_>) -> Implementation {
        Implementation::Control
    }
}

attributes! {
    /// One of two regions, which use values around them; outputs as the regions'.
    pub struct If {
        /// 0 is false.
        pub condition: Dim,
        /// When not 0.
        #[serde(skip)]
        pub then_region: Region,
        /// When 0.
        #[serde(skip)]
        pub else_region: Region,
    }
}

impl Operation for If {
    facts!(operands: [], effect: Control, folding: Never, result: Unknown);
    none!(host, evaluate, derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        // Outputs of a choice between two regions: what both agree on; a size that differs is known only at run time.
        let (then_region, else_region) = (&self.then_region, &self.else_region);
        if then_region.outputs.len() != else_region.outputs.len() {
            return Err(RuleError::Attribute {
                attribute: "then_branch".into(),
                reason: format!(
                    "yields {} values, else_branch {}",
                    then_region.outputs.len(),
                    else_region.outputs.len()
                ),
            });
        }
        let mut types = Vec::with_capacity(then_region.outputs.len());
        for (&a, &b) in then_region.outputs.iter().zip(&else_region.outputs) {
            let (a, b) = (cx.graph().ty(a), cx.graph().ty(b));
            same_dtype("then_branch", a, "else_branch", b)?;
            if a.rank() != b.rank() {
                return Err(dims_error("ranks of the branches' outputs", a, b));
            }
            let join =
                a.dims.iter().zip(&b.dims).map(|(x, y)| if x == y { x.clone() } else { cx.fresh("dim") });
            types.push(a.with_dims(join.collect()));
        }
        Ok(types)
    }

    fn implementation(&self, _: &Site<'_>) -> Implementation {
        Implementation::Control
    }
}
