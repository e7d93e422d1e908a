//! A table of numbers with an implementation for each kind of transfer, each of which can be made
//! to fail.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use refit_objects::change::Report;
use refit_objects::transfer::{
    AtDeadline, AttachedSource, DrainOptions, Exported, LazyMap, LazySource, Progress, Protocol,
    Protocols,
};
use refit_objects::{
    Ending, Implementations, OwnedRep, Root, SwapOptions, TransferError, create, interface,
    swap_named,
};

pub(crate) type Map = LazyMap<u64, u64>;
pub(crate) type Source = Arc<dyn LazySource<u64, u64>>;
pub(crate) type Items = Vec<(u64, u64)>;

/// The number of partitions of the partitioned implementation.
pub(crate) const PARTS: usize = 4;

#[interface(
    name = "table",
    state = Items,
    protocols(
        whole = reference(Arc<Map>),
        parts = partitioned(Items),
        later = lazy(Source),
        odd = Items,
        even = Items,
        third = Items,
    )
)]
pub(crate) trait Table {
    fn get(&self, key: u64) -> Result<Option<u64>, TransferError>;
    fn insert(&self, key: u64, item: u64) -> Result<Option<u64>, TransferError>;
    fn remove(&self, key: u64) -> Result<Option<u64>, TransferError>;
    fn len(&self) -> u64;
}

/// The step at which a fault occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Protocols,
    Partitions,
    CountOld,
    CountNew,
    Export,
    Import,
    Relinquish,
    Keys,
    Fetch,
    Drain,
}

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Error,
    /// As many errors, one after the other.
    Errors(u32),
    Panic,
    /// Does half of the step and reports success.
    Half,
}

/// The next fault.
#[derive(Clone, Default)]
pub(crate) struct Faults(Arc<Mutex<Option<(Step, Fault)>>>, Arc<AtomicU64>);

impl Faults {
    pub(crate) fn arm(&self, step: Step, fault: Fault) {
        *self.0.lock().unwrap() = Some((step, fault));
    }

    /// Returns the fault that has not occurred yet.
    pub(crate) fn armed(&self) -> Option<(Step, Fault)> {
        *self.0.lock().unwrap()
    }

    /// Returns whether the fault has occurred.
    pub(crate) fn fired(&self) -> bool {
        self.0.lock().unwrap().take().is_none()
    }

    /// Returns the number of roots that have released their source.
    pub(crate) fn detached(&self) -> u64 {
        self.1.load(Ordering::Relaxed)
    }

    /// Executes the fault of this step, if there is one; returns whether to do half of the step.
    fn at(&self, step: Step) -> Result<bool, TransferError> {
        let mut armed = self.0.lock().unwrap();
        let Some((_, fault)) = armed.take_if(|(at, _)| *at == step) else { return Ok(false) };
        if let Fault::Errors(more @ 2..) = fault {
            *armed = Some((step, Fault::Errors(more - 1)));
        }
        drop(armed);
        match fault {
            Fault::Error | Fault::Errors(_) => Err(TransferError(format!("no {step:?} today"))),
            Fault::Panic => panic!("{step:?} panics as asked"),
            Fault::Half => Ok(true),
        }
    }
}

/// The state that a root and its reps share. An import by reference replaces the map.
pub(crate) struct Inner(RwLock<Arc<Map>>);

impl Inner {
    fn map(&self) -> Arc<Map> {
        Arc::clone(&self.0.read().unwrap())
    }
}

struct Rep(Arc<Inner>);

impl Table for Rep {
    fn get(&self, key: u64) -> Result<Option<u64>, TransferError> {
        self.0.map().get(&key, |item| *item)
    }
    fn insert(&self, key: u64, item: u64) -> Result<Option<u64>, TransferError> {
        self.0.map().insert(key, item)
    }
    fn remove(&self, key: u64) -> Result<Option<u64>, TransferError> {
        self.0.map().remove(&key)
    }
    fn len(&self) -> u64 {
        self.0.map().len()
    }
}

/// A source that fails as configured.
struct Failing(Arc<Map>, Faults);

impl LazySource<u64, u64> for Failing {
    fn fetch(&self, key: &u64) -> Result<Option<u64>, TransferError> {
        self.1.at(Step::Fetch)?;
        self.0.fetch(key)
    }
    fn keys(&self, most: usize) -> Result<Vec<u64>, TransferError> {
        self.1.at(Step::Keys)?;
        self.0.keys(most)
    }
    fn left(&self) -> u64 {
        self.0.left()
    }
}

