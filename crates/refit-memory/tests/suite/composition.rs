//! The building blocks of a file cache, composed by plan.

use std::sync::Arc;

use refit_memory::{
    CacheParts, FileCacheFactory, FileCacheInterface, FileRepresentativeInterface, FramePool,
    PhysicalMemoryInterface, create_file_cache, create_physical_memory,
};
use refit_objects::composition::{Block, Blocks, BuildError, Fault, Plan, Port};
use refit_objects::{Interface, object, objects, reference};

use crate::host::{HostFile, PAGE_SIZE_U64, pattern, policy, representative};

/// Blocks over a pool of frames and a file.
fn blocks(frames: &Arc<FramePool>, host: &Arc<HostFile>) -> Blocks {
    let ports = [
        Port { name: "fr", interface: FileRepresentativeInterface::info() },
        Port { name: "pm", interface: PhysicalMemoryInterface::info() },
    ];
    let clock = {
        let frames = Arc::clone(frames);
        Block::new("clock", PhysicalMemoryInterface::info(), [], move |name, _| {
            Ok(create_physical_memory(name, Arc::clone(&frames), policy()).id())
        })
    };
    let file = {
        let host = Arc::clone(host);
        Block::new("file", FileRepresentativeInterface::info(), [], move |_, _| {
            Ok(representative(&host).id())
        })
    };
    let cache = |implementation: &'static str| {
        let (frames, host) = (Arc::clone(frames), Arc::clone(host));
        Block::new(implementation, FileCacheInterface::info(), ports, move |name, at| {
            let missing = "it is gone".to_owned();
            let pm = reference::<PhysicalMemoryInterface>(at.at("pm")).ok_or(missing.clone())?;
            let fr = reference::<FileRepresentativeInterface>(at.at("fr")).ok_or(missing)?;
            let parts = CacheParts { pm, frames: Arc::clone(&frames), fr };
            let factory = FileCacheFactory::new("composed", implementation);
            let size = host.bytes().len() as u64;
            let cache = create_file_cache(&factory, name, parts, size);
            cache.map(|cache| cache.id()).map_err(|error| error.to_string())
        })
    };
    [clock, file, cache("shared"), cache("partitioned"), cache("sharded")].into_iter().collect()
}

/// Name, block, and the part at each port.
type Line<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

