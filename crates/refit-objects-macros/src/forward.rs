//! Implements the interface's trait for an owned rep of the interface, so that a call of it is a
//! call through its vtable. So an adapter can hold a rep of one interface and offer another,
//! whatever implementation the rep belongs to. Implements it also for a shared value, so that many
//! reps can lead to one.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use crate::parse::Interface;
use crate::pieces::hush;

pub(crate) fn expand(interface: &Interface) -> TokenStream {
    let trait_name = &interface.item.ident;
    let marker = format_ident!("{trait_name}Interface");
    let vtable = format_ident!("{trait_name}Vtable");
    let hush = hush();
    let shared = interface.methods.iter().map(|method| {
        let (name, output) = (&method.name, &method.output);
        let (arguments, types): (Vec<_>, Vec<_>) = method.arguments.iter().cloned().unzip();
        quote! {
            fn #name(&self #(, #arguments: #types)*) #output {
                #trait_name::#name(&**self #(, #arguments)*)
            }
        }
    });
    let calls = interface.methods.iter().map(|method| {
        let (name, output) = (&method.name, &method.output);
        let (arguments, types): (Vec<_>, Vec<_>) = method.arguments.iter().cloned().unzip();
        quote! {
            fn #name(&self #(, #arguments: #types)*) #output {
                let rep = ::refit_objects::rt::rep(self);
                unsafe {
                    (::refit_objects::rt::vtable::<#vtable>(rep).#name)(rep #(, #arguments)*)
                }
            }
        }
    });
    quote! {
        #hush
        impl #trait_name for ::refit_objects::OwnedRep<#marker> { #(#calls)* }
        #hush
        impl<T: #trait_name + ?Sized> #trait_name for ::std::sync::Arc<T> { #(#shared)* }
    }
}
