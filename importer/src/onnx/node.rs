//! A node as operators see it: attributes that are read once, with the right type, and all of them.

use super::proto::{
    AttributeProto, GraphProto, NodeProto, SparseTensorProto, TensorProto, attribute_type as ty,
};
use super::tensor::DataType;
use crate::ir::{RuleError, RuleResult};
use kiln_types::DType;
use std::ops::RangeInclusive;

/// An attribute after references to a function's parameters were resolved.
#[derive(Clone, Copy)]
pub(crate) struct Attribute<'m> {
    /// Name at this node.
    pub(crate) name: &'m str,
    /// Where the value stands: at the node, at the function's call, or in the function's defaults.
    pub(crate) value: &'m AttributeProto,
}

/// The node that is being lowered.
pub(crate) struct SourceNode<'m> {
    proto: &'m NodeProto,
    /// Version of the operator set in effect.
    pub(crate) opset: i64,
    attributes: Vec<Attribute<'m>>,
    /// Which attributes were read.
    read: Vec<bool>,
    outputs_read: Vec<bool>,
}

/// An error about an attribute.
pub(crate) fn invalid(attribute: &str, reason: impl Into<String>) -> RuleError {
    RuleError::Attribute { attribute: attribute.to_owned(), reason: reason.into() }
}

/// An error about an attribute or a constant operand that the operands' shapes contradict: where a branch of an `If` has it, that is
/// not the one that runs.
pub(crate) fn misfit(attribute: &str, reason: impl Into<String>) -> RuleError {
    RuleError::Misfit { attribute: attribute.to_owned(), reason: reason.into() }
}

impl<'m> SourceNode<'m> {
    /// `outputs_read` says of each output whether somebody reads it.
    pub(crate) fn new(
        proto: &'m NodeProto,
        opset: i64,
        attributes: Vec<Attribute<'m>>,
        outputs_read: Vec<bool>,
    ) -> Self {
        let read = vec![false; attributes.len()];
        Self { proto, opset, attributes, read, outputs_read }
    }

    /// Number of outputs, absent ones among them.
    pub(crate) fn output_count(&self) -> usize {
        self.proto.output.len()
    }

    /// Whether the `n`-th output has a name, so that it is computed.
    pub(crate) fn names_output(&self, n: usize) -> bool {
        self.proto.output.get(n).is_some_and(|name| !name.is_empty())
    }

    /// Whether somebody reads the `n`-th output.
    pub(crate) fn is_read(&self, n: usize) -> bool {
        self.outputs_read.get(n).is_some_and(|&read| read)
    }

