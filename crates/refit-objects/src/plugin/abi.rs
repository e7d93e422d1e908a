//! Types that cross the boundary between a host and a plugin, each in a form that has the layout of
//! the C ABI.
//!
//! Host and plugin are compiled separately, possibly by different compilers, and each has its own
//! copy of the standard library. So the side that has a value converts it to its *raw* form, and
//! the side that receives it converts it back. Borrowed memory is read in place. Owned memory
//! travels with the function that frees it: each side frees what it has allocated.

use crate::fnv::{FNV, fnv1a};
use std::mem::MaybeUninit;

/// A type that can be an argument or a result of a method of a loadable interface.
///
/// # Safety
/// `Raw` must have the layout of the C ABI and contain no type whose layout a compiler may choose;
/// `SHAPE` must differ for types that are converted differently.
pub unsafe trait Abi: Sized {
    /// The form that crosses.
    type Raw;
    /// Identifies the type; a part of the hash of a method.
    const SHAPE: u64;
    /// Converts the value to its raw form.
    fn into_raw(self) -> Self::Raw;
    /// Converts the raw form back to the value.
    ///
    /// # Safety
    /// `raw` must come from `into_raw` of a type of this shape and be used once; all memory that it
    /// borrows must live as long as the result.
    unsafe fn from_raw(raw: Self::Raw) -> Self;
}

/// Numbers: the same bytes on both sides, with any bytes valid.
///
/// # Safety
/// Every bit pattern must be a value, and the layout must be that of the C ABI.
pub unsafe trait Plain: Copy + 'static {
    /// See [`Abi::SHAPE`].
    const SHAPE: u64;
}

/// Returns the shape of a type that is composed of others.
pub const fn shape(name: &str, parts: &[u64]) -> u64 {
    let mut hash = fnv1a(name.as_bytes(), FNV);
    let mut at = 0;
    while at < parts.len() {
        hash = fnv1a(&parts[at].to_le_bytes(), hash);
        at += 1;
    }
    hash
}

macro_rules! plain {
    ($($number:ty),*) => { $(
        // SAFETY: a number.
        unsafe impl Plain for $number {
            // Includes the size, since that of `usize` varies.
            const SHAPE: u64 = shape(stringify!($number), &[size_of::<$number>() as u64]);
        }
        // SAFETY: a number has the layout of C.
        unsafe impl Abi for $number {
            type Raw = $number;
            const SHAPE: u64 = <$number as Plain>::SHAPE;
            fn into_raw(self) -> $number {
                self
            }
            unsafe fn from_raw(raw: $number) -> $number {
                raw
            }
        }
    )* };
}

plain!(u8, u16, u32, u64, usize, i8, i16, i32, i64, isize, f32, f64);

// SAFETY: a byte that is 0 or not.
unsafe impl Abi for bool {
    type Raw = u8;
    const SHAPE: u64 = shape("bool", &[]);
    fn into_raw(self) -> u8 {
        u8::from(self)
    }
    unsafe fn from_raw(raw: u8) -> bool {
        raw != 0
    }
}

// SAFETY: a byte without a meaning; C has no zero-sized type.
unsafe impl Abi for () {
    type Raw = u8;
    const SHAPE: u64 = shape("()", &[]);
    fn into_raw(self) -> u8 {
        0
    }
    unsafe fn from_raw(_raw: u8) {}
}

/// Borrowed memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawSlice<T> {
    at: *const T,
    length: usize,
}

impl<T> RawSlice<T> {
    pub(crate) fn of(slice: &[T]) -> Self {
        RawSlice { at: slice.as_ptr(), length: slice.len() }
    }

    /// # Safety
    /// It must have been created by [`Self::of`] from memory that lives for `'a`.
    pub(crate) unsafe fn get<'a>(self) -> &'a [T] {
        // SAFETY: guaranteed by the caller.
        unsafe { std::slice::from_raw_parts(self.at, self.length) }
    }
}

/// Borrowed memory that may be written.
#[repr(C)]
#[derive(Debug)]
pub struct RawSliceMut<T> {
    at: *mut T,
    length: usize,
}

// SAFETY: pointer and length.
unsafe impl<T: Plain> Abi for &[T] {
    type Raw = RawSlice<T>;
    const SHAPE: u64 = shape("&[]", &[T::SHAPE]);
    fn into_raw(self) -> RawSlice<T> {
        RawSlice::of(self)
    }
    unsafe fn from_raw(raw: RawSlice<T>) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe { raw.get() }
    }
}

// SAFETY: pointer and length.
unsafe impl<T: Plain> Abi for &mut [T] {
    type Raw = RawSliceMut<T>;
    const SHAPE: u64 = shape("&mut[]", &[T::SHAPE]);
    fn into_raw(self) -> RawSliceMut<T> {
        RawSliceMut { at: self.as_mut_ptr(), length: self.len() }
    }
    unsafe fn from_raw(raw: RawSliceMut<T>) -> Self {
        // SAFETY: guaranteed by the caller; numbers have no invalid values that the other side
        // could have written.
        unsafe { std::slice::from_raw_parts_mut(raw.at, raw.length) }
    }
}

// SAFETY: pointer and length.
unsafe impl Abi for &str {
    type Raw = RawSlice<u8>;
    const SHAPE: u64 = shape("&str", &[]);
    fn into_raw(self) -> RawSlice<u8> {
        RawSlice::of(self.as_bytes())
    }
    unsafe fn from_raw(raw: RawSlice<u8>) -> Self {
        // SAFETY: guaranteed by the caller.
        let bytes = unsafe { raw.get() };
        std::str::from_utf8(bytes).unwrap_or("")
    }
}

