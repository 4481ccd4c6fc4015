//! What modules take, with all that is in them.

use super::{Cost, Report};
use std::collections::BTreeMap;

/// A module, or the model itself.
#[derive(Clone, Debug)]
pub(super) struct Module {
    /// Its name below its parent; several with dots where a module holds nothing but one other.
    pub name: String,
    /// What its operations and those of its children take.
    pub cost: Cost,
    /// Its children, those first that take the most time.
    pub children: Vec<Module>,
}

/// A module while rows are being put in.
#[derive(Default)]
struct Draft<'r> {
    /// What its own operations take; nothing where it has none.
    own: Option<Cost>,
    children: BTreeMap<&'r str, usize>,
}

/// The modules of the rows' paths.
pub(super) fn tree(report: &Report) -> Module {
    // Parents before children, so that neither making nor summing needs a stack: a path may have any number of parts.
    let mut drafts = vec![Draft::default()];
    for row in &report.rows {
        let mut at = 0;
        for part in row.path.split('.').filter(|part| !part.is_empty()) {
            let next = drafts.len();
            at = *drafts[at].children.entry(part).or_insert(next);
            if at == next {
                drafts.push(Draft::default());
            }
        }
        drafts[at].own = Some(drafts[at].own.unwrap_or(Cost::NONE).and(row.cost));
    }
    let mut made: Vec<Option<Module>> = Vec::new();
    made.resize_with(drafts.len(), || None);
    for (at, draft) in drafts.iter().enumerate().rev() {
        let mut children: Vec<Module> = Vec::new();
        for (&name, &child) in &draft.children {
            children.extend(made[child].take().map(|mut module| {
                module.name =
                    if module.name.is_empty() { name.to_owned() } else { format!("{name}.{}", module.name) };
                module
            }));
        }
        children.sort_by(|a, b| b.cost.ms.total_cmp(&a.cost.ms));
        let own = draft.own.unwrap_or(Cost::NONE);
        let cost = children.iter().fold(own, |sum, child| sum.and(child.cost));
        // The parent writes its name before that of an only child.
        let alone = at > 0 && draft.own.is_none() && children.len() == 1;
        made[at] = match children.pop() {
            Some(child) if alone => Some(child),
            last => {
                children.extend(last);
                Some(Module { name: String::new(), cost, children })
            }
        };
    }
    let root = made.into_iter().next().flatten();
    root.unwrap_or(Module { name: String::new(), cost: Cost::NONE, children: Vec::new() })
}
