//! What is known of a model: numbers beside the source, and the struct by which it reads them.

use crate::program::TensorId;
use crate::spelling::rust_type;
use kiln_codegen::names::{self, Names, ident};
use kiln_types::{Bytes, TensorData};
use proc_macro2::{Literal, TokenStream};
use quote::quote;
use std::collections::BTreeMap;

/// A known tensor.
struct Weight {
    name: String,
    data: TensorData,
}

/// Every known tensor that is read.
#[derive(Default)]
pub(crate) struct Weights {
    weights: Vec<Weight>,
    of: BTreeMap<TensorId, usize>,
    names: Names,
}

impl Weights {
    /// The field of a tensor, by its name in the file.
    pub(crate) fn field(&mut self, tensor: TensorId, name: &str, data: &TensorData) -> String {
        let at = *self.of.entry(tensor).or_insert_with(|| {
            let name = self.names.fresh(&names::snake(name, "constant"));
            let mut data = data.clone();
            if data.dtype.is_bool() {
                // Of a byte's values Rust takes two for a bool.
                let flags = data.bytes.iter().map(|&byte| u8::from(byte != 0));
                data.bytes = Bytes::from_vec(flags.collect());
            }
            self.weights.push(Weight { name, data });
            self.weights.len() - 1
        });
        self.weights[at].name.clone()
    }

    /// In the order of the file: wide elements first, so that nothing is between the fields.
    fn ordered(&self) -> Vec<&Weight> {
        let mut weights: Vec<&Weight> = self.weights.iter().collect();
        weights.sort_by_key(|weight| std::cmp::Reverse(weight.data.dtype.size()));
        weights
    }

    /// The fields of the struct.
    pub(crate) fn declarations(&self) -> Vec<TokenStream> {
        let field = |weight: &Weight| {
            let (name, ty) = (ident(&weight.name), ident(rust_type(weight.data.dtype).unwrap_or_default()));
            let len = Literal::usize_unsuffixed(weight.data.num_elements());
            quote!(#name: [#ty; #len])
        };
        let fields = self.ordered().into_iter().map(field);
        // A field for what fills up the file: where numbers need not be aligned, nothing else would.
        let rest = match self.padding() {
            0 => None,
            len => {
                let len = Literal::usize_unsuffixed(len);
                Some(quote!(_padding: [u8; #len]))
            }
        };
        fields.chain(rest).collect()
    }

    /// Whether some are bools.
    pub(crate) fn have_flags(&self) -> bool {
        self.weights.iter().any(|weight| weight.data.dtype.is_bool())
    }

    /// How many bytes fill up the file to whole elements of the widest dtype.
    fn padding(&self) -> usize {
        let widest = self.weights.iter().map(|weight| weight.data.dtype.size()).max().unwrap_or(1);
        let len: usize = self.weights.iter().map(|weight| weight.data.bytes.len()).sum();
        len.next_multiple_of(widest) - len
    }

    /// How many bytes they take.
    pub(crate) fn size(&self) -> u64 {
        self.weights.iter().map(|weight| weight.data.bytes.len() as u64).fold(0, u64::saturating_add)
    }

    /// The contents of the file: the fields one behind the other, little-endian, filled up to whole elements of the widest dtype.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for weight in self.ordered() {
            bytes.extend_from_slice(&weight.data.bytes);
        }
        bytes.resize(bytes.len() + self.padding(), 0);
        bytes
    }
}