pub(crate) struct TableRoot {
    name: &'static str,
    inner: Arc<Inner>,
    protocols: Protocols,
    parts: usize,
    faults: Faults,
    /// Whether the root has exported its state.
    old: Mutex<bool>,
    /// The source of a state that was received lazily.
    attachment: Mutex<Option<AttachedSource>>,
}

pub(crate) const WHOLE: Protocol = TableInterface::WHOLE.id();
pub(crate) const PARTS_PROTOCOL: Protocol = TableInterface::PARTS.id();
pub(crate) const LATER: Protocol = TableInterface::LATER.id();
pub(crate) const ODD: Protocol = TableInterface::ODD.id();
pub(crate) const EVEN: Protocol = TableInterface::EVEN.id();
pub(crate) const THIRD: Protocol = TableInterface::THIRD.id();

impl TableRoot {
    pub(crate) fn new(name: &'static str, protocols: Protocols, faults: &Faults) -> Self {
        let inner = Arc::new(Inner(RwLock::new(Arc::new(Map::new(8)))));
        TableRoot {
            name,
            inner,
            protocols,
            parts: PARTS,
            faults: faults.clone(),
            old: Mutex::new(false),
            attachment: Mutex::default(),
        }
    }

    pub(crate) fn cut(self, parts: usize) -> Self {
        TableRoot { parts, ..self }
    }

    fn items(&self, of_part: Option<usize>) -> Result<Items, TransferError> {
        let half = self.faults.at(Step::Export)?;
        let mut items = Items::new();
        self.inner.map().visit(|key, item| {
            if of_part.is_none_or(|part| *key as usize % self.parts == part) {
                items.push((*key, *item));
            }
        })?;
        if half {
            items.truncate(items.len() / 2);
        }
        Ok(items)
    }

    fn take_in(&self, mut items: Items) -> Result<(), TransferError> {
        if self.faults.at(Step::Import)? {
            items.truncate(items.len() / 2);
        }
        let map = self.inner.map();
        items.into_iter().try_for_each(|(key, item)| map.insert(key, item).map(drop))
    }
}

impl Root<TableInterface> for TableRoot {
    fn implementation(&self) -> &str {
        self.name
    }

    fn make_rep(&self, _processor: usize) -> OwnedRep<TableInterface> {
        *self.old.lock().unwrap() = true;
        TableInterface::rep(Rep(Arc::clone(&self.inner)))
    }

    fn export(&self) -> Result<Items, TransferError> {
        self.items(None)
    }

    fn import(&self, state: Items) -> Result<(), TransferError> {
        self.take_in(state)
    }

    fn protocols(&self) -> Protocols {
        match self.faults.at(Step::Protocols) {
            Ok(_) => self.protocols,
            Err(_) => Protocols::only([]),
        }
    }

    fn partitions(&self, _protocol: Protocol) -> usize {
        match self.faults.at(Step::Partitions) {
            Ok(half) => {
                if half {
                    self.parts / 2
                } else {
                    self.parts
                }
            }
            Err(_) => 0,
        }
    }

    fn export_as(&self, protocol: Protocol) -> Result<Exported, TransferError> {
        Ok(match protocol {
            WHOLE if self.faults.at(Step::Export)? => {
                TableInterface::WHOLE.pack(self.inner.map()).incomplete()
            }
            WHOLE => TableInterface::WHOLE.pack(self.inner.map()).items(self.inner.map().len()),
            LATER if self.faults.at(Step::Export)? => {
                TableInterface::LATER.pack(Arc::new(Map::new(1)) as Source).items(0)
            }
            LATER => {
                let source: Source = Arc::new(Failing(self.inner.map(), self.faults.clone()));
                TableInterface::LATER.pack(source)
            }
            ODD => TableInterface::ODD.pack(self.items(None)?),
            EVEN => TableInterface::EVEN.pack(self.items(None)?),
            THIRD => TableInterface::THIRD.pack(self.items(None)?),
            _ => TableInterface::CANONICAL.pack(self.items(None)?),
        })
    }

    fn import_as(&self, protocol: Protocol, state: Exported) -> Result<(), TransferError> {
        match protocol {
            WHOLE => {
                let half = self.faults.at(Step::Import)?;
                let map = TableInterface::WHOLE.unpack(state)?;
                *self.inner.0.write().unwrap() = if half { Arc::new(Map::new(1)) } else { map };
                Ok(())
            }
            LATER => {
                let half = self.faults.at(Step::Import)?;
                let source = TableInterface::LATER.unpack(state)?;
                let source = if half { Arc::new(Map::new(1)) as Source } else { source };
                *self.attachment.lock().unwrap() = Some(self.inner.map().attach(source));
                Ok(())
            }
            ODD => self.take_in(TableInterface::ODD.unpack(state)?),
            EVEN => self.take_in(TableInterface::EVEN.unpack(state)?),
            THIRD => self.take_in(TableInterface::THIRD.unpack(state)?),
            _ => self.take_in(TableInterface::CANONICAL.unpack(state)?),
        }
    }

