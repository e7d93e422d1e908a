//! Loadable implementations: built separately from the host, loaded while it runs, and available
//! for swaps at once.
//!
//! An interface that is declared with `loadable` can be implemented by a *plugin*: a crate of type
//! `cdylib` that calls [`plugin!`](crate::plugin!). Host and plugin may be compiled by different
//! compilers, and each has its own copy of this crate and of the standard library. So only types
//! with the layout of the C ABI cross between them (`abi`). Generated code on both sides converts
//! arguments and results, and state crosses as bytes. Each side frees the memory that it has
//! allocated. A panic is caught on the side where it happens and passed on as a value.
//!
//! | module | purpose |
//! |---|---|
//! | `abi`, `foreign` | the types and tables that cross |
//! | `note`, `check`, `compare` | the note in a plugin's file; the checks before its code runs |
//! | `export` | the plugin's side |
//! | `proxy`, `foreign_rep` | the host's side: roots and reps that live in a plugin |
//! | `load`, `ledger` | from a path to an implementation; the code that stays mapped |
//!
//! Not guaranteed: loaded code runs with all rights of the host. The checks detect files that are
//! damaged or were built for something else, not malice.

#[expect(unsafe_code, reason = "it is the C interface of plugins")]
pub(crate) mod abi;
pub(crate) mod check;
pub(crate) mod compare;
pub(crate) mod error;
#[expect(unsafe_code, reason = "methods are called by other binaries")]
pub(crate) mod export;
#[expect(unsafe_code, reason = "tables of other binaries are read")]
pub(crate) mod foreign;
#[expect(unsafe_code, reason = "methods of other binaries are called")]
pub(crate) mod foreign_rep;
pub(crate) mod leaked;
pub(crate) mod ledger;
#[expect(unsafe_code, reason = "a library is loaded and its table found")]
pub(crate) mod load;
pub(crate) mod note;
#[expect(unsafe_code, reason = "roots of other binaries are called")]
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
/// Before the arrow: the interface, as a type, and the name of the implementation. After it: a
/// function that creates a new, empty root.
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
