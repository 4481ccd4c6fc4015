//! The tests that hold source without a runtime against golden data.

use crate::error::StandaloneError;
use crate::spelling::{int, rust_type};
use kiln_codegen::RecordPath;
use kiln_codegen::names::{self, Names, ident};
use kiln_codegen::print::{markers, print};
use kiln_types::{DType, TensorData};
use proc_macro2::TokenStream;
use quote::{format_ident, quote};

/// A data set as a test.
#[derive(Clone, Debug)]
pub struct GoldenTest {
    /// What the data set is called; of any text an identifier is made.
    pub name: String,
    /// The file with its numbers, as [`GoldenTest::bytes`] are.
    pub data: RecordPath,
    /// Dtypes and lengths of the inputs.
    pub inputs: Vec<(DType, usize)>,
    /// Dtypes and lengths of the outputs.
    pub outputs: Vec<(DType, usize)>,
}

impl GoldenTest {
    /// The contents of the file: inputs and outputs one behind the other, little-endian.
    pub fn bytes<'t>(tensors: impl IntoIterator<Item = &'t TensorData>) -> Vec<u8> {
        tensors.into_iter().flat_map(|tensor| tensor.bytes.iter().copied()).collect()
    }
}

/// A module of tests of a model.
pub fn golden_tests(tests: &[GoldenTest], model_name: &str) -> Result<String, StandaloneError> {
    let model = ident(model_name);
    let mut taken = Names::default();
    let tests = tests.iter().map(|golden| {
        let name = ident(&taken.fresh(&names::snake(&golden.name, "data_set")));
        let body = test(golden)?;
        let blank = markers::blank();
        Ok(quote!(#blank #[test] fn #name() { #body }))
    });
    let tests = tests.collect::<Result<Vec<TokenStream>, StandaloneError>>()?;
    let blank = markers::blank();
    let tokens = quote! {
        #[cfg(test)]
        mod golden {
            extern crate std;
            #blank
            use super::#model;
            use std::sync::Mutex;
            use std::vec::Vec;
            #blank
            /// In memory of the program, since a thread's stack may be smaller.
            static MODEL: Mutex<#model> = Mutex::new(#model::new());
            #blank
            /// Elements of so many bytes each.
            fn read<const N: usize, T>(bytes: &mut &[u8], len: usize, from: impl Fn([u8; N]) -> T) -> Vec<T> {
                let (elements, rest) = bytes.split_at(len * N);
                *bytes = rest;
                elements.chunks_exact(N).map(|element| from(element.try_into().unwrap())).collect()
            }
            #blank
            /// Whether elements differ by no more than `1e-4 + 1e-3 * |expected|`.
            fn assert_close(output: usize, actual: impl Iterator<Item = f64>, expected: impl Iterator<Item = f64>) {
                for (at, (actual, expected)) in actual.zip(expected).enumerate() {
                    let is_close = (actual - expected).abs() <= 1e-4 + 1e-3 * expected.abs();
                    let is_same = actual == expected || (actual.is_nan() && expected.is_nan());
                    assert!(is_close || is_same, "output {output}, element {at}: {actual} instead of {expected}");
                }
            }
            #(#tests)*
        }
    };
    Ok(print("", tokens)?)
}

/// Reads a tensor from the data.
fn reading(dtype: DType, len: usize) -> Result<TokenStream, StandaloneError> {
    let ty = ident(rust_type(dtype).ok_or(StandaloneError::Missing("a type"))?);
    let len = int(len);
    Ok(match dtype.is_bool() {
        true => quote!(read(&mut data, #len, |[byte]: [u8; 1]| byte != 0)),
        false => quote!(read(&mut data, #len, #ty::from_le_bytes)),
    })
}

/// Runs on the inputs, and compares.
fn test(golden: &GoldenTest) -> Result<TokenStream, StandaloneError> {
    let path = golden.data.tokens();
    let mut statements = TokenStream::new();
    let mut args = Vec::new();
    for (n, &(dtype, len)) in golden.inputs.iter().enumerate() {
        let (x, read) = (format_ident!("x{n}"), reading(dtype, len)?);
        statements.extend(quote!(let #x = #read;));
        args.push(quote!(#x.as_slice().try_into().unwrap()));
    }
    let y: Vec<_> = (0..golden.outputs.len()).map(|n| format_ident!("y{n}")).collect();
    let pattern = if let [y] = y.as_slice() { quote!(#y) } else { quote!((#(#y),*)) };
    let mut compare = TokenStream::new();
    for (n, (y, &(dtype, len))) in y.iter().zip(&golden.outputs).enumerate() {
        let (n, read) = (int(n), reading(dtype, len)?);
        let number = match dtype {
            DType::Bool => quote!(f64::from(u8::from(x))),
            _ => quote!(x as f64),
        };
        compare.extend(quote! {
            let expected = #read;
            assert_close(#n, #y.iter().map(|&x| #number), expected.iter().map(|&x| #number));
        });
    }
    Ok(quote! {
        let mut data: &[u8] = include_bytes!(#path);
        #statements
        let mut model = MODEL.lock().unwrap();
        let #pattern = model.forward(#(#args),*);
        #compare
        assert!(data.is_empty(), "there are other numbers than the model's");
    })
}
