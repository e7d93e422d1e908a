//! Plugins that cargo builds from the example crates and that are loaded into this process while it
//! runs.

mod common;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use common::{build, path_of};
use example_store::{Own, Pairs, StoreInterface, StoreRef};
use refit_objects::plugin::{self, Obstacle, PluginInfo};
use refit_objects::{
    Factory, Implementations, SwapOptions, UpgradeOptions, create, destroy, object, swap_named,
    upgrade,
};

/// The ledger and the classes belong to the process, so only one test may use them at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    plugin::accept::<StoreInterface>();
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn store(name: &str) -> StoreRef {
    create(name, Own.root("hashed").expect("it is in the list"), Arc::new(Own))
}

/// Loads a plugin, or returns it if another test has loaded it.
fn loaded(path: &Path) -> PluginInfo {
    match plugin::load(path) {
        Ok(info) => info,
        Err(plugin::LoadError { obstacle: Obstacle::AlreadyLoaded { build_id, .. }, .. }) => {
            let all = plugin::plugins();
            all.into_iter().find(|info| info.build_id == build_id).expect("it is loaded")
        }
        Err(error) => panic!("{error}"),
    }
}

fn swap(store: StoreRef, to: &str) {
    let report = swap_named(store.id(), to, 1, &SwapOptions::default());
    assert!(report.committed(), "{to}: {:?}", report.end);
}

fn serving(store: StoreRef) -> String {
    object(store.id()).expect("it lives").implementation
}

/// The crash would end the process that loads it, so a child process loads it first.
#[test]
fn a_plugin_whose_constructor_crashes_is_refused_and_the_host_lives() {
    let _alone = alone();
    let directory = tempfile::tempdir().expect("a directory");
    let path = path_of(&build("example-store-sorted", "crashes"), &directory);
    let error = plugin::load(&path).expect_err("its constructor aborts");
    assert!(matches!(&error.obstacle, Obstacle::Trial(why) if why.contains("signal")), "{error}");
    assert!(plugin::plugins().iter().all(|info| info.path != path), "nothing is left of it");
}

#[test]
fn swapped_under_load_to_two_builds_from_one_path_and_an_older_version_and_back() {
    let _alone = alone();
    let (first, second) =
        (build("example-store-sorted", ""), build("example-store-sorted", "second"));
    let older = build("example-store-linear", "");
    let directory = tempfile::tempdir().expect("a directory");
    let path = path_of(&first, &directory);
    let store = store("busy");
    let ended = AtomicBool::new(false);
    let total = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for worker in 0..3_u8 {
            let (ended, total) = (&ended, &total);
            scope.spawn(move || {
                let key = [b'w', worker];
                let mut added = 0;
                while !ended.load(Ordering::Relaxed) {
                    added += 1;
                    // Every addition is seen once and in order, whichever implementation serves it.
                    assert_eq!(store.add(&key, 1), added);
                }
                total.fetch_add(added, Ordering::Relaxed);
            });
        }
        let _ends = common::OnDrop(|| ended.store(true, Ordering::Relaxed));
        let info = loaded(&path);
        assert!(info.mapped_bytes > 4096, "{info:?}");
        swap(store, "sorted");
        assert_eq!(store.get(b"build").as_deref(), Some(&b"first!"[..]));
        let precise = serving(store);
        assert!(precise.starts_with("sorted@"), "{precise}");
        // The same path, with other code.
        std::fs::write(&path, &second).expect("it can be written");
        loaded(&path);
        swap(store, "sorted");
        assert_eq!(store.get(b"build").as_deref(), Some(&b"second"[..]));
        assert_ne!(serving(store), precise);
        // The first one is still available under its full name.
        swap(store, &precise);
        assert_eq!(store.get(b"build").as_deref(), Some(&b"first!"[..]));
        // An implementation that does not have `add`.
        loaded(&path_of(&older, &directory));
        swap(store, "linear");
        let before = store.add(b"mine", 5);
        assert_eq!(store.add(b"mine", 2), before + 2);
        for _ in 0..50 {
            ["hashed", "sorted", "linear", &precise].iter().for_each(|to| swap(store, to));
        }
        swap(store, "hashed");
    });
    let sum: u64 = (0..3_u8).map(|worker| store.add(&[b'w', worker], 0)).sum();
    assert_eq!(sum, total.load(Ordering::Relaxed));
    assert_eq!(store.count(), 4);
    destroy(store.id());
}

