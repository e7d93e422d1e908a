//! `#[derive(Transfer)]`: converts a struct to a record and back, field by field.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::{Data, DeriveInput, Error, Expr, Fields, LitStr, Type};

struct Field<'a> {
    name: &'a Ident,
    ty: &'a Type,
    /// The value for state of older versions that lack the field.
    default: Option<TokenStream>,
    was: Vec<LitStr>,
    skip: bool,
}

pub(crate) fn expand(item: &DeriveInput) -> syn::Result<TokenStream> {
    let fields = fields(item)?;
    if let Some(parameter) = item.generics.params.first() {
        let what =
            "state that is handed over has no type parameters: its types are compared by name";
        return Err(Error::new_spanned(parameter, what));
    }
    let (name, text) = (&item.ident, item.ident.to_string());
    let puts = fields.iter().filter(|f| !f.skip).map(|f| {
        let (field, was) = (f.name, &f.was);
        let current = plain(field);
        quote! { record.put(&[#current #(, #was)*], &self.#field); }
    });
    let takes = fields.iter().map(take);
    let names = fields.iter().map(|f| f.name);
    Ok(quote! {
        impl ::refit_objects::transfer::Transfer for #name {
            const NAME: &'static str = #text;
            fn to_record(&self) -> ::refit_objects::transfer::Record {
                let mut record = ::refit_objects::transfer::Record {
                    name: ::std::string::String::from(#text),
                    fields: ::std::vec::Vec::new(),
                };
                #(#puts)*
                record
            }
            fn from_record(
                mut record: ::refit_objects::transfer::Record,
            ) -> ::std::result::Result<Self, ::refit_objects::transfer::FieldError> {
                #(#takes)*
                record.dropped(#text);
                ::std::result::Result::Ok(Self { #(#names,)* })
            }
        }
        impl ::refit_objects::transfer::Storable for #name {
            // Not the name of the struct, which may change like a field's: the fields are compared
            // one by one.
            fn type_name() -> ::std::string::String {
                ::std::string::String::from("record")
            }
            fn to_value(&self) -> ::refit_objects::transfer::Value {
                ::refit_objects::transfer::Value::Record(
                    ::refit_objects::transfer::Transfer::to_record(self),
                )
            }
            fn from_value(
                value: ::refit_objects::transfer::Value,
            ) -> ::std::result::Result<Self, ::refit_objects::transfer::Mismatch> {
                ::refit_objects::transfer::nested(value)
            }
        }
    })
}

/// Returns the name without `r#`.
fn plain(name: &Ident) -> String {
    name.to_string().trim_start_matches("r#").to_owned()
}

/// Binds names to fields in the order of the struct: exact names first, so that no field takes the
/// value of another.
fn take(field: &Field<'_>) -> TokenStream {
    let Field { name, ty, default, was, skip } = field;
    let text = plain(name);
    if *skip {
        return quote! { let #name: #ty = ::std::default::Default::default(); };
    }
    let into = quote! { <Self as ::refit_objects::transfer::Transfer>::NAME };
    let otherwise = match default {
        Some(value) => quote! { record.defaulted(#into, #text, #value) },
        None => {
            quote! { return ::std::result::Result::Err(record.missing::<#ty>(#into, #text)) }
        }
    };
    quote! {
        let #name: #ty = match record.take::<#ty>(#into, #text, &[#(#was),*])? {
            ::std::option::Option::Some(value) => value,
            ::std::option::Option::None => #otherwise,
        };
    }
}

fn fields(item: &DeriveInput) -> syn::Result<Vec<Field<'_>>> {
    let named = match &item.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(fields) => Some(&fields.named),
            _ => None,
        },
        _ => None,
    };
    let Some(named) = named else {
        let what = "only a struct with named fields can be handed over field by field";
        return Err(Error::new_spanned(&item.ident, what));
    };
    let fields: Vec<Field<'_>> = named.iter().map(field).collect::<syn::Result<_>>()?;
    // If a former name were also a present one, an older record's field would go to the wrong
    // place.
    for (place, field) in fields.iter().enumerate() {
        for was in &field.was {
            let present = fields.iter().any(|f| plain(f.name) == was.value());
            let twice =
                fields[..place].iter().flat_map(|f| &f.was).any(|w| w.value() == was.value());
            if present || twice {
                let what = "another field has, or had, this name: state of an older version would be mistaken";
                return Err(Error::new_spanned(was, what));
            }
        }
    }
    Ok(fields)
}

fn field(field: &syn::Field) -> syn::Result<Field<'_>> {
    let name = field.ident.as_ref();
    let name = name.ok_or_else(|| Error::new_spanned(field, "expected a named field"))?;
    let mut found = Field { name, ty: &field.ty, default: None, was: Vec::new(), skip: false };
    for attribute in field.attrs.iter().filter(|a| a.path().is_ident("transfer")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("default") {
                found.default = Some(match meta.value() {
                    Ok(value) => {
                        let value: Expr = value.parse()?;
                        quote! { #value }
                    }
                    Err(_) => quote! { ::std::default::Default::default() },
                });
            } else if meta.path.is_ident("was") {
                found.was.push(meta.value()?.parse()?);
            } else if meta.path.is_ident("skip") {
                found.skip = true;
            } else {
                return Err(
                    meta.error("expected `default`, `default = …`, `was = \"…\"` or `skip`")
                );
            }
            Ok(())
        })?;
    }
    Ok(found)
}
