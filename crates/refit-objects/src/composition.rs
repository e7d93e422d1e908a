//! Compositions of building blocks: which implementations there are, and how they are connected
//! (Hui 2000, §3.2; Soules 2003, §3). A composition is checked as a whole before anything is built.
//!
//! A [`Block`] declares the interface that it exports and those that it imports, each under the
//! name of a *port*. A [`Plan`] names parts, assigns a block to each, and connects ports to parts;
//! it is plain data, written by people. [`Blocks::check`] finds all of its faults. A plan without
//! faults can be built, imported parts before those that import them.
//!
//! A block was compiled against some version of each interface it imports. It can be connected to a
//! part whose interface has every method that it knows, unchanged and in the same place; methods
//! that were appended since do not matter. A method that was removed or changed is reported, with
//! the parts that still use it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::description::InterfaceInfo;
use crate::id::ObjectId;
use crate::object::destroy;

/// A dependency of a block on another one.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// The name of the port within the block.
    pub name: &'static str,
    /// The interface, as the block was compiled against it.
    pub interface: &'static InterfaceInfo,
}

/// The function that creates the object of a part, from the name of the part and the objects at its
/// ports.
pub type Build = dyn Fn(&str, &Connected<'_>) -> Result<ObjectId, String> + Send + Sync;

/// A kind of part.
pub struct Block {
    name: String,
    exports: &'static InterfaceInfo,
    imports: Vec<Port>,
    build: Box<Build>,
}

impl Block {
    /// Creates a block with this name, usually that of an implementation. `build` is called with an
    /// object at each port.
    pub fn new(
        name: impl Into<String>,
        exports: &'static InterfaceInfo,
        imports: impl Into<Vec<Port>>,
        build: impl Fn(&str, &Connected<'_>) -> Result<ObjectId, String> + Send + Sync + 'static,
    ) -> Self {
        Block { name: name.into(), exports, imports: imports.into(), build: Box::new(build) }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let imports: Vec<_> = self.imports.iter().map(|p| (p.name, p.interface.name)).collect();
        f.debug_struct("Block")
            .field("name", &self.name)
            .field("exports", &self.exports.name)
            .field("imports", &imports)
            .finish_non_exhaustive()
    }
}

/// The objects at the ports of a part.
#[derive(Debug)]
pub struct Connected<'a>(&'a BTreeMap<&'a str, ObjectId>);

impl Connected<'_> {
    /// Returns the object at a port that the block has declared.
    ///
    /// # Panics
    /// If the block has declared no such port.
    pub fn at(&self, port: &str) -> ObjectId {
        *self.0.get(port).unwrap_or_else(|| panic!("the block has declared no port {port:?}"))
    }
}

/// The parts of a composition, and their connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The parts, by name.
    pub parts: BTreeMap<String, Part>,
}

/// A part of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// The name of its block.
    pub block: String,
    /// The part at each of its ports.
    #[serde(default)]
    pub connect: BTreeMap<String, String>,
}

/// A fault of a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// There is no such block.
    #[error("{part} has the block {block:?}, but there is no such block; there are: {known}")]
    UnknownBlock {
        /// The part.
        part: String,
        /// The name of the block.
        block: String,
        /// The existing blocks.
        known: String,
    },
    /// A port is not connected.
    #[error("port {port} of {part} is not connected; it needs a part that exports {interface}")]
    Open {
        /// The part.
        part: String,
        /// The port.
        port: &'static str,
        /// The interface that the port needs.
        interface: &'static str,
    },
    /// A connection begins at a port that the block does not have.
    #[error("{part} has no port {port:?}; it has: {known}")]
    NoPort {
        /// The part.
        part: String,
        /// The port.
        port: String,
        /// The existing ports.
        known: String,
    },
    /// A connection leads to a part that does not exist.
    #[error("port {port} of {part} is connected to {to:?}, but there is no such part")]
    NoPart {
        /// The part.
        part: String,
        /// The port.
        port: &'static str,
        /// The target of the connection.
        to: String,
    },
    /// A connection leads to a part with another interface.
    #[error("port {port} of {part} needs {interface}, but {to} exports {exports}")]
    WrongInterface {
        /// The part.
        part: String,
        /// The port.
        port: &'static str,
        /// The interface that the port needs.
        interface: &'static str,
        /// The target of the connection.
        to: String,
        /// The interface of the target.
        exports: &'static str,
    },
    /// A connection leads to a part that lacks methods which the port uses.
    #[error(
        "port {port} of {part} uses {interface}.{method} of version {wants}, which {to} (version {has}) does not have; \
         build {part} against version {has}, or put an adapter between"
    )]
    Removed {
        /// The part.
        part: String,
        /// The port.
        port: &'static str,
        /// The interface.
        interface: &'static str,
        /// The first method that is missing or has changed.
        method: &'static str,
        /// The version that the port was compiled against.
        wants: u32,
        /// The target of the connection.
        to: String,
        /// The version of the target.
        has: u32,
    },
    /// Parts import each other in a cycle, so that none can be built first.
    #[error("{} import each other in a cycle, so none of them can be built first", .0.join(", "))]
    Circle(Vec<String>),
}

/// All faults of a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the composition cannot be built: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct Faults(pub Vec<Fault>);

/// A part of a checked plan could not be built; the parts already built were destroyed again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part} could not be built: {why}; the whole composition was discarded")]
pub struct BuildError {
    /// The part.
    pub part: String,
    /// The message of its block.
    pub why: String,
}

/// The set of available blocks.
#[derive(Debug, Default)]
pub struct Blocks(BTreeMap<String, Block>);

