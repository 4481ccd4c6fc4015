//! Operations with regions.

use super::dims_error;
use crate::ir::{Infer, Region, RuleError, RuleResult, TensorType};

/// Outputs of a choice between two regions: what both agree on; a size that differs is known only at run time.
pub(super) fn branches(
    cx: &mut Infer<'_>,
    then_region: &Region,
    else_region: &Region,
) -> RuleResult<Vec<TensorType>> {
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
        super::same_dtype("then_branch", a, "else_branch", b)?;
        if a.rank() != b.rank() {
            return Err(dims_error("ranks of the branches' outputs", a, b));
        }
        let join = a.dims.iter().zip(&b.dims).map(|(x, y)| if x == y { x.clone() } else { cx.fresh("dim") });
        types.push(a.with_dims(join.collect()));
    }
    Ok(types)
}