#[test]
fn a_class_is_upgraded_to_it_and_new_objects_are_made_of_it() {
    let _alone = alone();
    let directory = tempfile::tempdir().expect("a directory");
    let info = loaded(&path_of(&build("example-store-sorted", ""), &directory));
    let precise = &info.implementations[0].precise;
    let factory = Factory::<StoreInterface>::new("test", "hashed");
    let make = |n: u64| {
        let state: Pairs = vec![(b"n".to_vec(), n.to_le_bytes().to_vec())];
        factory.create(format!("{n}"), Arc::new(Own), Some(state)).expect("it can be made")
    };
    let mut stores: Vec<_> = (0..100).map(make).collect();
    let report = upgrade("store", precise, 1, &UpgradeOptions::default());
    assert!(report.committed(), "{:?}", report.end);
    stores.push(make(100));
    for (n, store) in stores.iter().enumerate() {
        assert_eq!(&serving(*store), precise);
        assert_eq!(store.add(b"n", 0), n as u64);
    }
    let served = || {
        let all = plugin::plugins().into_iter().flat_map(|info| info.implementations);
        all.filter(|i| i.precise == *precise).map(|i| i.objects).sum::<usize>()
    };
    assert_eq!(served(), 101);
    let report = upgrade("store", "hashed", 2, &UpgradeOptions::default());
    assert!(report.committed(), "{:?}", report.end);
    assert_eq!(served(), 0);
    for (n, store) in stores.iter().enumerate() {
        assert_eq!(store.add(b"n", 0), n as u64);
        destroy(store.id());
    }
}

#[test]
fn a_panic_of_a_method_is_the_callers_and_one_of_a_transfer_rolls_back() {
    let _alone = alone();
    let directory = tempfile::tempdir().expect("a directory");
    let info = loaded(&path_of(&build("example-store-sorted", ""), &directory));
    let precise = |name: &str| {
        let named = info.implementations.iter().find(|i| i.name == name);
        named.expect("it is exported").precise.clone()
    };
    let store = store("panics");
    swap(store, &precise("sorted"));
    store.put(b"a", b"1");
    let panic = std::panic::catch_unwind(|| store.put(b"panic", b"now")).expect_err("it panics");
    let text = panic.downcast_ref::<String>().expect("with a text");
    assert!(text.contains("this key panics in a plugin"), "{text}");
    assert_eq!(store.get(b"a").as_deref(), Some(&b"1"[..]), "and goes on");

    let refused = |to: &str, why: &str| {
        let report = swap_named(store.id(), to, 1, &SwapOptions::default());
        assert!(report.rolled_back(), "{:?}", report.end);
        assert!(format!("{:?}", report.end).contains(why), "{:?}", report.end);
        assert_eq!(store.get(b"a").as_deref(), Some(&b"1"[..]), "nothing was lost");
    };
    refused(&precise("broken"), "no rep");
    (0..20_u8).for_each(|n| _ = store.put(&[n], b"x"));
    refused(&precise("broken"), "too much state for me");
    let broken = plugin::plugins().into_iter().flat_map(|info| info.implementations);
    assert_eq!(broken.filter(|i| i.name == "broken").map(|i| i.panics).max(), Some(2));
    destroy(store.id());
}

#[test]
fn the_same_code_is_refused_and_unloading_too_each_with_the_reason() {
    let _alone = alone();
    let directory = tempfile::tempdir().expect("a directory");
    let path = path_of(&build("example-store-sorted", ""), &directory);
    let info = loaded(&path);
    let copy = directory.path().join("copy.so");
    std::fs::copy(&path, &copy).expect("it can be copied");
    let error = plugin::load(&copy).expect_err("it is loaded");
    assert!(matches!(error.obstacle, Obstacle::AlreadyLoaded { .. }), "{error}");
    let store = store("holds it");
    swap(store, "sorted");
    let error = plugin::unload(&info.path).expect_err("never");
    let text = error.to_string();
    assert!(text.contains("stays mapped") && text.contains("swap its objects"), "{text}");
    let error = plugin::unload(Path::new("/nowhere.so")).expect_err("it is not loaded");
    assert_eq!(error.obstacle, Obstacle::NotLoaded);
    destroy(store.id());
}

#[test]
fn methods_that_were_changed_or_removed_are_named_with_who_uses_them() {
    let _alone = alone();
    let directory = tempfile::tempdir().expect("a directory");
    let store = store("user");
    let refused = |feature: &'static str| {
        let path = path_of(&build("example-store-linear", feature), &directory);
        let error = plugin::load(&path).expect_err("it does not fit");
        (error.to_string(), error.obstacle)
    };
    let (text, obstacle) = refused("changed");
    assert!(matches!(obstacle, Obstacle::Method { index: 3, method: "count", .. }), "{text}");
    for part in ["fn(&self) -> u32", "fn(&self) -> u64", "version 3", "store:user", "rebuild"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let (text, obstacle) = refused("removed");
    assert!(matches!(obstacle, Obstacle::Missing { method: "remove", .. }), "{text}");
    assert!(text.contains("no default body") && text.contains("store:user"), "{text}");
    destroy(store.id());
}
