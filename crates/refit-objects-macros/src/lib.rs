//! The `#[interface]` and `#[derive(Transfer)]` macros of `refit-objects`.
//!
//! From `#[interface(name = "fcm", state = CacheState)] trait FileCache { … }` it generates, in
//! addition to the trait itself:
//!
//! - `FileCacheRef`: the reference, `Copy`, eight bytes, with the trait's methods;
//! - `FileCacheInterface`: the interface as a type, with `rep(value)`, which puts a value under its
//!   vtable;
//! - `FileCacheVtable`: one `repr(C)` table of function pointers in the order of the trait, filled
//!   once per implementation, once for the default object, once for the mediator and once for the
//!   interposer;
//! - `FileCacheWrapper`: the trait of wrappers that know the interface, used by
//!   `FileCacheInterface::wrapper`.
//!
//! - with `protocols(stripes = reference(Stripes), flat = Flat)`: a constant for each next to
//!   `rep`, `STRIPES` and `FLAT`. Like methods, protocols are never moved or removed. The kinds are
//!   `reference`, `partitioned`, `lazy`, and by default a copy.
//!
//! With `loadable` it also generates the code for implementations that are built separately and
//! loaded; every type must cross the C ABI then. If the crate has an `interface.lock`, the
//! interface must agree with it.
//!
//! Methods take `&self` and any arguments; they have no type parameters and return nothing that
//! borrows. New methods are appended, and each raises `version`.

#![forbid(unsafe_code)]

mod derive;
mod expand;
mod forward;
mod interpose;
mod loadable;
mod lock;
mod parse;
mod pieces;
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

/// Implements `refit_objects::transfer::Transfer`, which transfers a struct of plain state field by
/// field.
///
/// Attributes of a field: `#[transfer(default)]` or `#[transfer(default = expression)]` if state of
/// older versions lacks it; `#[transfer(was = "old")]`, possibly several times, if it had another
/// name; `#[transfer(skip)]` if it is not transferred at all and starts with its default.
#[proc_macro_derive(Transfer, attributes(transfer))]
pub fn transfer(item: TokenStream) -> TokenStream {
    let item = syn::parse_macro_input!(item as syn::DeriveInput);
    derive::expand(&item).unwrap_or_else(|error| error.to_compile_error()).into()
}
