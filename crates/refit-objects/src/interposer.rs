//! The generic interposer: wrappers around any object, attached and detached while it is called
//! (Soules 2003, §4.3.1).
//!
//! # Idea
//!
//! A wrapped object has a [`Layer`] over its root. When a call misses, the miss handler calls the
//! layer instead of the root. The layer puts an [`InterposerRep`] for each wrapper before the
//! root's rep, and the table's entry then points to the outermost. The wrapper that was attached
//! first is the innermost, so each attachment wraps all earlier ones.
//!
//! ```text
//!   entry ──► interposer rep (latency) ──► interposer rep (count) ──► rep of the root or mediator
//! ```
//!
//! The vtable of an interposer's rep consists of shims that the macro generates: precall, the same
//! method of the next rep, postcall. K42 needs one assembly routine that saves unknown state on the
//! heap; here the compiler knows the signature, so values that live across the call are in the
//! shim's frame, and nothing is allocated.
//!
//! Attach and detach replace the layer and flush the entries, under the lock of the object's state,
//! as a swap does when it changes the root. They wait for no call: calls that have found the old
//! layer continue through it. A swap finds the root below the layer and leaves the wrappers where
//! they are, outside of the mediator.
//!
//! # Why this holds
//!
//! *A layer belongs to one root.* Whenever the root changes, the layer is replaced by an empty one
//! with the same wrappers, under the same lock. So a rep of a layer points to a rep of the root
//! that was current while the layer was.
//!
//! *No rep is used after it was freed.* A call holds pointers to reps only within its request. A
//! replaced layer is deferred after the flush, and freed when a generation has passed. The root
//! below it is retired after its own flush, which is not earlier than that of the layer. So a call
//! that has entered the layer finds its wrappers and the rep below.
//!
//! *A wrapper sees a call at most once*: a call looks its entry up once, and a chain has one rep
//! for each wrapper. *It sees every call while it is attached*: after the flush every entry leads
//! through a chain of the current layer until the next change, since a miss reads the layer and
//! stores the entry under the lock.
//!
//! *A wrapper that panics* is caught in the shim, marked as broken, so that no later call runs it,
//! and detached; the call continues to the object.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::argument::Value;
use crate::description::InterfaceInfo;
use crate::id::ObjectId;
use crate::panics::panic_text;
use crate::rep::{RepHeader, VtPtr};
use crate::wrapper::{
    Access, After, CallInfo, Outcome, PostCall, PreCall, TypedWrapper, Wrapper, WrapperInfo,
};

/// The number of one attachment of a wrapper, unique within the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WrapperId(pub u64);

/// A wrapper as attached to an object.
pub(crate) struct Attachment {
    pub(crate) id: WrapperId,
    /// Queried once, so that no foreign code runs under a lock.
    pub(crate) name: Box<str>,
    object: ObjectId,
    interface: &'static InterfaceInfo,
    /// The shims that fit the wrapper.
    vtable: VtPtr,
    wrapper: WrapperCode,
    /// Detaches the wrapper after it has panicked.
    detach: DetachBroken,
    /// Whether it has panicked. Advisory: a thread that does not see it yet runs the wrapper once
    /// more.
    broken: AtomicBool,
}

/// Detaches a wrapper from an object because it has panicked; the text describes the panic.
pub(crate) type DetachBroken = fn(ObjectId, WrapperId, String);

enum WrapperCode {
    Untyped(Box<dyn Wrapper>),
    Typed {
        value: Box<dyn Any + Send + Sync>,
        stats: fn(&(dyn Any + Send + Sync)) -> Vec<(String, u64)>,
    },
}

impl Attachment {
    fn new(
        object: ObjectId,
        interface: &'static InterfaceInfo,
        vtable: VtPtr,
        name: Box<str>,
        wrapper: WrapperCode,
        detach: DetachBroken,
    ) -> Arc<Self> {
        static ATTACHMENTS: AtomicU64 = AtomicU64::new(1);
        let id = WrapperId(ATTACHMENTS.fetch_add(1, Ordering::Relaxed));
        let broken = AtomicBool::new(false);
        Arc::new(Attachment { id, name, object, interface, vtable, wrapper, detach, broken })
    }

    pub(crate) fn untyped(
        object: ObjectId,
        interface: &'static InterfaceInfo,
        wrapper: Box<dyn Wrapper>,
        detach: DetachBroken,
    ) -> Arc<Self> {
        let name = wrapper.name().into();
        Self::new(
            object,
            interface,
            interface.interposer.vtable,
            name,
            WrapperCode::Untyped(wrapper),
            detach,
        )
    }

