//! The third stage: names.
//!
//! Every struct, function, field and variable of a source file gets its name here, before there are tokens.

mod structs;
mod variables;

pub use variables::Variables;

use crate::ids::{Arena, FieldId, StructId};
use crate::structs::{Program, field_names};
use crate::{CodegenError, Defect};
use std::collections::{BTreeMap, BTreeSet};
use structs::StructNames;

/// Every name of a source file.
pub struct SourceNames {
    structs: StructNames,
    fields: Arena<StructId, Arena<FieldId, String>>,
    variables: BTreeMap<StructId, Variables>,
}

impl SourceNames {
    /// Names for the structs in `used`, of which the root's is asked for; `reads` says whose functions have twins.
    pub fn new(
        program: &Program<'_>,
        used: &BTreeSet<StructId>,
        reads: &Arena<StructId, bool>,
        model: &str,
    ) -> Self {
        let structs = structs::name_structs(program, used, reads, model);
        let fields = program.structs.iter().map(|structure| {
            let kept = structure.parameters.iter().filter(|parameter| parameter.kept);
            let first = structure.members.first().map(|&first| &program.modules[first].fields);
            let class_of = |child| program.tree.modules[child].class_name();
            let taken = kept.map(|parameter| parameter.name.clone());
            field_names(first.unwrap_or(&Arena::default()), &structure.body.inits, &class_of, taken)
        });
        let fields = fields.collect();
        let variables = variables::name_variables(program, used, reads, &structs.names, &fields);
        SourceNames { structs, fields, variables }
    }

    /// The name of a struct or function.
    pub fn structure(&self, id: StructId) -> &str {
        &self.structs.names[id]
    }

    /// The names for types of results, by struct, for those that need one.
    pub fn results(&self) -> &BTreeMap<StructId, String> {
        &self.structs.results
    }

    /// The name of a field.
    pub fn field(&self, id: StructId, field: FieldId) -> Result<&str, CodegenError> {
        let name = self.fields[id].get(field);
        name.map(String::as_str).ok_or_else(|| Defect::Unnamed.into())
    }

    /// The variables of a struct's `forward`.
    pub fn variables(&self, id: StructId) -> Result<&Variables, CodegenError> {
        self.variables.get(&id).ok_or_else(|| Defect::Unnamed.into())
    }
}
