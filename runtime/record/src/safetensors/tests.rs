use super::*;
use alloc::{string::ToString, vec};

fn sample() -> Vec<TensorToWrite> {
    let bias = TensorData::new(vec![0.5_f32, -2.0], [2]);
    vec![
        TensorToWrite::new("a.bias", bias).stored_as(DType::F16),
        TensorToWrite::new("b.flag", TensorData::new(vec![7_u8], [1])),
        TensorToWrite::new("a.weight", TensorData::new(vec![1.0_f32, 2.0, 3.0, 4.0], [2, 2])),
    ]
}

#[test]
fn a_record_round_trips() {
    let bytes = to_vec(&sample(), &BTreeMap::new()).unwrap();
    let record = Safetensors::read(Bytes::from_vec(bytes)).unwrap();
    assert_eq!(record.version(), Some(1));
    assert_eq!(record.paths().collect::<Vec<_>>(), ["a.bias", "a.weight", "b.flag"]);
    assert_eq!(record.original_dtype("a.bias"), Some(DType::F32));
    for tensor in sample() {
        assert_eq!(record.tensor(&tensor.path), Some(tensor.data.convert_dtype(tensor.stored)));
    }
}

#[test]
fn the_data_is_aligned_and_the_order_of_the_input_does_not_matter() {
    let mut tensors = sample();
    let bytes = to_vec(&tensors, &BTreeMap::new()).unwrap();
    tensors.reverse();
    assert_eq!(bytes, to_vec(&tensors, &BTreeMap::new()).unwrap());
    let (_, start) = Header::read(&bytes).unwrap();
    assert_eq!(start % 64, 0);
}

#[test]
fn two_tensors_cannot_have_one_path() {
    let mut tensors = sample();
    tensors.push(TensorToWrite::new("b.flag", TensorData::new(vec![8_u8], [1])));
    let error = to_vec(&tensors, &BTreeMap::new()).unwrap_err();
    assert_eq!(error.to_string(), "the record could not be written: there are two parameters at \"b.flag\"");
}

/// A file with this header and `data` zero bytes.
fn file(header: &str, data: usize) -> Bytes {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    Bytes::from_vec(bytes)
}

