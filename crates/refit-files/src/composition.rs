//! The composition of a mount: a plan that says which building block provides which interface,
//! checked before anything is mounted.
//!
//! A mount needs one part for each of four interfaces. For `fcm` and `fr` an object is created for
//! each file when it is opened. The objects of `pm` and `policy` are created with the mount and
//! shared by all files.

use std::sync::{Arc, OnceLock};

use refit_memory::{
    CLOCK, FileCacheFactory, FileCacheInterface, FileRepresentativeInterface, FramePool,
    PhysicalMemoryInterface, PhysicalMemoryRef, ReplacementPolicyFactory,
    ReplacementPolicyInterface, create_physical_memory, create_policy,
};
use refit_objects::composition::{Block, Blocks, Composition, Connected, Part, Plan, Port};
use refit_objects::{Interface, ObjectId, plugin, reference};

use crate::error::MountError;
use crate::representative::HOST;

/// The interfaces for which a mount has one part each.
const ROLES: [&str; 4] = ["fcm", "fr", "pm", "policy"];

/// The implementations of file caches.
const CACHES: [&str; 2] = ["partitioned", "shared"];

/// The implementation of physical memory.
const SWEEP: &str = "sweep";

/// Returns the default composition of a mount, with `cache` as the initial implementation of file
/// caches.
///
/// A block is named after its interface and implementation, so that a plan reads like the output of
/// `refit ls`.
pub fn composition(cache: &str) -> Plan {
    let part = |block: String, connect: &[(&str, &str)]| {
        let connect = connect.iter().map(|(port, to)| ((*port).to_owned(), (*to).to_owned()));
        Part { block, connect: connect.collect() }
    };
    let parts = [
        ("cache", part(format!("fcm:{cache}"), &[("fr", "file"), ("pm", "memory")])),
        ("file", part(format!("fr:{HOST}"), &[])),
        ("memory", part(format!("pm:{SWEEP}"), &[("policy", "replacement")])),
        ("replacement", part(format!("policy:{CLOCK}"), &[])),
    ];
    Plan { parts: parts.map(|(name, part)| (name.to_owned(), part)).into() }
}

/// The objects that all files of a mount share, and the factory for the objects of a file.
pub(crate) struct MountObjects {
    pub(crate) physical: PhysicalMemoryRef,
    pub(crate) caches: FileCacheFactory,
    /// Kept so that the class of the policy can be upgraded as long as the mount exists.
    pub(crate) policies: Arc<OnceLock<ReplacementPolicyFactory>>,
    pub(crate) objects: Composition,
}

/// Builds `plan` for the mount `name`.
pub(crate) fn compose(
    plan: &Plan,
    name: &str,
    frames: &Arc<FramePool>,
) -> Result<MountObjects, MountError> {
    let refused = |why: String| MountError::Composition(why);
    let policies = Arc::default();
    let blocks = blocks(name, frames, &policies);
    blocks.check(plan).map_err(|faults| refused(faults.to_string()))?;
    let [cache, _, memory, _] = roles(plan).map_err(refused)?;
    let caches = FileCacheFactory::new(name, implementation(&plan.parts[cache]));
    // The parts of a file are created when it is opened. The shared parts import none of them.
    let shared = |part: &Part| ["pm", "policy"].contains(&interface(part));
    let parts = plan.parts.iter().filter(|(_, part)| shared(part));
    let shared = Plan { parts: parts.map(|(name, part)| (name.clone(), part.clone())).collect() };
    let checked = blocks.check(&shared).map_err(|faults| refused(faults.to_string()))?;
    let objects = checked.build().map_err(|error| refused(error.to_string()))?;
    let physical = objects.object(memory).and_then(reference::<PhysicalMemoryInterface>);
    match physical {
        Some(physical) => Ok(MountObjects { physical, caches, policies, objects }),
        None => {
            objects.destroy();
            Err(refused(format!("{memory} has ended meanwhile")))
        }
    }
}

/// Returns the names of the parts that export the [`ROLES`].
fn roles(plan: &Plan) -> Result<[&str; 4], String> {
    let mut found = [""; 4];
    for (role, found) in ROLES.into_iter().zip(&mut found) {
        let of = plan.parts.iter().filter(|(_, part)| interface(part) == role);
        let names: Vec<_> = of.map(|(name, _)| name.as_str()).collect();
        let [name] = names[..] else {
            let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(format!(
                "a mount needs one part that exports {role}, but there is {there}"
            ));
        };
        *found = name;
    }
    Ok(found)
}

/// Returns the interface of a part: `fcm` of `fcm:shared`.
fn interface(part: &Part) -> &str {
    part.block.split_once(':').map_or("", |(interface, _)| interface)
}

fn implementation(part: &Part) -> &str {
    part.block.split_once(':').map_or("", |(_, implementation)| implementation)
}

