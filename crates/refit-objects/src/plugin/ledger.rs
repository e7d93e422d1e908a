//! The ledger of loaded plugins: implementations by the name to which objects can be swapped, and
//! code that stays mapped.
//!
//! An implementation `fast` of a plugin has two names. `fast@1a2b3c4d` is exactly that code,
//! `1a2b3c4d` being the beginning of its build id; an object that it serves shows this name. `fast`
//! is the code that was loaded last under this name, so a request to swap to it gets the newest.

use std::any::{Any, TypeId};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;

use super::error::{LoadError, Obstacle};
use super::export::Loadable;
use super::foreign::RawImplementation;
use super::foreign_rep::Usage;
use super::leaked::leaked;
use super::note::Description;
use super::proxy::ForeignRoot;
use crate::interface::{Implementations, Interface, Root};
use crate::registry;

/// A loaded plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PluginInfo {
    /// The path of the file, as given by the caller.
    pub path: PathBuf,
    /// The build id of the code.
    pub build_id: String,
    /// The name and version of its package.
    pub package: String,
    /// The compiler that has compiled it.
    pub rustc: String,
    /// The memory that it takes until the process ends, in bytes.
    pub mapped_bytes: u64,
    /// Its implementations.
    pub implementations: Vec<LoadedInfo>,
}

/// A loaded implementation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LoadedInfo {
    /// The name of its interface.
    pub interface: String,
    /// The version of the interface that it was built against.
    pub version: u32,
    /// Its name, which refers to the code that was loaded last under it.
    pub name: String,
    /// The name of exactly this code.
    pub precise: String,
    /// Whether `name` refers to it.
    pub latest: bool,
    /// The number of objects that it serves.
    pub objects: usize,
    /// The number of its live roots, including those that are being swapped in or out.
    pub roots: usize,
    /// The number of its panics that were caught.
    pub panics: u64,
}

/// Creates a root: `fn() -> Result<Box<dyn Root<I>>, String>` for one `I`.
type MakeRoot<I> = dyn Fn() -> Result<Box<dyn Root<I>>, String> + Send + Sync;

/// An interface whose implementations may be loaded.
#[derive(Clone, Copy)]
pub(crate) struct Accepted {
    pub(crate) description: &'static Description,
    interface: TypeId,
    maker: fn(RawImplementation, Arc<Usage>) -> Box<dyn Any + Send + Sync>,
}

struct Loaded {
    interface: TypeId,
    interface_name: &'static str,
    version: u32,
    name: &'static str,
    usage: Arc<Usage>,
    /// An `Arc<MakeRoot<I>>`.
    make: Box<dyn Any + Send + Sync>,
}

struct Plugin {
    path: PathBuf,
    build_id: String,
    package: String,
    rustc: String,
    mapped: u64,
    implementations: Vec<Loaded>,
}

#[derive(Default)]
struct Ledger {
    accepted: Vec<Accepted>,
    plugins: Vec<Plugin>,
}

/// Protects the accepted interfaces and the loaded plugins. Held for one operation on the lists.
static LEDGER: Mutex<Ledger> = Mutex::new(Ledger { accepted: Vec::new(), plugins: Vec::new() });

fn ledger() -> MutexGuard<'static, Ledger> {
    LEDGER.lock()
}

/// Lets this process load implementations of an interface. Repeated calls have no effect.
pub fn accept<I: Loadable>() {
    let mut ledger = ledger();
    let interface = TypeId::of::<I>();
    if ledger.accepted.iter().any(|known| known.interface == interface) {
        return;
    }
    let maker = |raw: RawImplementation, usage: Arc<Usage>| {
        let make: Arc<MakeRoot<I>> =
            Arc::new(move || Ok(Box::new(ForeignRoot::make(&raw, &usage)?) as Box<dyn Root<I>>));
        Box::new(make) as Box<dyn Any + Send + Sync>
    };
    ledger.accepted.push(Accepted { description: &I::DESCRIPTION, interface, maker });
}

/// Returns the interfaces whose implementations may be loaded.
pub(crate) fn accepted() -> Vec<Accepted> {
    ledger().accepted.clone()
}

/// Returns the file from which this code was loaded, if it was.
pub(crate) fn loaded_from(build_id: &str) -> Option<PathBuf> {
    let ledger = ledger();
    ledger.plugins.iter().find(|p| p.build_id == build_id).map(|p| p.path.clone())
}

/// A plugin to add to the ledger.
pub(crate) struct Entry {
    pub(crate) path: PathBuf,
    pub(crate) build_id: String,
    pub(crate) package: String,
    pub(crate) rustc: String,
    pub(crate) mapped: u64,
    pub(crate) implementations: Vec<(Accepted, u32, String, RawImplementation)>,
}

