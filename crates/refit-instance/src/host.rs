//! The production implementation of [`System`]: the objects of this process and its file servers.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use refit_change::Report;
use refit_limits::{LimitError, Memory};
use refit_memory::ReplacementPolicyInterface;
use refit_migrate::Node;
use refit_objects::{ObjectId, SwapOptions, UpgradeOptions, Which, WrapperId};
use refit_tracer::{Process, Supervisor};

use crate::file_server;
use crate::kernel;
use crate::plugins;
use crate::refusal::{Kind, Refusal, alone, no_program};
use crate::system::{Converse, Served, SwapRequest, System, UpgradeRequest, WrapAct, WrapRequest};
use crate::wire::{
    ClassInfo, FollowRequest, Histogram, Import, KernelInfo, LimitAnswer, MemoryInfo, MountRequest,
    MoveRequest, MovesInfo, ObjectActivity, ObjectInfo, PlaceInfo, PluginInfo, ProcessInfo,
    ProcessMemory, RefusedInfo, RegionInfo, WrapperFailure, WrapperInfo,
};

/// Returns a system with the objects and file servers of this process, into which plugins can be
/// loaded.
pub fn host() -> Arc<dyn System> {
    host_of(Arc::default(), None)
}

/// Returns a system that also contains the processes of a tree and their memory. Without `memory`
/// their memory cannot be queried or limited.
pub fn host_of(tree: Arc<Supervisor>, memory: Option<Arc<Memory>>) -> Arc<dyn System> {
    refit_objects::plugin::accept::<ReplacementPolicyInterface>();
    Arc::new(Host { tree, memory, kernel: None })
}

/// Returns the system of an instance that is one of several, with the programs that it supervises.
pub fn host_of_kernel(kernel: Arc<Node>, processors: Vec<usize>) -> Arc<dyn System> {
    refit_objects::plugin::accept::<ReplacementPolicyInterface>();
    Arc::new(Host { tree: Arc::default(), memory: None, kernel: Some((kernel, processors)) })
}

struct Host {
    tree: Arc<Supervisor>,
    memory: Option<Arc<Memory>>,
    /// The node, and the processors that belong to the instance.
    kernel: Option<(Arc<Node>, Vec<usize>)>,
}

impl Host {
    /// Returns all processes that this instance supervises.
    fn all(&self) -> Vec<Process> {
        let of_kernel = self.kernel.iter().flat_map(|(kernel, _)| kernel.processes());
        self.tree.processes().into_iter().chain(of_kernel).collect()
    }

    /// Returns the information about a process, including the instances at which its threads run.
    fn process_info(&self, process: Process) -> ProcessInfo {
        let places = self.kernel.as_ref().map(|(kernel, _)| kernel.places(process.id));
        let places = places.unwrap_or_default().into_iter();
        let places = places.map(|(thread, at)| PlaceInfo { thread, at }).collect();
        ProcessInfo { places, ..process.into() }
    }

    /// Returns the memory of the programs that run under this instance.
    fn memory_of_tree(&self, operation: &str) -> Result<&Memory, Refusal> {
        if self.tree.process_numbers().is_empty() {
            return Err(no_program(operation));
        }
        self.memory.as_deref().ok_or_else(|| {
            let (obstacle, remedy) = (
                "the program was started without a swap file",
                "make room for one, and restart the program",
            );
            Refusal::new(Kind::Failed, operation, obstacle, remedy)
        })
    }
}

fn summed(memory: &Memory) -> MemoryInfo {
    let refused = memory.refused().into_iter().map(|(pid, why)| RefusedInfo { pid, why });
    MemoryInfo { refused: refused.collect(), ..memory.totals().into() }
}

impl System for Host {
    fn objects(&self) -> Vec<ObjectInfo> {
        refit_objects::objects().into_iter().map(ObjectInfo::from).collect()
    }

    fn object(&self, id: u64) -> Option<ObjectInfo> {
        refit_objects::object(ObjectId::from_bits(id)).map(ObjectInfo::from)
    }

    fn activity(&self) -> Vec<ObjectActivity> {
        refit_objects::activity().into_iter().map(ObjectActivity::from).collect()
    }

