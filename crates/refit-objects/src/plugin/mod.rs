//! Loadable implementations: built by a user apart from the host, loaded while it runs, swapped to at once.
//!
//! An interface that is declared with `loadable` can be implemented by a *plugin*: a crate of type `cdylib` that calls
//! [`plugin!`](crate::plugin!). Host and plugin may be compiled by different compilers and each has its own copy of this
//! crate and of the standard library. So nothing crosses between them but what has the layout of the C ABI (`abi`):
//! arguments and results are taken apart and put together again by generated code on both sides, state crosses as
//! bytes, each side frees what it has allocated, and a panic is caught where it happens and goes on as a value.
//!
//! | module | idea |
//! |---|---|
//! | `abi`, `foreign` | what crosses, and how |
//! | `note`, `check`, `compare` | what a file says of itself, and what is checked before any code of it runs |
//! | `export` | the plugin's side |
//! | `proxy` | the host's side: roots and reps that live in a plugin |
//! | `load`, `ledger` | from a path to an implementation; what stays mapped |
//!
//! What is not promised: loaded code runs with all rights of the host. The checks find files that are damaged or were
//! built for something else, not malice.

pub(crate) mod abi;
pub(crate) mod check;
pub(crate) mod compare;
pub(crate) mod error;
pub(crate) mod export;
pub(crate) mod foreign;
pub(crate) mod ledger;
pub(crate) mod load;
pub(crate) mod note;
pub(crate) mod proxy;

pub use self::{
    abi::{Abi, Plain, RawEither, RawSlice, RawSliceMut, RawVec, shape},
    check::{Checked, check},
    error::{LoadError, Obstacle},
    export::Loadable,
    ledger::{LoadedInfo, PluginInfo, accept, plugins, unload},
    load::{inspect, load},
    note::{Description, Manifest, ManifestEntry, MethodDescription},
};

/// Exports implementations from a crate of type `cdylib`.
///
/// ```text
/// refit_objects::plugin! {
///     StoreInterface: "sorted" => || Box::new(SortedRoot::default()),
/// }
/// ```
///
/// Before the arrow: the interface, as a type, and the name of the implementation. After it: what makes a new, empty
/// root.
#[macro_export]
macro_rules! plugin {
    ($($interface:ty : $name:literal => $make:expr),+ $(,)?) => {
        const _: () = {
            use $crate::plugin_rt as rt;

            const EXPORTED: &[rt::Exported] = &[$(rt::Exported {
                interface: <$interface as $crate::plugin::Loadable>::DESCRIPTION,
                name: $name,
            }),+];
            const PACKAGE: &str =
                concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION"));
            const LENGTH: usize = rt::length(EXPORTED, PACKAGE);
            const FLAGS: u32 = if cfg!(panic = "unwind") { rt::UNWINDS } else { 0 };

            #[used]
            #[unsafe(link_section = ".note.refit")]
            static NOTE: rt::Note<LENGTH> = rt::Note::new(EXPORTED, PACKAGE, FLAGS);

            const IMPLEMENTATIONS: &[rt::RawImplementation] = &[$({
                struct Maker;
                impl rt::Make<$interface> for Maker {
                    fn make() -> ::std::boxed::Box<dyn $crate::Root<$interface>> {
                        ($make)()
                    }
                }
                rt::RawImplementation::of::<$interface, Maker>()
            }),+];
            static TABLE: rt::PluginTable = rt::PluginTable {
                magic: rt::TABLE_MAGIC,
                format: rt::FORMAT,
                count: IMPLEMENTATIONS.len() as u32,
                implementations: IMPLEMENTATIONS.as_ptr(),
                note: NOTE.content(),
                note_len: LENGTH,
            };

            #[unsafe(no_mangle)]
            extern "C" fn refit_plugin() -> *const rt::PluginTable {
                &raw const TABLE
            }
        };
    };
}
