//! Pieces that several generators share: the names of an interface's items, the head of a vtable,
//! and the lints that generated code may violate.

use proc_macro2::{Ident, TokenStream};
use quote::quote;

/// Allows lints that address authors of `unsafe` code: the generated code is `unsafe` by nature,
/// and nobody writes it by hand.
pub(crate) fn hush() -> TokenStream {
    quote! {
        #[allow(
            unsafe_code, improper_ctypes_definitions, unused_qualifications, clippy::allow_attributes,
            clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc, clippy::too_many_arguments,
            unused_imports, unused_variables, unused_mut, dead_code, clippy::ptr_arg, clippy::type_complexity,
            clippy::needless_borrow, clippy::needless_pass_by_value
        )]
    }
}

/// The names that belong to one interface.
pub(crate) struct Names {
    pub(crate) interface: Ident,
    pub(crate) reference: Ident,
    pub(crate) vtable: Ident,
}

/// Returns the head of a vtable of the interface, with these descriptions of its methods and this
/// function to drop a rep.
pub(crate) fn head(
    methods: &TokenStream,
    vtable: &Ident,
    version: u32,
    drop: &TokenStream,
) -> TokenStream {
    quote! {
        ::refit_objects::rt::VtHeader {
            magic: ::refit_objects::rt::VT_MAGIC,
            size: ::std::mem::size_of::<#vtable>() as u32,
            version: #version,
            methods: #methods,
            drop: #drop,
        }
    }
}