    fn swap(&self, request: &SwapRequest) -> Report {
        let defaults = SwapOptions::default();
        let options = SwapOptions {
            deadline: request.deadline.unwrap_or(defaults.deadline),
            cancel: Some(Arc::clone(&request.cancel)),
            owner: request.owner.clone(),
            retries: request.retries,
            clustering: request.clustering.clone(),
            dry_run: request.dry_run,
            protocol: request.protocol.clone(),
            handover: request.handover,
            // This process exists to serve its clients, whose calls wait.
            urgent: true,
            ..defaults
        };
        let objects: Vec<_> = request
            .objects
            .iter()
            .map(|(id, to)| (ObjectId::from_bits(*id), to.as_str()))
            .collect();
        match (&request.probation, &objects[..]) {
            (Some(probation), [(object, to)]) => {
                refit_objects::swap_on_probation(*object, to, request.change, &options, probation)
            }
            _ => refit_objects::swap_together(&objects, request.change, &options),
        }
    }

    fn classes(&self) -> Vec<ClassInfo> {
        refit_objects::classes().into_iter().map(ClassInfo::from).collect()
    }

    fn upgrade(&self, request: &UpgradeRequest) -> Report {
        let defaults = SwapOptions::default();
        let options = UpgradeOptions {
            swap: SwapOptions {
                deadline: request.deadline.unwrap_or(defaults.deadline),
                cancel: Some(Arc::clone(&request.cancel)),
                owner: request.owner.clone(),
                urgent: true,
                ..defaults
            },
            rate: request.rate,
            control: Arc::clone(&request.control),
        };
        let UpgradeRequest { class, implementation, change, .. } = request;
        refit_objects::upgrade(class, implementation, *change, &options)
    }

    fn can_wrap(&self, object: u64, act: &WrapAct) -> Result<(), String> {
        let WrapAct::Attach { wrapper, settings } = act else { return Ok(()) };
        let object = ObjectId::from_bits(object);
        refit_objects::can_wrap(object, wrapper, settings).map_err(|e| e.to_string())
    }

    fn wrap(&self, request: &WrapRequest) -> Report {
        let WrapRequest { object, act, change, owner } = request;
        let object = ObjectId::from_bits(*object);
        match act {
            WrapAct::Attach { wrapper, settings } => {
                refit_objects::wrap_named(object, wrapper, settings, *change, owner)
            }
            WrapAct::Detach { wrapper } => {
                let which = match wrapper {
                    None => Which::All,
                    Some(text) => match text.parse() {
                        Ok(id) => Which::Id(WrapperId(id)),
                        Err(_) => Which::Named(text.clone()),
                    },
                };
                refit_objects::unwrap_named(object, &which, *change, owner)
            }
        }
    }

    fn processes(&self) -> Vec<ProcessInfo> {
        self.all().into_iter().map(|process| self.process_info(process)).collect()
    }

    fn process(&self, pid: u32) -> Option<ProcessMemory> {
        let process = self.all().into_iter().find(|process| process.id == pid)?;
        let process = self.process_info(process);
        let memory = self.memory.as_ref().map(|memory| memory.of(pid)).unwrap_or_default();
        let regions = memory.regions.into_iter().map(RegionInfo::from).collect();
        Some(ProcessMemory { process, regions, refused: memory.refused })
    }

    fn lend(&self, pid: u32, within: Duration, converse: Converse) -> io::Result<()> {
        match &self.kernel {
            Some((kernel, _)) => kernel.lend(pid, within, converse),
            None => self.tree.lend(pid, within, converse),
        }
    }

    fn memory(&self) -> Result<MemoryInfo, Refusal> {
        self.memory_of_tree("show memory").map(summed)
    }

    fn limit(&self, limit: Option<u64>) -> Result<LimitAnswer, Refusal> {
        let operation = "limit memory";
        let memory = self.memory_of_tree(operation)?;
        let was_bytes = memory.allow(limit).map_err(|error| {
            let (kind, remedy) = match error {
                LimitError::TooLittle => (Kind::Malformed, "allow more"),
                _ => (Kind::Failed, "see `refit doctor` for what this host permits"),
            };
            Refusal::new(kind, operation, error.to_string(), remedy)
        })?;
        Ok(LimitAnswer { was_bytes, memory: summed(memory) })
    }

