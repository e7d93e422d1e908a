//! Which mount an object belongs to: names of files' objects are paths within a mount, so two mounts have the same ones.

use std::collections::HashMap;

use crate::refusal::{Kind, Refusal};
use crate::wire::ObjectInfo;

/// The classes that every mount has one object of; the instance part of its name is the mountpoint.
const OF_MOUNT: [&str; 2] = ["pm", "policy"];

/// Fills in [`ObjectInfo::mount`]: an object that calls a mount's page frames, or is called by one that does, is of that mount.
pub(crate) fn assign(objects: &mut [ObjectInfo]) {
    let mut mounts: HashMap<u64, String> = HashMap::new();
    for object in &*objects {
        if let Some((class, mountpoint)) = object.name.split_once(':')
            && OF_MOUNT.contains(&class)
        {
            mounts.insert(object.id, mountpoint.to_owned());
        }
    }
    // What calls them, and what is called by that.
    let mut related = Vec::new();
    for object in &*objects {
        if let Some(mount) = called(object, &mounts) {
            let by = object.imports.iter().map(|import| import.object);
            related.extend(by.chain([object.id]).map(|id| (id, mount.clone())));
        }
    }
    for (id, mount) in related {
        mounts.entry(id).or_insert(mount);
    }
    for object in objects {
        object.mount = mounts.get(&object.id).cloned();
    }
}

/// The mount whose objects this one calls.
fn called(object: &ObjectInfo, mounts: &HashMap<u64, String>) -> Option<String> {
    object.imports.iter().find_map(|import| mounts.get(&import.object)).cloned()
}

/// Refuses a name that objects of several mounts have.
///
/// # Errors
/// It is `Malformed` for whoever asks: which of them is meant is not said.
pub(crate) fn unambiguous(asked: &str, objects: &[ObjectInfo]) -> Result<(), Refusal> {
    let mounts: Vec<&str> = objects.iter().filter_map(|object| object.mount.as_deref()).collect();
    let [_, _, ..] = mounts[..] else { return Ok(()) };
    let obstacle =
        format!("{} mounts have an object of this name: {}", mounts.len(), mounts.join(", "));
    Err(Refusal::new(
        Kind::Malformed,
        asked,
        obstacle,
        "say which with --mount MOUNTPOINT, or give a pattern for all",
    ))
}
