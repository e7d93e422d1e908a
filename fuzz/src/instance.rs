//! Fuzzing of the input of an instance: messages on its socket, compositions of mounts, files that
//! claim to be plugins.

use std::fmt::Display;

use refit_instance::wire::{self, Plan};
use refit_memory::{
    FileCacheInterface, FileRepresentativeInterface, PhysicalMemoryInterface,
    ReplacementPolicyInterface,
};
use refit_objects::composition::{Block, Blocks, Port};
use refit_objects::{Clustering, Condition, Interface, plugin};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Reads the bytes as each of the request bodies, and parses the texts in them.
pub(crate) fn message(bytes: &[u8]) {
    let [kind, body @ ..] = bytes else { return };
    match kind % 11 {
        0 => body_of::<wire::Swap>(body),
        1 => body_of::<wire::Wrap>(body),
        2 => body_of::<wire::Unwrap>(body),
        3 => body_of::<wire::Upgrade>(body),
        4 => body_of::<wire::Pause>(body),
        5 => body_of::<wire::MountRequest>(body),
        6 => body_of::<wire::CacheRequest>(body),
        7 => body_of::<wire::RecordRequest>(body),
        8 => body_of::<wire::PluginRequest>(body),
        9 => text_of::<Condition>(body),
        _ => text_of::<Clustering>(body),
    }
}

fn body_of<T: DeserializeOwned + Serialize>(body: &[u8]) {
    if let Ok(asked) = serde_json::from_slice::<T>(body) {
        let again = serde_json::to_vec(&asked).expect("it can be written");
        let read = serde_json::from_slice::<T>(&again);
        assert!(read.is_ok(), "what is written can be read: {}", String::from_utf8_lossy(&again));
    }
}

fn text_of<T: std::str::FromStr<Err: Display> + Display>(body: &[u8]) {
    let text = String::from_utf8_lossy(body);
    match text.parse::<T>() {
        Ok(read) => assert!(read.to_string().parse::<T>().is_ok(), "{text}"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Reads the bytes as the composition of a mount.
pub(crate) fn composition(bytes: &[u8]) {
    let Ok(plan) = serde_json::from_slice::<Plan>(bytes) else { return };
    let block = |name, exports, imports: Vec<Port>| {
        Block::new(name, exports, imports, |_, _| Err("nothing is built here".to_owned()))
    };
    let port = |name, interface| Port { name, interface };
    let cache = vec![
        port("fr", FileRepresentativeInterface::info()),
        port("pm", PhysicalMemoryInterface::info()),
    ];
    let blocks: Blocks = [
        block("fcm:shared", FileCacheInterface::info(), cache),
        block("fr:host", FileRepresentativeInterface::info(), vec![]),
        block(
            "pm:sweep",
            PhysicalMemoryInterface::info(),
            vec![port("policy", ReplacementPolicyInterface::info())],
        ),
        block("policy:clock", ReplacementPolicyInterface::info(), vec![]),
    ]
    .into_iter()
    .collect();
    if let Err(faults) = blocks.check(&plan) {
        assert!(!faults.to_string().is_empty());
    }
}

/// Checks the bytes as a plugin file, without loading it.
pub(crate) fn plugin(bytes: &[u8]) {
    if let Err(obstacle) = plugin::inspect(bytes) {
        assert!(!obstacle.to_string().is_empty());
    }
}
