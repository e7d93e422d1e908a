//! Generates the code for interposition: the shims of the generic interposer, and the trait of
//! wrappers that know the interface.
//!
//! A shim keeps the arguments in its frame while `precall` examines them, then moves them into the
//! call of the next rep. The value that `precall` passes to `postcall` is in the frame too.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};
use syn::{ReturnType, Type};

use crate::parse::{Interface, Method};
use crate::pieces::{Names, head, hush};

/// Returns the result type of a method.
fn output(method: &Method) -> TokenStream {
    match &method.output {
        ReturnType::Default => quote! { () },
        ReturnType::Type(_, ty) => quote! { #ty },
    }
}

fn arguments(method: &Method) -> (Vec<Ident>, Vec<Type>) {
    method.arguments.iter().cloned().unzip()
}

fn fields(interface: &Interface, prefix: &str, generics: &TokenStream) -> TokenStream {
    let fields = interface.methods.iter().map(|m| {
        let (name, function) = (&m.name, format_ident!("{prefix}_{}", m.name));
        quote! { #name: #function #generics }
    });
    quote! { #(#fields,)* }
}

/// Returns everything that accompanies the other vtables; its `INTERPOSER` becomes part of the
/// interface's info.
pub(crate) fn interposer(interface: &Interface, names: &Names) -> TokenStream {
    let vtable = &names.vtable;
    let shims = interface.methods.iter().enumerate().map(|(n, m)| shim(n as u16, m, vtable));
    let shapes = interface.methods.iter().map(shape);
    let keep = quote! { ::refit_objects::rt::keep_rep };
    let head = head(&quote! { METHODS }, vtable, interface.arguments.version, &keep);
    let fields = fields(interface, "interpose", &quote! {});
    let typed = typed(interface, names);
    quote! {
        #(#shims)*
        #typed
        static INTERPOSE: #vtable = #vtable { head: #head, #fields };
        const INTERPOSER: ::refit_objects::rt::InterposerInfo = ::refit_objects::rt::InterposerInfo {
            vtable: unsafe { ::refit_objects::rt::VtPtr::new(&INTERPOSE) },
            methods: &[#(#shapes,)*],
        };
    }
}

/// Returns the names and kinds of the arguments, and whether the result can express an `errno`.
fn shape(method: &Method) -> TokenStream {
    let output = output(method);
    let arguments = method.arguments.iter().map(|(name, ty)| {
        let name = name.to_string();
        quote! {
            ::refit_objects::ArgumentInfo {
                name: #name,
                kind: || {
                    use ::refit_objects::rt::probe::{OpaqueKind as _, SeenKind as _, TypeProbe};
                    (&TypeProbe::<#ty>::new()).kind()
                },
            }
        }
    });
    quote! {
        ::refit_objects::rt::MethodShape {
            arguments: &[#(#arguments,)*],
            can_fail: || {
                use ::refit_objects::rt::probe::{ErrnoResult as _, NoErrnoResult as _, TypeProbe};
                (&TypeProbe::<#output>::new()).can_fail()
            },
        }
    }
}

/// Returns the shim for wrappers of any interface.
fn shim(index: u16, method: &Method, vtable: &Ident) -> TokenStream {
    let function = format_ident!("interpose_{}", method.name);
    let (name, output) = (&method.name, output(method));
    let (arguments, types) = arguments(method);
    let numbers = 0..arguments.len();
    let after = after(index, &output);
    quote! {
        unsafe extern "C-unwind" fn #function(
            this: *const ::refit_objects::rt::RepHeader #(, mut #arguments: #types)*
        ) -> #output {
            use ::refit_objects::rt::probe::{
                ErrnoResult as _, FallibleResult as _, InfallibleResult as _, NoErrnoResult as _, Probe, ProbeMut,
                ReachedValue as _, TypeProbe, UnreachedValue as _,
            };
            unsafe {
                let after = ::refit_objects::rt::precall(this, #index, &mut |index, access| match index {
                    #(#numbers => (&mut ProbeMut(&mut #arguments)).reach(access),)*
                    _ => ::std::option::Option::None,
                });
                let rep = ::refit_objects::rt::inner(this);
                let next = ::refit_objects::rt::vtable::<#vtable>(rep).#name;
                match after {
                    ::refit_objects::After::Postcall(state) => {
                        let unwound = ::refit_objects::rt::OnUnwind(|| {
                            let outcome = ::refit_objects::Outcome::Unwound;
                            let mut none = |_: usize, _| ::std::option::Option::None;
                            ::refit_objects::rt::postcall(this, #index, state, outcome, &mut none)
                        });
                        let mut result = next(rep #(, #arguments)*);
                        unwound.disarm();
                        #after
                        return result;
                    }
                    ::refit_objects::After::Fail(errno) => {
                        let failed = (&TypeProbe::<#output>::new()).with_errno(errno);
                        if let ::std::option::Option::Some(result) = failed {
                            return result;
                        }
                    }
                    ::refit_objects::After::Forward => {}
                }
                next(rep #(, #arguments)*)
            }
        }
    }
}

/// Returns the code that shows the `result` of a method to the wrapper, which may change it.
fn after(index: u16, output: &TokenStream) -> TokenStream {
    quote! {
        let outcome = if (&Probe(&result)).failed() {
            ::refit_objects::Outcome::Failed
        } else {
            ::refit_objects::Outcome::Returned
        };
        let mut reach = |_: usize, access| match access {
            ::refit_objects::Access::Fail(errno) => {
                result = (&TypeProbe::<#output>::new()).with_errno(errno)?;
                ::std::option::Option::Some(::refit_objects::Value::Opaque)
            }
            access => (&mut ProbeMut(&mut result)).reach(access),
        };
        ::refit_objects::rt::postcall(this, #index, state, outcome, &mut reach);
    }
}

/// Returns `trait CounterWrapper`, with a `pre_…` and a `post_…` for each method.
pub(crate) fn typed_trait(interface: &Interface) -> TokenStream {
    let hush = hush();
    let (vis, trait_name) = (&interface.item.vis, &interface.item.ident);
    let wrapper = format_ident!("{trait_name}Wrapper");
    let methods = interface.methods.iter().map(|m| {
        let (pre, post) = (format_ident!("pre_{}", m.name), format_ident!("post_{}", m.name));
        let output = output(m);
        let (arguments, types) = arguments(m);
        let before = format!("Before [`{trait_name}::{}`].", m.name);
        let after = format!(
            "After [`{trait_name}::{}`], unless it panicked or `{pre}` wanted no postcall.",
            m.name
        );
        quote! {
            #[doc = #before]
            fn #pre(&self #(, #arguments: &mut #types)*) -> ::refit_objects::Pre<#output> {
                ::refit_objects::Pre::Postcall(0)
            }
            #[doc = #after]
            fn #post(&self, state: u64, result: &mut #output) {}
        }
    });
    let passed_on = interface.methods.iter().map(|m| {
        let (pre, post) = (format_ident!("pre_{}", m.name), format_ident!("post_{}", m.name));
        let output = output(m);
        let (arguments, types) = arguments(m);
        quote! {
            fn #pre(&self #(, #arguments: &mut #types)*) -> ::refit_objects::Pre<#output> {
                (**self).#pre(#(#arguments),*)
            }
            fn #post(&self, state: u64, result: &mut #output) {
                (**self).#post(state, result)
            }
        }
    });
    let doc = format!(
        "Code around the calls of objects with the interface [`{trait_name}`]: it may change arguments and results, \
         and answer in the object's place. Attach it with `refit_objects::attach_typed`."
    );
    quote! {
        #hush
        #[doc = #doc]
        #vis trait #wrapper: ::std::marker::Send + ::std::marker::Sync {
            #(#methods)*
            /// Called when the method with this number has panicked on its way back to a postcall;
            /// the panic continues afterwards.
            fn unwound(&self, method: u16, state: u64) {}
            /// Returns the wrapper's counters, as pairs of a name and a value.
            fn stats(&self) -> ::std::vec::Vec<(::std::string::String, u64)> {
                ::std::vec::Vec::new()
            }
        }

        #hush
        impl<W: #wrapper + ?Sized> #wrapper for ::std::sync::Arc<W> {
            #(#passed_on)*
            fn unwound(&self, method: u16, state: u64) {
                (**self).unwound(method, state)
            }
            fn stats(&self) -> ::std::vec::Vec<(::std::string::String, u64)> {
                (**self).stats()
            }
        }
    }
}

/// Returns `Interface::wrapper`, with the vtable of a type of wrapper.
fn typed(interface: &Interface, names: &Names) -> TokenStream {
    let Names { interface: marker, vtable, .. } = names;
    let wrapper = format_ident!("{}Wrapper", interface.item.ident);
    let shims = interface
        .methods
        .iter()
        .enumerate()
        .map(|(n, m)| typed_shim(n as u16, m, vtable, &wrapper));
    let keep = quote! { ::refit_objects::rt::keep_rep };
    let head = head(&quote! { METHODS }, vtable, interface.arguments.version, &keep);
    let fields = fields(interface, "wrap", &quote! { ::<W> });
    quote! {
        #(#shims)*
        struct Around<W>(::std::marker::PhantomData<W>);
        impl<W: #wrapper + 'static> Around<W> {
            const VTABLE: &'static #vtable = &#vtable { head: #head, #fields };
        }
        impl #marker {
            /// Creates a wrapper for objects of this interface, to attach under this name.
            pub fn wrapper<W: #wrapper + 'static>(
                name: &str,
                wrapper: W,
            ) -> ::refit_objects::TypedWrapper<#marker> {
                fn stats<W: #wrapper + 'static>(
                    wrapper: &(dyn ::std::any::Any + ::std::marker::Send + ::std::marker::Sync),
                ) -> ::std::vec::Vec<(::std::string::String, u64)> {
                    wrapper.downcast_ref::<W>().map_or_else(::std::vec::Vec::new, |w| w.stats())
                }
                unsafe {
                    let vtable = ::refit_objects::rt::VtPtr::new(Around::<W>::VTABLE);
                    ::refit_objects::TypedWrapper::new(vtable, name.into(), wrapper, stats::<W>)
                }
            }
        }
    }
}