impl FromIterator<Block> for Blocks {
    fn from_iter<T: IntoIterator<Item = Block>>(blocks: T) -> Self {
        Blocks(blocks.into_iter().map(|block| (block.name.clone(), block)).collect())
    }
}

/// A plan without faults, with an order in which its parts can be built.
#[derive(Debug)]
pub struct Checked<'a> {
    blocks: &'a Blocks,
    plan: &'a Plan,
    order: Vec<&'a str>,
}

/// The objects of a composition.
#[derive(Debug)]
pub struct Composition {
    /// In the order of their creation.
    objects: Vec<(String, ObjectId)>,
}

impl Blocks {
    /// Checks a plan. Returns all of its faults if it has any.
    pub fn check<'a>(&'a self, plan: &'a Plan) -> Result<Checked<'a>, Faults> {
        let mut faults = Vec::new();
        for (name, part) in &plan.parts {
            match self.0.get(&part.block) {
                Some(block) => self.check_part(plan, name, part, block, &mut faults),
                None => faults.push(Fault::UnknownBlock {
                    part: name.clone(),
                    block: part.block.clone(),
                    known: listed(self.0.keys()),
                }),
            }
        }
        let order = order(plan);
        if order.len() < plan.parts.len() {
            let left = plan.parts.keys().filter(|name| !order.contains(&name.as_str()));
            faults.push(Fault::Circle(left.cloned().collect()));
        }
        if faults.is_empty() {
            Ok(Checked { blocks: self, plan, order })
        } else {
            Err(Faults(faults))
        }
    }

    fn check_part(
        &self,
        plan: &Plan,
        name: &str,
        part: &Part,
        block: &Block,
        faults: &mut Vec<Fault>,
    ) {
        let part_name = || name.to_owned();
        for port in part.connect.keys() {
            if !block.imports.iter().any(|import| import.name == port) {
                let known = listed(block.imports.iter().map(|import| import.name));
                faults.push(Fault::NoPort { part: part_name(), port: port.clone(), known });
            }
        }
        for &Port { name: port, interface } in &block.imports {
            let Some(to) = part.connect.get(port) else {
                let interface = interface.name;
                faults.push(Fault::Open { part: part_name(), port, interface });
                continue;
            };
            let Some(target) = plan.parts.get(to) else {
                faults.push(Fault::NoPart { part: part_name(), port, to: to.clone() });
                continue;
            };
            // A part with an unknown block is a separate fault.
            let Some(target) = self.0.get(&target.block) else { continue };
            faults.extend(mismatch(part_name(), port, interface, to, target.exports));
        }
    }
}

/// Returns why a port that needs one interface cannot be connected to a part that exports another.
fn mismatch(
    part: String,
    port: &'static str,
    wants: &'static InterfaceInfo,
    to: &str,
    has: &'static InterfaceInfo,
) -> Option<Fault> {
    let (interface, to) = (wants.name, to.to_owned());
    if interface != has.name {
        return Some(Fault::WrongInterface { part, port, interface, to, exports: has.name });
    }
    let differs = |index: &usize| has.methods.get(*index) != Some(&wants.methods[*index]);
    let first = (0..wants.methods.len()).find(differs)?;
    let method = wants.methods[first].name;
    let (wants, has) = (wants.version, has.version);
    Some(Fault::Removed { part, port, interface, method, wants, to, has })
}

/// Returns the parts, imported ones before those that import them, without those in cycles.
fn order(plan: &Plan) -> Vec<&str> {
    let mut done: BTreeSet<&str> = BTreeSet::new();
    let mut order = Vec::new();
    loop {
        let ready = plan.parts.iter().filter(|(name, part)| {
            let imports = part.connect.values().filter(|to| plan.parts.contains_key(*to));
            !done.contains(name.as_str()) && imports.clone().all(|to| done.contains(to.as_str()))
        });
        let ready: Vec<&str> = ready.map(|(name, _)| name.as_str()).collect();
        if ready.is_empty() {
            return order;
        }
        done.extend(&ready);
        order.extend(ready);
    }
}

fn listed(names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let names: Vec<_> = names.into_iter().map(|name| name.as_ref().to_owned()).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

impl Checked<'_> {
    /// Returns the parts in the order in which they are built.
    pub fn order(&self) -> &[&str] {
        &self.order
    }

    /// Builds the composition, all of it or nothing.
    pub fn build(&self) -> Result<Composition, BuildError> {
        let mut built = Composition { objects: Vec::new() };
        for name in &self.order {
            let part = &self.plan.parts[*name];
            let at = |to: &str| built.object(to).unwrap_or_else(|| unreachable!("built before"));
            let connected = part.connect.iter().map(|(port, to)| (port.as_str(), at(to)));
            let connected: BTreeMap<_, _> = connected.collect();
            let block = &self.blocks.0[&part.block];
            match (block.build)(name, &Connected(&connected)) {
                Ok(object) => built.objects.push(((*name).to_owned(), object)),
                Err(why) => {
                    built.destroy();
                    return Err(BuildError { part: (*name).to_owned(), why });
                }
            }
        }
        Ok(built)
    }
}

impl Composition {
    /// Returns the object of a part.
    pub fn object(&self, part: &str) -> Option<ObjectId> {
        self.objects.iter().find(|(name, _)| name == part).map(|(_, object)| *object)
    }

    /// Destroys all objects, those that import before the imported ones.
    pub fn destroy(self) {
        self.objects.into_iter().rev().for_each(|(_, object)| destroy(object));
    }
}
