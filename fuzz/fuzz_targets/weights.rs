//! The checkpoint reader: any bytes end in an error, or in tensors whose data can be read or are refused.
//!
//! The bytes are taken as a file, and as the pickle of a legacy file: mutations seldom leave an archive whole.

#![no_main]

use kiln_types::Bytes;
use kiln_weights::{Checkpoint, KeyMap, OpenOptions};
use libfuzzer_sys::fuzz_target;

/// What a legacy file has before its value: magic number, protocol version and facts about the system, all pickled.
const LEGACY_HEAD: &[u8] = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}.";

fn read(file: Vec<u8>, options: &OpenOptions) {
    let Ok(checkpoint) = Checkpoint::read(Bytes::from_vec(file), "fuzz", options) else { return };
    for (path, tensor) in checkpoint.tensors() {
        assert_eq!(checkpoint.tensor(path).map(|found| found.shape()), Some(tensor.shape()));
        // A view may repeat its elements up to a limit that is too slow to reach here again and again.
        if tensor.num_bytes() < 1 << 20 {
            let _ = tensor.data();
            let _ = tensor.transposed().map(|turned| turned.data());
        }
    }
    let _ = checkpoint.plain_data();
    let _ = checkpoint.shared_storages();
    let _ = KeyMap::new([("^(.*)weight$", "${1}gamma")]).map(|map| map.tensors(&checkpoint));
}

fuzz_target!(|data: &[u8]| {
    read(data.to_vec(), &OpenOptions::default());
    read(data.to_vec(), &OpenOptions { top_level_key: Some("model.state_dict".to_owned()) });
    read([LEGACY_HEAD, data].concat(), &OpenOptions::default());
});
