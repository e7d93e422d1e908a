//! Generates the code by which a loadable interface crosses between a host and a plugin: a table of
//! C-ABI functions, one for each method, the plugin's side that fills it and the host's side that
//! calls it.
//!
//! Both sides are generated from the same trait. One side takes arguments and results apart by
//! `Abi::into_raw`, the other puts them together by `Abi::from_raw`, so that a type that cannot
//! cross is a compile error.
//!
//! A plugin may know fewer methods than the host, if the host's trait has bodies for the rest. Such
//! a body runs on a value that forwards every *other* method: for each method with a body there is
//! one type, which omits that one.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};
use syn::{ReturnType, TraitItem, Type};

use crate::parse::{Interface, Method, fnv1a, text};
use crate::pieces::hush;

/// Returns the type of the result, `()` included.
fn output(method: &Method) -> TokenStream {
    match &method.output {
        ReturnType::Default => quote! { () },
        ReturnType::Type(_, ty) => quote! { #ty },
    }
}

fn raw(ty: &Type) -> TokenStream {
    quote! { <#ty as ::refit_objects::plugin_rt::Abi>::Raw }
}

/// Returns whether the trait has a body for the method.
fn defaulted(interface: &Interface, method: &Method) -> bool {
    let body = |item: &TraitItem| matches!(item, TraitItem::Fn(f) if f.sig.ident == method.name && f.default.is_some());
    interface.item.items.iter().any(body)
}

pub(crate) fn expand(interface: &Interface) -> TokenStream {
    if !interface.arguments.loadable {
        return TokenStream::new();
    }
    let trait_name = &interface.item.ident;
    let marker = format_ident!("{trait_name}Interface");
    let vtable = format_ident!("{trait_name}Vtable");
    let hush = hush();
    let fields = interface.methods.iter().map(|method| {
        let (name, types) = (&method.name, method.arguments.iter().map(|(_, ty)| raw(ty)));
        let output = output(method);
        quote! {
            #name: unsafe extern "C" fn(
                *const ::std::ffi::c_void #(, #types)*,
                *mut ::std::mem::MaybeUninit<<#output as ::refit_objects::plugin_rt::Abi>::Raw>,
                ::refit_objects::plugin_rt::Why,
            ) -> ::refit_objects::plugin_rt::Status
        }
    });
    let exported = interface.methods.iter().map(|method| exported(method, &vtable));
    let filled = interface.methods.iter().map(|method| &method.name);
    let foreign = foreign(interface);
    let description = description(interface);
    quote! {
        #hush
        const _: () = {
            #[repr(C)]
            struct Functions { #(#fields,)* }

            #(#exported)*
            static FUNCTIONS: Functions = Functions { #(#filled,)* };

            #foreign

            unsafe impl ::refit_objects::plugin_rt::Loadable for #marker {
                #description
                fn functions() -> *const ::std::ffi::c_void {
                    (&raw const FUNCTIONS).cast()
                }
                fn adopt(rep: ::refit_objects::plugin_rt::ForeignRep) -> ::refit_objects::OwnedRep<Self> {
                    #marker::rep(Foreign(rep))
                }
            }
        };
    }
}

/// Returns the plugin's side of a method, which puts the arguments together, calls, and takes the
/// result apart.
fn exported(method: &Method, vtable: &Ident) -> TokenStream {
    let (name, output) = (&method.name, output(method));
    let (arguments, types): (Vec<_>, Vec<_>) = method.arguments.iter().cloned().unzip();
    let raws = types.iter().map(raw);
    quote! {
        unsafe extern "C" fn #name(
            rep: *const ::std::ffi::c_void #(, #arguments: #raws)*,
            out: *mut ::std::mem::MaybeUninit<<#output as ::refit_objects::plugin_rt::Abi>::Raw>,
            why: ::refit_objects::plugin_rt::Why,
        ) -> ::refit_objects::plugin_rt::Status {
            ::refit_objects::plugin_rt::guarded(why, || unsafe {
                let rep = rep.cast::<::refit_objects::rt::RepHeader>();
                let value = (::refit_objects::rt::vtable::<#vtable>(rep).#name)(
                    rep #(, <#types as ::refit_objects::plugin_rt::Abi>::from_raw(#arguments))*
                );
                let raw = <#output as ::refit_objects::plugin_rt::Abi>::into_raw(value);
                out.write(::std::mem::MaybeUninit::new(raw));
                ::std::result::Result::Ok(())
            })
        }
    }
}

/// Returns the host's side.
fn foreign(interface: &Interface) -> TokenStream {
    let trait_name = &interface.item.ident;
    let calls = interface.methods.iter().enumerate().map(|(index, method)| {
        let (name, output) = (&method.name, output(method));
        let (arguments, types): (Vec<_>, Vec<_>) = method.arguments.iter().cloned().unzip();
        let without = format_ident!("Without_{name}");
        let otherwise = if defaulted(interface, method) {
            quote! { return #trait_name::#name(&#without(self) #(, #arguments)*); }
        } else {
            quote! { unreachable!("the plugin was checked to have it"); }
        };
        quote! {
            fn #name(&self #(, #arguments: #types)*) -> #output {
                if !self.0.has(#index) {
                    #otherwise
                }
                unsafe {
                    self.0.call::<#output>(|rep, out, why| {
                        // Not by reference: a shorter table has this field, but not all fields.
                        let functions = self.0.functions().cast::<Functions>();
                        let function = (&raw const (*functions).#name).read();
                        function(
                            rep
                            #(, <#types as ::refit_objects::plugin_rt::Abi>::into_raw(#arguments))*,
                            out,
                            why,
                        )
                    })
                }
            }
        }
    });
    let without = interface.methods.iter().filter(|m| defaulted(interface, m)).map(|left_out| {
        let name = format_ident!("Without_{}", left_out.name);
        let others = interface.methods.iter().filter(|method| method.name != left_out.name);
        let forwards = others.map(|method| {
            let (name, output) = (&method.name, output(method));
            let (arguments, types): (Vec<_>, Vec<_>) = method.arguments.iter().cloned().unzip();
            quote! {
                fn #name(&self #(, #arguments: #types)*) -> #output {
                    #trait_name::#name(self.0 #(, #arguments)*)
                }
            }
        });
        quote! {
            #[allow(non_camel_case_types)]
            struct #name<'a>(&'a Foreign);
            impl #trait_name for #name<'_> { #(#forwards)* }
        }
    });
    quote! {
        struct Foreign(::refit_objects::plugin_rt::ForeignRep);
        impl #trait_name for Foreign { #(#calls)* }
        #(#without)*
    }
}

fn description(interface: &Interface) -> TokenStream {
    let (name, state) = (&interface.arguments.name, text(&interface.arguments.state));
    let version = interface.arguments.version;
    let methods = interface.methods.iter().map(|method| {
        let (name, signature) = (method.name.to_string(), &method.signature);
        let types = method.arguments.iter().map(|(_, ty)| quote! { #ty });
        let types = types.chain([output(method)]);
        let (text, defaulted) = (fnv1a(signature), defaulted(interface, method));
        quote! {
            ::refit_objects::plugin_rt::MethodDescription {
                name: #name,
                signature: #signature,
                hash: ::refit_objects::plugin_rt::shape(
                    #name,
                    &[#text #(, <#types as ::refit_objects::plugin_rt::Abi>::SHAPE)*],
                ),
                defaulted: #defaulted,
            }
        }
    });
    quote! {
        const DESCRIPTION: ::refit_objects::plugin_rt::Description =
            ::refit_objects::plugin_rt::Description {
                interface: #name,
                version: #version,
                state: #state,
                methods: &[#(#methods,)*],
            };
    }
}
