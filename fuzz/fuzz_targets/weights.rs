//! The checkpoint reader: any bytes end in an error, or in tensors whose data can be read or are refused.

#![no_main]

use kiln_types::Bytes;
use kiln_weights::{Checkpoint, OpenOptions};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let file = Bytes::from_vec(data.to_vec());
    if let Ok(checkpoint) = Checkpoint::read(file, "fuzz", &OpenOptions::default()) {
        for (path, tensor) in checkpoint.tensors() {
            assert_eq!(checkpoint.tensor(path).map(|found| found.shape()), Some(tensor.shape()));
            // A view may repeat its elements up to a limit that is too slow to reach here again and again.
            if tensor.num_bytes() < 1 << 20 {
                let _ = tensor.data();
            }
        }
        let _ = checkpoint.plain_data();
    }
});
