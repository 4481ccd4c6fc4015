//! Decodes messages after a look at what they take: an empty one is two bytes of a file, and some hundred in memory.

use super::proto::*;
use crate::error::ImportErrorKind;
use bytes::Bytes;
use prost::Message;

/// Memory for the messages of any file.
const FREE: u64 = 1 << 27;
/// Memory for messages that one byte of a file may ask for: an ordinary model is below it, whatever is [`FREE`].
const PER_BYTE: u64 = 32;

/// Decodes a message.
///
/// # Errors
/// When the bytes are none, or hold so many small ones that decoding them would take memory out of proportion.
pub(super) fn decode<M: Message + Default + Nested>(bytes: Bytes) -> Result<M, ImportErrorKind> {
    let allowed = (bytes.len() as u64).saturating_mul(PER_BYTE).saturating_add(FREE);
    if memory(&bytes, M::nested, allowed).is_none() {
        return Err(ImportErrorKind::Disproportionate { what: "messages" });
    }
    M::decode(bytes).map_err(|error| ImportErrorKind::Malformed { format: "ONNX", reason: error.to_string() })
}

/// Which fields of a message are messages.
pub(super) trait Nested {
    /// The message that the field of this number holds.
    fn nested(tag: u32) -> Option<Layout>;
}

/// What the count has to know of a message.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    size: usize,
    nested: fn(u32) -> Option<Layout>,
}

impl Layout {
    fn of<M: Nested>() -> Self {
        Self { size: size_of::<M>(), nested: M::nested }
    }
}

macro_rules! nested {
    ($($message:ident { $($tag:literal $field:ident),* })*) => {
        $(impl Nested for $message {
            fn nested(tag: u32) -> Option<Layout> {
                match tag {
                    $($tag => Some(Layout::of::<$field>()),)*
                    _ => None,
                }
            }
        })*

        /// Every message that is declared here, for the test that compares with what is decoded.
        #[cfg(test)]
        fn declared(visit: &mut impl tests::Visit) {
            $(visit.message::<$message>();)*
        }
    };
}

nested! {
    ModelProto { 7 GraphProto, 8 OperatorSetIdProto, 14 StringStringEntryProto, 25 FunctionProto }
    GraphProto {
        1 NodeProto, 5 TensorProto, 11 ValueInfoProto, 12 ValueInfoProto, 13 ValueInfoProto, 15 SparseTensorProto,
        16 StringStringEntryProto
    }
    FunctionProto {
        7 NodeProto, 9 OperatorSetIdProto, 11 AttributeProto, 12 ValueInfoProto, 14 StringStringEntryProto
    }
    NodeProto { 5 AttributeProto, 9 StringStringEntryProto }
    AttributeProto {
        5 TensorProto, 6 GraphProto, 10 TensorProto, 11 GraphProto, 14 TypeProto, 15 TypeProto, 22 SparseTensorProto,
        23 SparseTensorProto
    }
    TensorProto { 13 StringStringEntryProto, 16 StringStringEntryProto }
    SparseTensorProto { 1 TensorProto, 2 TensorProto }
    SequenceProto { 3 TensorProto, 6 MapProto }
    MapProto { 5 SequenceProto }
    ValueInfoProto { 2 TypeProto, 4 StringStringEntryProto }
    TypeProto {
        1 TensorTypeProto, 4 ElementTypeProto, 5 MapTypeProto, 8 TensorTypeProto, 9 ElementTypeProto
    }
    TensorTypeProto { 2 TensorShapeProto }
    ElementTypeProto { 1 TypeProto }
    MapTypeProto { 2 TypeProto }
    TensorShapeProto { 1 DimensionProto }
    DimensionProto { }
    OperatorSetIdProto { }
    StringStringEntryProto { }
}

/// Memory for the messages inside a message, as far as the decoder comes before it meets what is malformed; `None` when it is more
/// than is allowed.
fn memory(bytes: &[u8], root: fn(u32) -> Option<Layout>, allowed: u64) -> Option<u64> {
    let mut used = 0;
    let mut reader = Reader { rest: bytes };
    // Messages inside each other, and how many bytes are left of the file where each ends.
    let mut open = vec![(root, 0)];
    while let Some(&(nested, end)) = open.last() {
        if reader.rest.len() == end {
            open.pop();
            continue;
        }
        // A field that goes on behind the end of its message is malformed.
        let Some((tag, length)) = (reader.rest.len() > end).then(|| reader.field()).flatten() else {
            break;
        };
        match nested(tag).zip(length) {
            Some((layout, length)) => {
                used += layout.size as u64;
                if used > allowed {
                    return None;
                }
                let Some(end) = reader.rest.len().checked_sub(length) else { break };
                open.push((layout.nested, end));
            }
            None => {
                if reader.skip(length.unwrap_or(0)).is_none() {
                    break;
                }
            }
        }
    }
    Some(used)
}

