//! Modules without a backend parameter: they hold no parameters.

use super::display;
use crate::fields::with_param;
use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, Result};

/// Implements `Module` for every backend; nothing is visited, moved or recorded.
pub fn expand(kiln: &TokenStream, input: &DeriveInput, custom_display: bool) -> Result<TokenStream> {
    let name = &input.ident;
    let (_, args, clause) = input.generics.split_for_impl();
    let generics = with_param(&input.generics, quote!(B: #kiln::tensor::backend::Backend))?;
    let (params, ..) = generics.split_for_impl();
    let autodiff = with_param(&input.generics, quote!(B: #kiln::tensor::backend::AutodiffBackend))?;
    let (autodiff_params, ..) = autodiff.split_for_impl();
    let display = display::implement(kiln, input, &input.generics, false, custom_display)?;
    Ok(quote! {
        #[automatically_derived]
        impl #params #kiln::module::Module<B> for #name #args #clause {
            type Record = #kiln::module::ConstantRecord;

            fn num_params(&self) -> usize {
                0
            }

            fn visit<Visitor: #kiln::module::ModuleVisitor<B>>(&self, _visitor: &mut Visitor) {}

            fn map<Mapper: #kiln::module::ModuleMapper<B>>(self, _mapper: &mut Mapper) -> Self {
                self
            }

            fn collect_devices(
                &self,
                devices: #kiln::module::Devices<B>,
            ) -> #kiln::module::Devices<B> {
                devices
            }

            fn to_device(self, _device: &B::Device) -> Self {
                self
            }

            fn fork(self, _device: &B::Device) -> Self {
                self
            }

            fn into_record(self) -> Self::Record {
                #kiln::module::ConstantRecord
            }

            fn load_record(self, _record: Self::Record) -> Self {
                self
            }
        }

        #[automatically_derived]
        impl #autodiff_params #kiln::module::AutodiffModule<B> for #name #args #clause {
            type InnerModule = Self;

            fn valid(&self) -> Self::InnerModule {
                ::core::clone::Clone::clone(self)
            }
        }

        #display
    })
}