/// Memory of the other side, with the function that frees it there.
#[repr(C)]
#[derive(Debug)]
pub struct RawVec<T> {
    at: *mut T,
    length: usize,
    capacity: usize,
    free: Option<unsafe extern "C" fn(*mut T, usize)>,
}

unsafe extern "C" fn free<T>(at: *mut T, capacity: usize) {
    // SAFETY: called once, by the receiver of a `RawVec` with these parts.
    drop(unsafe { Vec::from_raw_parts(at, 0, capacity) });
}

impl<T: Plain> RawVec<T> {
    pub(crate) fn empty() -> Self {
        RawVec { at: std::ptr::dangling_mut(), length: 0, capacity: 0, free: None }
    }

    pub(crate) fn give(values: Vec<T>) -> Self {
        let mut values = std::mem::ManuallyDrop::new(values);
        let (at, length, capacity) = (values.as_mut_ptr(), values.len(), values.capacity());
        RawVec { at, length, capacity, free: Some(free::<T>) }
    }

    /// Copies it into memory of this side and has the other side free it.
    ///
    /// # Safety
    /// It must have been created by [`Self::give`] or [`Self::empty`], on either side.
    pub(crate) unsafe fn take(self) -> Vec<T> {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let values = std::slice::from_raw_parts(self.at, self.length).to_vec();
            if let Some(free) = self.free {
                free(self.at, self.capacity);
            }
            values
        }
    }
}

// SAFETY: pointer, lengths and a function.
unsafe impl<T: Plain> Abi for Vec<T> {
    type Raw = RawVec<T>;
    const SHAPE: u64 = shape("Vec", &[T::SHAPE]);
    fn into_raw(self) -> RawVec<T> {
        RawVec::give(self)
    }
    unsafe fn from_raw(raw: RawVec<T>) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe { raw.take() }
    }
}

// SAFETY: as a vector of bytes.
unsafe impl Abi for String {
    type Raw = RawVec<u8>;
    const SHAPE: u64 = shape("String", &[]);
    fn into_raw(self) -> RawVec<u8> {
        RawVec::give(self.into_bytes())
    }
    unsafe fn from_raw(raw: RawVec<u8>) -> Self {
        // SAFETY: guaranteed by the caller.
        let bytes = unsafe { raw.take() };
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// One of two values, or one or nothing, as `which` says.
#[repr(C)]
pub struct RawEither<A, B> {
    which: u8,
    first: MaybeUninit<A>,
    second: MaybeUninit<B>,
}

impl<A, B> std::fmt::Debug for RawEither<A, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawEither").field("which", &self.which).finish_non_exhaustive()
    }
}

// SAFETY: `which` and two fields of types with the same guarantees.
unsafe impl<T: Abi, E: Abi> Abi for Result<T, E> {
    type Raw = RawEither<T::Raw, E::Raw>;
    const SHAPE: u64 = shape("Result", &[T::SHAPE, E::SHAPE]);
    fn into_raw(self) -> Self::Raw {
        let (first, second) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        match self {
            Ok(value) => RawEither { which: 1, first: MaybeUninit::new(value.into_raw()), second },
            Err(error) => RawEither { which: 0, first, second: MaybeUninit::new(error.into_raw()) },
        }
    }
    unsafe fn from_raw(raw: Self::Raw) -> Self {
        // SAFETY: `into_raw` has filled the field that `which` names.
        unsafe {
            match raw.which {
                0 => Err(E::from_raw(raw.second.assume_init())),
                _ => Ok(T::from_raw(raw.first.assume_init())),
            }
        }
    }
}

// SAFETY: as a result whose error is nothing.
unsafe impl<T: Abi> Abi for Option<T> {
    type Raw = RawEither<T::Raw, u8>;
    const SHAPE: u64 = shape("Option", &[T::SHAPE]);
    fn into_raw(self) -> Self::Raw {
        self.ok_or(()).into_raw()
    }
    unsafe fn from_raw(raw: Self::Raw) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe { Result::<T, ()>::from_raw(raw) }.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round<T: Abi>(value: T) -> T {
        // SAFETY: just created; the memory that it borrows outlives this.
        unsafe { T::from_raw(value.into_raw()) }
    }

    #[test]
    fn values_come_out_as_they_went_in() {
        assert_eq!(round(7_u64), 7);
        assert!(round(true));
        assert_eq!(round(&[1_u8, 2][..]), [1, 2]);
        assert_eq!(round("text"), "text");
        assert_eq!(round(vec![1_u32, 2]), [1, 2]);
        assert_eq!(round(Vec::<u8>::new()), Vec::<u8>::new());
        assert_eq!(round(Some("owned".to_owned())), Some("owned".to_owned()));
        assert_eq!(round(None::<u8>), None);
        assert_eq!(round(Ok::<Vec<u8>, i32>(vec![9])), Ok(vec![9]));
        assert_eq!(round(Err::<Vec<u8>, i32>(-5)), Err(-5));
        let mut bytes = [0_u8; 4];
        round(&mut bytes[..])[2] = 7;
        assert_eq!(bytes, [0, 0, 7, 0]);
    }

    #[test]
    fn shapes_tell_types_apart() {
        let shapes = [
            <u32 as Abi>::SHAPE,
            <i32 as Abi>::SHAPE,
            <&[u8]>::SHAPE,
            <&mut [u8]>::SHAPE,
            <Option<u8>>::SHAPE,
            <Option<i8>>::SHAPE,
            <Result<u8, i32>>::SHAPE,
            <Result<i32, u8>>::SHAPE,
        ];
        let mut distinct = shapes.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), shapes.len());
    }
}
