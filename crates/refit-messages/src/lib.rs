//! Placeholder.
#![allow(missing_docs, clippy::all, missing_debug_implementations)]
use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InstanceId(pub u16);
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way { Urgent, Bulk }
pub trait Message: Serialize + DeserializeOwned + 'static { const KIND: u16; const WAY: Way; }
pub trait Request: Message { type Answer: Serialize + DeserializeOwned; }
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    #[error("instance {0} is lost")]
    Lost(u16),
    #[error("{0}")]
    System(#[from] std::io::Error),
}
type Handler = Box<dyn Fn(InstanceId, u64, &[u8], &[u8], &Arc<Layer>) + Send + Sync>;
pub struct Builder { own: InstanceId, handlers: HashMap<u16, Handler>, lost: Vec<Box<dyn Fn(InstanceId, &str) + Send + Sync>> }
pub struct Layer { own: InstanceId, handlers: HashMap<u16, Handler>, lost: Vec<Box<dyn Fn(InstanceId, &str) + Send + Sync>>, links: Mutex<BTreeMap<InstanceId, Arc<Mutex<UnixStream>>>>, tickets: Mutex<HashMap<u64, (InstanceId, Sender<(Vec<u8>, Vec<u8>)>)>>, next: AtomicU64 }
pub struct Peer { pub id: InstanceId }
pub struct Reply<Q: Request> { layer: Arc<Layer>, to: InstanceId, ticket: u64, p: std::marker::PhantomData<fn(Q)> }
impl<Q: Request> Reply<Q> {
    pub fn say(self, a: &Q::Answer, body: &[u8]) {
        let b = postcard::to_stdvec(a).unwrap();
        let _ = self.layer.write(self.to, 0, self.ticket, &b, body);
    }
}
impl Builder {
    pub fn on<M: Message>(mut self, f: impl Fn(InstanceId, M, &[u8]) + Send + Sync + 'static) -> Self {
        self.handlers.insert(M::KIND, Box::new(move |from, _, m, body, _| f(from, postcard::from_bytes(m).unwrap(), body)));
        self
    }
    pub fn answer<Q: Request>(mut self, f: impl Fn(InstanceId, Q, &[u8], Reply<Q>) + Send + Sync + 'static) -> Self {
        self.handlers.insert(Q::KIND, Box::new(move |from, ticket, m, body, layer| f(from, postcard::from_bytes(m).unwrap(), body, Reply { layer: Arc::clone(layer), to: from, ticket, p: std::marker::PhantomData })));
        self
    }
    pub fn lost(mut self, f: impl Fn(InstanceId, &str) + Send + Sync + 'static) -> Self { self.lost.push(Box::new(f)); self }
    pub fn start(self) -> Result<Arc<Layer>, MessageError> {
        Ok(Arc::new(Layer { own: self.own, handlers: self.handlers, lost: self.lost, links: Mutex::default(), tickets: Mutex::default(), next: AtomicU64::new(1) }))
    }
}
impl Layer {
    pub fn builder(own: InstanceId) -> Builder { Builder { own, handlers: HashMap::new(), lost: Vec::new() } }
    pub fn listen_here(self: &Arc<Self>, path: &Path) -> Result<(), MessageError> {
        let l = UnixListener::bind(path)?;
        let this = Arc::clone(self);
        std::thread::spawn(move || for s in l.incoming().flatten() { let _ = this.hello(s); });
        Ok(())
    }
    pub fn join_here(self: &Arc<Self>, path: &Path) -> Result<(), MessageError> { self.hello(UnixStream::connect(path)?) }
    fn hello(self: &Arc<Self>, mut s: UnixStream) -> Result<(), MessageError> {
        s.write_all(&self.own.0.to_le_bytes())?;
        let mut b = [0; 2];
        s.read_exact(&mut b)?;
        let id = InstanceId(u16::from_le_bytes(b));
        let r = s.try_clone()?;
        self.links.lock().unwrap().insert(id, Arc::new(Mutex::new(s)));
        let this = Arc::clone(self);
        std::thread::spawn(move || { let mut r = r; while this.read(id, &mut r).is_ok() {} this.links.lock().unwrap().remove(&id);
            this.tickets.lock().unwrap().retain(|_, (of, _)| *of != id);
            for f in &this.lost { f(id, "its connection has ended"); } });
        Ok(())
    }
    fn read(self: &Arc<Self>, id: InstanceId, r: &mut UnixStream) -> std::io::Result<()> {
        let mut h = [0; 18];
        r.read_exact(&mut h)?;
        let kind = u16::from_le_bytes([h[0], h[1]]);
        let ticket = u64::from_le_bytes(h[2..10].try_into().unwrap());
        let a = u32::from_le_bytes(h[10..14].try_into().unwrap()) as usize;
        let b = u32::from_le_bytes(h[14..18].try_into().unwrap()) as usize;
        let mut m = vec![0; a]; r.read_exact(&mut m)?;
        let mut body = vec![0; b]; r.read_exact(&mut body)?;
        if kind == 0 { if let Some((_, t)) = self.tickets.lock().unwrap().remove(&ticket) { let _ = t.send((m, body)); } }
        else if let Some(f) = self.handlers.get(&kind) { f(id, ticket, &m, &body, self); }
        Ok(())
    }
    fn write(&self, to: InstanceId, kind: u16, ticket: u64, m: &[u8], body: &[u8]) -> Result<(), MessageError> {
        let link = self.links.lock().unwrap().get(&to).cloned().ok_or(MessageError::Lost(to.0))?;
        let mut all = Vec::new();
        all.extend(kind.to_le_bytes()); all.extend(ticket.to_le_bytes()); all.extend((m.len() as u32).to_le_bytes()); all.extend((body.len() as u32).to_le_bytes());
        all.extend(m); all.extend(body);
        link.lock().unwrap().write_all(&all)?;
        Ok(())
    }
    pub fn send<M: Message>(&self, to: InstanceId, m: &M, body: &[u8]) -> Result<(), MessageError> { self.write(to, M::KIND, 0, &postcard::to_stdvec(m).unwrap(), body) }
    pub fn ask<Q: Request>(&self, to: InstanceId, q: &Q, body: &[u8]) -> Result<(Q::Answer, Vec<u8>), MessageError> {
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        let (t, r) = mpsc::channel();
        self.tickets.lock().unwrap().insert(ticket, (to, t));
        self.write(to, Q::KIND, ticket, &postcard::to_stdvec(q).unwrap(), body)?;
        let (m, body) = r.recv().map_err(|_| MessageError::Lost(to.0))?;
        Ok((postcard::from_bytes(&m).unwrap(), body))
    }
    pub fn peers(&self) -> Vec<Peer> { self.links.lock().unwrap().keys().map(|&id| Peer { id }).collect() }
}