#[test]
fn what_is_wrong_with_a_file_is_said() {
    struct Case {
        file: Bytes,
        says: &'static str,
    }
    let entry = |dtype: &str, shape: &str, offsets: &str| {
        alloc::format!(r#"{{"t":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#)
    };
    let cases = [
        Case { file: Bytes::from_vec(vec![1, 2]), says: "shorter than 8 bytes" },
        Case { file: Bytes::from_vec(vec![0xff; 9]), says: "longer than 100 MB" },
        Case { file: Bytes::from_vec(vec![9, 0, 0, 0, 0, 0, 0, 0, b'{']), says: "ends inside its header" },
        Case { file: file("[]", 0), says: "expected an object with tensors" },
        Case { file: file(&entry("F32", "[1]", "[0,8]"), 8), says: "cannot lie at bytes 0..8 of 8" },
        Case { file: file(&entry("F32", "[2]", "[0,8]"), 4), says: "bytes 0..8 of 4; the file ends early" },
        Case { file: file(&entry("F32", "[2]", "[8,0]"), 8), says: "cannot lie" },
        Case {
            file: file(&entry("F32", "[18446744073709551615,8]", "[0,8]"), 8),
            says: "cannot lie at bytes 0..8 of 8",
        },
        Case { file: file(&entry("F32", "[2]", "[0,8]"), 12), says: "4 bytes at the end" },
        Case { file: file(&entry("F32", "[2]", "[4,12]"), 12), says: "leaves a gap" },
        Case {
            file: file(
                r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}"#,
                2,
            ),
            says: "tensor \"b\" at bytes 1..2 shares bytes",
        },
        Case { file: file(&entry("Q4", "[2]", "[0,8]"), 8), says: "tensor \"t\": " },
        Case { file: file(r#"{"__metadata__":{"kiln.format":"3"}}"#, 0), says: "format version 3" },
        Case { file: file(r#"{"__metadata__":{"kiln.ids":"[1]"}}"#, 0), says: "kiln.ids: " },
        Case {
            file: file(
                r#"{"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#,
                0,
            ),
            says: "tensor \"t\" is there twice",
        },
        Case {
            file: file(r#"{"__metadata__":{"a":"1"},"__metadata__":{"a":"2"}}"#, 0),
            says: "there are two `__metadata__`",
        },
    ];
    let shape = vec!["1"; 10_000].join(",");
    let long = Case { file: file(&entry("F32", &format!("[{shape}]"), "[0,8]"), 8), says: "of F32 [1, 1, " };
    for Case { file, says } in cases.into_iter().chain([long]) {
        let error = Safetensors::read(file).unwrap_err().to_string();
        assert!(error.contains(says), "{error:?} does not say {says:?}");
        assert!(error.chars().count() < 2_100, "{} characters", error.chars().count());
    }
}

#[cfg(feature = "std")]
#[test]
fn a_saved_file_is_replaced_and_mapped() {
    let path =
        std::env::temp_dir().join(alloc::format!("kiln-safetensors-{}.safetensors", std::process::id()));
    save(&path, &sample(), &BTreeMap::new()).unwrap();
    let first = Safetensors::open(&path).unwrap();
    save(&path, &[], &BTreeMap::new()).unwrap();
    assert_eq!(first.tensor("a.weight"), Some(sample().remove(2).data));
    assert_eq!(Safetensors::open(&path).unwrap().paths().count(), 0);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn integers_of_four_bits_are_packed() {
    let odd = TensorData::new(vec![-8_i32, 7, -1, 0, 3], [5, 1]).convert_dtype(DType::I4);
    let even = TensorData::new(vec![0_i32, 15, 8, 1], [2, 2]).convert_dtype(DType::U4);
    let plain = TensorData::new(vec![1_u8], [1]);
    let tensors = [("odd", &odd), ("even", &even), ("plain", &plain)]
        .map(|(path, data)| TensorToWrite::new(path, data.clone()));
    let bytes = to_vec(&tensors, &BTreeMap::new()).unwrap();
    let (header, start) = Header::read(&bytes).unwrap();
    // Whoever does not know what they are finds bytes.
    assert_eq!(
        (header.tensors["odd"].dtype(), header.tensors["odd"].shape.clone()),
        (Some(DType::U8), vec![3])
    );
    assert_eq!(bytes.len() - start, 3 + 2 + 1);
    let record = Safetensors::read(Bytes::from_vec(bytes)).unwrap();
    assert_eq!(record.version(), Some(2));
    assert_eq!(
        record.entry("even").map(|entry| (entry.dtype(), entry.shape.clone())),
        Some((Some(DType::U4), vec![2, 2]))
    );
    assert_eq!((record.tensor("odd"), record.tensor("even")), (Some(odd), Some(even)));
    assert_eq!(record.tensor("plain"), Some(plain));
}

#[test]
fn packed_tensors_that_lie_are_refused() {
    let cases = [
        (r#"{\"x\":{\"dtype\":\"I4\",\"shape\":[7]}}"#, "cannot hold I4 [7]"),
        (r#"{\"x\":{\"dtype\":\"I4\",\"shape\":[4]}}"#, "cannot hold I4 [4]"),
        (r#"{\"x\":{\"dtype\":\"I4\",\"shape\":[18446744073709551615, 3]}}"#, "cannot hold I4"),
        (r#"{\"x\":{\"dtype\":\"I8\",\"shape\":[3]}}"#, "cannot hold I8 [3]"),
        (r#"{\"x\":{\"dtype\":\"I3\",\"shape\":[3]}}"#, "I3"),
        (r#"{\"y\":{\"dtype\":\"I4\",\"shape\":[5]}}"#, "is not there"),
        (r#"{\"x\":{\"dtype\":\"I4\",\"shape\":[-1]}}"#, "kiln.packed"),
        ("[]", "kiln.packed"),
    ];
    for (packed, says) in cases {
        let header = format!(
            r#"{{"__metadata__":{{"kiln.format":"2","kiln.packed":"{packed}"}},"x":{{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}}}"#
        );
        let error = Safetensors::read(file(&header, 3)).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    let foreign = r#"{"x":{"dtype":"I4","shape":[3],"data_offsets":[0,3]}}"#;
    assert!(Safetensors::read(file(foreign, 3)).is_err());
}

#[test]
fn floats_of_eight_bits_are_tensors_of_sixteen() {
    let header = r#"{"a":{"dtype":"F8_E4M3","shape":[2,1],"data_offsets":[0,2]},"b":{"dtype":"F8_E8M0","shape":[1],"data_offsets":[2,3]}}"#;
    let mut bytes = file(header, 0).to_vec();
    bytes.extend([0x7e, 0x81, 0x80]);
    let record = Safetensors::read(Bytes::from_vec(bytes)).unwrap();
    let (a, b) = (record.tensor("a").unwrap(), record.tensor("b").unwrap());
    assert_eq!((a.dtype, b.dtype), (DType::F16, DType::BF16));
    assert_eq!(a.convert_dtype(DType::F32), TensorData::new(vec![448.0_f32, -0.001_953_125], [2, 1]));
    assert_eq!(b.convert_dtype(DType::F32), TensorData::new(vec![2.0_f32], [1]));
}

#[test]
fn what_no_tensor_holds_is_told_by_its_name() {
    let entry = |dtype: &str, size: usize| {
        file(&format!(r#"{{"t":{{"dtype":"{dtype}","shape":[4],"data_offsets":[0,{size}]}}}}"#), size)
    };
    for (dtype, size, says) in
        [("C64", 32, "complex numbers (C64)"), ("F4", 2, "floats of 4 bits (F4)"), ("F6_E3M2", 3, "6 bits")]
    {
        let error = Safetensors::read(entry(dtype, size)).unwrap_err().to_string();
        assert!(error.contains("tensor \"t\"") && error.contains(says), "{error}");
        let record = Safetensors::read_any(entry(dtype, size)).unwrap();
        assert!(record.tensor("t").is_none() && record.entry("t").is_some());
        assert!(
            Safetensors::read_any(entry(dtype, size + 1)).unwrap_err().to_string().contains("cannot lie")
        );
    }
}
