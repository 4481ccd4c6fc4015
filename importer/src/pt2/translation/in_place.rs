//! Results that calls write into tensors that are there: their own operands, or some that are given for results.

use super::{Translation, names_of};
use crate::pt2::call::{Result, unsupported};
use crate::pt2::schema::Node;
use crate::pt2::value::Output;
use crate::pt2::views::{self, By, View};
use crate::pt2::{dtype, operators};
use kiln_types::{DType, quoted};

impl<'p> Translation<'p> {
    /// The results of a call that changes one of its arguments: all are that one.
    pub(super) fn written_in_place(
        &mut self,
        node: &'p Node,
        target: &'p str,
        outputs: Vec<Output>,
    ) -> Result<()> {
        let Some(output) = outputs.into_iter().next() else { return Ok(()) };
        // A tensor for results becomes one of their shape, which views of it do not.
        let resized = |name: &str| {
            let metas = self.meta(target).zip(self.meta(name));
            metas.is_some_and(|(target, result)| views::have_one_shape(target, result) == Some(false))
        };
        if !operators::is_in_place(&node.target) {
            if self.results(node).any(resized) {
                return Err(unsupported(format!("a result of another shape in {}", quoted(target))));
            }
            self.check_given(node, target)?;
        }
        self.overwrite(target, output)?;
        for name in self.results(node) {
            let value = self.value(target)?;
            self.bind_value(name, value);
            self.views.note(View { name: self.key(name), by: By::Same, base: self.key(target) });
        }
        Ok(())
    }

    /// Refuses a tensor for results whose dtype is not that in which the operator computes: rules compute in the result's.
    fn check_given(&self, node: &'p Node, target: &str) -> Result<()> {
        let mut groups: [Vec<DType>; 2] = Default::default();
        for input in node.inputs.iter().filter(|input| input.name != operators::OUT) {
            for meta in names_of(&input.arg).filter_map(|name| self.meta(name)) {
                let group = usize::from(meta.sizes.is_empty());
                groups[group].extend(dtype::of_scalar_type(meta.dtype).ok());
            }
        }
        let given = self.described(target)?.dtype;
        let [tensors, without_dims] = &groups;
        let is_computed = groups.iter().all(Vec::is_empty)
            || given == DType::Bool
            || given == DType::I64 && operators::yields_indices(&node.target)
            || given == dtype::promoted([tensors, without_dims, &[]]);
        if is_computed {
            return Ok(());
        }
        Err(unsupported(format!(
            "{} of {given} for a result of another dtype; compute it without `out`, and cast it",
            quoted(target)
        )))
    }
}
