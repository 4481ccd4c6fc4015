//! The tests that hold generated source against golden data.

use crate::names::{self, Names, ident};
use crate::print::{markers, print};
use crate::{CodegenError, Defect, Options, RecordPath, literals};
use kiln_types::{DType, DTypeKind, FloatDType, Precision};
use proc_macro2::{Literal, TokenStream};
use quote::{format_ident, quote};

/// One test.
#[derive(Clone, Debug)]
pub struct GoldenTest {
    /// What the data set is called; of any text an identifier is made.
    pub name: String,
    /// The file with its inputs and outputs.
    pub data: RecordPath,
    /// The dtype in which the model computes, if it is not the file's.
    pub dtype: Option<FloatDType>,
    /// What its products are computed of.
    pub precision: Precision,
}

/// A module of tests for a model that takes `inputs`, each of a dtype and a rank, and yields `outputs` tensors.
pub fn golden_tests(
    tests: &[GoldenTest],
    inputs: &[(DType, usize)],
    outputs: usize,
    options: &Options,
) -> Result<String, CodegenError> {
    let runtime = crate::runtime_ident(options)?;
    let model = ident(&options.model_name);
    let mut taken = Names::default();
    let tests = tests.iter().map(|golden| {
        let name = ident(&taken.fresh(&names::snake(&golden.name, "data_set")));
        let blank = markers::blank();
        let tolerance = tolerance(golden, &runtime);
        let body = test(&golden.data, inputs, outputs, &runtime, &model, &tolerance);
        quote! {
            #blank
            #[test]
            fn #name() { #body }
        }
    });
    let tests: Vec<TokenStream> = tests.collect();
    let tensor = (!inputs.is_empty()).then(|| quote!(use #runtime::tensor::Tensor;));
    let tokens = quote! {
        #[cfg(test)]
        mod golden {
            use super::#model;
            use #runtime::backend::NdArray;
            use #runtime::golden::{Golden, Tolerance};
            #tensor
            #(#tests)*
        }
    };
    print("", tokens).map_err(|error| Defect::Print(error).into())
}

/// How far off the outputs may be.
fn tolerance(golden: &GoldenTest, runtime: &proc_macro2::Ident) -> TokenStream {
    match (golden.dtype.map(DType::from), golden.precision) {
        (None | Some(DType::F32), Precision::F32) => quote!(Tolerance::default()),
        (None | Some(DType::F32), Precision::Bf16) => {
            quote!(Tolerance::products_of(#runtime::tensor::Precision::Bf16))
        }
        (Some(dtype), _) => {
            let variant = ident(&format!("{dtype:?}"));
            quote!(Tolerance::computed_in(#runtime::tensor::DType::#variant))
        }
    }
}

/// Loads the record and the data, runs, compares.
fn test(
    data: &RecordPath,
    inputs: &[(DType, usize)],
    outputs: usize,
    runtime: &proc_macro2::Ident,
    model: &proc_macro2::Ident,
    tolerance: &TokenStream,
) -> TokenStream {
    let path = data.tokens();
    let load = inputs.iter().enumerate().map(|(i, (dtype, rank))| {
        let (x, message) = (format_ident!("x{i}"), literals::string(&format!("input {i}")));
        let (i, rank) = (Literal::usize_unsuffixed(i), Literal::usize_unsuffixed(*rank));
        let kind = match dtype.kind() {
            DTypeKind::Float => TokenStream::new(),
            DTypeKind::Int => quote!(, #runtime::tensor::Int),
            DTypeKind::Bool => quote!(, #runtime::tensor::Bool),
        };
        quote! {
            let data = golden.input(#i).expect(#message);
            let dtype = data.dtype;
            let #x = Tensor::<NdArray, #rank #kind>::from_data_dtype(data, &Default::default(), dtype);
        }
    });
    let x: Vec<_> = (0..inputs.len()).map(|i| format_ident!("x{i}")).collect();
    let y: Vec<_> = (0..outputs).map(|i| format_ident!("y{i}")).collect();
    let pattern = if let [y] = y.as_slice() { quote!(#y) } else { quote!((#(#y),*)) };
    let compare = y.iter().enumerate().map(|(i, y)| {
        let i = Literal::usize_unsuffixed(i);
        quote!(golden.assert_output(#i, &#y.into_data(), #tolerance);)
    });
    quote! {
        let golden = Golden::open(#path).expect("golden data");
        let model = #model::<NdArray>::default();
        #(#load)*
        let #pattern = model.forward(#(#x),*);
        #(#compare)*
    }
}