/// Adds a plugin, so that objects can be swapped to its implementations.
pub(crate) fn enter(entry: Entry) -> PluginInfo {
    let Entry { path, build_id, package, rustc, mapped, implementations } = entry;
    let short = build_id.get(..8).unwrap_or(&build_id).to_owned();
    let loaded = |(accepted, version, name, raw): (Accepted, u32, String, RawImplementation)| {
        let usage = Arc::new(Usage {
            precise: leaked(&format!("{name}@{short}")),
            roots: Default::default(),
            panics: Default::default(),
        });
        Loaded {
            interface: accepted.interface,
            interface_name: accepted.description.interface,
            version,
            name: leaked(&name),
            make: (accepted.maker)(raw, Arc::clone(&usage)),
            usage,
        }
    };
    let implementations = implementations.into_iter().map(loaded).collect();
    let plugin = Plugin { path, build_id, package, rustc, mapped, implementations };
    let mut ledger = ledger();
    ledger.plugins.push(plugin);
    let serving = serving();
    info(&ledger, ledger.plugins.len() - 1, &serving)
}

impl Ledger {
    /// Returns the implementations that are loaded for an interface, the latest first.
    fn of(&self, interface: TypeId) -> impl Iterator<Item = &Loaded> {
        let all = self.plugins.iter().rev().flat_map(|plugin| &plugin.implementations);
        all.filter(move |loaded| loaded.interface == interface)
    }
}

/// Returns the names of the implementations that are loaded for an interface.
pub(crate) fn names<I: Interface>() -> Vec<&'static str> {
    let ledger = ledger();
    let mut names = Vec::new();
    for loaded in ledger.of(TypeId::of::<I>()) {
        if !names.contains(&loaded.name) {
            names.push(loaded.name);
        }
        names.push(loaded.usage.precise);
    }
    names
}

/// Returns a new, empty root of one of the object's own implementations, or of a loaded one. The
/// error says why an existing implementation could not create it.
pub(crate) fn make<I: Interface>(
    own: &dyn Implementations<I>,
    name: &str,
) -> Result<Option<Box<dyn Root<I>>>, String> {
    if let Some(root) = own.root(name) {
        return Ok(Some(root));
    }
    let make = {
        let ledger = ledger();
        let mut loaded = ledger.of(TypeId::of::<I>());
        let found = loaded.find(|loaded| loaded.name == name || loaded.usage.precise == name);
        found.and_then(|loaded| loaded.make.downcast_ref::<Arc<MakeRoot<I>>>()).map(Arc::clone)
    };
    let Some(make) = make else { return Ok(None) };
    catch_unwind(AssertUnwindSafe(|| make()))
        .unwrap_or_else(|_| Err("it panicked".into()))
        .map(Some)
        .map_err(|why| format!("{name:?} could not be created: {why}"))
}

/// Returns the current implementations of objects; one entry for each object, with its name.
fn serving() -> Vec<(String, String)> {
    let name = |slot: &Arc<crate::slot::Slot>| (slot.root().implementation(), slot.full_name());
    registry::all().iter().map(name).collect()
}

/// Returns whether an object's implementation includes this one; during a swap it may name two.
fn uses(implementation: &str, precise: &str) -> bool {
    implementation.split(" → ").any(|one| one == precise)
}

fn info(ledger: &Ledger, index: usize, serving: &[(String, String)]) -> PluginInfo {
    let Plugin { path, build_id, package, rustc, mapped, implementations } = &ledger.plugins[index];
    let implementation = |loaded: &Loaded| {
        let precise = loaded.usage.precise;
        let latest = ledger.of(loaded.interface).find(|other| other.name == loaded.name);
        LoadedInfo {
            interface: loaded.interface_name.to_owned(),
            version: loaded.version,
            name: loaded.name.to_owned(),
            precise: precise.to_owned(),
            latest: latest.is_some_and(|latest| latest.usage.precise == precise),
            objects: serving.iter().filter(|(of, _)| uses(of, precise)).count(),
            roots: loaded.usage.roots.load(Ordering::Relaxed),
            panics: loaded.usage.panics.load(Ordering::Relaxed),
        }
    };
    PluginInfo {
        path: path.clone(),
        build_id: build_id.clone(),
        package: package.clone(),
        rustc: rustc.clone(),
        mapped_bytes: *mapped,
        implementations: implementations.iter().map(implementation).collect(),
    }
}

/// Returns all loaded plugins, in the order in which they were loaded.
pub fn plugins() -> Vec<PluginInfo> {
    let serving = serving();
    let ledger = ledger();
    (0..ledger.plugins.len()).map(|index| info(&ledger, index, &serving)).collect()
}

/// Refuses to unload a plugin, since it cannot be known whether a thread will run its code again.
/// The error names the objects that use it.
///
/// # Errors
/// Always.
pub fn unload(path: &Path) -> Result<(), LoadError> {
    const SHOWN: usize = 4;
    let serving = serving();
    let ledger = ledger();
    let named = |plugin: &&Plugin| plugin.path == path || Path::new(&plugin.build_id) == path;
    let plugins: Vec<_> = ledger.plugins.iter().filter(named).collect();
    let obstacle = if plugins.is_empty() {
        Obstacle::NotLoaded
    } else {
        let loaded = || plugins.iter().flat_map(|plugin| &plugin.implementations);
        let used = |of: &str| loaded().any(|loaded| uses(of, loaded.usage.precise));
        let objects = serving.iter().filter(|(of, _)| used(of)).map(|(_, name)| name.clone());
        Obstacle::NeverUnloaded { objects: objects.take(SHOWN).collect() }
    };
    Err(LoadError { path: path.into(), obstacle })
}
