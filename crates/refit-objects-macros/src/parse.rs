//! Parses the attribute and the trait, and rejects traits that cannot be an interface.

use proc_macro2::Span;
use quote::ToTokens;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{
    Error, FnArg, Ident, ItemTrait, LitInt, LitStr, Pat, ReturnType, Token, TraitItem, Type,
};

use crate::protocols::{self, Protocol};

/// `name = "…", state = Type, version = N, protocols(name = Type, …), loadable, hint, empty`.
pub(crate) struct Arguments {
    pub(crate) name: LitStr,
    pub(crate) state: Type,
    pub(crate) version: u32,
    pub(crate) protocols: Vec<Protocol>,
    /// Whether implementations can be loaded; the types must cross the C ABI then.
    pub(crate) loadable: bool,
    /// Whether an implementation works correctly without its predecessor's state.
    pub(crate) hint: bool,
    /// Whether the default of the state is the state of an object that holds nothing.
    pub(crate) empty: bool,
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let (mut name, mut state, mut version) = (None, None, 1);
        let (mut protocols, mut loadable) = (Vec::new(), false);
        let (mut hint, mut empty) = (false, false);
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            if key == "protocols" {
                protocols = protocols::parse(input)?;
            } else if key == "loadable" {
                loadable = true;
            } else if key == "hint" {
                hint = true;
            } else if key == "empty" {
                empty = true;
            } else {
                input.parse::<Token![=]>()?;
            }
            match key.to_string().as_str() {
                "name" => name = Some(input.parse()?),
                "state" => state = Some(input.parse()?),
                "version" => version = input.parse::<LitInt>()?.base10_parse()?,
                "protocols" | "loadable" | "hint" | "empty" => {}
                _ => {
                    let what = "expected `name`, `state`, `version`, `protocols`, `loadable`, `hint` or `empty`";
                    return Err(Error::new(key.span(), what));
                }
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        let missing = |what| Error::new(input.span(), format!("`{what}` is missing"));
        Ok(Arguments {
            name: name.ok_or_else(|| missing("name = \"…\""))?,
            state: state.ok_or_else(|| missing("state = Type"))?,
            version,
            protocols,
            loadable,
            hint,
            empty,
        })
    }
}

/// One method of the interface.
pub(crate) struct Method {
    pub(crate) name: Ident,
    pub(crate) docs: Vec<syn::Attribute>,
    pub(crate) arguments: Vec<(Ident, Type)>,
    pub(crate) output: ReturnType,
    /// The types, for example `fn(&self, &[u8]) -> u64`.
    pub(crate) signature: String,
    /// FNV-1a of the signature.
    pub(crate) hash: u64,
}

/// A trait that can be an interface.
pub(crate) struct Interface {
    pub(crate) arguments: Arguments,
    pub(crate) item: ItemTrait,
    pub(crate) methods: Vec<Method>,
}

impl Interface {
    pub(crate) fn new(arguments: Arguments, item: ItemTrait) -> syn::Result<Self> {
        if !item.generics.params.is_empty() {
            let what = "an interface has no type parameters: every object of it has one vtable";
            return Err(Error::new(item.generics.span(), what));
        }
        let methods = item.items.iter().map(Method::new).collect::<syn::Result<_>>()?;
        Ok(Interface { arguments, item, methods })
    }
}

impl Method {
    fn new(item: &TraitItem) -> syn::Result<Self> {
        let TraitItem::Fn(method) = item else {
            return Err(Error::new(item.span(), "an interface has methods only"));
        };
        let signature = &method.sig;
        if signature.generics.type_params().next().is_some() || signature.asyncness.is_some() {
            let what = "a method of an interface is neither generic nor async: it has one entry in the vtable";
            return Err(Error::new(signature.span(), what));
        }
        let mut inputs = signature.inputs.iter();
        match inputs.next() {
            Some(FnArg::Receiver(this))
                if this.reference.is_some() && this.mutability.is_none() => {}
            _ => {
                let what =
                    "a method of an interface takes `&self`: many processors call it at once";
                return Err(Error::new(signature.span(), what));
            }
        }
        let arguments: Vec<_> = inputs.map(argument).collect::<syn::Result<_>>()?;
        let types = arguments.iter().map(|(_, ty)| format!(", {}", text(ty)));
        let output = match &signature.output {
            ReturnType::Default => String::new(),
            ReturnType::Type(_, ty) => format!(" -> {}", text(ty)),
        };
        let types_only = format!("fn(&self{}){output}", types.collect::<String>());
        Ok(Method {
            name: signature.ident.clone(),
            docs: method.attrs.iter().filter(|a| a.path().is_ident("doc")).cloned().collect(),
            arguments,
            output: signature.output.clone(),
            hash: fnv1a(&types_only),
            signature: types_only,
        })
    }
}

fn argument(input: &FnArg) -> syn::Result<(Ident, Type)> {
    match input {
        FnArg::Typed(typed) => match &*typed.pat {
            Pat::Ident(pattern) => {
                let mut name = pattern.ident.clone();
                // Distinct from all variables of the generated code, whatever their names.
                name.set_span(name.span().resolved_at(Span::mixed_site()));
                Ok((name, (*typed.ty).clone()))
            }
            other => Err(Error::new(other.span(), "expected a plain name")),
        },
        FnArg::Receiver(this) => Err(Error::new(this.span(), "expected an argument")),
    }
}

/// Returns the tokens of a type in canonical spacing, since the compiler's own spacing has changed
/// before.
pub(crate) fn text(ty: &Type) -> String {
    let mut text = String::new();
    for part in ty.to_token_stream().to_string().split_whitespace() {
        let word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        let after_comma = text.ends_with(',');
        if after_comma
            || text.ends_with("mut")
            || (word(text.chars().last()) && word(part.chars().next()))
        {
            text.push(' ');
        }
        text.push_str(part);
    }
    text
}

/// Returns the FNV-1a hash, 64 bits. It is stable across compilers, unlike the standard library's
/// hasher.
pub(crate) fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