fn plan(parts: &[Line<'_>]) -> Plan {
    let mut plan = Plan::default();
    for (name, block, connect) in parts {
        let part = plan.parts.entry((*name).to_owned()).or_default();
        part.block = (*block).to_owned();
        let connection = |(port, to): &(&str, &str)| ((*port).to_owned(), (*to).to_owned());
        part.connect = connect.iter().map(connection).collect();
    }
    plan
}

const MEMORY: Line<'_> = ("memory", "clock", &[]);
const DISK: Line<'_> = ("disk", "file", &[]);

#[test]
fn a_cache_is_composed_of_its_parts() {
    let bytes = pattern(9, 5 * PAGE_SIZE_U64 as usize);
    let frames = FramePool::new(16 * PAGE_SIZE_U64).unwrap();
    let host = HostFile::new(bytes.clone());
    let blocks = blocks(&frames, &host);
    for implementation in ["shared", "partitioned"] {
        let cache = ("a-cache", implementation, &[("fr", "disk"), ("pm", "memory")][..]);
        let plan = plan(&[cache, MEMORY, DISK]);
        let checked = blocks.check(&plan).unwrap();
        assert_eq!(checked.order(), ["disk", "memory", "a-cache"], "the imported first");
        let composition = checked.build().unwrap();
        let id = composition.object("a-cache").unwrap();
        let cache = reference::<FileCacheInterface>(id).unwrap();
        let mut found = vec![0; bytes.len()];
        assert_eq!(cache.read(0, &mut found), Ok(bytes.len()));
        assert_eq!(found, bytes);
        let imports: Vec<_> = object(id).unwrap().imports;
        let ports: Vec<_> = imports.iter().map(|i| (i.port, Some(i.object))).collect();
        let (disk, memory) = (composition.object("disk"), composition.object("memory"));
        assert_eq!(ports, [("fr", disk), ("pm", memory)], "what it stands on can be seen");
        cache.discard();
        composition.destroy();
        assert_eq!(object(id).map(|o| o.name), None);
    }
}

#[test]
fn everything_that_is_wrong_is_found_before_anything_is_built() {
    let frames = FramePool::new(16 * PAGE_SIZE_U64).unwrap();
    let blocks = blocks(&frames, &HostFile::new(vec![]));
    let faults = |plan: &Plan| blocks.check(plan).expect_err("it is wrong");
    let wrong = faults(&plan(&[
        ("a", "shared", &[("fr", "memory"), ("mp", "memory")]),
        ("b", "shred", &[]),
        ("c", "shared", &[("fr", "disk"), ("pm", "elsewhere")]),
        MEMORY,
        DISK,
    ]));
    let text = wrong.to_string();
    for says in [
        "a has no port \"mp\"; it has: fr, pm",
        "port fr of a needs fr, but memory exports pm",
        "port pm of a is not connected; it needs a part that exports pm",
        "b has the block \"shred\", but there is no such block; there are: clock, file, partitioned",
        "port pm of c is connected to \"elsewhere\", but there is no such part",
    ] {
        assert!(text.contains(says), "{says} is not in: {text}");
    }
    assert_eq!(wrong.0.len(), 5);
    let circle = faults(&plan(&[
        ("a", "shared", &[("fr", "b"), ("pm", "memory")]),
        ("b", "shared", &[("fr", "a"), ("pm", "memory")]),
        MEMORY,
    ]));
    assert!(circle.0.contains(&Fault::Circle(vec!["a".into(), "b".into()])), "{circle}");
}

#[test]
fn a_part_that_cannot_be_built_leaves_nothing_behind() {
    let frames = FramePool::new(16 * PAGE_SIZE_U64).unwrap();
    let blocks = blocks(&frames, &HostFile::new(vec![]));
    // The block is there, but no implementation of this name.
    let cache = ("cache", "sharded", &[("fr", "disk"), ("pm", "z-memory")][..]);
    let plan = plan(&[cache, ("z-memory", "clock", &[]), DISK]);
    let built = blocks.check(&plan).unwrap().build();
    let BuildError { part, why } = built.expect_err("there is no such implementation");
    assert_eq!(part, "cache");
    assert!(why.contains("there are: shared, partitioned"), "{why}");
    assert!(objects().iter().all(|o| o.name != "pm:z-memory"), "what was built is destroyed");
}

#[test]
fn a_method_that_is_gone_is_named_with_who_uses_it() {
    let frames = FramePool::new(16 * PAGE_SIZE_U64).unwrap();
    let host = HostFile::new(vec![]);
    let mut blocks: Vec<Block> = Vec::new();
    // The interface of physical memory without its second method.
    let info = PhysicalMemoryInterface::info();
    let mut methods = info.methods.to_vec();
    let removed = methods.remove(1);
    let newer = refit_objects::InterfaceInfo {
        version: info.version + 1,
        methods: methods.leak(),
        ..*info
    };
    let newer: &'static _ = Box::leak(Box::new(newer));
    blocks.push(Block::new("clock-2", newer, [], |_, _| Err("never built".into())));
    let port = Port { name: "pm", interface: info };
    blocks.push(Block::new("user", info, [port], |_, _| Err("never built".into())));
    let blocks: Blocks = blocks.into_iter().collect();
    let plan = plan(&[("a", "user", &[("pm", "memory")]), ("memory", "clock-2", &[])]);
    let text = blocks.check(&plan).expect_err("a method is missing").to_string();
    assert!(text.contains(&format!("port pm of a uses pm.{}", removed.name)), "{text}");
    drop((frames, host));
}