    pub(crate) fn typed<I>(
        object: ObjectId,
        interface: &'static InterfaceInfo,
        wrapper: TypedWrapper<I>,
        detach: DetachBroken,
    ) -> Arc<Self> {
        let TypedWrapper { vtable, name, value, stats, .. } = wrapper;
        Self::new(
            object,
            interface,
            vtable,
            name.into(),
            WrapperCode::Typed { value, stats },
            detach,
        )
    }

    /// Returns the wrapper's description; only its name if the wrapper panics in providing it.
    pub(crate) fn info(&self) -> WrapperInfo {
        let (id, name) = (self.id.0, self.name.to_string());
        let ask = || match &self.wrapper {
            WrapperCode::Untyped(w) => (w.options(), w.stats(), w.histograms()),
            WrapperCode::Typed { value, stats } => (String::new(), stats(&**value), Vec::new()),
        };
        let (options, stats, histograms) = catch_unwind(AssertUnwindSafe(ask)).unwrap_or_default();
        WrapperInfo { id, name, options, stats, histograms }
    }
}

/// The wrappers of an object, and the reps that lead through them.
pub(crate) struct Layer {
    /// Innermost first.
    stack: Vec<Arc<Attachment>>,
    /// `(processor, rep of the root, outermost rep before it)`.
    chains: Vec<(usize, *const RepHeader, *const RepHeader)>,
    /// All reps, which the layer owns.
    reps: Vec<NonNull<InterposerRep>>,
}

// SAFETY: the layer owns its reps, which are Send and Sync but for the pointer to the rep behind
// them; that is only used within requests, on any thread.
unsafe impl Send for Layer {}

impl Layer {
    /// Returns the layer for these wrappers, innermost first; `None` if there are none.
    pub(crate) fn of(stack: Vec<Arc<Attachment>>) -> Option<Self> {
        (!stack.is_empty()).then(|| Layer { stack, chains: Vec::new(), reps: Vec::new() })
    }

    /// Returns the wrappers, innermost first.
    pub(crate) fn stack(&self) -> &[Arc<Attachment>] {
        &self.stack
    }

    /// Returns the rep that leads through the wrappers to `inner`, and creates it if necessary. It
    /// lives as long as the layer.
    pub(crate) fn rep(&mut self, processor: usize, inner: *const RepHeader) -> *const RepHeader {
        let known = self.chains.iter().find(|(p, i, _)| *p == processor && *i == inner);
        if let Some((_, _, outermost)) = known {
            return *outermost;
        }
        let mut outermost = inner;
        for attachment in &self.stack {
            let rep = Box::new(InterposerRep {
                header: RepHeader {
                    vtable: attachment.vtable,
                    object: attachment.object.to_bits(),
                },
                inner: outermost,
                attachment: Arc::clone(attachment),
                processor: u32::try_from(processor).unwrap_or(0),
            });
            let rep = NonNull::from(Box::leak(rep));
            self.reps.push(rep);
            outermost = rep.as_ptr().cast();
        }
        self.chains.push((processor, inner, outermost));
        outermost
    }
}

impl Drop for Layer {
    fn drop(&mut self) {
        for rep in self.reps.drain(..) {
            // SAFETY: it was leaked in `rep`, and this is its only owner.
            drop(unsafe { Box::from_raw(rep.as_ptr()) });
        }
    }
}

/// The rep of one wrapper in front of one rep; the shims' `this`.
#[repr(C)]
pub struct InterposerRep {
    header: RepHeader,
    /// The next rep: of an inner wrapper, of the implementation or of the mediator.
    inner: *const RepHeader,
    attachment: Arc<Attachment>,
    processor: u32,
}

impl InterposerRep {
    /// # Safety
    /// `this` must be the header of an interposer's rep that the caller found within its current
    /// request; the result must not be used after that.
    #[inline(always)]
    unsafe fn of<'a>(this: *const RepHeader) -> &'a Self {
        // SAFETY: repr(C) with the header first; alive by the caller's guarantee.
        unsafe { &*this.cast::<InterposerRep>() }
    }

    #[inline(always)]
    fn call(&self, method: u16) -> CallInfo {
        let Attachment { object, interface, .. } = *self.attachment;
        CallInfo { object, interface, method, processor: self.processor }
    }

    #[inline(always)]
    fn broken(&self) -> bool {
        self.attachment.broken.load(Ordering::Relaxed)
    }

