//! Representatives: the thin, typed-by-vtable objects that the translation table points to.
//!
//! A rep is a [`RepHeader`] (vtable, id of its object) with the implementation's own value behind it. A
//! pointer to the header is all that the table, the default object and the mediator know, so that one word replaces
//! one implementation by another. Vtables of one interface all have the same shape: a [`VtHeader`], then one function
//! pointer per method in the order of the trait, each `unsafe extern "C-unwind" fn(*const RepHeader, …)`.

use std::marker::PhantomData;
use std::ptr::NonNull;

/// First word of every vtable, so that a foreign one is recognised.
pub const VT_MAGIC: u64 = u64::from_le_bytes(*b"refit-vt");

/// A method of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodInfo {
    /// Its name.
    pub name: &'static str,
    /// Hash of its signature (FNV-1a over its tokens).
    pub hash: u64,
}

/// Address of a vtable. A reference to the head alone would not be allowed to reach the methods behind it.
#[derive(Clone, Copy, Debug)]
pub struct VtPtr(*const VtHeader);

// SAFETY: it points to a constant (see `new`).
unsafe impl Send for VtPtr {}
// SAFETY: as above.
unsafe impl Sync for VtPtr {}

impl VtPtr {
    /// The address of a vtable.
    ///
    /// # Safety
    /// `V` must be repr(C) with a [`VtHeader`] as its first field.
    pub const unsafe fn new<V>(vtable: &'static V) -> Self {
        VtPtr(std::ptr::from_ref(vtable).cast())
    }

    pub(crate) fn head(self) -> &'static VtHeader {
        // SAFETY: by the promise of `new`.
        unsafe { &*self.0 }
    }

    /// The whole vtable.
    ///
    /// # Safety
    /// It must have been made of a `V`.
    #[inline(always)]
    pub(crate) unsafe fn of<V>(self) -> &'static V {
        // SAFETY: the caller's promise.
        unsafe { &*self.0.cast::<V>() }
    }
}

/// What is known of an interface without its type.
#[derive(Debug)]
pub struct InterfaceInfo {
    /// Short name, the part of an object's name before the colon.
    pub name: &'static str,
    /// Raised whenever a method is appended.
    pub version: u32,
    /// Methods in the order of the vtable.
    pub methods: &'static [MethodInfo],
    /// Vtable of the default object (miss handling).
    pub default: VtPtr,
    /// Vtable of the mediator's reps.
    pub mediator: VtPtr,
    /// What the generic interposer needs.
    pub interposer: crate::wrapper::InterposerInfo,
}

/// Head of every vtable. Append-only: a method is never moved, so a longer vtable serves an older caller.
#[repr(C)]
#[derive(Debug)]
pub struct VtHeader {
    /// [`VT_MAGIC`].
    pub magic: u64,
    /// Bytes of the whole vtable.
    pub size: u32,
    /// Version of the interface it was built for.
    pub version: u32,
    /// Methods in it.
    pub methods: &'static [MethodInfo],
    /// Frees a rep of this vtable, header included; not called for vtables of the system itself.
    pub drop: unsafe fn(NonNull<RepHeader>),
}

/// Head of every rep.
#[repr(C)]
#[derive(Debug)]
pub struct RepHeader {
    pub(crate) vtable: VtPtr,
    /// Id of the object it serves, as one number; the caller compares it with the reference's.
    pub(crate) object: u64,
}

/// A rep with its value.
#[repr(C)]
pub struct Rep<T> {
    header: RepHeader,
    value: T,
}

impl<T> Rep<T> {
    /// The value behind a header.
    ///
    /// # Safety
    /// `header` must point to the header of a live `Rep<T>` that stays alive for `'a`.
    #[inline(always)]
    pub unsafe fn value<'a>(header: *const RepHeader) -> &'a T {
        // SAFETY: `Rep` is repr(C) with the header first, so both have one address; the rest is the caller's promise.
        unsafe { &(*header.cast::<Rep<T>>()).value }
    }
}

/// A rep that is owned: made by a root, given to the system, freed when nobody can be in it any more.
#[derive(Debug)]
pub struct OwnedRep<I> {
    header: NonNull<RepHeader>,
    interface: PhantomData<fn() -> I>,
}

// SAFETY: `new` demands that the value is Send and Sync; the header is plain data.
unsafe impl<I> Send for OwnedRep<I> {}
// SAFETY: as above.
unsafe impl<I> Sync for OwnedRep<I> {}

impl<I> OwnedRep<I> {
    /// Boxes a value under its vtable. Called by generated code only.
    ///
    /// # Safety
    /// `vtable` must be a vtable of interface `I` whose functions take a `Rep<T>`, and whose `drop` is
    /// [`drop_rep::<T>`].
    pub unsafe fn new<T: Send + Sync + 'static>(vtable: VtPtr, value: T) -> Self {
        let rep = Box::new(Rep { header: RepHeader { vtable, object: 0 }, value });
        OwnedRep { header: NonNull::from(Box::leak(rep)).cast(), interface: PhantomData }
    }

    /// Gives the rep away; [`Self::from_header`] takes it back.
    pub(crate) fn into_header(self) -> NonNull<RepHeader> {
        std::mem::ManuallyDrop::new(self).header
    }

    /// Takes a rep back.
    ///
    /// # Safety
    /// `header` must come from [`Self::into_header`] of the same type, and be given once.
    pub(crate) unsafe fn from_header(header: NonNull<RepHeader>) -> Self {
        OwnedRep { header, interface: PhantomData }
    }

    /// Gives the rep to the object with this id, before anyone else can know its address.
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
        // SAFETY: `new` made the pair of vtable and value, and this is the only owner.
        unsafe { (self.header.as_ref().vtable.head().drop)(self.header) }
    }
}

/// Frees a `Rep<T>`; the `drop` of its vtable.
///
/// # Safety
/// `header` must come from [`OwnedRep::new`] with the same `T`, and not be used again.
pub unsafe fn drop_rep<T>(header: NonNull<RepHeader>) {
    // SAFETY: it was made by `Box::new(Rep<T>)` in `OwnedRep::new`.
    drop(unsafe { Box::from_raw(header.cast::<Rep<T>>().as_ptr()) });
}

/// The `drop` of vtables whose reps are not freed through them (default object, mediator).
///
/// # Safety
/// Always safe; the type is that of [`VtHeader::drop`].
pub unsafe fn keep_rep(_header: NonNull<RepHeader>) {}