/// Returns the shim for wrappers that know the interface.
fn typed_shim(index: u16, method: &Method, vtable: &Ident, wrapper: &Ident) -> TokenStream {
    let function = format_ident!("wrap_{}", method.name);
    let (pre, post) = (format_ident!("pre_{}", method.name), format_ident!("post_{}", method.name));
    let (name, output) = (&method.name, output(method));
    let (arguments, types) = arguments(method);
    quote! {
        unsafe extern "C-unwind" fn #function<W: #wrapper + 'static>(
            this: *const ::refit_objects::rt::RepHeader #(, mut #arguments: #types)*
        ) -> #output {
            unsafe {
                let wrapper = ::refit_objects::rt::typed::<W>(this);
                let pre = ::refit_objects::rt::guarded(this, #index, "precall", || {
                    wrapper.#pre(#(&mut #arguments),*)
                });
                let rep = ::refit_objects::rt::inner(this);
                let next = ::refit_objects::rt::vtable::<#vtable>(rep).#name;
                match pre {
                    ::std::option::Option::Some(::refit_objects::Pre::Answer(result)) => result,
                    ::std::option::Option::Some(::refit_objects::Pre::Postcall(state)) => {
                        let unwound = ::refit_objects::rt::OnUnwind(|| {
                            ::refit_objects::rt::guarded(this, #index, "postcall", || {
                                wrapper.unwound(#index, state)
                            });
                        });
                        let mut result = next(rep #(, #arguments)*);
                        unwound.disarm();
                        ::refit_objects::rt::guarded(this, #index, "postcall", || {
                            wrapper.#post(state, &mut result)
                        });
                        result
                    }
                    _ => next(rep #(, #arguments)*),
                }
            }
        }
    }
}