    fn export_part(&self, _protocol: Protocol, part: usize) -> Result<Exported, TransferError> {
        let items = self.items(Some(part))?;
        let count = items.len() as u64;
        Ok(TableInterface::PARTS.pack(items).items(count).bytes(16 * count))
    }

    fn import_part(
        &self,
        _protocol: Protocol,
        part: usize,
        state: Exported,
    ) -> Result<(), TransferError> {
        let items = TableInterface::PARTS.unpack(state)?;
        assert!(items.iter().all(|(key, _)| *key as usize % self.parts == part));
        self.take_in(items)
    }

    fn count(&self) -> Option<u64> {
        let step = if *self.old.lock().unwrap() { Step::CountOld } else { Step::CountNew };
        match self.faults.at(step) {
            Ok(half) => Some(self.inner.map().len() / if half { 2 } else { 1 }),
            Err(error) => panic!("{error}"),
        }
    }

    fn relinquish(&self, ending: Ending<'_>) {
        let attachment = self.attachment.lock().unwrap().take();
        if let (Ending::RolledBack(proof), Some(attachment)) = (ending, attachment) {
            self.inner.map().detach(attachment, proof);
            self.faults.1.fetch_add(1, Ordering::Relaxed);
        }
        if self.faults.at(Step::Relinquish).is_err() {
            panic!("an error of something that has none");
        }
    }

    fn drain(&self, most: usize) -> Result<Progress, TransferError> {
        let half = self.faults.at(Step::Drain)?;
        let map = self.inner.map();
        map.drain(if half { most / 2 } else { most })
    }
}

/// The implementations. Each prefers its own protocol, and knows all others.
pub(crate) struct Tables(pub(crate) Faults);

pub(crate) const NAMES: [&str; 4] = ["copying", "referring", "partitioned", "lazy"];

impl Implementations<TableInterface> for Tables {
    fn names(&self) -> Vec<&'static str> {
        NAMES.to_vec()
    }

    fn root(&self, name: &str) -> Option<Box<dyn Root<TableInterface>>> {
        let name = NAMES.into_iter().find(|n| *n == name)?;
        let others = [WHOLE, PARTS_PROTOCOL, LATER];
        let protocols = match name {
            "copying" => Protocols::new([Protocol::CANONICAL]),
            "referring" => Protocols::new(others),
            "partitioned" => Protocols::new([PARTS_PROTOCOL]),
            _ => Protocols::new([LATER]),
        };
        Some(Box::new(TableRoot::new(name, protocols, &self.0)))
    }
}

/// Creates a table of implementation `from`, with `items` items: `key → 3 × key`.
pub(crate) fn table(name: &str, from: &str, items: u64) -> (TableRef, Faults) {
    let faults = Faults::default();
    let root = Tables(faults.clone()).root(from).expect("it is in the list");
    let table: TableRef = create(name, root, Arc::new(Tables(faults.clone())));
    fill(table, items);
    (table, faults)
}

pub(crate) fn fill(table: TableRef, items: u64) {
    (0..items).for_each(|key| assert_eq!(table.insert(key, 3 * key), Ok(None)));
}

/// Checks that the table contains each of the items once, and nothing else.
pub(crate) fn check(table: TableRef, items: u64) {
    for key in 0..items + 10 {
        let expected = (key < items).then_some(3 * key);
        assert_eq!(table.get(key), Ok(expected), "item {key}");
    }
    assert_eq!(table.len(), items);
}

/// Returns options with a long deadline, because other tests of this process hold requests open for
/// a while.
pub(crate) fn patient() -> SwapOptions {
    let drain = DrainOptions {
        deadline: Duration::from_secs(60),
        at_deadline: AtDeadline::Report,
        ..DrainOptions::default()
    };
    SwapOptions { deadline: Duration::from_secs(60), drain, ..SwapOptions::default() }
}

pub(crate) fn swap(table: TableRef, to: &str) -> Report {
    swap_named(table.id(), to, 1, &patient())
}

/// Tells threads to stop, also in a panic, since joining them would otherwise wait for ever.
#[derive(Default)]
pub(crate) struct Stop(AtomicBool);

pub(crate) struct Stopping<'a>(&'a Stop);

impl Stop {
    pub(crate) fn said(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn when_dropped(&self) -> Stopping<'_> {
        Stopping(self)
    }
}

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}
