//! What of a record does not fit a module, before it is loaded.

use super::mismatch::{ParameterMismatch, WrongParameter};
use super::walk::Path;
use crate::tensor::{DType, DTypeKind, Shape};
use alloc::{
    format,
    string::{String, ToString},
};

/// Collects what of a record does not fit a module; see [`Module::check_record`](crate::module::Module::check_record).
#[derive(Debug, Default)]
pub struct RecordCheck {
    path: Path,
    mismatch: ParameterMismatch,
}

impl RecordCheck {
    /// What follows, up to [`RecordCheck::exit`], is in a field or is an item.
    pub fn enter(&mut self, name: &str) {
        self.path.enter(name, "");
    }

    /// The field is over.
    pub fn exit(&mut self) {
        self.path.exit();
    }

    /// Compares a parameter with what the record has for it: kind and shape, dtype and shape. A parameter that is mapped on
    /// its way may have another shape in the record, of the same rank and size.
    pub fn parameter(&mut self, kind: DTypeKind, shape: &Shape, mapped: bool, found: (DType, Shape)) {
        let (dtype, stored) = found;
        let size_fits = stored.rank() == shape.rank() && stored.num_elements() == shape.num_elements();
        if stored == *shape || (mapped && size_fits) {
            return;
        }
        self.mismatch.wrong.push(WrongParameter {
            path: self.path.text.clone(),
            expected: (kind, shape.as_slice().to_vec()),
            found: (dtype, stored.as_slice().to_vec()),
        });
    }

    /// Compares the lengths of a list.
    pub fn length(&mut self, module: usize, record: usize) {
        if module != record {
            self.structure(format!("is a list of {module}, the file has {record}"));
        }
    }

    /// Notes that the record has another variant of an enum.
    pub fn other_variant(&mut self) {
        self.structure("is another variant than the file has".to_string());
    }

    /// Notes that the record has nothing for an optional part of the module.
    pub fn missing_part(&mut self) {
        self.structure("is there, and the file has nothing for it".to_string());
    }

    /// Notes that the record has an optional part that the module is without.
    pub fn unknown_part(&mut self) {
        self.structure("is not there, and the file has it".to_string());
    }

    fn structure(&mut self, what: String) {
        self.mismatch.structure.push((self.path.text.clone(), what));
    }

    /// What does not fit, if anything; `source` names the file.
    ///
    /// # Errors
    /// All of it in one.
    pub fn finish(self, source: &str) -> Result<(), ParameterMismatch> {
        if self.mismatch.is_empty() {
            return Ok(());
        }
        Err(ParameterMismatch { source: source.to_string(), ..self.mismatch })
    }
}
