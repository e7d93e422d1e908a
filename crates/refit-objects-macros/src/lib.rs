//! The `#[interface]` and `#[derive(Transfer)]` macros of `refit-objects`.
//!
//! From `#[interface(name = "fcm", state = CacheState)] trait FileCache { … }` it makes, beside the trait itself:
//!
//! - `FileCacheRef`: the reference, `Copy`, eight bytes, with the trait's methods;
//! - `FileCacheInterface`: the interface as a type, with `rep(value)` that puts a value under its vtable;
//! - `FileCacheVtable`: one `repr(C)` table of function pointers in the order of the trait, filled once per
//!   implementation, once for the default object, once for the mediator and once for the interposer;
//! - `FileCacheWrapper`: the trait of wrappers that know the interface, put to use by `FileCacheInterface::wrapper`.
//!
//! - with `protocols(stripes = reference(Stripes), flat = Flat)`: a constant for each beside `rep`, `STRIPES` and `FLAT`.
//!   They are never moved or removed, like methods. Ways: `reference`, `partitioned`, `lazy`, and by copy as it is.
//!
//! With `loadable`, also what an implementation needs that is built apart and loaded; every type must cross the C ABI then.
//! What stands in `interface.lock`, if the crate has one, must be true.
//!
//! Methods take `&self` and any arguments; they have no type parameters and return nothing that borrows. New methods
//! go to the end, and `version` is raised with them.

#![forbid(unsafe_code)]

mod derive;
mod expand;
mod forward;
mod interpose;
mod loadable;
mod lock;
mod parse;
mod protocols;

use proc_macro::TokenStream;

/// Makes a trait the interface of clustered objects. See the crate's documentation.
#[proc_macro_attribute]
pub fn interface(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let arguments = syn::parse_macro_input!(arguments as parse::Arguments);
    let item = syn::parse_macro_input!(item as syn::ItemTrait);
    parse::Interface::new(arguments, item)
        .and_then(|interface| {
            let locked = lock::check(&interface)?;
            let expanded = expand::expand(&interface);
            Ok(quote::quote! { #locked #expanded })
        })
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}

/// Writes how a struct of plain state is handed over field by field: `refit_objects::transfer::Transfer`.
///
/// Attributes of a field: `#[transfer(default)]` or `#[transfer(default = expression)]` if older state does not have
/// it; `#[transfer(was = "old")]`, several times if need be, if it had another name; `#[transfer(skip)]` if it is not
/// handed over at all and starts with its default.
#[proc_macro_derive(Transfer, attributes(transfer))]
pub fn transfer(item: TokenStream) -> TokenStream {
    let item = syn::parse_macro_input!(item as syn::DeriveInput);
    derive::expand(&item).unwrap_or_else(|error| error.to_compile_error()).into()
}
