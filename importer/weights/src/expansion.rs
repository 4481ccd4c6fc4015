//! How large tensors may become that show the same bytes of a file many times.

use crate::checkpoint::Entry;
use crate::tensor::LazyTensor;
use crate::{ErrorKind, Result, limits};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many tensors an error names.
const SHOWN: usize = 3;

/// How many characters of a key an error shows.
const KEY_SHOWN: usize = 96;

/// Checks how many bytes the tensors of a file, or of several, are together once each has elements of its own. A file of some
/// kilobytes would else become gigabytes in memory and in records: by strides of zero, or as one storage under many keys.
pub(crate) fn check(entries: &[(String, Entry)], file_bytes: usize) -> Result<()> {
    let tensors = || entries.iter().filter_map(|(key, entry)| Some((key.as_str(), entry.tensor()?)));
    let bytes = tensors().map(|(_, tensor)| tensor.num_bytes()).fold(0, usize::saturating_add);
    let limit = file_bytes.saturating_mul(limits::MAX_EXPANSION).max(limits::MAX_EXPANDED);
    if bytes <= limit {
        return Ok(());
    }
    let views = by_storage(tensors());
    let mut repeated: Vec<_> = views.values().filter(|view| view.bytes > view.storage_bytes).collect();
    repeated.sort_by_key(|view| std::cmp::Reverse(view.bytes));
    let repeated: Vec<&str> = repeated.iter().flat_map(|view| view.keys.iter().copied()).collect();
    let tensors = match repeated.as_slice() {
        [] => String::new(),
        repeated => format!("; these show the same elements again and again: {}", listed(repeated)),
    };
    Err(ErrorKind::Expanded { bytes, file_bytes, tensors, limit }.into())
}

/// The tensors that view one storage.
#[derive(Default)]
struct Views<'a> {
    keys: Vec<&'a str>,
    bytes: usize,
    storage_bytes: usize,
}

fn by_storage<'a>(tensors: impl Iterator<Item = (&'a str, &'a LazyTensor)>) -> BTreeMap<usize, Views<'a>> {
    let mut views: BTreeMap<usize, Views<'a>> = BTreeMap::new();
    for (key, tensor) in tensors {
        // The address only tells storages apart.
        let view = views.entry(Arc::as_ptr(tensor.storage()) as usize).or_default();
        view.keys.push(key);
        view.bytes = view.bytes.saturating_add(tensor.num_bytes());
        view.storage_bytes = tensor.storage().len();
    }
    views
}

/// Keys, or the first of them.
fn listed(keys: &[&str]) -> String {
    let shown =
        keys.iter().take(SHOWN).map(|key| format!("{:?}", key.chars().take(KEY_SHOWN).collect::<String>()));
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if let more @ 1.. = keys.len().saturating_sub(SHOWN) {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{Source, Storage, contiguous_strides};
    use kiln_record::Stored;
    use kiln_types::{Bytes, DType};

    fn storage(bytes: usize) -> Arc<Storage> {
        Arc::new(Storage::new("0", Source::Mapped(Bytes::from_vec(vec![0; bytes])), false))
    }

    fn view(key: &str, shape: &[usize], strides: &[usize], storage: &Arc<Storage>) -> (String, Entry) {
        let stored = Stored::DType(DType::F32);
        let tensor = LazyTensor::new(stored, shape.to_vec(), strides.to_vec(), 0, storage.clone());
        (key.to_owned(), Entry::Tensor(tensor.expect("a view")))
    }

    fn whole(key: &str, elements: usize, storage: &Arc<Storage>) -> (String, Entry) {
        view(key, &[elements], &contiguous_strides(&[elements]), storage)
    }

    /// Each is below the limit of one tensor.
    #[test]
    fn zeros_expanded_to_gigabytes_are_refused_together() {
        let one = |n: usize| view(&format!("m{n}.weight"), &[8192, 8192], &[0, 0], &storage(4));
        assert!(check(&[one(0)], 2_000).is_ok());
        let error = check(&(0..4).map(one).collect::<Vec<_>>(), 2_303).unwrap_err().in_file("exp4.pt");
        assert_eq!(
            error.to_string(),
            "exp4.pt: the tensors are 1073741824 bytes when each has elements of its own, and 268435456 is the limit for a \
             file of 2303 bytes: the larger of 268435456 and 100 times the file; these show the same elements again and \
             again: \"m0.weight\", \"m1.weight\", \"m2.weight\" and 1 more"
        );
    }

    #[test]
    fn one_storage_under_many_keys_is_refused() {
        let shared = storage(4 << 20);
        let tied =
            |count: usize| (0..count).map(|n| whole(&format!("l{n}"), 1 << 20, &shared)).collect::<Vec<_>>();
        // As a layer that is used at every depth of a network, and more.
        assert!(check(&tied(96), 4 << 20).is_ok());
        assert!(check(&tied(101), 4 << 20).is_err());
        // What is small may be repeated as often as anybody likes.
        let small = storage(4_000);
        let tied: Vec<_> = (0..1_000).map(|n| whole(&format!("l{n}"), 1_000, &small)).collect();
        assert!(check(&tied, 5_000).is_ok());
    }

    /// That a storage is compressed is no reason for more: whoever converts it holds all of it.
    #[test]
    fn compressed_storages_have_the_same_limit() {
        let source = Source::Deflated { packed: Bytes::default(), size: 600 << 20, crc: 0 };
        let storage = Arc::new(Storage::new("0", source, false));
        assert!(check(&[whole("weight", 150 << 20, &storage)], 5 << 20).is_err());
        assert!(check(&[whole("weight", 150 << 20, &storage)], 7 << 20).is_ok());
    }
}