    /// The name of the first output, which may be empty.
    pub(crate) fn result(&self) -> &'m str {
        self.proto.output.first().map_or("", String::as_str)
    }

    fn find(&mut self, name: &str, kind: i32, what: &str) -> RuleResult<Option<&'m AttributeProto>> {
        let Some(at) = self.attributes.iter().position(|attribute| attribute.name == name) else {
            return Ok(None);
        };
        self.read[at] = true;
        let value = self.attributes[at].value;
        if value.r#type != kind && value.r#type != ty::UNDEFINED {
            return Err(invalid(name, format!("must be {what}")));
        }
        Ok(Some(value))
    }

    /// Whether the attribute is given; does not count as reading it.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.attributes.iter().any(|attribute| attribute.name == name)
    }

    /// Marks attributes as read that mean nothing for the result.
    pub(crate) fn ignore(&mut self, names: &[&str]) {
        for (attribute, read) in self.attributes.iter().zip(&mut self.read) {
            *read |= names.contains(&attribute.name);
        }
    }

    pub(crate) fn optional_int(&mut self, name: &str) -> RuleResult<Option<i64>> {
        Ok(self.find(name, ty::INT, "an integer")?.map(|attribute| attribute.i))
    }

    pub(crate) fn int(&mut self, name: &str, default: i64) -> RuleResult<i64> {
        Ok(self.optional_int(name)?.unwrap_or(default))
    }

    pub(crate) fn required_int(&mut self, name: &str) -> RuleResult<i64> {
        self.optional_int(name)?.ok_or_else(|| invalid(name, "is missing"))
    }

    /// An integer that is not negative.
    pub(crate) fn size(&mut self, name: &str, default: usize) -> RuleResult<usize> {
        match self.optional_int(name)? {
            None => Ok(default),
            Some(value) => usize::try_from(value).map_err(|_| invalid(name, format!("is {value}"))),
        }
    }

    /// A dtype by its number in the format.
    pub(crate) fn dtype(&mut self, name: &str) -> RuleResult<Option<DType>> {
        Ok(self.data_type(name)?.map(|data_type| data_type.dtype))
    }

    /// Likewise, with what is narrower than the dtype that holds it.
    pub(crate) fn data_type(&mut self, name: &str) -> RuleResult<Option<DataType>> {
        let Some(code) = self.optional_int(name)? else {
            return Ok(None);
        };
        let code = i32::try_from(code).map_err(|_| invalid(name, format!("is {code}")))?;
        DataType::of(code).map(Some).map_err(|reason| invalid(name, reason))
    }

    /// An integer that is 0 or 1.
    pub(crate) fn flag(&mut self, name: &str, default: bool) -> RuleResult<bool> {
        match self.int(name, i64::from(default))? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(invalid(name, format!("is {other}, must be 0 or 1"))),
        }
    }

    pub(crate) fn optional_float(&mut self, name: &str) -> RuleResult<Option<f64>> {
        Ok(self.find(name, ty::FLOAT, "a float")?.map(|attribute| shortest(attribute.f)))
    }

    pub(crate) fn float(&mut self, name: &str, default: f64) -> RuleResult<f64> {
        Ok(self.optional_float(name)?.unwrap_or(default))
    }

    pub(crate) fn optional_string(&mut self, name: &str) -> RuleResult<Option<String>> {
        let Some(attribute) = self.find(name, ty::STRING, "a string")? else {
            return Ok(None);
        };
        let text = std::str::from_utf8(&attribute.s).map_err(|_| invalid(name, "is not UTF-8"))?;
        Ok(Some(text.to_owned()))
    }

    pub(crate) fn string(&mut self, name: &str, default: &str) -> RuleResult<String> {
        Ok(self.optional_string(name)?.unwrap_or_else(|| default.to_owned()))
    }

    /// One of a table's strings.
    pub(crate) fn choice<T: Copy>(
        &mut self,
        name: &str,
        default: &str,
        table: &[(&str, T)],
    ) -> RuleResult<T> {
        let text = self.string(name, default)?;
        let found = table.iter().find(|(known, _)| *known == text).map(|(_, value)| *value);
        found.ok_or_else(|| {
            let known: Vec<&str> = table.iter().map(|(known, _)| *known).collect();
            invalid(name, format!("is {}, must be one of {}", kiln_types::quoted(&text), known.join(", ")))
        })
    }

    pub(crate) fn ints(&mut self, name: &str) -> RuleResult<Option<Vec<i64>>> {
        Ok(self.find(name, ty::INTS, "a list of integers")?.map(|attribute| attribute.ints.clone()))
    }

    /// Sizes, as [`sizes_of`] takes them.
    pub(crate) fn sizes(
        &mut self,
        name: &str,
        range: RangeInclusive<usize>,
        count: Option<usize>,
    ) -> RuleResult<Option<Vec<usize>>> {
        self.ints(name)?.map(|values| sizes_of(name, &values, range, count)).transpose()
    }

    pub(crate) fn floats(&mut self, name: &str) -> RuleResult<Option<Vec<f64>>> {
        let found = self.find(name, ty::FLOATS, "a list of floats")?;
        Ok(found.map(|attribute| attribute.floats.iter().map(|&x| shortest(x)).collect()))
    }

    pub(crate) fn strings(&mut self, name: &str) -> RuleResult<Option<Vec<String>>> {
        let Some(attribute) = self.find(name, ty::STRINGS, "a list of strings")? else {
            return Ok(None);
        };
        let texts = attribute.strings.iter().map(|s| std::str::from_utf8(s).map(str::to_owned));
        texts.collect::<Result<_, _>>().map(Some).map_err(|_| invalid(name, "is not UTF-8"))
    }

    pub(crate) fn tensor(&mut self, name: &str) -> RuleResult<Option<&'m TensorProto>> {
        match self.find(name, ty::TENSOR, "a tensor")? {
            None => Ok(None),
            Some(attribute) => attribute.t.as_deref().map(Some).ok_or_else(|| invalid(name, "is empty")),
        }
    }

    pub(crate) fn sparse_tensor(&mut self, name: &str) -> RuleResult<Option<&'m SparseTensorProto>> {
        match self.find(name, ty::SPARSE_TENSOR, "a sparse tensor")? {
            None => Ok(None),
            Some(attribute) => {
                attribute.sparse_tensor.as_deref().map(Some).ok_or_else(|| invalid(name, "is empty"))
            }
        }
    }

    pub(crate) fn graph(&mut self, name: &str) -> RuleResult<&'m GraphProto> {
        let attribute = self.find(name, ty::GRAPH, "a graph")?;
        attribute.and_then(|attribute| attribute.g.as_deref()).ok_or_else(|| invalid(name, "is missing"))
    }

    /// An error when an attribute was not read: it would be ignored silently.
    pub(crate) fn finish(&self) -> RuleResult<()> {
        match self.attributes.iter().zip(&self.read).find(|(_, read)| !**read) {
            None => Ok(()),
            Some((attribute, _)) => {
                let what = kiln_types::quoted(attribute.name);
                Err(RuleError::Unsupported { what: format!("the attribute {what} of this operator") })
            }
        }
    }
}

/// The greatest size along an axis that windows have anything to do with: products of two are sizes yet.
pub(crate) const MAX_SIZE: usize = i32::MAX as usize;

/// Sizes from an attribute or a constant operand, each within a range, and so many if that is known.
pub(crate) fn sizes_of(
    name: &str,
    values: &[i64],
    range: RangeInclusive<usize>,
    count: Option<usize>,
) -> RuleResult<Vec<usize>> {
    if let Some(count) = count.filter(|&count| count != values.len()) {
        return Err(misfit(name, format!("has {} entries, must have {count}", values.len())));
    }
    let size = |&value: &i64| usize::try_from(value).ok().filter(|size| range.contains(size));
    let sizes: Option<Vec<usize>> = values.iter().map(size).collect();
    sizes.ok_or_else(|| {
        invalid(name, format!("is {values:?}, must lie between {} and {}", range.start(), range.end()))
    })
}

/// The `f64` with the same shortest decimal form: an epsilon of `1e-5` was meant, not `9.999999747378752e-6`.
fn shortest(x: f32) -> f64 {
    x.to_string().parse().unwrap_or(f64::from(x))
}