    fn kernel(&self) -> Option<KernelInfo> {
        let (kernel, processors) = self.kernel.as_ref()?;
        Some(KernelInfo::of(kernel, processors.clone()))
    }

    fn follow(&self, request: &FollowRequest) -> Result<(), Refusal> {
        match &self.kernel {
            Some(own) => kernel::follow(own, request),
            None => Err(alone(&format!("follow process {}", request.pid))),
        }
    }

    fn move_to(&self, request: &MoveRequest) -> Result<(), Refusal> {
        match &self.kernel {
            Some((kernel, _)) => kernel::move_to(kernel, request),
            None => Err(alone(&format!("move process {}", request.pid))),
        }
    }

    fn moves(&self, pid: u32) -> Option<MovesInfo> {
        let (kernel, _) = self.kernel.as_ref()?;
        Some(MovesInfo::new(pid, kernel.counts(pid)?, kernel.traffic()))
    }

    fn all_moves(&self) -> Vec<MovesInfo> {
        let all = self.kernel.iter().flat_map(|(kernel, _)| kernel.all_counts());
        all.map(|(pid, counts)| MovesInfo::new(pid, counts, Vec::new())).collect()
    }

    fn plugins(&self) -> Vec<PluginInfo> {
        refit_objects::plugin::plugins().into_iter().map(PluginInfo::from).collect()
    }

    fn load(&self, path: &Path) -> Result<PluginInfo, Refusal> {
        let loaded = refit_objects::plugin::load(path).map_err(|e| plugins::refusal("load", &e))?;
        Ok(loaded.into())
    }

    fn unload(&self, path: &Path) -> Result<(), Refusal> {
        refit_objects::plugin::unload(path).map_err(|e| plugins::refusal("unload", &e))
    }

    fn mount(&self, request: &MountRequest) -> Result<Box<dyn Served>, Refusal> {
        file_server::mount(request)
    }
}

impl From<refit_objects::Import> for Import {
    fn from(import: refit_objects::Import) -> Self {
        Import { port: import.port.to_owned(), object: import.object.to_bits() }
    }
}

impl From<refit_objects::ClassInfo> for ClassInfo {
    fn from(class: refit_objects::ClassInfo) -> Self {
        let refit_objects::ClassInfo { class, factory, implementation, instances } = class;
        ClassInfo { class, factory, implementation, instances: instances as u64 }
    }
}

impl From<refit_objects::ObjectInfo> for ObjectInfo {
    fn from(object: refit_objects::ObjectInfo) -> Self {
        ObjectInfo {
            id: object.id.to_bits(),
            name: object.name,
            interface: object.interface.to_owned(),
            mount: None,
            implementation: object.implementation,
            implementations: object.implementations.into_iter().map(str::to_owned).collect(),
            reps: object.reps as u64,
            clustering: object.clustering,
            misses: object.misses,
            imports: object.imports.into_iter().map(Import::from).collect(),
            stats: object.stats.into_iter().map(|(key, n)| (key.to_owned(), n)).collect(),
            wrappers: object.wrappers.into_iter().map(WrapperInfo::from).collect(),
            wrapper_failures: object
                .wrapper_failures
                .into_iter()
                .map(|failure| WrapperFailure { wrapper: failure.wrapper, why: failure.why })
                .collect(),
        }
    }
}

impl From<refit_objects::WrapperInfo> for WrapperInfo {
    fn from(wrapper: refit_objects::WrapperInfo) -> Self {
        let histogram = |h: refit_objects::Histogram| Histogram {
            name: h.name,
            unit: h.unit,
            ranges: h.ranges,
        };
        WrapperInfo {
            id: wrapper.id,
            name: wrapper.name,
            options: wrapper.options,
            stats: wrapper.stats.into_iter().collect(),
            histograms: wrapper.histograms.into_iter().map(histogram).collect(),
        }
    }
}
