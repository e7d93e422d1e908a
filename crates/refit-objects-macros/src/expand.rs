//! Generates the reference, the interface's type and the vtables.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use crate::interpose;
use crate::parse::{Interface, Method};
use crate::pieces::{Names, head, hush};
use crate::protocols;

pub(crate) fn expand(interface: &Interface) -> TokenStream {
    let item = &interface.item;
    let names = Names {
        interface: format_ident!("{}Interface", item.ident),
        reference: format_ident!("{}Ref", item.ident),
        vtable: format_ident!("{}Vtable", item.ident),
    };
    let vtable = vtable(interface, &names);
    let marker = marker(interface, &names);
    let reference = reference(interface, &names);
    let wrapper = interpose::typed_trait(interface);
    let loadable = crate::loadable::expand(interface);
    let forward = crate::forward::expand(interface);
    quote! { #item #vtable #marker #reference #wrapper #forward #loadable }
}

/// Returns the type `unsafe extern "C-unwind" fn(*const RepHeader, …) -> …` of a method.
fn pointer(method: &Method) -> TokenStream {
    let types = method.arguments.iter().map(|(_, ty)| ty);
    let output = &method.output;
    quote! { unsafe extern "C-unwind" fn(*const ::refit_objects::rt::RepHeader #(, #types)*) #output }
}

fn vtable(interface: &Interface, names: &Names) -> TokenStream {
    let hush = hush();
    let (vis, vtable) = (&interface.item.vis, &names.vtable);
    let fields = interface.methods.iter().map(|m| {
        let (name, pointer) = (&m.name, pointer(m));
        quote! { #name: #pointer }
    });
    let doc =
        format!("Vtable of [`{}`]: the head, then the methods in order.", interface.item.ident);
    quote! {
        #hush
        #[doc = #doc]
        #[doc(hidden)]
        #[repr(C)]
        #[derive(Debug)]
        #vis struct #vtable {
            head: ::refit_objects::rt::VtHeader,
            #(#fields,)*
        }
    }
}

/// Returns a function with the method's arguments that forwards to the rep that `find` derives from
/// `this`.
fn forwarder(method: &Method, prefix: &str, vtable: &Ident, find: &TokenStream) -> TokenStream {
    let function = format_ident!("{prefix}_{}", method.name);
    let (name, output) = (&method.name, &method.output);
    let (arguments, types): (Vec<_>, Vec<_>) = method.arguments.iter().cloned().unzip();
    quote! {
        unsafe extern "C-unwind" fn #function(
            this: *const ::refit_objects::rt::RepHeader #(, #arguments: #types)*
        ) #output {
            unsafe {
                #find
                (::refit_objects::rt::vtable::<#vtable>(rep).#name)(rep #(, #arguments)*)
            }
        }
    }
}

/// Returns the fields of one of the system's vtables: the functions with this prefix.
fn system_fields(interface: &Interface, prefix: &str) -> TokenStream {
    let fields = interface.methods.iter().map(|m| {
        let (name, function) = (&m.name, format_ident!("{prefix}_{}", m.name));
        quote! { #name: #function }
    });
    quote! { #(#fields,)* }
}

fn marker(interface: &Interface, names: &Names) -> TokenStream {
    let hush = hush();
    let item = &interface.item;
    let (trait_name, vis) = (&item.ident, &item.vis);
    let Names { interface: marker, reference, vtable } = names;
    let (name, state) = (&interface.arguments.name, &interface.arguments.state);
    let version = interface.arguments.version;

    let infos = interface.methods.iter().map(|m| {
        let (name, hash) = (m.name.to_string(), m.hash);
        quote! { ::refit_objects::rt::MethodInfo { name: #name, hash: #hash } }
    });
    let default_find = quote! { let rep = ::refit_objects::rt::miss(this); };
    let defaults = interface.methods.iter().map(|m| forwarder(m, "default", vtable, &default_find));
    let mediators = interface.methods.iter().enumerate().map(|(index, m)| {
        let index = index as u16;
        let find = quote! {
            let mediated = ::refit_objects::rt::mediate(this, #index);
            let rep = mediated.rep();
        };
        forwarder(m, "mediate", vtable, &find)
    });
    let (default_fields, mediate_fields) =
        (system_fields(interface, "default"), system_fields(interface, "mediate"));
    let methods = quote! { METHODS };
    let keep = quote! { ::refit_objects::rt::keep_rep };
    let system_head = head(&methods, vtable, version, &keep);
    let rep = rep(interface, names, &methods);
    let interposer = interpose::interposer(interface, names);
    let (declared, leaving) =
        (protocols::declared(&interface.arguments.protocols), leaving(interface));
    let constants = protocols::constants(&interface.arguments.protocols, marker, state);
    let doc = format!("The interface [`{trait_name}`], as a type.");
    quote! {
        #[doc = #doc]
        #[derive(Clone, Copy, Debug)]
        #vis struct #marker;

        #hush
        const _: () = {
            const METHODS: &[::refit_objects::rt::MethodInfo] = &[#(#infos,)*];
            #(#defaults)*
            #(#mediators)*
            #interposer
            static DEFAULT: #vtable = #vtable { head: #system_head, #default_fields };
            static MEDIATE: #vtable = #vtable { head: #system_head, #mediate_fields };
            static INFO: ::refit_objects::rt::InterfaceInfo = ::refit_objects::rt::InterfaceInfo {
                name: #name,
                version: #version,
                methods: METHODS,
                default: unsafe { ::refit_objects::rt::VtPtr::new(&DEFAULT) },
                mediator: unsafe { ::refit_objects::rt::VtPtr::new(&MEDIATE) },
                interposer: INTERPOSER,
            };

            unsafe impl ::refit_objects::Interface for #marker {
                type State = #state;
                type Ref = #reference;
                fn info() -> &'static ::refit_objects::rt::InterfaceInfo {
                    &INFO
                }
                #declared
                #leaving
                fn bind(object: ::refit_objects::rt::Bound<#marker>) -> #reference {
                    #reference(object)
                }
                fn id(reference: #reference) -> ::refit_objects::ObjectId {
                    reference.0.id()
                }
            }

            #rep
            #constants
        };
    }
}

/// Returns the interface's declarations about an implementation that begins without its
/// predecessor's state.
fn leaving(interface: &Interface) -> TokenStream {
    let hint = interface.arguments.hint.then(|| {
        quote! {
            fn state_is_hint() -> bool {
                true
            }
        }
    });
    let empty = interface.arguments.empty.then(|| {
        quote! {
            fn empty_state() -> ::std::option::Option<Self::State> {
                ::std::option::Option::Some(::std::default::Default::default())
            }
        }
    });
    quote! { #hint #empty }
}

/// Returns `Interface::rep`, with the vtable of an implementation.
fn rep(interface: &Interface, names: &Names, methods: &TokenStream) -> TokenStream {
    let trait_name = &interface.item.ident;
    let Names { interface: marker, vtable, .. } = names;
    let calls = interface.methods.iter().map(|m| {
        let function = format_ident!("call_{}", m.name);
        let (name, output) = (&m.name, &m.output);
        let (arguments, types): (Vec<_>, Vec<_>) = m.arguments.iter().cloned().unzip();
        quote! {
            unsafe extern "C-unwind" fn #function<T: #trait_name>(
                this: *const ::refit_objects::rt::RepHeader #(, #arguments: #types)*
            ) #output {
                let value: &T = unsafe { ::refit_objects::rt::Rep::<T>::value(this) };
                value.#name(#(#arguments),*)
            }
        }
    });
    let fields = interface.methods.iter().map(|m| {
        let (name, function) = (&m.name, format_ident!("call_{}", m.name));
        quote! { #name: #function::<T> }
    });
    let drop = quote! { ::refit_objects::rt::drop_rep::<T> };
    let head = head(methods, vtable, interface.arguments.version, &drop);
    quote! {
        #(#calls)*
        struct Of<T>(::std::marker::PhantomData<T>);
        impl<T: #trait_name + Send + Sync + 'static> Of<T> {
            const VTABLE: &'static #vtable = &#vtable { head: #head, #(#fields,)* };
        }
        impl #marker {
            /// Makes a rep of a value that implements the interface.
            pub fn rep<T: #trait_name + Send + Sync + 'static>(
                value: T,
            ) -> ::refit_objects::OwnedRep<#marker> {
                unsafe {
                    let vtable = ::refit_objects::rt::VtPtr::new(Of::<T>::VTABLE);
                    ::refit_objects::OwnedRep::new(vtable, value)
                }
            }
        }
    }
}

fn reference(interface: &Interface, names: &Names) -> TokenStream {
    let hush = hush();
    let (vis, trait_name) = (&interface.item.vis, &interface.item.ident);
    let Names { interface: marker, reference, vtable } = names;
    let calls = interface.methods.iter().enumerate().map(|(index, m)| {
        let index = index as u16;
        let (name, docs, output) = (&m.name, &m.docs, &m.output);
        let (arguments, types): (Vec<_>, Vec<_>) = m.arguments.iter().cloned().unzip();
        quote! {
            #(#docs)*
            #[inline]
            #vis fn #name(self #(, #arguments: #types)*) #output {
                ::refit_objects::rt::call(self.0, #index, |rep| unsafe {
                    (::refit_objects::rt::vtable::<#vtable>(rep).#name)(rep #(, #arguments)*)
                })
            }
        }
    });
    let doc = format!(
        "Reference to an object with the interface [`{trait_name}`]. Calls panic once the object is destroyed."
    );
    quote! {
        #[doc = #doc]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #vis struct #reference(::refit_objects::rt::Bound<#marker>);

        #hush
        impl #reference {
            /// The object's identity.
            #vis fn id(self) -> ::refit_objects::ObjectId {
                self.0.id()
            }
            #(#calls)*
        }
    }
}