/// Returns all blocks from which a mount of this name can be built.
fn blocks(
    name: &str,
    frames: &Arc<FramePool>,
    policies: &Arc<OnceLock<ReplacementPolicyFactory>>,
) -> Blocks {
    let policy = |implementation: String| {
        let (mount, policies) = (name.to_owned(), Arc::clone(policies));
        let build = {
            let implementation = implementation.clone();
            move |_: &str, _: &Connected<'_>| {
                let factory = ReplacementPolicyFactory::new(&mount, &implementation);
                let policy = create_policy(&factory, mount.clone()).map_err(|e| e.to_string())?;
                let _ = policies.set(factory); // There is one part of it.
                Ok(policy.id())
            }
        };
        let exports = ReplacementPolicyInterface::info();
        Block::new(format!("policy:{implementation}"), exports, [], build)
    };
    let memory = {
        let (mount, frames) = (name.to_owned(), Arc::clone(frames));
        let port = Port { name: "policy", interface: ReplacementPolicyInterface::info() };
        let build = move |_: &str, at: &Connected<'_>| {
            let policy = at.at("policy");
            let policy = reference::<ReplacementPolicyInterface>(policy)
                .ok_or("its policy has ended meanwhile")?;
            Ok(create_physical_memory(mount.clone(), Arc::clone(&frames), policy).id())
        };
        Block::new(format!("pm:{SWEEP}"), PhysicalMemoryInterface::info(), [port], build)
    };
    let file = Block::new(
        format!("fr:{HOST}"),
        FileRepresentativeInterface::info(),
        [],
        made_when_a_file_is_opened,
    );
    let cache = |implementation: &str| {
        let ports = [
            Port { name: "fr", interface: FileRepresentativeInterface::info() },
            Port { name: "pm", interface: PhysicalMemoryInterface::info() },
        ];
        let (name, exports) = (format!("fcm:{implementation}"), FileCacheInterface::info());
        Block::new(name, exports, ports, made_when_a_file_is_opened)
    };
    let caches = CACHES.into_iter().map(cache);
    let policies = policy_names().into_iter().map(policy);
    caches.chain(policies).chain([memory, file]).collect()
}

/// Returns the names of the built-in policy and of those that were loaded.
fn policy_names() -> Vec<String> {
    let loaded = plugin::plugins().into_iter().flat_map(|plugin| plugin.implementations);
    let policy = ReplacementPolicyInterface::info().name;
    let loaded = loaded.filter(|one| one.interface == policy);
    let names = loaded.flat_map(|one| [one.name, one.precise]);
    std::iter::once(CLOCK.to_owned()).chain(names).collect()
}

/// The constructor of the parts of a file, of which the factory creates an instance for each file.
fn made_when_a_file_is_opened(name: &str, _: &Connected<'_>) -> Result<ObjectId, String> {
    Err(format!("{name} is a part of each file, and is created when a file is opened"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compose_of(plan: &Plan) -> Result<MountObjects, String> {
        let frames = FramePool::new(1 << 20).expect("memory");
        compose(plan, "test", &frames).map_err(|error| error.to_string())
    }

    fn refused(change: impl FnOnce(&mut Plan), says: &str) {
        let mut plan = composition("shared");
        change(&mut plan);
        let Err(error) = compose_of(&plan) else { panic!("composed: {plan:?}") };
        assert!(error.contains(says), "{says} is not in: {error}");
    }

    fn part<'a>(plan: &'a mut Plan, name: &str) -> &'a mut Part {
        plan.parts.get_mut(name).expect("it is there")
    }

    #[test]
    fn the_usual_composition_is_built_and_ended() {
        let composed = compose_of(&composition("partitioned")).expect("it is right");
        assert_eq!(composed.caches.implementation(), "partitioned");
        let memory = refit_objects::object(composed.physical.id()).expect("it is there");
        let policy = composed.objects.object("replacement").expect("it is there");
        let imports: Vec<_> = memory.imports.iter().map(|i| (i.port, i.object)).collect();
        assert_eq!(imports, [("policy", policy)]);
        let name = refit_objects::object(policy).map(|object| object.name);
        assert_eq!(name.as_deref(), Some("policy:test"));
        composed.objects.destroy();
        assert!(refit_objects::object(policy).is_none());
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_reason() {
        refused(
            |plan| part(plan, "cache").block = "fcm:sharded".into(),
            "fcm:partitioned, fcm:shared",
        );
        refused(
            |plan| drop(part(plan, "cache").connect.insert("pm".into(), "file".into())),
            "port pm of cache needs pm, but file exports fr",
        );
        refused(
            |plan| part(plan, "memory").connect.clear(),
            "port policy of memory is not connected",
        );
        refused(|plan| drop(plan.parts.remove("replacement")), "there is no such part");
        refused(
            |plan| {
                let more = part(plan, "cache").clone();
                plan.parts.insert("another".into(), more);
            },
            "one part that exports fcm, but there is another, cache",
        );
        refused(
            |plan| plan.parts.retain(|name, _| !["cache", "file"].contains(&name.as_str())),
            "one part that exports fcm, but there is none",
        );
    }
}
