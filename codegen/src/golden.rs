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
        let tolerance = tolerance(golden, options.half_precision, &runtime);
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

/// How far off the outputs may be of a model whose record holds `half` floats or whole ones.
fn tolerance(golden: &GoldenTest, half: bool, runtime: &proc_macro2::Ident) -> TokenStream {
    match (golden.dtype.map(DType::from), golden.precision, half) {
        (None | Some(DType::F32), Precision::F32, false) => quote!(Tolerance::default()),
        (None | Some(DType::F32), Precision::F32, true) => {
            quote!(Tolerance::weights_in(#runtime::tensor::DType::F16))
        }
        // That of products is larger.
        (None | Some(DType::F32), Precision::Bf16, _) => {
            quote!(Tolerance::products_of(#runtime::tensor::Precision::Bf16))
        }
        (Some(dtype), _, _) => {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tolerance_is_that_of_what_is_narrowest() {
        let source = |half_precision, dtype, precision| {
            let test = GoldenTest {
                name: "data".to_owned(),
                data: RecordPath::OutDir("data".to_owned()),
                dtype,
                precision,
            };
            let options = Options { half_precision, ..Options::default() };
            golden_tests(&[test], &[(DType::F32, 2)], 1, &options).expect("tests")
        };
        let cases = [
            (source(false, None, Precision::F32), "Tolerance::default()"),
            (source(true, None, Precision::F32), "Tolerance::weights_in(kiln::tensor::DType::F16)"),
            (source(true, None, Precision::Bf16), "Tolerance::products_of(kiln::tensor::Precision::Bf16)"),
            (
                source(true, Some(FloatDType::BF16), Precision::F32),
                "Tolerance::computed_in(kiln::tensor::DType::BF16)",
            ),
        ];
        for (source, tolerance) in cases {
            assert!(source.split_whitespace().collect::<String>().contains(tolerance), "{source}");
        }
    }
}
