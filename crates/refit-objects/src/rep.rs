//! Representatives: the thin objects, typed by their vtable, that the translation table points to.
//!
//! A rep is a [`RepHeader`] (vtable, id of its object) followed by the implementation's own value.
//! The table, the default object and the mediator know only a pointer to the header, so that one
//! word replaces one implementation by another. All vtables of one interface have the same shape: a
//! [`VtHeader`], then one function pointer per method in the order of the trait, each `unsafe
//! extern "C-unwind" fn(*const RepHeader, …)`.

use std::marker::PhantomData;
use std::ptr::NonNull;

/// The first word of every vtable, which identifies it.
pub const VT_MAGIC: u64 = u64::from_le_bytes(*b"refit-vt");

/// A method of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodInfo {
    /// The name of the method.
    pub name: &'static str,
    /// The hash of its signature (FNV-1a over its tokens).
    pub hash: u64,
}

/// The address of a vtable. A reference to the head alone would not be allowed to reach the methods
/// behind it.
#[derive(Clone, Copy, Debug)]
pub struct VtPtr(*const VtHeader);

// SAFETY: it points to a constant (see `new`).
unsafe impl Send for VtPtr {}
// SAFETY: as above.
unsafe impl Sync for VtPtr {}

impl VtPtr {
    /// Wraps the address of a vtable.
    ///
    /// # Safety
    /// `V` must be repr(C) with a [`VtHeader`] as its first field.
    pub const unsafe fn new<V>(vtable: &'static V) -> Self {
        VtPtr(std::ptr::from_ref(vtable).cast())
    }

    pub(crate) fn head(self) -> &'static VtHeader {
        // SAFETY: guaranteed by the caller of `new`.
        unsafe { &*self.0 }
    }

    /// Returns the whole vtable.
    ///
    /// # Safety
    /// It must have been created from a `V`.
    #[inline(always)]
    pub(crate) unsafe fn of<V>(self) -> &'static V {
        // SAFETY: guaranteed by the caller.
        unsafe { &*self.0.cast::<V>() }
    }
}

/// The head of every vtable. Append-only: a method is never moved, so a longer vtable serves an
/// older caller.
#[repr(C)]
#[derive(Debug)]
pub struct VtHeader {
    /// [`VT_MAGIC`].
    pub magic: u64,
    /// The size of the whole vtable in bytes.
    pub size: u32,
    /// The version of the interface that it was built for.
    pub version: u32,
    /// The methods in it.
    pub methods: &'static [MethodInfo],
    /// Frees a rep of this vtable, header included; not called for vtables of the system itself.
    pub drop: unsafe fn(NonNull<RepHeader>),
}

/// The head of every rep.
#[repr(C)]
#[derive(Debug)]
pub struct RepHeader {
    pub(crate) vtable: VtPtr,
    /// The id of the object it serves, as one number, which the caller compares with the
    /// reference's.
    pub(crate) object: u64,
}

/// A rep with its value.
#[repr(C)]
pub struct Rep<T> {
    header: RepHeader,
    value: T,
}

impl<T> Rep<T> {
    /// Returns the value behind a header.
    ///
    /// # Safety
    /// `header` must point to the header of a live `Rep<T>` that stays alive for `'a`.
    #[inline(always)]
    pub unsafe fn value<'a>(header: *const RepHeader) -> &'a T {
        // SAFETY: `Rep` is repr(C) with the header first, so both have the same address; the caller
        // guarantees the rest.
        unsafe { &(*header.cast::<Rep<T>>()).value }
    }
}

/// An owned rep: created by a root, passed to the system, and freed when no call can be in it any
/// more.
#[derive(Debug)]
pub struct OwnedRep<I> {
    header: NonNull<RepHeader>,
    interface: PhantomData<fn() -> I>,
}

// SAFETY: `new` requires that the value is Send and Sync; the header is plain data.
unsafe impl<I> Send for OwnedRep<I> {}
// SAFETY: as above.
unsafe impl<I> Sync for OwnedRep<I> {}

impl<I> OwnedRep<I> {
    /// Boxes a value under its vtable. Called by generated code only.
    ///
    /// # Safety
    /// `vtable` must be a vtable of interface `I` whose functions take a `Rep<T>`, and whose `drop`
    /// is [`drop_rep::<T>`].
    pub unsafe fn new<T: Send + Sync + 'static>(vtable: VtPtr, value: T) -> Self {
        let rep = Box::new(Rep { header: RepHeader { vtable, object: 0 }, value });
        OwnedRep { header: NonNull::from(Box::leak(rep)).cast(), interface: PhantomData }
    }

    /// Releases ownership of the rep; [`Self::from_header`] takes it back.
    pub(crate) fn into_header(self) -> NonNull<RepHeader> {
        std::mem::ManuallyDrop::new(self).header
    }

    /// Takes ownership of a rep back.
    ///
    /// # Safety
    /// `header` must come from [`Self::into_header`] of the same type, and be passed once.
    pub(crate) unsafe fn from_header(header: NonNull<RepHeader>) -> Self {
        OwnedRep { header, interface: PhantomData }
    }

    /// Assigns the rep to the object with this id, before any other thread can know its address.
    pub(crate) fn belong_to(&mut self, object: u64) {
        // SAFETY: the rep is alive and, as `&mut self` shows, not shared yet.
        unsafe { self.header.as_mut().object = object }
    }

    pub(crate) fn as_ptr(&self) -> *const RepHeader {
        self.header.as_ptr()
    }
}

impl<I> Drop for OwnedRep<I> {
    fn drop(&mut self) {
        // SAFETY: `new` has created the pair of vtable and value, and this is the only owner.
        unsafe { (self.header.as_ref().vtable.head().drop)(self.header) }
    }
}

/// Frees a `Rep<T>`; the `drop` of its vtable.
///
/// # Safety
/// `header` must come from [`OwnedRep::new`] with the same `T`, and not be used again.
pub unsafe fn drop_rep<T>(header: NonNull<RepHeader>) {
    // SAFETY: it was created by `Box::new(Rep<T>)` in `OwnedRep::new`.
    drop(unsafe { Box::from_raw(header.cast::<Rep<T>>().as_ptr()) });
}

/// Does nothing; the `drop` of vtables whose reps are not freed through them (default object,
/// mediator).
///
/// # Safety
/// Always safe; the type is that of [`VtHeader::drop`].
pub unsafe fn keep_rep(_header: NonNull<RepHeader>) {}
