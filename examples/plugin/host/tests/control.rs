//! Loading a plugin into a running host over the control API, as `refit load` does it.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{build, path_of};
use example_store::{Own, StoreInterface, StoreRef};
use refit_instance::wire::Swap;
use refit_instance::{Client, Instance, InstanceOptions, Kind, SocketDirectory, host};
use refit_objects::{Implementations, create, destroy, plugin};

#[test]
fn loaded_listed_swapped_to_and_never_unloaded() {
    plugin::accept::<StoreInterface>();
    let root = Own.root("hashed").expect("it is in the list");
    let store: StoreRef = create("remote", root, Arc::new(Own));
    store.put(b"kept", b"1");
    let directory = tempfile::tempdir().expect("a directory");
    let sockets = SocketDirectory::at(&directory.path().join("sockets")).expect("a directory");
    let instance = Instance::start(host(), InstanceOptions::at(sockets)).expect("it starts");
    let client = Client::new(&instance.socket()).expect("a runtime");

    let path = path_of(&build("example-store-sorted", ""), &directory);
    let loaded = client.load(&path).expect("it is loaded");
    assert_eq!(client.plugins(), Ok(vec![loaded.clone()]));
    assert_eq!(loaded.implementations[0].name, "sorted");

    let objects = client.objects("store:remote").expect("it answers");
    assert!(objects[0].implementations.contains(&"sorted".to_owned()), "{objects:?}");
    let swap = serde_json::json!({ "glob": "store:remote", "implementation": "sorted" });
    let swap: Swap = serde_json::from_value(swap).expect("it is one");
    for report in client.swap(&swap).expect("it begins") {
        assert!(report.expect("it ends").committed());
    }
    assert_eq!(store.get(b"kept").as_deref(), Some(&b"1"[..]));
    assert_eq!(client.plugins().expect("it answers")[0].implementations[0].objects, 1);

    let refused = |result: Result<(), refit_instance::Refusal>, kind, part: &str| {
        let refusal = result.expect_err("it is refused");
        assert_eq!(refusal.kind, kind, "{refusal}");
        assert!(refusal.to_string().contains(part), "{refusal}");
    };
    refused(client.unload(&path), Kind::Busy, "store:remote");
    refused(client.unload(Path::new("/none.so")), Kind::Unknown, "no such plugin");
    refused(client.load(&path).map(drop), Kind::Busy, "already loaded");
    refused(client.load(Path::new("none.so")).map(drop), Kind::Malformed, "root");
    refused(client.load(directory.path()).map(drop), Kind::Malformed, "regular file");
    destroy(store.id());
}
