//! The protocols that an interface declares.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Token, Type, parenthesized, token};

/// The maximum number of declared protocols; numbers from 32 on are assigned at run time.
const MAX_DECLARED: usize = 31;

/// A declaration: `name = Type`, or `name = kind(Type)`.
pub(crate) struct Protocol {
    name: Ident,
    way: TokenStream,
    ty: Type,
}

impl Parse for Protocol {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let name: Ident = input.parse()?;
        if name == "canonical" {
            let what = "every interface has the canonical protocol; its type is the `state`";
            return Err(Error::new(name.span(), what));
        }
        input.parse::<Token![=]>()?;
        let copy = quote!(Copy);
        let (way, ty) = if input.peek(syn::Ident) && input.peek2(token::Paren) {
            let way: Ident = input.parse()?;
            let way = match way.to_string().as_str() {
                "copy" => copy,
                "reference" => quote!(Reference),
                "partitioned" => quote!(Partitioned),
                "lazy" => quote!(Lazy),
                _ => {
                    let what = "expected `copy`, `reference`, `partitioned` or `lazy`";
                    return Err(Error::new(way.span(), what));
                }
            };
            let inner;
            parenthesized!(inner in input);
            (way, inner.parse()?)
        } else {
            (copy, input.parse()?)
        };
        Ok(Protocol { name, way, ty })
    }
}

/// Parses the contents of `protocols(…)`.
pub(crate) fn parse(input: ParseStream<'_>) -> syn::Result<Vec<Protocol>> {
    let inner;
    parenthesized!(inner in input);
    let protocols = Punctuated::<Protocol, Token![,]>::parse_terminated(&inner)?;
    for (place, protocol) in protocols.iter().enumerate() {
        if protocols.iter().take(place).any(|earlier| earlier.name == protocol.name) {
            return Err(Error::new(protocol.name.span(), "this name is taken"));
        }
        if place >= MAX_DECLARED {
            return Err(Error::new(protocol.name.span(), "an interface has 31 protocols at most"));
        }
    }
    Ok(protocols.into_iter().collect())
}

impl Protocol {
    /// Returns the expression that describes the protocol.
    fn info(&self) -> TokenStream {
        let (name, way, ty) = (self.name.to_string(), &self.way, &self.ty);
        quote! {
            ::refit_objects::transfer::ProtocolInfo::of::<#ty>(
                #name, ::refit_objects::change::Way::#way,
            )
        }
    }
}

/// Returns the function by which the interface lists its protocols.
pub(crate) fn declared(protocols: &[Protocol]) -> TokenStream {
    let infos = protocols.iter().map(Protocol::info);
    quote! {
        fn protocols() -> &'static [::refit_objects::transfer::ProtocolInfo] {
            const PROTOCOLS: &[::refit_objects::transfer::ProtocolInfo] = &[#(#infos,)*];
            PROTOCOLS
        }
    }
}

/// Returns a constant for each protocol, in upper case, and for the canonical one.
pub(crate) fn constants(protocols: &[Protocol], marker: &Ident, state: &Type) -> TokenStream {
    let constants = (1_u8..).zip(protocols).map(|(number, protocol)| {
        let name = format_ident!("{}", protocol.name.to_string().to_uppercase());
        let ty = &protocol.ty;
        let doc = format!("The protocol `{}`.", protocol.name);
        quote! {
            #[doc = #doc]
            pub const #name: ::refit_objects::transfer::Typed<#marker, #ty> =
                ::refit_objects::transfer::Typed::declared(#number);
        }
    });
    quote! {
        impl #marker {
            /// The canonical protocol: the interface's state.
            pub const CANONICAL: ::refit_objects::transfer::Typed<#marker, #state> =
                ::refit_objects::transfer::Typed::declared(0);
            #(#constants)*
        }
    }
}
