//! The methods of the `Module`, `AutodiffModule` and `Clone` implementations.

use super::Parts;
use super::subject::{Part, Subject};
use crate::fields::Field;
use proc_macro2::{Ident, TokenStream};
use quote::quote;

impl Subject<'_> {
    /// All methods of `Module`.
    pub fn module_methods(&self, record_name: &Ident) -> TokenStream {
        let kiln = self.kiln;
        let module = quote!(#kiln::module::Module::<B>);
        let container = self.container();
        let this = quote!(Self);

        let count = self.for_each_ref(|Part { value, .. }| quote!(count += #module::num_params(#value);));
        let visit = self.for_each_ref(|Part { value, key, origins }| {
            quote! {
                visitor.enter_module(#key, #container);
                #(visitor.visit_origin(#kiln::module::Origin::#origins);)*
                #module::visit(#value, visitor);
                visitor.exit_module(#key, #container);
            }
        });
        let map = self.convert(&this, false, |Part { value, key, .. }| {
            quote!({
                mapper.enter_module(#key, #container);
                let mapped = #module::map(#value, mapper);
                mapper.exit_module(#key, #container);
                mapped
            })
        });
        let devices = self
            .for_each_ref(|Part { value, .. }| quote!(devices = #module::collect_devices(#value, devices);));
        let to_device =
            self.convert(&this, false, |Part { value, .. }| quote!(#module::to_device(#value, device)));
        let fork = self.convert(&this, false, |Part { value, .. }| quote!(#module::fork(#value, device)));
        let into_record = self.convert(
            &quote!(#record_name),
            false,
            |Part { value, .. }| quote!(#module::into_record(#value)),
        );
        let load_record = self.load_record(record_name, &module);
        let check_record = self.check_record(record_name, &module);
        quote! {
            #[allow(unused_mut)]
            fn num_params(&self) -> usize {
                let mut count = 0;
                #count
                count
            }

            #[allow(unused_variables)]
            fn visit<Visitor: #kiln::module::ModuleVisitor<B>>(&self, visitor: &mut Visitor) {
                #visit
            }

            #[allow(unused_variables)]
            fn map<Mapper: #kiln::module::ModuleMapper<B>>(self, mapper: &mut Mapper) -> Self {
                #map
            }

            #[allow(unused_mut)]
            fn collect_devices(
                &self,
                mut devices: #kiln::module::Devices<B>,
            ) -> #kiln::module::Devices<B> {
                #devices
                devices
            }

            #[allow(unused_variables)]
            fn to_device(self, device: &B::Device) -> Self {
                #to_device
            }

            #[allow(unused_variables)]
            fn fork(self, device: &B::Device) -> Self {
                #fork
            }

            fn into_record(self) -> Self::Record {
                #into_record
            }

            #[allow(unused_variables)]
            fn load_record(self, record: Self::Record) -> Self {
                #load_record
            }

            #[allow(unused_variables)]
            fn check_record(&self, record: &Self::Record, check: &mut #kiln::record::RecordCheck) {
                #check_record
            }
        }
    }

    /// The body of `load_record`.
    fn load_record(&self, record_name: &Ident, module: &TokenStream) -> TokenStream {
        match self.parts {
            Parts::Struct { fields, .. } => {
                let values = fields.iter().map(|Field { member, .. }| {
                    quote!(#member: #module::load_record(self.#member, record.#member))
                });
                quote!(Self { #(#values),* })
            }
            Parts::Enum(variants) => {
                let arms = variants.iter().map(|variant| {
                    let name = &variant.name;
                    match &variant.ty {
                        Some(_) => quote! {
                            (Self::#name(module), #record_name::#name(record)) =>
                                Self::#name(#module::load_record(module, record))
                        },
                        None => quote!((Self::#name, #record_name::#name) => Self::#name),
                    }
                });
                let message = format!("the record holds another variant of `{}` than the module", self.name);
                // A variant without parameters, such as an activation, takes nothing from a record; checkpoints of other
                // frameworks do not even say which one it was.
                quote! {
                    #[allow(unreachable_patterns)]
                    match (self, record) {
                        #(#arms,)*
                        (module, _) if !#module::has_params(&module) => module,
                        _ => panic!(#message),
                    }
                }
            }
        }
    }

    /// The body of `check_record`.
    fn check_record(&self, record_name: &Ident, module: &TokenStream) -> TokenStream {
        match self.parts {
            Parts::Struct { fields, .. } => {
                let checks = fields.iter().map(|Field { member, key, .. }| {
                    quote! {
                        check.enter(#key);
                        #module::check_record(&self.#member, &record.#member, check);
                        check.exit();
                    }
                });
                quote!(#(#checks)*)
            }
            Parts::Enum(variants) => {
                let arms = variants.iter().map(|variant| {
                    let name = &variant.name;
                    match &variant.ty {
                        Some(_) => quote! {
                            (Self::#name(module), #record_name::#name(record)) =>
                                #module::check_record(module, record, check)
                        },
                        None => quote!((Self::#name, #record_name::#name) => {}),
                    }
                });
                quote! {
                    #[allow(unreachable_patterns)]
                    match (self, record) {
                        #(#arms,)*
                        (module, _) if !#module::has_params(module) => {}
                        _ => check.other_variant(),
                    }
                }
            }
        }
    }

    /// The method of `AutodiffModule`.
    pub fn valid_method(&self) -> TokenStream {
        let (kiln, name) = (self.kiln, self.name);
        let inner = self.convert(
            &quote!(#name),
            true,
            |Part { value, .. }| quote!(#kiln::module::AutodiffModule::<B>::valid(#value)),
        );
        quote! {
            fn valid(&self) -> Self::InnerModule {
                #inner
            }
        }
    }

    /// The method of `Clone`.
    pub fn clone_method(&self) -> TokenStream {
        let clone = self.convert(
            &quote!(Self),
            true,
            |Part { value, .. }| quote!(::core::clone::Clone::clone(#value)),
        );
        quote! {
            fn clone(&self) -> Self {
                #clone
            }
        }
    }
}