    /// Runs the wrapper's code; `None` if it panics, or has panicked before.
    #[inline(always)]
    fn guarded<R>(&self, method: u16, stage: &str, code: impl FnOnce() -> R) -> Option<R> {
        if self.broken() {
            return None;
        }
        match catch_unwind(AssertUnwindSafe(code)) {
            Ok(result) => Some(result),
            Err(panic) => {
                self.broke(method, stage, panic);
                None
            }
        }
    }

    /// Handles a panic of the wrapper: it is not run again, and is detached.
    #[cold]
    #[inline(never)]
    fn broke(&self, method: u16, stage: &str, panic: Box<dyn Any + Send>) {
        let attachment = &self.attachment;
        let first = !attachment.broken.swap(true, Ordering::Relaxed);
        let method = self.call(method).method_name();
        let why = format!("panicked in {stage} of {method}: {}", panic_text(&*panic));
        if first {
            (attachment.detach)(attachment.object, attachment.id, why);
        }
        // The payload may panic when it is dropped.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(panic)));
    }
}

/// Returns the rep that the wrapper wraps.
///
/// # Safety
/// `this` must be the header of an interposer's rep that the caller found within its current
/// request.
#[inline(always)]
pub unsafe fn inner(this: *const RepHeader) -> *const RepHeader {
    // SAFETY: guaranteed by the caller.
    unsafe { InterposerRep::of(this) }.inner
}

/// Runs the precall of a wrapper of any interface, which decides how the call continues.
///
/// # Safety
/// As for [`inner`].
#[inline]
pub unsafe fn precall(
    this: *const RepHeader,
    method: u16,
    arguments: &mut dyn FnMut(usize, Access) -> Option<Value>,
) -> After {
    // SAFETY: guaranteed by the caller.
    let rep = unsafe { InterposerRep::of(this) };
    let WrapperCode::Untyped(wrapper) = &rep.attachment.wrapper else { return After::Forward };
    let call = PreCall { info: rep.call(method), arguments: RefCell::new(arguments) };
    rep.guarded(method, "precall", || wrapper.precall(&call)).unwrap_or(After::Forward)
}

/// Runs the postcall of a wrapper of any interface, which sees the result of the call.
///
/// # Safety
/// As for [`inner`].
#[inline]
pub unsafe fn postcall(
    this: *const RepHeader,
    method: u16,
    state: u64,
    outcome: Outcome,
    result: &mut dyn FnMut(usize, Access) -> Option<Value>,
) {
    // SAFETY: guaranteed by the caller.
    let rep = unsafe { InterposerRep::of(this) };
    let WrapperCode::Untyped(wrapper) = &rep.attachment.wrapper else { return };
    let call = PostCall { info: rep.call(method), state, outcome, result: RefCell::new(result) };
    rep.guarded(method, "postcall", || wrapper.postcall(&call));
}

/// Returns the wrapper behind an interposer's rep, as its type.
///
/// # Safety
/// As for [`inner`], and the wrapper must have been attached as a `T`.
#[inline(always)]
pub unsafe fn typed<'a, T: 'static>(this: *const RepHeader) -> &'a T {
    // SAFETY: guaranteed by the caller.
    let rep = unsafe { InterposerRep::of(this) };
    match &rep.attachment.wrapper {
        // SAFETY: by the caller's guarantee, a `T` is behind `dyn Any`.
        WrapperCode::Typed { value, .. } => unsafe { &*std::ptr::from_ref(&**value).cast::<T>() },
        WrapperCode::Untyped(_) => {
            unreachable!("shims of a typed wrapper are in its own vtable only")
        }
    }
}

/// Runs code of a typed wrapper; `None` if it panics, or has panicked before.
///
/// # Safety
/// As for [`inner`].
#[inline(always)]
pub unsafe fn guarded<R>(
    this: *const RepHeader,
    method: u16,
    stage: &str,
    code: impl FnOnce() -> R,
) -> Option<R> {
    // SAFETY: guaranteed by the caller.
    unsafe { InterposerRep::of(this) }.guarded(method, stage, code)
}

/// Runs code when it is dropped, which happens if a method panics.
pub struct OnUnwind<F: FnMut()>(pub F);

impl<F: FnMut()> OnUnwind<F> {
    /// Cancels the code, because the method has returned.
    #[inline(always)]
    pub fn disarm(self) {
        std::mem::forget(self);
    }
}

impl<F: FnMut()> Drop for OnUnwind<F> {
    #[inline(always)]
    fn drop(&mut self) {
        (self.0)();
    }
}

impl<F: FnMut()> std::fmt::Debug for OnUnwind<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnUnwind")
    }
}
