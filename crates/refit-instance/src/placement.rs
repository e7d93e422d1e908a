//! The mount to which an object belongs. The names of files' objects are paths within a mount, so
//! that two mounts can have objects of the same names.

use std::collections::HashMap;

use crate::refusal::{Kind, Refusal};
use crate::wire::ObjectInfo;

/// The classes of which every mount has one object; the instance part of its name is the mount
/// point.
const OF_MOUNT: [&str; 2] = ["pm", "policy"];

/// Sets [`ObjectInfo::mount`]. An object belongs to a mount if it calls the mount's page frames or
/// is called by an object that does.
pub(crate) fn assign(objects: &mut [ObjectInfo]) {
    let mut mounts: HashMap<u64, String> = HashMap::new();
    for object in &*objects {
        if let Some((class, mountpoint)) = object.name.split_once(':')
            && OF_MOUNT.contains(&class)
        {
            mounts.insert(object.id, mountpoint.to_owned());
        }
    }
    // The objects that call the page frames, and those that they call.
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

/// Returns the mount whose objects this one calls.
fn called(object: &ObjectInfo, mounts: &HashMap<u64, String>) -> Option<String> {
    object.imports.iter().find_map(|import| mounts.get(&import.object)).cloned()
}

/// Refuses a name that objects of several mounts have.
///
/// # Errors
///
/// Returns a refusal of the kind `Malformed`, since the request does not say which of them is
/// meant.
pub(crate) fn unambiguous(operation: &str, objects: &[ObjectInfo]) -> Result<(), Refusal> {
    let mounts: Vec<&str> = objects.iter().filter_map(|object| object.mount.as_deref()).collect();
    let [_, _, ..] = mounts[..] else { return Ok(()) };
    let obstacle =
        format!("{} mounts have an object of this name: {}", mounts.len(), mounts.join(", "));
    Err(Refusal::new(
        Kind::Malformed,
        operation,
        obstacle,
        "select one with --mount MOUNTPOINT, or give a pattern to match all",
    ))
}