/// Reads fields in the wire format of protocol buffers; nothing where the bytes are malformed.
struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn skip(&mut self, length: usize) -> Option<()> {
        self.rest = self.rest.get(length..)?;
        Some(())
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// The next field's number, and the length of its contents when they say one and are still to be read.
    fn field(&mut self) -> Option<(u32, Option<usize>)> {
        let mut groups = 0u32;
        loop {
            let key = self.varint()?;
            let tag = u32::try_from(key >> 3).ok()?;
            let mut length = None;
            match key & 7 {
                0 => {
                    self.varint()?;
                }
                1 => self.skip(8)?,
                2 => length = Some(usize::try_from(self.varint()?).ok()?),
                3 => groups = groups.checked_add(1)?,
                4 => groups = groups.checked_sub(1)?,
                5 => self.skip(4)?,
                _ => return None,
            }
            if groups == 0 {
                return Some((tag, length));
            }
            // The decoder skips all of a group.
            self.skip(length.unwrap_or(0))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) trait Visit {
        fn message<M: Message + Default + Nested>(&mut self);
    }

    /// Compares with the declarations in `proto`.
    struct Compare(usize);

    impl Visit for Compare {
        fn message<M: Message + Default + Nested>(&mut self) {
            self.0 += 1;
            for tag in 1..64u32 {
                // Eight times the same letter: text, numbers and floats, but no message, since its fixed-size field is cut off.
                let mut field = Vec::new();
                prost::encoding::encode_key(tag, prost::encoding::WireType::LengthDelimited, &mut field);
                field.extend(*b"\x08aaaaaaaa");
                let decoded = M::decode(field.as_slice());
                let refused =
                    decoded.is_err_and(|error| !error.to_string().contains("wire type: LengthDelimited"));
                assert_eq!(M::nested(tag).is_some(), refused, "{} {tag}", std::any::type_name::<M>());
                let Some(layout) = M::nested(tag) else { continue };
                // An empty one is decoded too, and counted.
                let (key, _) = field.split_at(field.len() - 9);
                let empty = [key, &[0]].concat();
                assert!(M::decode(empty.as_slice()).is_ok());
                assert_eq!(memory(&empty, M::nested, u64::MAX), Some(layout.size as u64));
            }
        }
    }

    #[test]
    fn messages_are_what_is_decoded() {
        let mut compare = Compare(0);
        declared(&mut compare);
        assert_eq!(compare.0, include_str!("proto.rs").matches(", Message)]").count());
    }

    #[test]
    fn ordinary_models_are_in_proportion() {
        let cases = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/cases");
        for case in std::fs::read_dir(cases).expect("the cases") {
            let path = case.expect("a case").path().join("model.onnx");
            let Ok(model) = std::fs::read(&path) else { continue };
            let used = memory(&model, ModelProto::nested, u64::MAX).expect("all is allowed");
            println!("{:.1} {}", used as f64 / model.len() as f64, path.display());
            assert!(used <= PER_BYTE * model.len() as u64, "{}", path.display());
        }
    }

    #[test]
    fn all_levels_are_counted_and_malformed_ones_end_it() {
        let sizes = |parts: &[usize]| Some(parts.iter().sum::<usize>() as u64);
        let [graph, node, attribute] =
            [size_of::<GraphProto>(), size_of::<NodeProto>(), size_of::<AttributeProto>()];
        let count = |bytes: &[u8]| memory(bytes, ModelProto::nested, u64::MAX);
        // A graph of two nodes, one with an attribute.
        assert_eq!(count(&[0x3a, 6, 0x0a, 2, 0x2a, 0, 0x0a, 0]), sizes(&[graph, node, node, attribute]));
        // A group is skipped, with what is in it.
        assert_eq!(count(&[0x0b, 0x3a, 2, 0x0a, 0, 0x0c, 0x3a, 0]), sizes(&[graph]));
        // The decoder reads a node that is longer than its graph before it refuses it.
        assert_eq!(
            count(&[0x3a, 2, 0x0a, 4, 0x2a, 0, 0x2a, 0, 0x3a, 0]),
            sizes(&[graph, node, attribute, attribute])
        );
        for malformed in [&[0x3a][..], &[0x0c], &[0x0e], &[0xff; 12], &[0x09, 0], &[0x0b, 0x3a]] {
            assert_eq!(count(malformed), Some(0), "{malformed:?}");
        }
        assert_eq!(memory(&[0x3a, 0, 0x3a, 0], ModelProto::nested, graph as u64), None);
    }
}
